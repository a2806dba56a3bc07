//! Writes our changes anew from a folder of a package that a developer has edited.

use crate::changes::{Changes, file_path, patch_path};
use crate::error::{Error, Result, io};
use crate::folder;
use crate::original::Original;
use crate::package::Package;
use crate::sources::{self, Sources};
use crate::stamp::Stamp;
use diffy::DiffOptions;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Writes the edits of `folder` into `patches/` and `files/` of `repository`, and returns the files that were edited. Changes of
/// other files stay as they are.
///
/// # Errors
///
/// Nothing was made in the folder, a file of the package is deleted, or a file and its patch have both changed.
pub fn write_changes(
    package: &'static Package,
    cargo: Command,
    folder: &Path,
    repository: &Path,
) -> Result<Vec<String>> {
    let _lock = folder::lock(folder)?;
    let mut stamp = Stamp::read(folder)?.ok_or_else(|| Error::NotMade { package, folder: folder.to_owned() })?;
    let now = sources::read(folder, "src")?;
    let edited = stamp.edited(&now);
    if edited.is_empty() {
        return Ok(Vec::new());
    }
    let changes = Changes::read(package, repository)?.hashes();
    for path in &edited {
        let has_diverged =
            [patch_path(path), file_path(path)].iter().any(|name| stamp.changes.get(name) != changes.get(name));
        if has_diverged {
            return Err(Error::Diverged { package, path: path.clone() });
        }
    }
    let original = Original::fetch(package, cargo)?.sources;
    if let Some(path) = edited.iter().find(|path| original.contains_key(*path) && !now.contains_key(*path)) {
        return Err(Error::Deleted { package, path: path.clone() });
    }
    for path in &edited {
        write_change(repository, path, &original, &now)?;
    }
    // The folder's own edits are in the changes now; changes of others, which are not in the folder, stay outstanding.
    let written = Stamp::of(&Changes::read(package, repository)?, &now);
    for path in &edited {
        for name in [patch_path(path), file_path(path)] {
            copy_entry(&mut stamp.changes, &written.changes, &name);
        }
        copy_entry(&mut stamp.sources, &written.sources, path);
    }
    stamp.write(&folder.join("src"))?;
    Ok(edited.into_iter().collect())
}

/// Writes the change of one file, or removes it if the file is the package's again.
fn write_change(repository: &Path, path: &str, original: &Sources, now: &Sources) -> Result<()> {
    match (original.get(path), now.get(path)) {
        (Some(before), Some(after)) if before == after => remove(&repository.join(patch_path(path))),
        (Some(before), Some(after)) => write(&repository.join(patch_path(path)), &unified(path, before, after)),
        (None, Some(text)) => write(&repository.join(file_path(path)), text),
        (_, None) => remove(&repository.join(file_path(path))),
    }
}

/// A unified diff with three lines of context.
fn unified(path: &str, before: &str, after: &str) -> String {
    let mut options = DiffOptions::new();
    options.set_original_filename(format!("a/{path}")).set_modified_filename(format!("b/{path}"));
    options.create_patch(before, after).to_string()
}

fn write(path: &Path, text: &str) -> Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(io("create", parent))?;
    }
    fs::write(path, text).map_err(io("write", path))
}

fn remove(path: &Path) -> Result<()> {
    if path.exists() { fs::remove_file(path).map_err(io("remove", path)) } else { Ok(()) }
}

/// Copies an entry, or its absence.
fn copy_entry(to: &mut BTreeMap<String, String>, from: &BTreeMap<String, String>, name: &str) {
    match from.get(name) {
        Some(hash) => to.insert(name.to_owned(), hash.clone()),
        None => to.remove(name),
    };
}
