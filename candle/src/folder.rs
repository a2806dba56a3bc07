//! The folder with our package. Its `src` is whole or absent, and an edit in it is never overwritten.

use crate::changes::Changes;
use crate::error::{Error, Result, io};
use crate::original::Original;
use crate::package::Package;
use crate::sources::{self, Sources};
use crate::stamp::Stamp;
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

/// Makes our package in `folder`, unless it is there already.
///
/// `cargo` is a call of cargo without arguments, whose working folder decides which configuration of cargo applies.
/// `progress` gets a line before cargo is asked, which may download.
///
/// # Errors
///
/// Cargo cannot fetch the package, a change does not fit, or the folder has files that would be lost.
pub fn make(cargo: Command, folder: &Path, changes: &Changes, progress: &mut dyn FnMut(&str)) -> Result<()> {
    fs::create_dir_all(folder).map_err(io("create", folder))?;
    let _lock = lock(folder)?;
    let stamp = Stamp::read(folder)?;
    if stamp.as_ref().is_some_and(|stamp| stamp.changes == changes.hashes() && stamp.is_there(folder)) {
        return Ok(());
    }
    let before = sources::read(folder, "src")?;
    match &stamp {
        Some(stamp) => refuse_edits(changes.package, stamp, &before, folder)?,
        None if folder.join("src").exists() => return Err(Error::Foreign { path: folder.join("src") }),
        None => {}
    }
    progress(&format!("fetching {}", changes.package));
    let Original { mut sources, documents } = Original::fetch(changes.package, cargo)?;
    changes.apply(&mut sources)?;
    let manifest = ("Cargo.toml".to_owned(), changes.manifest.clone());
    for (name, text) in documents.into_iter().chain([manifest]) {
        replace(&folder.join(name), &text, stamp.is_some())?;
    }
    replace_sources(folder, &before, &sources, &Stamp::of(changes, &sources))
}

/// The files of a folder of a package with edits that are in no patch; none if nothing was made there.
///
/// # Errors
///
/// A file cannot be read.
pub fn edited(folder: &Path) -> Result<Vec<String>> {
    let Some(stamp) = Stamp::read(folder)? else { return Ok(Vec::new()) };
    Ok(stamp.edited(&sources::read(folder, "src")?).into_iter().collect())
}

/// Keeps other processes out of the folder until the file is closed.
pub(crate) fn lock(folder: &Path) -> Result<File> {
    let file = File::open(folder).map_err(io("open", folder))?;
    file.lock().map_err(io("lock", folder))?;
    Ok(file)
}

fn refuse_edits(package: &'static Package, stamp: &Stamp, sources: &Sources, folder: &Path) -> Result<()> {
    // What is gone, as after a cleaner of caches, is made again.
    match stamp.edited(sources).into_iter().find(|path| sources.contains_key(path)) {
        Some(path) => Err(Error::Edited { package, folder: folder.to_owned(), path }),
        None => Ok(()),
    }
}

/// Writes a file beside the sources. A file with another text must be `ours`.
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

/// Writes the sources beside the old ones, and then takes their place.
fn replace_sources(folder: &Path, before: &Sources, after: &Sources, stamp: &Stamp) -> Result<()> {
    let [new, old] = ["src.new", "src.old"].map(|name| folder.join(name));
    for rest in [&new, &old] {
        if rest.exists() {
            fs::remove_dir_all(rest).map_err(io("remove", rest))?; // of a process that was killed: this one holds the lock
        }
    }
    let target = folder.join("src");
    for (path, text) in after {
        let Some(inside) = path.strip_prefix("src/") else { return Err(Error::Foreign { path: folder.join(path) }) };
        let file = new.join(inside);
        if let Some(parent) = file.parent() {
            fs::create_dir_all(parent).map_err(io("create", parent))?;
        }
        fs::write(&file, text).map_err(io("write", &file))?;
        if before.get(path) == Some(text) {
            keep_time(&target.join(inside), &file)?;
        }
    }
    stamp.write(&new)?;
    if target.exists() {
        fs::rename(&target, &old).map_err(io("move", &target))?;
    }
    fs::rename(&new, &target).map_err(io("move", &new))?;
    if old.exists() {
        fs::remove_dir_all(&old).map_err(io("remove", &old))?;
    }
    Ok(())
}

/// A file that stays the same keeps its time, so that cargo does not compile everything again.
fn keep_time(from: &Path, to: &Path) -> Result<()> {
    let time = fs::metadata(from).and_then(|metadata| metadata.modified()).map_err(io("read", from))?;
    File::options().write(true).open(to).and_then(|file| file.set_modified(time)).map_err(io("write", to))
}
