//! The supervisor that owns a trial. An attribute of the trial names its owner, and a file in the study's folder stores the
//! supervisor's id. Only one search at a time can open a folder, so all searches of one folder have the same id.

use super::url::StorageUrl;
use crate::journal::JournalError;
use crate::journal::lock::host;
use crate::study_folder::STORAGE;
use ferrotune_space::seed;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// A supervisor, as the owner of trials.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Owner {
    /// The id of the supervisor, unique to its folder.
    pub(super) id: String,
    /// The host on which the supervisor runs.
    pub(super) host: String,
    /// The study's folder on that host, with the trials' checkpoints.
    pub(super) folder: PathBuf,
    /// The interval of its heartbeats, in seconds; none if it writes no heartbeats.
    pub(super) heartbeat_s: Option<u64>,
    /// Whether the supervisor has released its trials to others, and will not return.
    #[serde(default)]
    pub(super) has_left: bool,
}

impl Owner {
    /// A supervisor on this host.
    pub(super) fn of(id: &str, folder: &Path, heartbeat_s: Option<u64>) -> Owner {
        Owner { id: id.to_owned(), host: host(), folder: folder.to_owned(), heartbeat_s, has_left: false }
    }

    /// Whether this host can read the supervisor's folder, for example on a shared disk.
    pub(super) fn is_here(&self) -> bool {
        Place::of(&self.folder).is_ok_and(|place| place.is_some_and(|place| place.supervisor == self.id))
    }
}

/// A study's place in a database, as its folder stores it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Place {
    /// The address, without a password.
    pub(super) storage: String,
    /// The study's name in the database.
    pub(super) study: String,
    /// The id of the folder's supervisor.
    pub(super) supervisor: String,
}

impl Place {
    /// The place that the folder stores, if it stores one.
    pub(super) fn of(folder: &Path) -> Result<Option<Place>, JournalError> {
        let path = folder.join(STORAGE);
        let io = |source| JournalError::Io { path: path.clone(), source };
        match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            read => Ok(Some(serde_json::from_slice(&read.map_err(io)?).map_err(|error| io(error.into()))?)),
        }
    }

    /// Stores the study's place in its folder, with a new supervisor id.
    pub(super) fn write(folder: &Path, url: &StorageUrl, study: &str) -> Result<Place, JournalError> {
        let supervisor = format!("{}-{:x}", host(), seed::draw());
        let place = Place { storage: url.to_string(), study: study.to_owned(), supervisor };
        let path = folder.join(STORAGE);
        let written = || {
            let partial = path.with_extension("partial");
            let mut file = File::create(&partial)?;
            file.write_all(&serde_json::to_vec_pretty(&place)?)?;
            file.sync_all()?;
            fs::rename(&partial, &path)?;
            crate::folder::sync(folder)
        };
        written().map_err(|source| JournalError::Io { path: path.clone(), source })?;
        Ok(place)
    }
}

/// The address of the database that the folder's study is in, with the password if this process knows it.
pub(in crate::journal) fn address(folder: &Path) -> Result<Option<String>, JournalError> {
    let Some(place) = Place::of(folder)? else { return Ok(None) };
    Ok(Some(StorageUrl::found(&place.storage).map_err(JournalError::Storage)?.with_password()))
}

/// The address of the database that the folder's study is in, without a password.
pub(in crate::journal) fn address_shown(folder: &Path) -> Result<Option<String>, JournalError> {
    Ok(Place::of(folder)?.map(|place| place.storage))
}
