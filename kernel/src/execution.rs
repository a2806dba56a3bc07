//! What the server and the engine say to each other about one cell. No sockets and no compiler here.

use serde_json::{Map, Value};
use std::time::Instant;
use tokio::sync::{mpsc, oneshot};

/// A cell to run.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    /// Its source, magics included.
    pub(crate) code: String,
    /// Whether the front end answers requests for input.
    pub(crate) allow_stdin: bool,
    /// Whether `%undo` counts it: it is not one of a request's `user_expressions`.
    pub(crate) can_be_undone: bool,
    /// When its turn came; an interrupt after that is meant for it.
    pub(crate) begun_at: Instant,
}

/// One of the two text streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Stdout,
    Stderr,
}

/// What a cell gives while it runs, in order. `Done` comes once; output of background threads may follow it.
#[derive(Debug)]
pub(crate) enum Output {
    /// Text as it was written, partial lines included.
    Stream(Stream, String),
    /// `display_data`, or `update_display_data` where `update` is set.
    Display { data: Map<String, Value>, metadata: Map<String, Value>, display_id: Option<String>, update: bool },
    /// `clear_output`.
    Clear { wait: bool },
    /// `execute_result`: the value of the last expression.
    Result { data: Map<String, Value>, metadata: Map<String, Value> },
    /// The cell asks the user for a line; dropped `reply` means that there is no one to ask.
    Input { prompt: String, password: bool, reply: oneshot::Sender<String> },
    /// The cell has ended.
    Done(Result<(), Failure>),
}

/// Why a cell failed, in Jupyter's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// Short name of the kind of error: `CompilationError`, `Panic`, `MagicError`, `Interrupted`, …
    pub(crate) ename: String,
    /// One line.
    pub(crate) evalue: String,
    /// Lines to show, with ANSI colours.
    pub(crate) traceback: Vec<String>,
}

/// Completions of `start..end` (byte offsets into the cell).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Completions {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) matches: Vec<Completion>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Completion {
    pub(crate) text: String,
    /// Jupyter's `type`: `function`, `class`, `module`, `instance`, `keyword`, `magic`.
    pub(crate) kind: String,
}

/// What the engine's thread is asked to do, one after the other.
#[derive(Debug)]
pub(crate) enum Work {
    /// Run a cell.
    Execute { cell: Cell, outputs: mpsc::UnboundedSender<Output> },
    /// What may stand at the cursor.
    Complete { code: String, cursor: usize, reply: oneshot::Sender<Completions> },
    /// Documentation of what is at the cursor, as a MIME bundle; empty if there is none.
    Inspect { code: String, cursor: usize, reply: oneshot::Sender<Map<String, Value>> },
}

/// Whether a cell can be run as it stands (`is_complete_request`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Completeness {
    Complete,
    Incomplete { indent: String },
    Invalid,
}
