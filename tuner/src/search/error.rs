//! Errors that keep a search from beginning or continuing. A failed trial is not an error: it has an ending.

use ferrotune_journal::JournalError;
use ferrotune_journal::folder::FolderError;
use ferrotune_journal::study_folder::FileError;
use ferrotune_oracle::OracleError;
use ferrotune_space::record::Ending;

/// The reason why a search cannot begin or continue.
#[derive(Debug, thiserror::Error)]
pub enum SearchError {
    /// The oracle refuses the search.
    #[error(transparent)]
    Oracle(#[from] OracleError),
    /// The journal cannot be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A file of the study could not be written or read.
    #[error(transparent)]
    File(#[from] FileError),
    /// The study's folder contains a symbolic link or a special file, or cannot be read.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// A trial that was run elsewhere cannot be added to the study.
    #[error("the trial cannot be added: {reason}")]
    Addition {
        /// What is wrong with the trial, and what to do.
        reason: String,
    },
    /// The first trial ended without a value of the objective.
    #[error("{reason}; name a reported metric with --objective")]
    NeverReported {
        /// Which objective has no value, and what was reported instead.
        reason: String,
    },
    /// A parameter conflicts with earlier trials, or with the oracle's limits, in every trial.
    #[error("{reason}")]
    Parameter {
        /// Which parameter, what is wrong with it, and what to do.
        reason: String,
    },
    /// The first trial asked for no parameter.
    #[error(
        "the search space is empty: the objective asks for no parameter; add one, e.g. trial.float(\"lr\", 1e-4..=1e-1).log().get()?"
    )]
    EmptySpace,
    /// The search cannot learn from the other study.
    #[error("--from {study}: {reason}")]
    Source {
        /// The name of the other study, as the user gave it.
        study: String,
        /// What is wrong with the study, and what to do.
        reason: String,
    },
    /// The other study cannot be read.
    #[error("--from {study}: {source}")]
    UnreadableSource {
        /// The name of the other study, as the user gave it.
        study: String,
        /// The reason.
        source: JournalError,
    },
    /// The first trial has shown that no trial of the other study has parameters of this search.
    #[error(
        "--from {study}: no trial of it has parameters and values of this search, as trial 0 shows; compare with %space {study}, or leave it out and use --overwrite"
    )]
    NoTrialFits {
        /// The name of the other study, as the user gave it.
        study: String,
    },
    /// A trial cannot read the file from which it should continue.
    #[error(
        "trial {number} {reason}; nothing of it is lost: run the search again once the file can be read, or remove the file to go on from the checkpoint before it"
    )]
    Postponed {
        /// The number of the trial.
        number: u64,
        /// The file that cannot be read, and the reason.
        reason: String,
    },
    /// The disk that the study is on is full.
    #[error("{reason}; free some space, then run the search again: trial {number} goes on from its last checkpoint")]
    DiskFull {
        /// The trial that could not write its checkpoint.
        number: u64,
        /// The file, and the system's reason.
        reason: String,
    },
    /// A trial that the oracle continues returns without further epochs.
    #[error(
        "trial {number} resumed at epoch {epochs} but reported no later epoch; report steps as epochs counted from 0, then use --overwrite"
    )]
    Stuck {
        /// The number of the trial.
        number: u64,
        /// The number of epochs that the trial has trained.
        epochs: u64,
    },
    /// The largest allowed number of trials in a row has failed.
    #[error(
        "{count} trials in a row have failed, as many as --max-consecutive-failures allows, the last one so: {ending}"
    )]
    FailuresInARow {
        /// The number of failed trials.
        count: u64,
        /// The ending of the last trial.
        ending: Ending,
    },
    /// Every trial so far has failed.
    #[error("the first {count} trials all failed, the last one so: {ending}")]
    Hopeless {
        /// The number of failed trials.
        count: u64,
        /// The ending of the last trial.
        ending: Ending,
    },
}
