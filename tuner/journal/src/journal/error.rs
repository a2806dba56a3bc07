//! What keeps a study from being opened, read or written, and what to do about it.

use super::VERSION;
use super::database::{DatabaseError, StorageUrlError};
use crate::folder::FolderError;
use crate::study_folder::JOURNAL;
use std::path::PathBuf;

/// What kept a study from being opened, read or written.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The folder or the journal cannot be made or written.
    #[error("study folder {} cannot be written ({source}); choose another with --directory", folder.display())]
    NotWritable {
        /// The study's folder.
        folder: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Something in the study's folder leads out of it.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// Reading or writing failed.
    #[error("study file {}: {source}; what is on disk stays valid, so free space or repair access and run it again", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The lock that Optuna's writers take cannot be made beside the journal.
    #[error(
        "study file {}: the lock beside it, journal.log.lock, cannot be made: {source}; what is on disk stays valid, so free space or repair access and run it again",
        path.display()
    )]
    AppendLock {
        /// The journal.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A write has failed after which the file has less than was taken down.
    #[error("study file {} lacks facts that were acknowledged: a write has failed, or another program has cut the file; open the study again", path.display())]
    Behind {
        /// The file.
        path: PathBuf,
    },
    /// Another process writes this study.
    #[error("study {study} is in use by {holder}; wait until that search ends, or use another --project")]
    Locked {
        /// The study.
        study: String,
        /// Process and host.
        holder: String,
    },
    /// The journal has facts that this version does not know.
    #[error(
        "study {study} was written by ferrotune journal version {found}, this one reads up to {VERSION}; update ferrotune"
    )]
    NewerVersion {
        /// The study.
        study: String,
        /// Its version.
        found: u64,
    },
    /// A line before the last is damaged.
    #[error("line {line} of {} is damaged ({reason}); restore the file from a copy, or start anew with --overwrite", path.display())]
    Corrupt {
        /// The journal.
        path: PathBuf,
        /// Number of the line, counted from 1.
        line: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// The study optimises something else.
    #[error("study {study} optimises {earlier}, not {wanted}; use another --project or --overwrite")]
    OtherObjective {
        /// The study.
        study: String,
        /// Its objective.
        earlier: String,
        /// The objective asked for.
        wanted: String,
    },
    /// The study's trials are those of other code.
    #[error(
        "study {study}: the objective has changed since trial {trial}; --overwrite begins anew, --continue keeps the trials so far, and another --project has both"
    )]
    OtherSource {
        /// The study.
        study: String,
        /// Its last trial.
        trial: u64,
    },
    /// There is no journal.
    #[error("there is no study in {}; run %%tune with this --project first", folder.display())]
    Missing {
        /// The folder.
        folder: PathBuf,
    },
    /// The folder to overwrite is no study.
    #[error("{} is not a study (no {JOURNAL} in it), so --overwrite leaves it alone; use another --project", folder.display())]
    NotAStudy {
        /// The folder.
        folder: PathBuf,
    },
    /// A user attribute that cannot be stored.
    #[error(
        "the user attribute {name} = {value} cannot be kept; give a finite number, and a name that does not begin with ferrotune:"
    )]
    UserAttribute {
        /// Its name.
        name: String,
        /// Its value.
        value: String,
    },
    /// A fact about a trial that was never started.
    #[error("trial {number} cannot be recorded: the study has {trials} trials; start it first")]
    UnknownTrial {
        /// The trial.
        number: u64,
        /// Trials in the journal.
        trials: u64,
    },
    /// The address of the study's database cannot be used.
    #[error(transparent)]
    Storage(#[from] StorageUrlError),
    /// The study's database did not do what it was asked.
    #[error("storage {storage}: {source}")]
    Database {
        /// Its address, without a password.
        storage: String,
        /// Why.
        source: DatabaseError,
    },
    /// The tables are those of another version of Optuna.
    #[error(
        "storage {storage} has version {found} of Optuna's tables, which is not that of Optuna 5; upgrade it with `optuna storage upgrade`, or use another database"
    )]
    OtherSchema {
        /// The address, without a password.
        storage: String,
        /// The version found.
        found: String,
    },
    /// The folder belongs to a study that is somewhere else.
    #[error("study folder {} is of a study in {found}; use another --project, or give that --storage", folder.display())]
    OtherStorage {
        /// The folder.
        folder: PathBuf,
        /// Where the study is.
        found: String,
    },
    /// A mirror of a study that is in a database.
    #[error("--mirror copies a study's journal, and with --storage there is none; leave one of them out")]
    Mirrored,
    /// What workers run can be published only in a database.
    #[error("--publish puts what workers run into the study's database, and this study is in none; add --storage")]
    NotShared,
    /// The study's database has nothing, or not all, of what workers run.
    #[error(
        "study {study} in {storage} has nothing for workers, or not yet all of it; start its search with --publish"
    )]
    NotPublished {
        /// The study.
        study: String,
        /// The address, without a password.
        storage: String,
    },
    /// Facts that were acknowledged are not in the database.
    #[error("storage {storage} lacks facts that were acknowledged, since a write has failed; run the search again")]
    Lost {
        /// The address, without a password.
        storage: String,
    },
    /// A value that its own distribution does not hold.
    #[error("trial {number}: {name} = {value} is not in the parameter's range; suggest a value from the range")]
    OutsideRange {
        /// The trial.
        number: u64,
        /// The parameter.
        name: String,
        /// The value.
        value: String,
    },
}
