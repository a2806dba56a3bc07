//! Why a call of a trial fails. When a trial has to stop, its calls fail on purpose, so that `?` ends the objective.

use crate::any_error::{BoxError, Error};
use std::io;
use std::path::PathBuf;

/// The result of everything that an objective does: its `?` accepts errors of candle, of this crate and all others, and
/// keeps its place.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call of a trial fails.
#[derive(Debug, thiserror::Error)]
pub enum TrialError {
    /// The search is being stopped; the trial continues later from its last checkpoint.
    #[error("the search is being stopped")]
    Stopped,
    /// The oracle prunes this trial.
    #[error("the oracle has pruned this trial")]
    Pruned,
    /// The supervisor refuses the request.
    #[error("{reason}")]
    Refused {
        /// What is wrong and what to do.
        reason: String,
    },
    /// The supervisor cannot be reached.
    #[error("no connection to the search's supervisor: {source}; objectives are run by %%tune")]
    Connection {
        /// The system's reason.
        source: io::Error,
    },
    /// This version does not know the supervisor's answer.
    #[error("the supervisor answered {answer}; kernel and prelude are of different versions: run `ferrotune install`")]
    Answer {
        /// The answer.
        answer: String,
    },
    /// A bound, step or default is a whole number that no study can record.
    #[error("`{name}` has the number {value}, but whole numbers of a parameter reach up to {max}; tune its exponent, or a factor", max = i64::MAX)]
    TooLarge {
        /// The parameter.
        name: String,
        /// The number.
        value: String,
    },
    /// The type of a parameter in the objective cannot represent its value.
    #[error("`{name}` is {value}, which its type in the objective cannot hold; narrow its range")]
    Value {
        /// The parameter.
        name: String,
        /// The value.
        value: String,
    },
    /// A parameter depends on one that was not asked for.
    #[error("`{name}` depends on `{parent}`, which this trial has not asked for; ask for `{parent}` first")]
    Parent {
        /// The parameter.
        name: String,
        /// The parameter that it depends on.
        parent: String,
    },
    /// A parameter depends on a value that its parent never has.
    #[error("`{name}` depends on `{parent}` being {value}, but `{parent}` is {distribution}; name one of its values")]
    Condition {
        /// The parameter.
        name: String,
        /// The parameter that it depends on.
        parent: String,
        /// The value.
        value: String,
        /// The values of the parent.
        distribution: String,
    },
    /// A checkpoint has no step that it belongs to.
    #[error("trial.checkpoint has no step yet; call it inside `for epoch in trial.epochs(n)` or after trial.report")]
    NoStep,
    /// A checkpoint could not be written or read.
    #[error("cannot {what} the checkpoint {path}: {source}")]
    Checkpoint {
        /// The operation.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The reason.
        source: BoxError,
    },
    /// A checkpoint or the trial's folder cannot be read now; the trial continues later.
    #[error("cannot {what} {path}: {source}")]
    Unreadable {
        /// The operation.
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
        /// The variable, and how it differs.
        mismatch: String,
    },
    /// The checkpoint of a trial of given values does not fit the model.
    #[error("the checkpoint {path} does not fit the model: {mismatch}; build the model of the trial that wrote it")]
    GivenModel {
        /// The file.
        path: PathBuf,
        /// The variable, and how it differs.
        mismatch: String,
    },
    /// The best value of a metric that is not an objective was asked for.
    #[error("`{metric}` is not an objective of the search ({objectives}); name it with --objective")]
    NotAnObjective {
        /// The metric that was asked for.
        metric: String,
        /// The study's objectives.
        objectives: String,
    },
    /// The best value of a metric was asked for in a trial of given values, which has no objective.
    #[error(
        "a trial of given values does not know whether `{metric}` is to become small or large; add .minimize({metric:?}) or .maximize({metric:?}) to Trial::of"
    )]
    NoDirection {
        /// The metric that was asked for.
        metric: String,
    },
    /// The best value of a metric was asked for before any report.
    #[error("`{metric}` has no finite value yet; call trial.report with it first")]
    NothingReported {
        /// The metric.
        metric: String,
    },
    /// The trial is run for the first program of a compiled step, and there is none.
    #[error(
        "the trial reports before a compiled step has run; make the training step with ferrotune::compile, on trial.device()?"
    )]
    NoProgram,
    /// What is asked for needs candle with Ferrotune's changes.
    #[error(
        "{what} is not in this program; enable the feature `plugins` of ferrotune-study or ferrotune-trial, with candle as `ferrotune candle FOLDER` writes it"
    )]
    NoPlugins {
        /// A device, or the search for a NaN.
        what: String,
    },
    /// There is no such device.
    #[error("there is no device `{device}`; devices are cpu, cuda:0, cuda:1 and so on, tpu, xla:cpu and xla:FILE")]
    Device {
        /// The device's name.
        device: String,
    },
    /// The plugin is open, and not together with other processes.
    #[error(
        "{device} is open in this process already, without the other workers; start all processes anew, and name the cores without \
         opening them: Strategy::cores(\"{device}\", {cores})"
    )]
    OpenAlone {
        /// The device's name.
        device: String,
        /// How many of its cores were asked for.
        cores: usize,
    },
    /// This build has no CUDA.
    #[error("{device} cannot be used, because this build of candle has no CUDA; run `ferrotune install --cuda`")]
    NoCuda {
        /// The device's name.
        device: String,
    },
}
