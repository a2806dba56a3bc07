//! The frames that the kernel receives from a cell process, from its supervisor and from the compiler of a cell.

use crate::{CommAction, SupervisorReply, Surroundings};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A frame that a cell process, its supervisor or a compiler sends to the kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "frame", rename_all = "snake_case")]
pub enum KernelFrame {
    /// The first frame of a supervisor: the kernel sends [`SupervisorOrder`](crate::SupervisorOrder)s over this connection.
    Supervisor,
    /// The first frame of a cell's compiler: over this connection the kernel sends
    /// [`SupervisorOrder::Interrupt`](crate::SupervisorOrder::Interrupt) and no other order.
    Compiler,
    /// The peer is a compiler that serves no cell. It is not interrupted, and nothing of it is shown.
    Aside,
    /// Text that the cell, or a thread of an earlier cell, has written to a text stream.
    Stream {
        /// The stream: standard output or standard error.
        stream: Stream,
        /// The text, in which bytes that are not UTF-8 have been replaced.
        text: String,
    },
    /// A MIME bundle to display.
    Display {
        /// The representations of the value, by MIME type.
        data: Map<String, Value>,
        /// Metadata of the bundle, by MIME type where an entry belongs to one representation.
        metadata: Map<String, Value>,
        /// The display id, by which a later frame can update the output.
        display_id: Option<String>,
        /// Whether this output replaces the earlier output with the same display id.
        update: bool,
    },
    /// The value of the cell's last expression.
    Result {
        /// The representations of the value, by MIME type.
        data: Map<String, Value>,
        /// Metadata of the bundle, by MIME type where an entry belongs to one representation.
        metadata: Map<String, Value>,
    },
    /// A request to clear the cell's output.
    Clear {
        /// Whether to clear only when the next output comes.
        wait: bool,
    },
    /// The cell process has changed its working folder or its environment variables.
    Surroundings {
        /// The new folder and environment variables.
        surroundings: Surroundings,
    },
    /// A request for a line of text from the user. The answer is [`Answer::Line`](crate::Answer::Line).
    Input {
        /// The prompt.
        prompt: String,
        /// Whether the front end hides what the user types.
        password: bool,
    },
    /// An operation on a comm. The answer is [`Answer::Comm`](crate::Answer::Comm), or [`Answer::Done`](crate::Answer::Done) for an operation without a result.
    Comm {
        /// The operation.
        action: CommAction,
    },
    /// A request to begin a search. The answer comes once the search's supervisor holds everything it needs, or has refused.
    Tune {
        /// The cell process that holds the shared data.
        pid: u32,
        /// Path of the shared object with the objective.
        library: String,
        /// The objective's entry point.
        symbol: String,
        /// File descriptor of the shared data, in the cell process.
        shared_fd: Option<i32>,
        /// Name of the device that the notebook is connected to.
        device: String,
        /// The seed that was given to `ferrotune::seed`.
        seed: Option<u64>,
        /// The place in the objective's source where the search begins, as `file:line:column`.
        location: String,
    },
    /// A supervisor's envelope for a cell's frame that the kernel has to answer.
    Asked {
        /// The number of the question; the answer carries the same number.
        number: u64,
        /// The cell's frame: [`KernelFrame::Input`], [`KernelFrame::Comm`] or [`KernelFrame::Tune`].
        question: Box<KernelFrame>,
    },
    /// A panic began on the cell's thread; the cell may still catch it.
    Panic {
        /// The panic's message.
        message: String,
        /// The panic's location, as `file:line:column` in the generated source.
        location: Option<String>,
    },
    /// A panic has ended the cell: the panic of the last [`KernelFrame::Panic`], or one that another thread passed on.
    Panicked,
    /// The source locations through which a fatal panic unwound, from the innermost to the outermost.
    Backtrace {
        /// The locations as `file:line:column`, in generated sources and elsewhere.
        locations: Vec<String>,
    },
    /// Text for the standard error that contains a source location.
    Located {
        /// The text before the location.
        before: String,
        /// The location as `file:line:column`, in a generated source or elsewhere.
        location: String,
        /// The text after the location.
        after: String,
    },
    /// The cell ended at a `?`, or could not be run.
    Failed {
        /// The error's text.
        message: String,
        /// The location of the `?`, as `file:line:column` in the generated source.
        location: Option<String>,
    },
    /// The profile that a cell under `%%profile` has recorded.
    Profile {
        /// The trace as JSON, with `file:line:column` for each loop.
        trace: String,
    },
    /// The connected device has finished its own profile, which the user asked for as a file.
    DeviceProfile {
        /// The reason why the file was not written; none on success.
        failure: Option<String>,
    },
    /// The CPU time of a cell's threads, by stack.
    Sampled {
        /// The samples as JSON.
        samples: String,
    },
    /// A cell has run without being sampled.
    Unsampled {
        /// The reason why there are no samples.
        reason: String,
    },
    /// The compiler's warnings about the source that it has just compiled, each as rustc's JSON. They replace earlier warnings.
    Warnings {
        /// The diagnostics.
        diagnostics: Vec<Value>,
    },
    /// The cell was not run, because the user had interrupted it before it began.
    Cancelled,
    /// The cell was not run, because the types of some variables have been redefined. Those variables have been dropped.
    Changed {
        /// Names of the variables.
        names: Vec<String>,
    },
    /// The reply to a [`SupervisorOrder::Request`](crate::SupervisorOrder::Request).
    Reply {
        /// The request's number.
        number: u64,
        /// The content of the reply.
        reply: SupervisorReply,
    },
    /// The process that held the variables has ended, and its snapshot has replaced it.
    Restored {
        /// How the process ended.
        ending: CellEnding,
        /// Names of the threads of earlier cells, which the snapshot does not have.
        threads: Vec<String>,
        /// Whether a cell was running when the process ended.
        running: bool,
    },
    /// The state after the last cell has no snapshot.
    Unguarded {
        /// The reason why there is no snapshot.
        reason: String,
    },
    /// The process that held the variables has ended, and no snapshot could replace it. A new process without variables has been
    /// started.
    Died {
        /// How the process ended.
        ending: CellEnding,
    },
}

/// The way in which a cell process ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ending", rename_all = "snake_case")]
pub enum CellEnding {
    /// The process exited by itself.
    Exited {
        /// The exit status.
        code: i32,
    },
    /// A signal ended the process.
    Signalled {
        /// The signal's number.
        signal: i32,
    },
    /// The process used too much memory and was killed.
    OutOfMemory {
        /// The largest memory use that was measured, in bytes.
        peak_bytes: u64,
        /// The limit that the process exceeded, in bytes; none where the machine ran out of memory.
        limit_bytes: Option<u64>,
    },
    /// The process did not stop after an interrupt and was killed.
    Stopped,
    /// The cell failed after it had moved variables. The process was killed, because its snapshot still has these variables.
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
