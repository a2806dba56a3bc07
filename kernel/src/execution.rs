//! The messages between the server and the engine. This module has no sockets and no compiler.

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
    /// The source of the cell, magics included.
    pub(crate) code: String,
    /// Whether the front end answers requests for input.
    pub(crate) allow_stdin: bool,
    /// Whether `%undo` counts the cell: false for a request's `user_expressions`.
    pub(crate) can_be_undone: bool,
    /// The execution count that Jupyter shows beside the cell; none if it shows none.
    pub(crate) count: Option<u32>,
    /// When the request arrived: a later interrupt stops this cell, an earlier interrupt does not.
    pub(crate) sent_at: Instant,
    /// The subshell that the cell was sent to; none for the main shell. An interrupt stops the waiting cells of one shell.
    pub(crate) subshell: Option<String>,
}

/// An output of a cell. `Done` comes once; output of background threads may follow it.
#[derive(Debug)]
pub(crate) enum Output {
    /// Text as it was written, partial lines included.
    Stream(Stream, String),
    /// A MIME bundle for `display_data`, or for `update_display_data` if `update` is set.
    Display { data: Map<String, Value>, metadata: Map<String, Value>, display_id: Option<String>, update: bool },
    /// A display that still changes after the page has been loaded anew, if the front end has widgets.
    Lasting { display_id: String, bundle: Bundle, stage: Stage },
    /// The order to clear the cell's outputs, `clear_output`.
    Clear { wait: bool },
    /// The value of the last expression, for `execute_result`.
    Result { data: Map<String, Value>, metadata: Map<String, Value> },
    /// The cell asks the user for a line; a dropped `reply` means that there is no answer.
    Input { prompt: String, password: bool, reply: oneshot::Sender<String> },
    /// The cell asks for the sources of earlier cells of this session; a dropped `reply` means that there is no answer.
    History { range: RangeInclusive<u32>, reply: oneshot::Sender<Vec<(u32, String)>> },
    /// The cell acts on a comm; a dropped `reply` means that there are no comms.
    Comm { action: CommAction, reply: oneshot::Sender<Answer> },
    /// A button that stops a running search, which is shown if front ends have widgets.
    StopButton { id: String, press: Press },
    /// The end of a search, whose button is removed.
    StopButtonGone { id: String },
    /// An action of the front end after a cell without error.
    Payload(Payload),
    /// The cell has ended.
    Done(Result<(), Failure>),
}

impl Output {
    /// A display that never changes.
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
    /// Replace the cell's text by this text.
    ReplaceCell(String),
    /// Put this text into a new cell below.
    NextCell(String),
}

/// The stage of a lasting display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    First,
    Later,
    /// The display does not change any more, and the notebook keeps this bundle.
    Last,
}

/// A display that changes: each bundle replaces the bundle before.
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

    /// A display that is shown as [`Output::Lasting`]. It ends with [`LiveDisplay::end`].
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
        // If the display was never shown, there is nothing that the last bundle could replace.
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

/// Completions that may replace `start..end`, which are byte offsets into the cell.
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
    /// The type of a value or the signature of a function; empty for everything else.
    pub(crate) signature: String,
}

/// A task for the engine's thread, which does its tasks one after the other.
#[derive(Debug)]
pub(crate) enum Work {
    /// Run a cell.
    Execute { cell: Cell, outputs: mpsc::UnboundedSender<Output> },
}

/// A question that is answered while cells run, one question after the other. A dropped `reply` means that there is no answer.
#[derive(Debug)]
pub(crate) enum Question {
    /// Complete the code at the cursor.
    Complete { code: String, cursor: usize, reply: oneshot::Sender<Completions> },
    /// Document the item at the cursor, as a MIME bundle; empty if there is no documentation.
    Inspect { code: String, cursor: usize, reply: oneshot::Sender<Map<String, Value>> },
    /// Run a cell that only looks, without a change of the cell process.
    Look { code: String, outputs: mpsc::UnboundedSender<Output> },
}

/// Whether a cell can be run in its present form (`is_complete_request`).
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
