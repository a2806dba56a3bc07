//! The cells before the engine runs. The first cell that needs Rust installs the toolchain on a machine that has none. Magics that
//! need no Rust are answered before the installation. If an installation fails, the next cell tries to install again.

use super::evaluate::link::CellLink;
use super::handlers::read_only::help;
use super::{Interrupts, STOPPED_BEFORE, steps};
use crate::commands::setup::{Follower, Setup, Stopped};
use crate::execution::{Cell, LiveDisplay, Output, Payload, Work};
use crate::failure::{ErrorName, Failure};
use crate::prelude::shipped;
use crate::toolchain::own;
use ferrotune_display::Bundle;
use ferrotune_magics::{Action, Step};
use std::sync::mpsc::Receiver;

/// Waits for a cell that needs Rust, installs a missing toolchain, and returns the cell with its outputs attached to the link. None
/// when the kernel ends.
pub(super) fn wait(interrupts: &Interrupts, link: &CellLink, work: &Receiver<Work>) -> Option<Work> {
    for work in work {
        let Work::Execute { cell, outputs } = &work;
        link.begin_cell(None, outputs.clone(), cell.allow_stdin);
        match begin(interrupts, link, cell) {
            Begun::NeedsEngine => return Some(work),
            Begun::Ended(result) => link.emit(Output::Done(result)),
        }
    }
    None
}

enum Begun {
    /// The cell needs the engine, and the toolchain is installed.
    NeedsEngine,
    Ended(Result<(), Failure>),
}

fn begin(interrupts: &Interrupts, link: &CellLink, cell: &Cell) -> Begun {
    let Some(_running) = interrupts.begin_cell(cell) else {
        return Begun::Ended(Err(Failure::new(ErrorName::Interrupted, STOPPED_BEFORE)));
    };
    match answer(link, &cell.code) {
        Ok(true) => return Begun::Ended(Ok(())),
        Ok(false) => {}
        Err(failure) => return Begun::Ended(Err(failure)),
    }
    match ensure_toolchain(interrupts, link) {
        Ok(()) => Begun::NeedsEngine,
        Err(error) if error.is::<Stopped>() => Begun::Ended(Err(Failure::from_error(ErrorName::Interrupted, &error))),
        Err(error) => Begun::Ended(Err(Failure::from_error(ErrorName::EngineError, &error))),
    }
}

/// Answers a cell that has only blanks, comments and magics about magics. Returns whether the cell is such a cell.
fn answer(link: &CellLink, code: &str) -> Result<bool, Failure> {
    let steps = steps(code)?;
    let needs_nothing = |step: &Step| matches!(step, Step::Action(Action::Lsmagic { .. } | Action::Help { .. }));
    if !steps.iter().all(needs_nothing) {
        return Ok(false);
    }
    for step in steps {
        let output = match step {
            Step::Action(Action::Lsmagic { name: None }) => Output::display(Bundle::text(ferrotune_magics::lsmagic())),
            Step::Action(Action::Lsmagic { name: Some(name) }) => {
                Output::display(help(&name).map_err(Failure::of_magic)?)
            }
            Step::Action(Action::Help { name }) => {
                Output::Payload(Payload::Page(help(&name).map_err(Failure::of_magic)?.data))
            }
            _ => return Ok(false),
        };
        link.emit(output);
    }
    Ok(true)
}

/// Installs the toolchain, as `ferrotune setup` does, if there is none. Shows the progress in one changing line.
fn ensure_toolchain(interrupts: &Interrupts, link: &CellLink) -> anyhow::Result<()> {
    if shipped::installed_toolchain()?.is_some() {
        return Ok(());
    }
    let setup = Setup::of(own::VERSION)?;
    let sentence = setup.sentence();
    let mut display = LiveDisplay::new("ferrotune-toolchain".to_owned());
    let mut show = |text: String| link.emit(display.show(Bundle::text(text)));
    show(sentence.clone());
    setup.carry_out(&mut Follower {
        show: &mut |line| show(format!("{sentence}: {line}")),
        is_stopped: &|| interrupts.is_interrupted(),
    })?;
    show(format!("installed Rust {} in {}", own::VERSION, crate::folders::shortened(setup.folder())));
    Ok(())
}
