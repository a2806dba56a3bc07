//! What the kernel hears from a cell process, its supervisor and the compiler of a cell.

use crate::{CommAction, CommAnswer, SupervisorReply};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// What a cell process, its supervisor or a compiler sends to the kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "frame", rename_all = "snake_case")]
pub enum KernelFrame {
    /// The first frame of a supervisor: this connection takes [`SupervisorOrder`](crate::SupervisorOrder)s.
    Supervisor,
    /// The first frame of a cell's compiler: this connection takes
    /// [`SupervisorOrder::Interrupt`](crate::SupervisorOrder::Interrupt) and no other order.
    Compiler,
    /// Text that the cell, or a thread of an earlier cell, wrote.
    Stream {
        /// The stream that it was written to.
        stream: Stream,
        /// The text; bytes that are not UTF-8 have been replaced.
        text: String,
    },
    /// Show something.
    Display {
        /// Its representations, by MIME type.
        data: Map<String, Value>,
        /// Metadata, by MIME type where it belongs to one.
        metadata: Map<String, Value>,
        /// Name under which it can be updated.
        display_id: Option<String>,
        /// Whether it replaces what was shown under that name.
        update: bool,
    },
    /// The value of the cell's last expression.
    Result {
        /// Its representations, by MIME type.
        data: Map<String, Value>,
        /// Metadata, by MIME type where it belongs to one.
        metadata: Map<String, Value>,
    },
    /// Clear the cell's output.
    Clear {
        /// Wait until the next output comes.
        wait: bool,
    },
    /// The cell process has another working folder or environment than before.
    Surroundings {
        /// What it has now.
        surroundings: Surroundings,
    },
    /// Ask the user for a line. The answer is [`Answer::Line`].
    Input {
        /// The prompt.
        prompt: String,
        /// Whether the front end hides what the user types.
        password: bool,
    },
    /// Do something with a comm. The answer is [`Answer::Comm`], or [`Answer::Done`] where there is nothing to tell.
    Comm {
        /// What to do.
        action: CommAction,
    },
    /// Begin a search. The answer comes once the search's supervisor holds everything it needs, or has refused.
    Tune {
        /// The cell process that holds the shared data.
        pid: u32,
        /// Path of the shared object with the objective.
        library: String,
        /// The objective's entry point.
        symbol: String,
        /// File descriptor of the shared data, in the cell process.
        shared_fd: Option<i32>,
        /// The device that is connected.
        device: String,
        /// The seed that was given to `ferrotune::seed`.
        seed: Option<u64>,
        /// Where the search begins, as `file:line:column`: a place in the objective's source.
        location: String,
    },
    /// What a supervisor makes of a frame that the kernel answers.
    Asked {
        /// The answer carries the same number.
        number: u64,
        /// The cell's frame: [`KernelFrame::Input`], [`KernelFrame::Comm`] or [`KernelFrame::Tune`].
        question: Box<KernelFrame>,
    },
    /// A panic began on the cell's thread; the cell may still catch it.
    Panic {
        /// The panic's message.
        message: String,
        /// `file:line:column` in the generated source.
        location: Option<String>,
    },
    /// A panic ended the cell: that of the last [`KernelFrame::Panic`], or one that another thread passed on.
    Panicked,
    /// Through which places a panic came that has ended the cell, from the innermost to the outermost.
    Backtrace {
        /// `file:line:column`, in generated sources and elsewhere.
        locations: Vec<String>,
    },
    /// Text for the standard error with a place in it.
    Located {
        /// What stands before the place.
        before: String,
        /// `file:line:column`, in a generated source or elsewhere.
        location: String,
        /// What stands behind the place.
        after: String,
    },
    /// The cell ended at a `?`, or could not be run.
    Failed {
        /// The error's text.
        message: String,
        /// `file:line:column` of the `?` in the generated source.
        location: Option<String>,
    },
    /// What a cell under `%%profile` has recorded.
    Profile {
        /// The trace as JSON, with `file:line:column` for each loop.
        trace: String,
    },
    /// The connected device has recorded, too, as a file that was asked for.
    DeviceProfile {
        /// Why there is no such file, unless there is.
        failure: Option<String>,
    },
    /// Where the threads of a cell have used CPU time.
    Sampled {
        /// The samples as JSON.
        samples: String,
    },
    /// A cell has run without being sampled.
    Unsampled {
        /// Why.
        reason: String,
    },
    /// What the compiler warns of in the source that it has just compiled, each as rustc's JSON. Replaces earlier warnings.
    Warnings {
        /// The diagnostics.
        diagnostics: Vec<Value>,
    },
    /// The cell was not run, because the user had stopped it before.
    Cancelled,
    /// The cell was not run, because the types of some variables have been defined anew. They have been dropped.
    Changed {
        /// Names of the variables.
        names: Vec<String>,
    },
    /// The reply to a [`SupervisorOrder::Request`](crate::SupervisorOrder::Request).
    Reply {
        /// The request's number.
        number: u64,
        /// The reply.
        reply: SupervisorReply,
    },
    /// The process that held the variables has ended, and its snapshot has taken its place.
    Restored {
        /// How it ended.
        ending: CellEnding,
        /// Names of the threads of earlier cells, which did not come along.
        threads: Vec<String>,
        /// Whether a cell was running.
        running: bool,
    },
    /// There is no snapshot of the state after the last cell.
    Unguarded {
        /// Why not.
        reason: String,
    },
    /// The process that held the variables has ended, and no snapshot could take its place. Another process has been
    /// started, without variables.
    Died {
        /// How it ended.
        ending: CellEnding,
    },
}

/// What a program finds that is started from the cell process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Surroundings {
    /// The working folder; none where it has been deleted.
    pub folder: Option<String>,
    /// The environment variables that have been set since the process began, and those that have been removed since.
    pub changed: BTreeMap<String, Option<String>>,
}

/// How a cell process ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ending", rename_all = "snake_case")]
pub enum CellEnding {
    /// It exited.
    Exited {
        /// Its exit status.
        code: i32,
    },
    /// A signal ended it.
    Signalled {
        /// The signal's number.
        signal: i32,
    },
    /// It held too much memory and was killed.
    OutOfMemory {
        /// The most that it was seen to hold, in bytes.
        peak_bytes: u64,
        /// The limit that it exceeded; none where the machine ran out of memory.
        limit_bytes: Option<u64>,
    },
    /// It did not stop after an interrupt and was killed.
    Stopped,
    /// The cell failed after it had moved variables. The process was killed, because the snapshot still has them.
    TakenBack,
}

/// One of the two text streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// What a cell gets back for each frame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Answer {
    /// The frame has been passed on, and so has everything that was printed before it.
    Done,
    /// What the user typed; `None` where the front end takes no input.
    Line {
        /// The line, without its end.
        text: Option<String>,
    },
    /// What the cell learns of a comm.
    Comm {
        /// It.
        learned: CommAnswer,
    },
    /// It could not be done.
    Refused {
        /// One line: what is wrong and what to do.
        reason: String,
    },
}
