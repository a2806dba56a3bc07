//! Why a call of a trial fails. A trial that is told to stop fails on purpose, so that `?` leaves the objective.

use std::error::Error;
use std::io;
use std::path::PathBuf;

/// The result of everything that an objective does: `?` takes candle's errors, this crate's and any other.
pub type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

/// Why a call of a trial fails.
#[derive(Debug, thiserror::Error)]
pub enum TrialError {
    /// The search is being stopped; the trial goes on from its last checkpoint another time.
    #[error("the search is being stopped")]
    Stopped,
    /// The oracle gives up on this trial.
    #[error("the oracle gave up on this trial")]
    Pruned,
    /// The supervisor refuses the request.
    #[error("{reason}")]
    Refused {
        /// What is wrong and what to do.
        reason: String,
    },
    /// There is no supervisor to talk to.
    #[error("no connection to the search's supervisor: {source}; objectives are run by %%tune")]
    Connection {
        /// The system's reason.
        source: io::Error,
    },
    /// The supervisor's answer is none that this version knows.
    #[error("the supervisor answered {answer}; kernel and prelude are of different versions: run `ferrotune install`")]
    Answer {
        /// The answer.
        answer: String,
    },
    /// A parameter's value is outside the type that the objective wants.
    #[error("`{name}` is {value}, which its type in the objective cannot hold; narrow its range")]
    Value {
        /// The parameter.
        name: String,
        /// The value.
        value: String,
    },
    /// A parameter hangs on one that was not asked for.
    #[error("`{name}` hangs on `{parent}`, which this trial has not asked for; ask for `{parent}` first")]
    Parent {
        /// The parameter.
        name: String,
        /// What it hangs on.
        parent: String,
    },
    /// A parameter hangs on a value that its parent never has.
    #[error("`{name}` hangs on `{parent}` being {value}, but that is {distribution}; name one of its values")]
    Condition {
        /// The parameter.
        name: String,
        /// What it hangs on.
        parent: String,
        /// The value.
        value: String,
        /// What the parent can be.
        distribution: String,
    },
    /// A checkpoint must say which step it covers.
    #[error("trial.checkpoint has no step yet; call it inside `for epoch in trial.epochs(n)` or after trial.report")]
    NoStep,
    /// A checkpoint could not be written or read.
    #[error("cannot {what} the checkpoint {path}: {source}")]
    Checkpoint {
        /// What was tried.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The reason.
        source: Box<dyn Error + Send + Sync>,
    },
    /// A checkpoint, or the trial's folder, cannot be read now: the trial goes on another time.
    #[error("cannot {what} {path}: {source}")]
    Unreadable {
        /// What was tried.
        what: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A checkpoint does not fit the model.
    #[error("the checkpoint {path} does not fit the model: {mismatch}; use another --project or --overwrite")]
    Model {
        /// The file.
        path: PathBuf,
        /// Which variable, and how.
        mismatch: String,
    },
    /// The best of a metric was asked for that has no better or worse.
    #[error("`{metric}` is no objective of the search ({objectives}); name it with --objective to have its best")]
    NotAnObjective {
        /// The metric that was asked for.
        metric: String,
        /// The study's objectives.
        objectives: String,
    },
    /// The best of a metric was asked for before it was reported.
    #[error("`{metric}` has no finite value yet; call trial.report with it first")]
    NothingReported {
        /// The metric.
        metric: String,
    },
    /// There is no such device.
    #[error("there is no device `{device}`; devices are cpu, cuda:0, cuda:1 and so on")]
    Device {
        /// The device's name.
        device: String,
    },
    /// This build has no CUDA.
    #[error("{device} cannot be used, since this build of candle has no CUDA; run `ferrotune install --cuda`")]
    NoCuda {
        /// The device's name.
        device: String,
    },
    /// TPUs are described and compiled for, and nothing more.
    #[error("candle cannot compute on {device}; programs for TPUs run through ferrotune::devices::pjrt alone")]
    Tpu {
        /// The device's name.
        device: String,
    },
}
