//! Texts by their path in a folder, with slashes: the sources of a package, or our changes.

use crate::error::{Result, io};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The text of each file, by path.
pub(crate) type Sources = BTreeMap<String, String>;

/// Reads all files under `root/name`, by paths that begin with `name`. An absent folder has no files. Files whose name begins with a
/// dot are left out.
pub(crate) fn read(root: &Path, name: &str) -> Result<Sources> {
    let mut sources = Sources::new();
    if root.join(name).exists() {
        collect(root, name, &mut sources)?;
    }
    Ok(sources)
}

fn collect(root: &Path, name: &str, sources: &mut Sources) -> Result<()> {
    let folder = root.join(name);
    for entry in fs::read_dir(&folder).map_err(io("read", &folder))? {
        let entry = entry.map_err(io("read", &folder))?;
        let file_name = entry.file_name();
        let path = format!("{name}/{}", file_name.to_string_lossy());
        if entry.file_type().map_err(io("read", &entry.path()))?.is_dir() {
            collect(root, &path, sources)?;
        } else if !file_name.as_encoded_bytes().starts_with(b".") {
            sources.insert(path, text(&entry.path())?);
        }
    }
    Ok(())
}

/// Reads the text of one file.
pub(crate) fn text(path: &Path) -> Result<String> {
    fs::read_to_string(path).map_err(io("read", path))
}

/// The SHA-256 of a text, in hexadecimal digits.
pub(crate) fn hash(text: &str) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}
