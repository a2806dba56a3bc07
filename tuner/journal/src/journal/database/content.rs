//! The publication for workers on other hosts: a text of the study's owner, as an attribute of the study, and files, stored
//! under the hashes of their bytes in a table of ours beside Optuna's. Knows nothing about their contents, and trusts none
//! of them.

use super::changes::{STUDY_ATTRIBUTES, attribute_row, upsert};
use super::connection::{Connection, Value};
use super::error::DatabaseError;
use super::{Absent, Database, JournalError, Link, Owner, StorageUrl};
use crate::journal::format::CONTENT;
use std::path::Path;

/// The number of bytes in a row.
pub(in crate::journal) const PART_BYTES: u64 = 4 << 20;

fn make(connection: &mut Connection) -> Result<(), DatabaseError> {
    connection.lock_tables()?;
    let bytes = if connection.is_sqlite() { "BLOB" } else { "BYTEA" };
    connection.run(&format!(
        "CREATE TABLE IF NOT EXISTS ferrotune_content (hash VARCHAR(64) NOT NULL, part INTEGER NOT NULL, \
         bytes {bytes} NOT NULL, PRIMARY KEY (hash, part))"
    ))
}

fn is_there(connection: &mut Connection) -> Result<bool, DatabaseError> {
    connection.has_table("ferrotune_content")
}

/// Removes the files that no study names.
pub(super) fn remove_unnamed(connection: &mut Connection) -> Result<(), DatabaseError> {
    if is_there(connection)? {
        let sql = format!(
            "DELETE FROM ferrotune_content WHERE NOT EXISTS (SELECT 1 FROM study_user_attributes \
             WHERE key = '{CONTENT}' AND value_json LIKE '%' || ferrotune_content.hash || '%')"
        );
        connection.query(&sql, &[])?;
    }
    Ok(())
}

impl Database {
    /// The study at this address, for reading its publication.
    pub(in crate::journal) fn named(storage: &str, study: &str) -> Result<Database, JournalError> {
        let url = StorageUrl::parse(storage).map_err(JournalError::Storage)?;
        let owner = Owner::of("", Path::new(""), None);
        Ok(Database::new(Link::new(url, Absent::Refuse), study.to_owned(), owner))
    }

    /// Publishes a JSON text for workers. It names files by their hashes, which are kept until no study names them; each
    /// file is then [stored](Self::keep_part).
    pub(in crate::journal) fn publish(&mut self, text: &str) -> Result<(), JournalError> {
        let study = self.study()?;
        self.link.write(|connection| {
            make(connection)?;
            upsert(connection, &STUDY_ATTRIBUTES, [attribute_row(study, CONTENT, text)].into_iter())?;
            remove_unnamed(connection)
        })
    }

    /// The published text of the study's owner; none if there is no such study, or nothing is published.
    pub(in crate::journal) fn published(&mut self) -> Result<Option<String>, JournalError> {
        let Some(head) = self.head()? else { return Ok(None) };
        Ok(head.attributes.into_iter().find(|(name, _)| name == CONTENT).map(|(_, text)| text))
    }

    /// The number of stored rows of a file, in a database with a publication.
    pub(in crate::journal) fn parts_kept(&mut self, hash: &str) -> Result<u64, JournalError> {
        let sql = "SELECT COUNT(*) FROM ferrotune_content WHERE hash = $1";
        let rows = self.link.read(|connection| connection.query(sql, &[Value::text(hash)]))?;
        Ok(rows.first().and_then(|row| row[0].as_int()).unwrap_or_default() as u64)
    }

    /// Stores a part of a file, unless it exists.
    pub(in crate::journal) fn keep_part(&mut self, hash: &str, part: u64, bytes: Vec<u8>) -> Result<(), JournalError> {
        let values = [Value::text(hash), Value::Int(part as i64), Value::Bytes(bytes)];
        let sql = "INSERT INTO ferrotune_content (hash, part, bytes) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";
        self.link.write(|connection| connection.query(sql, &values).map(drop))
    }

    /// A part of a file; none if it does not exist.
    pub(in crate::journal) fn part(&mut self, hash: &str, part: u64) -> Result<Option<Vec<u8>>, JournalError> {
        let values = [Value::text(hash), Value::Int(part as i64)];
        let sql = "SELECT bytes FROM ferrotune_content WHERE hash = $1 AND part = $2";
        let rows = self
            .link
            .read(|connection| if is_there(connection)? { connection.query(sql, &values) } else { Ok(Vec::new()) })?;
        Ok(rows.into_iter().next().and_then(|mut row| row.remove(0).into_bytes()))
    }
}
