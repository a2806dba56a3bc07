//! Whole objects by their addresses: put into stores and folders, and fetched from there. Never changes an object
//! that has the length of the new one, and never removes an object.

use super::files::local;
use super::remote::{self, Remote};
use crate::{is_remote, takes_objects};
use anyhow::{Context as _, Error, Result, bail};
use std::fs::{self, File};
use std::io::{self, Read as _, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// Puts the first `bytes` bytes of a file at an address for which [`takes_objects`](crate::takes_objects) holds. Does nothing if
/// an object of that length exists.
///
/// # Errors
/// If the file cannot be read, or if the store refuses the object; the message names the object.
pub fn put_object(address: &str, file: &File, bytes: u64) -> Result<()> {
    if !takes_objects(address) {
        bail!("`{address}` takes no objects; name a store, or file:///FOLDER");
    }
    if is_remote(address) {
        return remote::put(address, file, bytes);
    }
    let path = local(address)?;
    if fs::metadata(&path).is_ok_and(|present| present.len() == bytes) {
        return Ok(());
    }
    let folder = path.parent().with_context(|| format!("`{address}` names no file"))?;
    write(folder, &path, file, bytes)
        .with_context(|| format!("cannot write {address}; free its disk, or name another folder"))
}

/// Writes under another name first, so that nobody finds a part of the object.
fn write(folder: &Path, path: &Path, file: &File, bytes: u64) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    // The folder decides who may read the object.
    let permissions = fs::Permissions::from_mode(0o666);
    let mut new = tempfile::Builder::new().permissions(permissions).tempfile_in(folder)?;
    let mut position = 0;
    while position < bytes {
        let piece = remote::piece(file, position, bytes)?;
        new.write_all(&piece)?;
        position += piece.len() as u64;
    }
    new.as_file().sync_all()?;
    new.persist(path)?;
    File::open(folder)?.sync_all()
}

/// Writes at most the first `most_bytes` bytes of the object at an address to `to`. Returns whether the object exists.
///
/// # Errors
/// If the object cannot be read, with an error that names it, or if the bytes cannot be written.
pub fn get_object(address: &str, most_bytes: u64, to: &mut dyn Write) -> Result<bool> {
    let mut object: Box<dyn io::Read> = if is_remote(address) {
        let Some(remote) = Remote::find(address)? else { return Ok(false) };
        Box::new(remote.reader())
    } else {
        match File::open(local(address)?) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            file => Box::new(file.with_context(|| format!("cannot read {address}"))?),
        }
    };
    io::copy(&mut object.by_ref().take(most_bytes), to).map_err(|error| {
        let error = Error::from(error);
        // Errors of a store name the object.
        if format!("{error:#}").contains(address) { error } else { error.context(format!("cannot fetch {address}")) }
    })?;
    Ok(true)
}
