//! The messages between the server and the engine. No sockets and no compiler here.

use crate::failure::Failure;
use ferrotune_display::Bundle;
pub(crate) use ferrotune_link::Stream;
use ferrotune_link::{Answer, CommAction};
use serde_json::{Map, Value};
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
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
    /// The number that Jupyter shows beside it; none if it shows none.
    pub(crate) count: Option<u32>,
    /// When the request came: a later interrupt stops this cell, an earlier one does not.
    pub(crate) sent_at: Instant,
    /// The subshell that it was sent to; none for the main shell. An interrupt stops what waits in one shell.
    pub(crate) subshell: Option<String>,
}

/// What a cell puts out while it runs, in order. `Done` comes once; output of background threads may follow it.
#[derive(Debug)]
pub(crate) enum Output {
    /// Text as it was written, partial lines included.
    Stream(Stream, String),
    /// `display_data`, or `update_display_data` where `update` is set.
    Display { data: Map<String, Value>, metadata: Map<String, Value>, display_id: Option<String>, update: bool },
    /// A display that goes on changing after the page has been loaded anew, where the front end has widgets.
    Lasting { display_id: String, bundle: Bundle, stage: Stage },
    /// `clear_output`.
    Clear { wait: bool },
    /// `execute_result`: the value of the last expression.
    Result { data: Map<String, Value>, metadata: Map<String, Value> },
    /// The cell asks the user for a line; a dropped `reply` means that nobody answers.
    Input { prompt: String, password: bool, reply: oneshot::Sender<String> },
    /// The cell wants the cells of this session; a dropped `reply` means that nobody answers.
    History { range: RangeInclusive<u32>, reply: oneshot::Sender<Vec<(u32, String)>> },
    /// The cell does something with a comm; a dropped `reply` means that nobody keeps comms.
    Comm { action: CommAction, reply: oneshot::Sender<Answer> },
    /// A search runs that this button stops. It is shown where front ends have widgets.
    StopButton { id: String, press: Press },
    /// That search has ended, and its button goes.
    StopButtonGone { id: String },
    /// What the front end is to do when the cell has ended well.
    Payload(Payload),
    /// The cell has ended.
    Done(Result<(), Failure>),
}

impl Output {
    /// Something to show that never changes.
    pub(crate) fn display(bundle: Bundle) -> Self {
        Self::Display { data: bundle.data, metadata: bundle.metadata, display_id: None, update: false }
    }
}

/// What a press of a button does, in a thread of the server.
#[derive(Clone)]
pub(crate) struct Press(Arc<dyn Fn() + Send + Sync>);

impl Press {
    pub(crate) fn new(act: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Arc::new(act))
    }

    pub(crate) fn act(&self) {
        (self.0)();
    }
}

impl fmt::Debug for Press {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Press")
    }
}

/// What a front end is to do when a cell has ended, beside showing its outputs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Payload {
    /// Show a MIME bundle in a pager: help and documentation.
    Page(Map<String, Value>),
    /// Put this text in place of the cell's.
    ReplaceCell(String),
    /// Put this text into a new cell below.
    NextCell(String),
}

/// How far a lasting display is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    First,
    Later,
    /// The display changes no more, and the notebook keeps this.
    Last,
}

/// A display that changes: each bundle replaces the one before.
#[derive(Debug)]
pub(crate) struct LiveDisplay {
    id: String,
    is_shown: bool,
    is_lasting: bool,
}

impl LiveDisplay {
    pub(crate) fn new(id: String) -> Self {
        Self { id, is_shown: false, is_lasting: false }
    }

    /// The same as [`Output::Lasting`]. It ends with [`LiveDisplay::end`].
    pub(crate) fn lasting(id: String) -> Self {
        Self { is_lasting: true, ..Self::new(id) }
    }

    pub(crate) fn is_shown(&self) -> bool {
        self.is_shown
    }

    /// The output that shows the bundle in this display's place.
    pub(crate) fn show(&mut self, bundle: Bundle) -> Output {
        let stage = if self.is_shown { Stage::Later } else { Stage::First };
        self.output(bundle, stage)
    }

    /// The output that shows the last bundle.
    pub(crate) fn end(&mut self, bundle: Bundle) -> Output {
        // What was never shown has nothing that this could replace.
        let stage = if self.is_shown { Stage::Last } else { Stage::First };
        self.output(bundle, stage)
    }

    fn output(&mut self, bundle: Bundle, stage: Stage) -> Output {
        self.is_shown = true;
        let display_id = self.id.clone();
        if self.is_lasting {
            return Output::Lasting { display_id, bundle, stage };
        }
        let (display_id, update) = (Some(display_id), stage != Stage::First);
        Output::Display { data: bundle.data, metadata: bundle.metadata, display_id, update }
    }
}

/// What may replace `start..end`, which are byte offsets into the cell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Completions {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) matches: Vec<Completion>,
}

impl Completions {
    pub(crate) fn none(cursor: usize) -> Self {
        Self { start: cursor, end: cursor, matches: Vec::new() }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Completion {
    pub(crate) text: String,
    /// Jupyter's `type`: `function`, `class`, `module`, `instance`, `keyword`, `magic`, `path`.
    pub(crate) kind: String,
    /// The type of a value or the signature of a function; empty for all else.
    pub(crate) signature: String,
}

/// What the engine's thread does, one after the other.
#[derive(Debug)]
pub(crate) enum Work {
    /// Run a cell.
    Execute { cell: Cell, outputs: mpsc::UnboundedSender<Output> },
}

/// What is answered beside the cells, one after the other. A dropped `reply` means that there is no answer.
#[derive(Debug)]
pub(crate) enum Question {
    /// Complete the code at the cursor.
    Complete { code: String, cursor: usize, reply: oneshot::Sender<Completions> },
    /// Document what is at the cursor, as a MIME bundle; empty if there is no documentation.
    Inspect { code: String, cursor: usize, reply: oneshot::Sender<Map<String, Value>> },
    /// Run a cell that only looks.
    Look { code: String, outputs: mpsc::UnboundedSender<Output> },
}

/// Whether a cell can be run as it stands (`is_complete_request`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Completeness {
    Complete,
    Incomplete { indent: String },
    Invalid,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_live_display_is_shown_once_and_then_updated() {
        let mut display = LiveDisplay::new("id".to_owned());
        let updates = ["first", "second", "third"].map(|text| match display.show(Bundle::text(text)) {
            Output::Display { display_id, update, .. } => (display_id, update),
            other => panic!("{other:?}"),
        });
        assert_eq!(updates, [false, true, true].map(|update| (Some("id".to_owned()), update)));
    }
}
