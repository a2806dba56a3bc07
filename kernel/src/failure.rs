//! The failure of a cell or a request, as Jupyter shows it: the name of the error, one line, and lines with colours.

use crate::chain;
use serde::Serialize;
use std::fmt;

/// The code for red text. It is never used with [`BOLD`], which makes JupyterLab show a red too dark for a dark page.
pub(crate) const RED: &str = "\x1b[31m";
pub(crate) const YELLOW: &str = "\x1b[33m";
pub(crate) const BLUE: &str = "\x1b[34m";
pub(crate) const BOLD: &str = "\x1b[1m";
pub(crate) const PLAIN: &str = "\x1b[0m";

/// Jupyter's `ename`: front ends show the names of these variants, and notebooks match on them, so they never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum ErrorName {
    /// The cell process ended.
    CellDied,
    /// A `:command` is unknown or does not work here.
    CommandError,
    /// The cell does not compile.
    CompilationError,
    /// A part of the kernel failed.
    EngineError,
    /// The engine's thread has ended.
    EngineStopped,
    /// The cell ended at a `?`, or evcxr refused it.
    Error,
    /// The user stopped the cell or the search.
    Interrupted,
    /// The content of a request cannot be read.
    InvalidRequest,
    /// A magic is misspelt, or cannot do what it is asked for.
    MagicError,
    /// A client asked for a debugger.
    NoDebugger,
    /// The cell held more memory than its limit or the machine allows.
    OutOfMemory,
    /// The cell panicked.
    Panic,
    /// A shell command failed.
    ShellError,
    /// A search failed.
    TuneError,
    /// The kernel has no subshell with the id in a request's header.
    UnknownSubshell,
    /// The kernel does not serve requests of this type.
    UnknownRequest,
}

impl fmt::Display for ErrorName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, formatter)
    }
}

/// The reason why a cell failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) name: ErrorName,
    /// One line: Jupyter's `evalue`.
    pub(crate) text: String,
    /// Lines to show, with ANSI colours.
    pub(crate) traceback: Vec<String>,
}

impl Failure {
    /// A failure that consists of one line.
    pub(crate) fn new(name: ErrorName, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { name, traceback: vec![format!("{RED}{name}{PLAIN}: {text}")], text }
    }

    /// The failure of a magic that cannot do what it is asked for.
    pub(crate) fn of_magic(error: anyhow::Error) -> Self {
        Self::from_error(ErrorName::MagicError, &error)
    }

    /// A failure whose text has several lines, of which the first line is the error.
    pub(crate) fn of_lines(name: ErrorName, text: &str) -> Self {
        // `evcxr_dummy_validate_dep` is the crate in which evcxr tries out a dependency.
        let text = text
            .replace("evcxr_dummy_validate_dep", "this notebook")
            .replace("prevent evcxr from attempting", "keep the notebook from trying");
        let mut lines = text.trim().lines();
        let mut failure = Self::new(name, lines.next().unwrap_or_default());
        failure.traceback.extend(lines.map(str::to_owned));
        failure
    }

    /// The failure as one of code in another place, with the name of the place.
    pub(crate) fn within(mut self, place: &str) -> Self {
        self.text = format!("{place}: {}", self.text);
        self.traceback.insert(0, format!("in {place}:"));
        self
    }

    /// A failure with the text of an error and of its causes.
    pub(crate) fn from_error(name: ErrorName, error: &anyhow::Error) -> Self {
        Self::new(name, chain::in_one_line(error))
    }
}
