//! The file `src/.made`, which says what our package was made of, and how each file was written.
//!
//! Each line is a SHA-256 and a name, as `sha256sum` writes them.

use crate::changes::Changes;
use crate::error::{Result, io};
use crate::sources::{self, Sources};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::{fs, io::ErrorKind};

/// The stamp's name.
const NAME: &str = ".made";

/// Hashes by name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// Of the changes.
    pub(crate) changes: BTreeMap<String, String>,
    /// Of each file in `src`, as it was written.
    pub(crate) sources: BTreeMap<String, String>,
}

impl Stamp {
    pub(crate) fn of(changes: &Changes, sources: &Sources) -> Self {
        let sources = sources.iter().map(|(path, text)| (path.clone(), sources::hash(text))).collect();
        Self { changes: changes.hashes(), sources }
    }

    /// The stamp of a folder of a package, if it has one.
    pub(crate) fn read(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join("src").join(NAME);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(io("read", &path)(error)),
        };
        let lines = text.lines().filter_map(|line| line.split_once("  "));
        let lines = lines.map(|(hash, name)| (name.to_owned(), hash.to_owned()));
        let (sources, changes) = lines.partition(|(name, _)| name.starts_with("src/"));
        Ok(Some(Self { changes, sources }))
    }

    /// Writes the stamp into a folder of sources.
    pub(crate) fn write(&self, folder: &Path) -> Result<()> {
        let path = folder.join(NAME);
        let lines = self.changes.iter().chain(&self.sources).map(|(name, hash)| format!("{hash}  {name}\n"));
        fs::write(&path, lines.collect::<String>()).map_err(io("write", &path))
    }

    /// Whether the folder has the manifest and each file, whatever is in it.
    pub(crate) fn is_there(&self, folder: &Path) -> bool {
        folder.join("Cargo.toml").is_file() && self.sources.keys().all(|path| folder.join(path).is_file())
    }

    /// The files that are not as they were written: changed, added or deleted.
    pub(crate) fn edited(&self, sources: &Sources) -> BTreeSet<String> {
        let is_as_written = |path: &String| match (self.sources.get(path), sources.get(path)) {
            (Some(hash), Some(text)) => *hash == sources::hash(text),
            (None, None) => true,
            _ => false,
        };
        self.sources.keys().chain(sources.keys()).filter(|path| !is_as_written(path)).cloned().collect()
    }
}
