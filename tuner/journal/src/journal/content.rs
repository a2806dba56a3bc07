//! The files for workers on other hosts, in the study's database: each is stored under the hash of its bytes, and a text
//! names them. Knows nothing about the files' contents, and trusts none of them.

use super::database::{Database, PART_BYTES};
use super::{Journal, JournalError};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt as _;

/// The publication in a study's database for its workers.
pub struct Content<'a> {
    database: Database,
    study: &'a str,
}

impl Journal {
    /// Publishes a text for workers, and stores the files that the text names, with their hashes and lengths, in the
    /// database. Fails for a study that is not in a database.
    pub fn publish(&mut self, text: &str, files: &[(&str, &File, u64)]) -> Result<(), JournalError> {
        self.storage.publish(text, files)
    }
}

/// Stores the text and those of the files that the database lacks.
pub(super) fn publish(database: &mut Database, text: &str, files: &[(&str, &File, u64)]) -> Result<(), JournalError> {
    database.publish(text)?;
    for (hash, file, bytes) in files {
        let parts = bytes.div_ceil(PART_BYTES);
        if database.parts_kept(hash)? == parts {
            continue;
        }
        for part in 0..parts {
            let start = part * PART_BYTES;
            let mut chunk = vec![0; (bytes - start).min(PART_BYTES) as usize];
            file.read_exact_at(&mut chunk, start).map_err(|source| JournalError::Io { path: hash.into(), source })?;
            database.keep_part(hash, part, chunk)?;
        }
    }
    Ok(())
}

impl<'a> Content<'a> {
    /// Opens the publication for the workers of a study, in the database at an address.
    pub fn of(storage: &str, study: &'a str) -> Result<Content<'a>, JournalError> {
        Ok(Content { database: Database::named(storage, study)?, study })
    }

    /// The text of the publication, which names the files.
    pub fn text(&mut self) -> Result<String, JournalError> {
        self.database.published()?.ok_or_else(|| self.missing())
    }

    fn missing(&self) -> JournalError {
        JournalError::NotPublished { study: self.study.to_owned(), storage: self.database.storage() }
    }

    /// Writes the bytes of the file with this hash from the database to `to`.
    pub fn write(&mut self, hash: &str, bytes: u64, to: &mut dyn Write) -> Result<(), JournalError> {
        for part in 0..bytes.div_ceil(PART_BYTES) {
            let chunk = self.database.part(hash, part)?.ok_or_else(|| self.missing())?;
            to.write_all(&chunk).map_err(|source: io::Error| JournalError::Io { path: hash.into(), source })?;
        }
        Ok(())
    }
}
