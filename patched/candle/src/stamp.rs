//! The stamp `src/.made`, which records the changes that our package was made with, and the hash of each file as it was written.
//!
//! Each line is a SHA-256 and a name, in the format of `sha256sum`. Names of sources begin with `src/`.

use crate::error::{Result, io};
use crate::package::Package;
use crate::sources::{self, Sources};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::{fs, io::ErrorKind};

/// The stamp's file name.
const NAME: &str = ".made";

/// The hashes of the stamp, by name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// The hashes of the changes.
    pub(crate) changes: BTreeMap<String, String>,
    /// The hashes of the files in the package's `src`, as they were written.
    pub(crate) sources: BTreeMap<String, String>,
}

impl Stamp {
    pub(crate) fn of(changes: &BTreeMap<String, String>, sources: &Sources) -> Self {
        let sources = sources.iter().map(|(path, text)| (path.clone(), sources::hash(text))).collect();
        Self { changes: changes.clone(), sources }
    }

    /// The stamp of a package in a project's folder, if it has one.
    pub(crate) fn read(package: &Package, folder: &Path) -> Result<Option<Self>> {
        let path = folder.join(package.sources()).join(NAME);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(io("read", &path)(error)),
        };
        let lines = text.lines().filter_map(|line| line.split_once("  "));
        let lines = lines.map(|(hash, name)| (name.to_owned(), hash.to_owned()));
        let (sources, changes): (BTreeMap<_, _>, _) = lines.partition(|(name, _)| name.starts_with("src/"));
        let sources = sources.into_iter().map(|(name, hash)| (format!("{}/{name}", package.name), hash)).collect();
        Ok(Some(Self { changes, sources }))
    }

    /// Writes the stamp into a folder of a package's sources.
    pub(crate) fn write(&self, package: &Package, sources: &Path) -> Result<()> {
        let path = sources.join(NAME);
        let line = |(name, hash): (&str, &String)| format!("{hash}  {name}\n");
        let changes = self.changes.iter().map(|(name, hash)| (name.as_str(), hash));
        let sources = self.sources.iter().filter_map(|(name, hash)| Some((package.inside(name)?, hash)));
        fs::write(&path, changes.chain(sources).map(line).collect::<String>()).map_err(io("write", &path))
    }

    /// Whether the project's folder has each file of the stamp, with any content.
    pub(crate) fn is_there(&self, folder: &Path) -> bool {
        self.sources.keys().all(|path| folder.join(path).is_file())
    }

    /// The files that differ from the stamp: changed, added or deleted files.
    pub(crate) fn edited(&self, sources: &Sources) -> BTreeSet<String> {
        let is_as_written =
            |path: &String| self.sources.get(path) == sources.get(path).map(|text| sources::hash(text)).as_ref();
        self.sources.keys().chain(sources.keys()).filter(|path| !is_as_written(path)).cloned().collect()
    }
}
