//! Errors that keep a study from being opened, read or written, and what to do about them.

use super::VERSION;
use super::database::{DatabaseError, StorageUrlError};
use crate::folder::FolderError;
use crate::study_folder::JOURNAL;
use std::path::PathBuf;

/// The reason why a study cannot be opened, read or written.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The folder or the journal cannot be made or written.
    #[error("study folder {} cannot be written ({source}); choose another with --directory", folder.display())]
    NotWritable {
        /// The study's folder.
        folder: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The study's folder contains a symbolic link or a special file, or cannot be read.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// Reading or writing failed.
    #[error("study file {}: {source}; what is on disk stays valid, so free space or repair access and run it again", path.display())]
    Io {
        /// The path of the file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The lock that Optuna's writers take cannot be made beside the journal.
    #[error(
        "study file {}: the lock beside it, journal.log.lock, cannot be made: {source}; what is on disk stays valid, so free space or repair access and run it again",
        path.display()
    )]
    AppendLock {
        /// The path of the journal.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The file lacks facts that were already acknowledged, after a failed write or because another program has cut the
    /// file.
    #[error("study file {} lacks facts that were acknowledged: a write has failed, or another program has cut the file; open the study again", path.display())]
    Behind {
        /// The path of the file.
        path: PathBuf,
    },
    /// Another process writes this study.
    #[error("study {study} is in use by {holder}; wait until that search ends, or use another --project")]
    Locked {
        /// The study.
        study: String,
        /// The process and the host that hold the lock.
        holder: String,
    },
    /// The journal has facts of a newer version.
    #[error(
        "study {study} was written by ferrotune journal version {found}, this one reads up to {VERSION}; update ferrotune"
    )]
    NewerVersion {
        /// The study.
        study: String,
        /// The journal's version.
        found: u64,
    },
    /// A line before the last is damaged.
    #[error("line {line} of {} is damaged ({reason}); restore the file from a copy, or start anew with --overwrite", path.display())]
    Corrupt {
        /// The path of the journal.
        path: PathBuf,
        /// The number of the line, counted from 1.
        line: u64,
        /// What is wrong with the line.
        reason: String,
    },
    /// The study has another objective.
    #[error("study {study} optimises {earlier}, not {wanted}; use another --project or --overwrite")]
    OtherObjective {
        /// The study.
        study: String,
        /// The study's objective.
        earlier: String,
        /// The objective of this search.
        wanted: String,
    },
    /// The study's trials come from other code.
    #[error(
        "study {study}: the objective has changed since trial {trial}; --overwrite begins anew, --continue keeps the trials so far, and another --project has both"
    )]
    OtherSource {
        /// The study.
        study: String,
        /// The study's last trial.
        trial: u64,
    },
    /// The folder has no journal.
    #[error("there is no study in {}; run %%tune with this --project first", folder.display())]
    Missing {
        /// The folder.
        folder: PathBuf,
    },
    /// The folder to overwrite is not a study.
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
        /// The attribute's name.
        name: String,
        /// The attribute's value.
        value: String,
    },
    /// A fact about a trial that was never started.
    #[error("trial {number} cannot be recorded: the study has {trials} trials; start it first")]
    UnknownTrial {
        /// The trial's number.
        number: u64,
        /// The number of trials in the journal.
        trials: u64,
    },
    /// The address of the study's database cannot be used.
    #[error(transparent)]
    Storage(#[from] StorageUrlError),
    /// An operation on the study's database failed.
    #[error("storage {storage}: {source}")]
    Database {
        /// The database's address, without a password.
        storage: String,
        /// The reason.
        source: DatabaseError,
    },
    /// The tables are of another version of Optuna.
    #[error(
        "storage {storage} has version {found} of Optuna's tables, which is not that of Optuna 5; upgrade it with `optuna storage upgrade`, or use another database"
    )]
    OtherSchema {
        /// The database's address, without a password.
        storage: String,
        /// The version of the tables.
        found: String,
    },
    /// The folder belongs to a study that is stored elsewhere.
    #[error("study folder {} is of a study in {found}; use another --project, or give that --storage", folder.display())]
    OtherStorage {
        /// The folder.
        folder: PathBuf,
        /// The place where the study is stored.
        found: String,
    },
    /// A mirror cannot be used for a study in a database.
    #[error("--mirror copies a study's journal, and with --storage there is none; leave one of them out")]
    Mirrored,
    /// Code for workers can be published only in a database.
    #[error("--publish puts what workers run into the study's database, and this study is in none; add --storage")]
    NotShared,
    /// The study's database lacks some or all of the publication for workers.
    #[error(
        "study {study} in {storage} has nothing for workers, or not yet all of it; start its search with --publish"
    )]
    NotPublished {
        /// The study.
        study: String,
        /// The database's address, without a password.
        storage: String,
    },
    /// The database lacks facts that were already acknowledged.
    #[error("storage {storage} lacks facts that were acknowledged, since a write has failed; run the search again")]
    Lost {
        /// The database's address, without a password.
        storage: String,
    },
    /// A value outside its own distribution.
    #[error("trial {number}: {name} = {value} is not in the parameter's range; suggest a value from the range")]
    OutsideRange {
        /// The trial's number.
        number: u64,
        /// The parameter's name.
        name: String,
        /// The parameter's value.
        value: String,
    },
}
