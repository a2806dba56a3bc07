//! Keeps the compiled cells that an engine runs while it starts. They are the same at each start, so they are compiled once for
//! the prelude that they are linked with. A user's cell is never kept: it may read files and variables that change.

use super::Emit;
use crate::environment::runtime;
use crate::folders;
use crate::prelude::Prelude;
use anyhow::{Context, Result};
use sha2::{Digest, Sha256};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The file in the kernel's folder that exists while an engine starts.
const MARK: &str = "starting";

/// The mark that an engine starts, which is removed when the value is dropped.
pub(crate) struct Starting(PathBuf);

/// Marks in the folder `runtime` of a kernel that its engine starts.
pub(crate) fn mark(runtime: &Path) -> Result<Starting> {
    let mark = runtime.join(MARK);
    std::fs::write(&mark, "").with_context(|| format!("cannot write {}", mark.display()))?;
    Ok(Starting(mark))
}

impl Drop for Starting {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.0) {
            tracing::error!("cells are kept from now on, since {} stays: {error}", self.0.display());
        }
    }
}

/// The result of a call of rustc: a library, or the errors that it has written. Errors are usual, since evcxr tries two forms of a
/// cell.
pub(super) enum Made {
    Library,
    Errors(Vec<u8>),
}

/// The path, without the extension, at which the result of one call of rustc is kept.
pub(super) struct Kept(PathBuf);

impl Kept {
    /// The path for the result of this call of rustc; none for a user's cell. The digest of the source is among the call's arguments.
    pub(super) fn of(rustc: &Command, prelude: &Prelude, emit: Emit) -> Result<Option<Self>> {
        if emit == Emit::Nothing || !runtime()?.join(MARK).exists() {
            return Ok(None);
        }
        let mut hasher = Sha256::new();
        for word in std::iter::once(rustc.get_program()).chain(rustc.get_args()) {
            hasher.update((word.len() as u64).to_le_bytes());
            hasher.update(word.as_encoded_bytes());
        }
        Ok(Some(Self(prelude.starting_cells()?.join(crate::prelude::short_hash(hasher)))))
    }

    /// The kept result, with a library copied to the path `library`; none if rustc was not called in this way before.
    pub(super) fn take(&self, library: &Path) -> Result<Option<Made>> {
        if found(std::fs::copy(self.0.with_extension("so"), library))?.is_some() {
            return Ok(Some(Made::Library));
        }
        Ok(found(std::fs::read(self.0.with_extension("errors")))?.map(Made::Errors))
    }

    /// Keeps the result of rustc. A file appears whole or not at all.
    pub(super) fn keep(&self, made: &Made, library: &Path) -> Result<()> {
        let folder = self.0.parent().context("what is kept is in a folder")?;
        let cache = folder.parent().context("what is kept is in the cache")?;
        let created = std::fs::create_dir_all(cache).and_then(|()| std::fs::create_dir(folder));
        match created {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            created => created
                .and_then(|()| folders::mark(folder))
                .with_context(|| format!("cannot create {}", folder.display()))?,
        }
        let writing = self.0.with_extension(std::process::id().to_string());
        let extension = match made {
            Made::Library => std::fs::copy(library, &writing).map(|_| "so"),
            Made::Errors(errors) => std::fs::write(&writing, errors).map(|()| "errors"),
        };
        let extension = extension.with_context(|| format!("cannot write {}", writing.display()))?;
        Ok(std::fs::rename(&writing, self.0.with_extension(extension))?)
    }
}

fn found<T>(result: std::io::Result<T>) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).context("cannot read what is kept for the prelude"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_taken_again() {
        let folder = tempfile::tempdir().unwrap();
        let (made, taken) = (folder.path().join("made"), folder.path().join("taken"));
        std::fs::write(&made, "library").unwrap();
        let [compiled, refused, unknown] = ["a", "b", "c"].map(|name| Kept(folder.path().join("starting").join(name)));
        compiled.keep(&Made::Library, &made).unwrap();
        refused.keep(&Made::Errors(b"error".to_vec()), &made).unwrap();
        assert!(matches!(compiled.take(&taken).unwrap(), Some(Made::Library)));
        assert_eq!(std::fs::read_to_string(&taken).unwrap(), "library");
        assert!(matches!(refused.take(&taken).unwrap(), Some(Made::Errors(errors)) if errors == b"error"));
        assert!(unknown.take(&taken).unwrap().is_none());
        // The third file is the mark.
        assert_eq!(std::fs::read_dir(folder.path().join("starting")).unwrap().count(), 3);
    }
}
