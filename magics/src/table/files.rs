//! The magics that read and write files.

use crate::action::{Action, Load, WriteFile};
use crate::arguments::Arguments;
use crate::error::MagicError;
use crate::magic::{Argument, Invocation, Magic, MagicOption, Values};
use crate::values::lines;

const APPEND: MagicOption = MagicOption::flag("-a", "write behind what the file has");
const LINES: MagicOption = MagicOption::new("-r", "FIRST-LAST", "only these lines, as in 5-10, 5- or 5");

pub(super) const LOAD: Magic = Magic {
    forms: &["%load"],
    usage: "%load PATH {options}",
    summary: "put a file into the cell, in place of what stands there",
    help: "Run the cell again to run it. Of a notebook, the code of its cells is loaded.\n\nExample\n  %load model.rs -r 1-40",
    arguments: &[Argument::new("PATH", Values::Path)],
    options: &[LINES],
    runs_line: false,
    build: load,
};

pub(super) const RUN: Magic = Magic {
    forms: &["%run"],
    usage: "%run PATH",
    summary: "run a notebook or a file of Rust, as if it stood in this cell",
    help: "The cells of a notebook run one after the other, their magics included; the first error stops it and is\n\
           shown with the cell's place. Later cells see what it defines. If a file of Rust has a function main,\n\
           it is called. %undo takes all of it back.\n\
           \n\
           Example\n  %run prepare.ipynb",
    arguments: &[Argument::new("PATH", Values::Path)],
    options: &[],
    runs_line: false,
    build: run,
};

pub(super) const WRITEFILE: Magic = Magic {
    forms: &["%%writefile"],
    usage: "%%writefile {options} PATH on the first line of a cell, and the text below",
    summary: "write the cell to a file",
    help: "A file that exists is overwritten, whole or not at all; its folder must exist.\n\
           \n\
           Example\n  %%writefile model.rs\n  struct Mlp { layers: Vec<Linear> }",
    arguments: &[Argument::new("PATH", Values::Path)],
    options: &[APPEND],
    runs_line: false,
    build: writefile,
};

fn load(invocation: &Invocation<'_>) -> Result<Action, MagicError> {
    let arguments = Arguments::read(invocation)?;
    let [path] = arguments.all(["of the file"])?;
    Ok(Action::Load(Load { path, lines: arguments.option(&LINES, lines)? }))
}

fn run(invocation: &Invocation<'_>) -> Result<Action, MagicError> {
    let [path] = Arguments::read(invocation)?.all(["of a notebook or of a file of Rust"])?;
    Ok(Action::Run { path })
}

fn writefile(invocation: &Invocation<'_>) -> Result<Action, MagicError> {
    let arguments = Arguments::read(invocation)?;
    let [path] = arguments.all(["of the file"])?;
    let text = invocation.body.unwrap_or_default().to_owned();
    Ok(Action::WriteFile(WriteFile { path, append: arguments.has(&APPEND), text }))
}
