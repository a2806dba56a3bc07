//! The files that workers on other hosts run, in the study's database: by the hashes of their bytes, with a text that names
//! them. Knows nothing of what is in them, and trusts none of it.

use super::database::{Database, PART_BYTES};
use super::{Journal, JournalError, Store};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt as _;

/// What a study's database has for its workers.
pub struct Content<'a> {
    database: Database,
    study: &'a str,
}

impl Journal {
    /// Says what workers run from now on, and puts the files that the text names, with their hashes and lengths, into the
    /// database. Fails for a study that is not in one.
    pub fn publish(&mut self, text: &str, files: &[(&str, &File, u64)]) -> Result<(), JournalError> {
        let Store::Database(store) = &mut self.store else { return Err(JournalError::NotShared) };
        let database = store.database();
        database.publish(text)?;
        for (hash, file, bytes) in files {
            let parts = bytes.div_ceil(PART_BYTES);
            if database.parts_kept(hash)? == parts {
                continue;
            }
            for part in 0..parts {
                let start = part * PART_BYTES;
                let mut chunk = vec![0; (bytes - start).min(PART_BYTES) as usize];
                file.read_exact_at(&mut chunk, start)
                    .map_err(|source| JournalError::Io { path: hash.into(), source })?;
                database.keep_part(hash, part, chunk)?;
            }
        }
        Ok(())
    }
}

impl<'a> Content<'a> {
    /// What the database at an address has for the workers of a study.
    pub fn of(storage: &str, study: &'a str) -> Result<Content<'a>, JournalError> {
        Ok(Content { database: Database::named(storage, study)?, study })
    }

    /// The text that names the files.
    pub fn text(&mut self) -> Result<String, JournalError> {
        self.database.published()?.ok_or_else(|| self.missing())
    }

    fn missing(&self) -> JournalError {
        JournalError::NotPublished { study: self.study.to_owned(), storage: self.database.storage() }
    }

    /// Writes the bytes of the file with a hash, as the database has them.
    pub fn write(&mut self, hash: &str, bytes: u64, to: &mut dyn Write) -> Result<(), JournalError> {
        for part in 0..bytes.div_ceil(PART_BYTES) {
            let chunk = self.database.part(hash, part)?.ok_or_else(|| self.missing())?;
            to.write_all(&chunk).map_err(|source: io::Error| JournalError::Io { path: hash.into(), source })?;
        }
        Ok(())
    }
}
