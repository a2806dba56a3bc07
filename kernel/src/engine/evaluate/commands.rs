//! The table of evcxr's `:commands`: those that work here, and the replacements for those that do not.
//!
//! Commands are written above a cell's first line of Rust, as evcxr demands. A command that breaks later
//! cells, or without which they may mean something else, is refused before any line of the cell runs. This file runs no command itself.

/// The program that runs a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Runner {
    Evcxr,
    Kernel(KernelCommand),
}

/// A command that the kernel runs in place of evcxr.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum KernelCommand {
    /// `:clear`, which forgets all variables, definitions and crates.
    Clear,
    /// `:restart`, which forgets the variables.
    Restart,
    /// `:doc`, which shows the documentation of a name.
    Document,
    /// `:help`, which lists the commands.
    Help,
    /// A command that changes nothing here, with the reason or what to do instead.
    Explain(&'static str),
    /// `:show_deps`, which lists the crates that the user has added.
    ShowDependencies,
}

use KernelCommand::{Clear, Document, Explain, Help, Restart, ShowDependencies};
use Runner::{Evcxr, Kernel};

struct Command {
    name: &'static str,
    usage: Usage,
}

enum Usage {
    Works {
        /// The arguments that the command accepts; any argument if this list is empty.
        arguments: &'static [&'static str],
        runner: Runner,
        help: &'static str,
    },
    /// The command changes nothing here, and the cell goes on. The text says why, or what to do instead.
    WithoutEffect(&'static str),
    /// The command does not work here. The text says what to do instead.
    Refused(&'static str),
}

const fn works(name: &'static str, runner: Runner, help: &'static str) -> Command {
    Command { name, usage: Usage::Works { arguments: &[], runner, help } }
}

const fn one_of(name: &'static str, arguments: &'static [&'static str], help: &'static str) -> Command {
    Command { name, usage: Usage::Works { arguments, runner: Evcxr, help } }
}

const fn without_effect(name: &'static str, why: &'static str) -> Command {
    Command { name, usage: Usage::WithoutEffect(why) }
}

const fn refused(name: &'static str, instead: &'static str) -> Command {
    Command { name, usage: Usage::Refused(instead) }
}

/// All commands of evcxr, sorted.
const COMMANDS: &[Command] = &[
    without_effect(":allow_static_linking", "cells always link the one candle of the notebook"),
    works(":build_env", Evcxr, "sets a variable for the compiler, KEY=VALUE: env!(\"KEY\") in a cell reads it"),
    without_effect(":cache", "built crates are kept without it"),
    works(":clear", Kernel(Clear), "forgets all variables, definitions and crates; %undo takes it back"),
    without_effect(":clear_cache", "it is the cache of another program; Ferrotune keeps crates in a folder of its own"),
    without_effect(":codegen_backend", "cells are compiled by rustc's own backend"),
    works(":dep", Evcxr, "adds a crate: :dep NAME = \"VERSION\", or :dep PATH"),
    works(":doc", Kernel(Document), "shows the documentation of a name"),
    one_of(":efmt", &["", "{}", "{:?}"], "how an error at a `?` is shown, {} or {:?}"),
    refused(":env", "write %env KEY=VALUE"),
    works(":explain", Evcxr, "explains the compiler's last error"),
    without_effect(":fmt", "write println!(\"{:#?}\", value) for another form than {:?}"),
    works(":help", Kernel(Help), "lists the commands that work here"),
    refused(":internal_debug", "it is for those who change evcxr"),
    works(":last_compile_dir", Evcxr, "names the folder in which cells are compiled"),
    refused(":last_error_json", "the whole error is shown below its cell"),
    without_effect(":linker", "cells are linked with the linker that was found when the kernel started"),
    refused(":load_config", "write the lines of the settings file in a cell"),
    one_of(":offline", &["0", "1"], "whether cargo stays off the network, 0 or 1"),
    one_of(":opt", &["", "0", "1", "2", "3"], "how far cells are optimised, 0 to 3; 2 at first"),
    without_effect(":preserve_vars_on_panic", "a panic never loses a variable"),
    without_effect(":quit", "shut the kernel down in the front end"),
    works(":restart", Kernel(Restart), "forgets all variables; %undo takes it back"),
    without_effect(":sccache", "built crates are kept without it"),
    works(":show_deps", Kernel(ShowDependencies), "lists the crates that :dep has added"),
    works(":t", Evcxr, "shows the type of a variable, as :type does"),
    without_effect(":time_passes", "%time shows how long a cell takes to compile and to run"),
    without_effect(":timing", "%time shows how long a cell takes to compile and to run"),
    refused(":toolchain", "choose it with `rustup default` or RUSTUP_TOOLCHAIN, and restart the kernel"),
    works(":type", Evcxr, "shows the type of a variable"),
    without_effect(":types", "write :type NAME"),
    works(":vars", Evcxr, "lists the variables with their types"),
    works(":version", Evcxr, "shows the version of evcxr"),
];

/// A command in a cell.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::engine) struct Call {
    /// Index of the command's line in the cell.
    pub(in crate::engine) line: usize,
    pub(in crate::engine) name: &'static str,
    pub(in crate::engine) argument: String,
    pub(in crate::engine) runner: Runner,
}

/// The commands of a cell, in order.
///
/// # Errors
/// One line about a command that is unknown, that does not work here, or that does not accept its argument.
pub(in crate::engine) fn calls(source: &str) -> Result<Vec<Call>, String> {
    let lines = above_rust(source).enumerate();
    let split = lines.filter_map(|(line, (_, text))| split(text).map(|(name, argument)| (line, name, argument)));
    split.map(|(line, name, argument)| call(line, name, argument)).collect()
}

/// The lines above the first line of Rust, with their byte offsets.
pub(in crate::engine) fn above_rust(source: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut next = 0;
    let lines = source.split('\n').map(move |text| {
        let start = next;
        next += text.len() + 1;
        (start, text)
    });
    lines.take_while(|(_, text)| {
        let is_comment = text.starts_with('!') || text.starts_with("//") || text.trim().is_empty();
        is_comment || split(text).is_some()
    })
}

/// Name and argument of the command in a line, if there is one. Only spaces may come before it.
fn split(line: &str) -> Option<(&str, &str)> {
    let line = line.trim_start_matches(' ');
    line.starts_with(':').then(|| line.split_once(' ').unwrap_or((line, "")))
}

/// Whether a line above the Rust of a cell is a command.
pub(in crate::engine) fn is_command(line: &str) -> bool {
    split(line).is_some()
}

fn call(line: usize, name: &str, argument: &str) -> Result<Call, String> {
    let (name, argument) = (name.trim(), argument.trim());
    let command = COMMANDS.iter().find(|command| command.name == name);
    let Command { name, usage } =
        command.ok_or_else(|| format!("there is no command {name}; :help lists those that work"))?;
    let (arguments, runner) = match usage {
        Usage::Works { arguments, runner, .. } => (arguments, *runner),
        Usage::WithoutEffect(why) => {
            let runner = Kernel(Explain(why));
            return Ok(Call { line, name, argument: argument.to_owned(), runner });
        }
        Usage::Refused(instead) => return Err(format!("{name} does not work here; {instead}")),
    };
    if !arguments.is_empty() && !arguments.contains(&argument) {
        let known: Vec<_> = arguments.iter().filter(|known| !known.is_empty()).copied().collect();
        let given = if argument.is_empty() { "nothing" } else { argument };
        return Err(format!("{name} takes one of {}, and was given {given}", known.join(", ")));
    }
    Ok(Call { line, name, argument: argument.to_owned(), runner })
}

/// Names and descriptions of the commands that work.
fn working() -> impl Iterator<Item = (&'static str, &'static str)> {
    COMMANDS.iter().filter_map(|Command { name, usage }| match usage {
        Usage::Works { help, .. } => Some((*name, *help)),
        Usage::WithoutEffect(_) | Usage::Refused(_) => None,
    })
}

/// The rows of `:help`.
pub(in crate::engine) fn help() -> Vec<Vec<String>> {
    working().map(|(name, help)| vec![name.to_owned(), help.to_owned()]).collect()
}

/// The start of the command name at the cursor, and the working commands that begin with the typed part of that name.
pub(in crate::engine) fn complete(source: &str, cursor: usize) -> Option<(usize, Vec<&'static str>)> {
    let (start, text) = above_rust(source).find(|(start, text)| (*start..=start + text.len()).contains(&cursor))?;
    split(text)?;
    let typed = source[start..cursor].trim_start_matches(' ');
    let names = working().map(|(name, _)| name).filter(|name| name.starts_with(typed));
    (!typed.contains(' ')).then(|| (cursor - typed.len(), names.collect()))
}

/// The cell with spaces in place of its commands, which are not Rust.
pub(in crate::engine) fn blanked(source: &str) -> String {
    let mut blanked = source.to_owned();
    for (start, text) in above_rust(source) {
        if split(text).is_some() {
            blanked.replace_range(start..start + text.len(), &" ".repeat(text.len()));
        }
    }
    blanked
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(source: &str) -> Result<Vec<(usize, &'static str, String)>, String> {
        Ok(calls(source)?.into_iter().map(|call| (call.line, call.name, call.argument)).collect())
    }

    #[test]
    fn commands_stand_before_the_first_line_of_rust() {
        let source = "// text\n\n :dep itoa = \"1\" \n!ls\n:vars\nlet x = \"\n:clear\n\";";
        let expected = vec![(2, ":dep", "itoa = \"1\"".to_owned()), (4, ":vars", String::new())];
        assert_eq!(names(source), Ok(expected));
        assert_eq!(names("\t:quit"), Ok(vec![]));
    }

    #[test]
    fn what_does_not_work_is_refused_with_the_way_out() {
        let unknown = "there is no command :cler; :help lists those that work";
        assert_eq!(names(":vars\n:cler").unwrap_err(), unknown);
        let toolchain = ":toolchain does not work here; choose it with `rustup default` or RUSTUP_TOOLCHAIN, and restart \
                         the kernel";
        assert_eq!(names(":toolchain stable").unwrap_err(), toolchain);
        assert_eq!(names(":opt 9").unwrap_err(), ":opt takes one of 0, 1, 2, 3, and was given 9");
        assert_eq!(names(":offline").unwrap_err(), ":offline takes one of 0, 1, and was given nothing");
        assert!(names(":opt").is_ok());
    }

    #[test]
    fn a_cell_that_is_looked_at_keeps_its_length() {
        let source = ":restart\n:dep itoa = \"1\"\n// text\nlet x = \"\n:clear\n\";";
        let expected = "        \n               \n// text\nlet x = \"\n:clear\n\";";
        assert_eq!(blanked(source), expected);
    }

    #[test]
    fn the_name_of_a_command_is_completed() {
        assert_eq!(complete(":vars\n  :cl", 11), Some((8, vec![":clear"])));
        assert_eq!(complete(":t", 2), Some((0, vec![":t", ":type"])));
        assert_eq!(complete(":doc Ve", 7), None);
        assert_eq!(complete("let x = 1;\n:cl", 14), None);
    }

    #[test]
    fn commands_are_sorted() {
        assert!(COMMANDS.is_sorted_by_key(|command| command.name));
    }
}
