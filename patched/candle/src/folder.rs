//! The folder with our packages of a project. The `src` of each package is whole or absent, and its edits are never overwritten.

use crate::changes::Changes;
use crate::error::{Error, Result, io};
use crate::original::Original;
use crate::package::{Package, Upstream};
use crate::sources::{self, Sources};
use crate::stamp::Stamp;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

/// Makes our packages in `folder`, each in the folder of its name, unless they are there already.
///
/// `cargo` is a call of cargo without arguments, whose working folder decides which configuration of cargo applies.
/// `progress` is called with a line of text before cargo is called, which may download.
///
/// # Errors
///
/// Cargo cannot fetch the packages, a change does not fit, or the folder has files that would be lost.
pub fn make(cargo: Command, folder: &Path, changes: &Changes, progress: &mut dyn FnMut(&str)) -> Result<()> {
    let upstream = changes.upstream;
    for package in upstream.packages {
        let folder = folder.join(package.name);
        fs::create_dir_all(&folder).map_err(io("create", &folder))?;
    }
    let _lock = lock(folder)?;
    let hashes = changes.hashes();
    let stamps = upstream.packages.iter().map(|package| Stamp::read(package, folder)).collect::<Result<Vec<_>>>()?;
    let is_made =
        |stamp: &Option<Stamp>| stamp.as_ref().is_some_and(|stamp| stamp.changes == hashes && stamp.is_there(folder));
    if stamps.iter().all(is_made) && changes.manifests.keys().all(|path| folder.join(path).is_file()) {
        return Ok(());
    }
    let before = read(upstream, folder)?;
    for (package, stamp) in upstream.packages.iter().zip(&stamps) {
        refuse_loss(upstream, package, stamp.as_ref(), &before, folder)?;
    }
    progress(&format!("fetching {upstream}"));
    let Original { mut sources, documents } = Original::fetch(upstream, cargo)?;
    changes.apply(&mut sources)?;
    for (package, stamp) in upstream.packages.iter().zip(stamps) {
        for (path, text) in documents.iter().chain(&changes.manifests).filter(|(path, _)| package.has(path)) {
            replace(&folder.join(path), text, stamp.is_some())?;
        }
        replace_sources(package, folder, &before, &package.part(&sources), &hashes)?;
    }
    Ok(())
}

/// The files in a project's folder with edits that are in no patch; none if no sources were made there.
///
/// # Errors
///
/// A file cannot be read.
pub fn edited(upstream: &Upstream, folder: &Path) -> Result<Vec<String>> {
    let mut edited = Vec::new();
    for package in upstream.packages {
        if let Some(stamp) = Stamp::read(package, folder)? {
            edited.extend(stamp.edited(&sources::read(folder, &package.sources())?));
        }
    }
    Ok(edited)
}

/// The sources of our packages in the folder, with their edits.
pub(crate) fn read(upstream: &Upstream, folder: &Path) -> Result<Sources> {
    let mut all = Sources::new();
    for package in upstream.packages {
        all.append(&mut sources::read(folder, &package.sources())?);
    }
    Ok(all)
}

/// Locks the folder against other processes until the returned file is closed.
pub(crate) fn lock(folder: &Path) -> Result<File> {
    let file = File::open(folder).map_err(io("open", folder))?;
    file.lock().map_err(io("lock", folder))?;
    Ok(file)
}

/// Returns an error if new sources of a package would overwrite an edit.
fn refuse_loss(
    upstream: &'static Upstream,
    package: &Package,
    stamp: Option<&Stamp>,
    before: &Sources,
    folder: &Path,
) -> Result<()> {
    let Some(stamp) = stamp else {
        let path = folder.join(package.sources());
        return if path.exists() { Err(Error::Foreign { path }) } else { Ok(()) };
    };
    // A missing file, as after a clean-up of caches, is made again.
    match stamp.edited(&package.part(before)).into_iter().find(|path| before.contains_key(path)) {
        Some(path) => Err(Error::Edited { upstream, folder: folder.to_owned(), path }),
        None => Ok(()),
    }
}

/// Writes a file next to `src`. An existing file with another text must be `ours`.
fn replace(path: &Path, text: &str, ours: bool) -> Result<()> {
    if path.exists() {
        if sources::text(path)? == text {
            return Ok(());
        }
        if !ours {
            return Err(Error::Foreign { path: path.to_owned() });
        }
    }
    fs::write(path, text).map_err(io("write", path))
}

/// Writes the sources of a package next to the old ones, and then replaces the old ones by them.
fn replace_sources(
    package: &Package,
    folder: &Path,
    before: &Sources,
    after: &Sources,
    changes: &BTreeMap<String, String>,
) -> Result<()> {
    let target = folder.join(package.sources());
    let [new, old] = ["src.new", "src.old"].map(|name| target.with_file_name(name));
    for rest in [&new, &old] {
        if rest.exists() {
            fs::remove_dir_all(rest).map_err(io("remove", rest))?; // of a process that was killed: this process holds the lock
        }
    }
    for (path, text) in after {
        let made = folder.join(path);
        let file = new.join(made.strip_prefix(&target).map_err(|_| Error::Foreign { path: made.clone() })?);
        if let Some(parent) = file.parent() {
            fs::create_dir_all(parent).map_err(io("create", parent))?;
        }
        fs::write(&file, text).map_err(io("write", &file))?;
        if before.get(path) == Some(text) {
            keep_time(&made, &file)?;
        }
    }
    Stamp::of(changes, after).write(package, &new)?;
    if target.exists() {
        fs::rename(&target, &old).map_err(io("move", &target))?;
    }
    fs::rename(&new, &target).map_err(io("move", &new))?;
    if old.exists() {
        fs::remove_dir_all(&old).map_err(io("remove", &old))?;
    }
    Ok(())
}

/// Copies the time of a file whose text stays the same, so that cargo does not compile everything again.
fn keep_time(from: &Path, to: &Path) -> Result<()> {
    let time = fs::metadata(from).and_then(|metadata| metadata.modified()).map_err(io("read", from))?;
    File::options().write(true).open(to).and_then(|file| file.set_modified(time)).map_err(io("write", to))
}
