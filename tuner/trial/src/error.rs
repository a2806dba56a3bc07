//! The errors of a trial's calls. When a trial has to stop, its calls fail on purpose, so that `?` ends the objective.

use ferrotune_state::BoxError;
use std::io;
use std::path::PathBuf;

/// The reason why a call of a trial fails.
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
        /// The fault and its cure.
        reason: String,
    },
    /// The supervisor cannot be reached.
    #[error("no connection to the search's supervisor: {source}; objectives are run by %%tune")]
    Connection {
        /// The system's reason.
        source: io::Error,
    },
    /// The supervisor's answer is unknown to this version.
    #[error("the supervisor answered {answer}; kernel and prelude are of different versions: run `ferrotune install`")]
    Answer {
        /// The debug text of the answer.
        answer: String,
    },
    /// A bound, step or default of a parameter is a whole number above the largest that a study can record.
    #[error("`{name}` has the number {value}, but whole numbers of a parameter reach up to {max}; tune its exponent, or a factor", max = i64::MAX)]
    TooLarge {
        /// The parameter's name.
        name: String,
        /// The number that is too large.
        value: String,
    },
    /// The type of a parameter in the objective cannot represent its value.
    #[error("`{name}` is {value}, which its type in the objective cannot hold; narrow its range")]
    Value {
        /// The parameter's name.
        name: String,
        /// The parameter's value.
        value: String,
    },
    /// A parameter depends on a parameter that the objective has not asked for.
    #[error("`{name}` depends on `{parent}`, which this trial has not asked for; ask for `{parent}` first")]
    Parent {
        /// The dependent parameter's name.
        name: String,
        /// The name of the parameter that it depends on.
        parent: String,
    },
    /// A parameter depends on a value that its parent never has.
    #[error("`{name}` depends on `{parent}` being {value}, but `{parent}` is {distribution}; name one of its values")]
    Condition {
        /// The dependent parameter's name.
        name: String,
        /// The name of the parameter that it depends on.
        parent: String,
        /// The value that the parent never has.
        value: String,
        /// The values that the parent can have.
        distribution: String,
    },
    /// A checkpoint is saved before the objective has any step.
    #[error("trial.checkpoint has no step yet; call it inside `for epoch in trial.epochs(n)` or after trial.report")]
    NoStep,
    /// A checkpoint could not be written or read.
    #[error("cannot {what} the checkpoint {path}: {source}")]
    Checkpoint {
        /// The failed operation, such as `read`.
        what: &'static str,
        /// The checkpoint file.
        path: PathBuf,
        /// The reason of the failure.
        source: BoxError,
    },
    /// A checkpoint or the trial's folder cannot be read now; the trial continues later.
    #[error("cannot {what} {path}: {source}")]
    Unreadable {
        /// The failed operation, such as `read`.
        what: &'static str,
        /// The checkpoint file or the trial's folder.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The variables of a checkpoint do not fit the model.
    #[error("the checkpoint {path} does not fit the model: {mismatch}; use another --project or --overwrite")]
    Model {
        /// The checkpoint file.
        path: PathBuf,
        /// The variable that does not fit, and how it differs.
        mismatch: String,
    },
    /// The variables of the checkpoint that was given to a trial of given values do not fit the model.
    #[error("the checkpoint {path} does not fit the model: {mismatch}; build the model of the trial that wrote it")]
    GivenModel {
        /// The checkpoint file.
        path: PathBuf,
        /// The variable that does not fit, and how it differs.
        mismatch: String,
    },
    /// The objective asks for the best value of a metric that is not an objective of the study.
    #[error("`{metric}` is not an objective of the search ({objectives}); name it with --objective")]
    NotAnObjective {
        /// The name of that metric.
        metric: String,
        /// The names of the study's objectives.
        objectives: String,
    },
    /// A trial of given values is asked for the best value of a metric whose direction is not given.
    #[error(
        "a trial of given values does not know whether `{metric}` is to become small or large; add .minimize({metric:?}) or .maximize({metric:?}) to Trial::of"
    )]
    NoDirection {
        /// The name of the metric.
        metric: String,
    },
    /// The objective asks for the best value of a metric before any report of it.
    #[error("`{metric}` has no finite value yet; call trial.report with it first")]
    NothingReported {
        /// The name of the metric.
        metric: String,
    },
    /// The trial runs only to produce the first program of a compiled step, and no compiled step has run.
    #[error(
        "the trial reports before a compiled step has run; make the training step with ferrotune::compile, on trial.device()?"
    )]
    NoProgram,
    /// A device or feature needs candle with Ferrotune's changes.
    #[error(
        "{what} is not in this program; enable the feature `plugins` of ferrotune-study or ferrotune-trial, with candle as `ferrotune candle FOLDER` writes it"
    )]
    NoPlugins {
        /// The missing device or feature, such as the search for a NaN.
        what: String,
    },
    /// No device has this name.
    #[error(
        "there is no device `{device}`; devices are cpu, tpu, cuda, cuda:1 and so on, rocm, oneapi, xla:cpu and xla:FILE"
    )]
    Device {
        /// The unknown name.
        device: String,
    },
    /// The plugin is already open in this process, without the other processes.
    #[error(
        "{device} is open in this process already, without the other workers; start all processes anew, and name the cores without \
         opening them: Strategy::cores(\"{device}\", {cores})"
    )]
    OpenAlone {
        /// The device's name.
        device: String,
        /// The number of cores that was asked for.
        cores: usize,
    },
}
