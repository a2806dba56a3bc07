//! What keeps a search from beginning or going on. A failed trial is not an error: it has an ending.

use ferrotune_journal::JournalError;
use ferrotune_journal::folder::FolderError;
use ferrotune_journal::study_folder::FileError;
use ferrotune_oracle::OracleError;
use ferrotune_space::record::Ending;

/// Why a search cannot begin or go on.
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
    /// Something in the study's folder leads out of it.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// A trial that was run elsewhere cannot be one of the study.
    #[error("the trial cannot be added: {reason}")]
    Addition {
        /// What is wrong with it, and what to do.
        reason: String,
    },
    /// The first trial ended without a value of the objective.
    #[error("{reason}; name a reported metric with --objective")]
    NeverReported {
        /// Which objective, and what was reported instead.
        reason: String,
    },
    /// A parameter is another one than in earlier trials, or than the oracle can have, in every trial.
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
        /// The other study, as it was named.
        study: String,
        /// What is wrong with it, and what to do.
        reason: String,
    },
    /// The other study cannot be read.
    #[error("--from {study}: {source}")]
    UnreadableSource {
        /// The other study, as it was named.
        study: String,
        /// Why.
        source: JournalError,
    },
    /// The first trial has shown that no trial of the other study has parameters of this one.
    #[error(
        "--from {study}: no trial of it has parameters and values of this search, as trial 0 shows; compare with %space {study}, or leave --from out and use --overwrite"
    )]
    NoTrialFits {
        /// The other study, as it was named.
        study: String,
    },
    /// A trial cannot read what it is to go on from.
    #[error(
        "trial {number} {reason}; nothing of it is lost: run the search again once the file can be read, or remove the file to go on from the checkpoint before it"
    )]
    Postponed {
        /// The trial.
        number: u64,
        /// What cannot be read, and why.
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
    /// The oracle lets a trial go on, and it comes back as it went.
    #[error(
        "trial {number} resumed at epoch {epochs} but reported no later epoch; report steps as epochs counted from 0, then use --overwrite"
    )]
    Stuck {
        /// The trial.
        number: u64,
        /// The epochs that it has been through.
        epochs: u64,
    },
    /// As many trials in a row have failed as may.
    #[error(
        "{count} trials in a row have failed, as many as --max-consecutive-failures allows, the last one so: {ending}"
    )]
    FailuresInARow {
        /// How many.
        count: u64,
        /// How the last one ended.
        ending: Ending,
    },
    /// Every trial so far has failed.
    #[error("the first {count} trials all failed, the last one so: {ending}")]
    Hopeless {
        /// How many.
        count: u64,
        /// How the last one ended.
        ending: Ending,
    },
}
