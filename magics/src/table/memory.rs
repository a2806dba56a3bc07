//! The magics for memory and for going back to an earlier state.

use crate::action::{Action, Memory};
use crate::arguments::Arguments;
use crate::error::MagicError;
use crate::magic::{Argument, Invocation, Magic, Values};
use crate::quantity;
use crate::values::{count, text};

pub(super) const CHECKPOINT: Magic = Magic {
    forms: &["%checkpoint"],
    usage: "%checkpoint NAME",
    summary: "keep the variables as they are now",
    help: "%restore NAME brings them back, as often as you like, with all that was defined then. Costs the memory of\n\
           what changes afterwards, which %checkpoints shows. A NAME that exists is replaced.\n\
           \n\
           Example\n  %checkpoint trained",
    arguments: &[Argument::new("NAME", Values::Checkpoint)],
    options: &[],
    runs_line: false,
    build: checkpoint,
};

pub(super) const CHECKPOINTS: Magic = Magic {
    forms: &["%checkpoints"],
    usage: "%checkpoints",
    summary: "list the states that %undo and %restore can bring back",
    help: "Their names, their age and the memory that each one costs by itself. States without a name are for %undo.\n\
           \n\
           Example\n  %checkpoints",
    arguments: &[],
    options: &[],
    runs_line: false,
    build: checkpoints,
};

pub(super) const GC: Magic = Magic {
    forms: &["%gc"],
    usage: "%gc [all]",
    summary: "give memory that cells have freed back to the machine, and say how much that was",
    help: "Rust frees a value when its variable goes. The allocator keeps that memory while a cell runs, and gives it\n\
           back after the cell; %gc does so again, for what threads of cells have freed since. The snapshots for\n\
           %undo hold memory, too. %gc all also deletes these snapshots: no cell can be undone then.\n\
           \n\
           Example\n  %gc",
    arguments: &[Argument::new("all", Values::Words(&["all"]))],
    options: &[],
    runs_line: false,
    build: gc,
};

pub(super) const MEMORY: Magic = Magic {
    forms: &["%memory"],
    usage: "%memory, %memory watch, or %memory limit SIZE|none",
    summary: "show who holds how much memory, or limit what a cell may hold",
    help: "Shows the process of the cells, its snapshots, running trials, the kernel, the limit that applies, and\n\
           what the last trials of the notebook's study took of the machine's memory and gave back.\n\
           %memory watch keeps the table up to date once a second until the next %memory.\n\
           %memory limit stops a cell that holds more than SIZE, and brings the variables back to what they were\n\
           before it. Without a limit that happens when the machine or the container is about to run out.\n\
           Memory that the running cell has freed and that the allocator keeps counts as the cell's.\n\
           \n\
           Example\n  %memory limit 6GiB",
    arguments: &[Argument::new("watch|limit", Values::Words(&["watch", "limit"]))],
    options: &[],
    runs_line: false,
    build: memory,
};

pub(super) const RESTORE: Magic = Magic {
    forms: &["%restore"],
    usage: "%restore NAME",
    summary: "bring back the variables of a checkpoint",
    help: "Variables and definitions are then as they were when %checkpoint NAME ran; %undo goes back again.\n\
           Threads do not come back.\n\
           \n\
           Example\n  %restore trained",
    arguments: &[Argument::new("NAME", Values::Checkpoint)],
    options: &[],
    runs_line: false,
    build: restore,
};

pub(super) const UNDO: Magic = Magic {
    forms: &["%undo"],
    usage: "%undo [COUNT]",
    summary: "go back to the state before the last cells",
    help: "COUNT cells, one if it is left out; the last 5 cells that ran can be undone, fewer where memory is short.\n\
           Variables and definitions are then as they were before. What a cell did outside of its process, to files\n\
           for example, is not undone.\n\
           \n\
           Example\n  %undo 2",
    arguments: &[Argument::new("COUNT", Values::Any)],
    options: &[],
    runs_line: false,
    build: undo,
};

fn undo(invocation: &Invocation<'_>) -> Result<Action, MagicError> {
    Ok(Action::Undo { count: Arguments::read(invocation)?.first(count)?.unwrap_or(1) })
}

fn checkpoint(invocation: &Invocation<'_>) -> Result<Action, MagicError> {
    Ok(Action::Checkpoint { name: name(invocation)? })
}

fn restore(invocation: &Invocation<'_>) -> Result<Action, MagicError> {
    Ok(Action::Restore { name: name(invocation)? })
}

fn name(invocation: &Invocation<'_>) -> Result<String, MagicError> {
    let [name] = Arguments::read(invocation)?.all(["of the checkpoint"])?;
    Ok(name)
}

fn checkpoints(invocation: &Invocation<'_>) -> Result<Action, MagicError> {
    Arguments::read(invocation).map(|_| Action::Checkpoints)
}

fn gc(invocation: &Invocation<'_>) -> Result<Action, MagicError> {
    match Arguments::read(invocation)?.first(text)?.as_deref() {
        None => Ok(Action::Gc { all: false }),
        Some("all") => Ok(Action::Gc { all: true }),
        Some(other) => Err(invocation.bad_value("%gc", other, "write %gc or %gc all")),
    }
}

fn memory(invocation: &Invocation<'_>) -> Result<Action, MagicError> {
    let words: Vec<&str> = invocation.rest.split_whitespace().collect();
    let bad = |argument: &'static str, cure: &str| Err(invocation.bad_value(argument, invocation.rest.trim(), cure));
    let memory = match words[..] {
        [] => Memory::Show,
        ["watch"] => Memory::Watch,
        ["limit", "none"] => Memory::Limit { bytes: None },
        ["limit", size] => match quantity::bytes(size) {
            Ok(bytes) => Memory::Limit { bytes: Some(bytes) },
            Err(cure) => return Err(invocation.bad_value("SIZE", size, cure)),
        },
        ["limit"] => return bad("limit", "give a size such as 6GiB, or none"),
        _ => return bad("%memory", "write %memory, %memory watch, %memory limit 6GiB or %memory limit none"),
    };
    Ok(Action::Memory(memory))
}
