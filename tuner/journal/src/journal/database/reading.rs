//! Studies of a database that are only read.

use super::connect::Absent;
use super::link::Link;
use super::owner::{Owner, Place};
use super::url::Target;
use super::{Database, StorageUrl};
use crate::journal::JournalError;
use std::path::Path;

/// The study in the database that a folder names; none if the folder names no database.
pub(in crate::journal) fn found(folder: &Path) -> Result<Option<Database>, JournalError> {
    let Some(Place { storage, study, supervisor }) = Place::of(folder)? else { return Ok(None) };
    let url = StorageUrl::found(&storage).map_err(JournalError::Storage)?;
    Ok(Some(reader(url, study, Owner::of(&supervisor, folder, None))))
}

/// The study `name` in the database at an address, of which no folder need be here; none if there is no such file. `folder` is where the
/// study's folder would be.
pub(in crate::journal) fn named(storage: &str, name: &str, folder: &Path) -> Result<Option<Database>, JournalError> {
    let url = StorageUrl::parse(storage).map_err(JournalError::Storage)?;
    if let Target::Sqlite(path) = &url.target
        && !path.exists()
    {
        return Ok(None);
    }
    Ok(Some(reader(url, name.to_owned(), Owner::of("", folder, None))))
}

fn reader(url: StorageUrl, study: String, owner: Owner) -> Database {
    Database::new(Link::new(url, Absent::Refuse), study, owner)
}
