//! The lock that gives a study only one writer. The system releases it with the process, so nothing is left after a crash.

use super::JournalError;
use crate::study_folder::LOCK as FILE;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;

/// A study's lock, held until it is dropped.
#[derive(Debug)]
pub struct StudyLock {
    file: File,
}

impl StudyLock {
    /// Takes the lock at once or fails with the name of its holder.
    pub fn take(folder: &Path, study: &str) -> Result<StudyLock, JournalError> {
        let path = folder.join(FILE);
        let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let mut file = opened.map_err(|source| JournalError::NotWritable { folder: folder.to_owned(), source })?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                return Err(JournalError::Locked { study: study.to_owned(), holder: holder(&mut file) });
            }
            Err(errno) => {
                return Err(JournalError::Io { path, source: errno.into() });
            }
        }
        let text = format!("process {} on {}\n", std::process::id(), host());
        let named = file.set_len(0).and_then(|()| file.write_all(text.as_bytes()));
        named.map_err(|source| JournalError::Io { path, source })?;
        Ok(StudyLock { file })
    }
}

impl Drop for StudyLock {
    fn drop(&mut self) {
        // A child process that another thread is just starting also has the file open, until it has become another program.
        if let Err(errno) = flock(&self.file, FlockOperation::Unlock) {
            tracing::warn!(%errno, "the study stays locked until this process ends");
        }
    }
}

/// The process that has a study open for writing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The holder's process id.
    pub pid: u32,
    /// The host on which the holder runs.
    pub host: String,
}

impl Holder {
    /// Whether the holder runs on this host.
    pub fn is_here(&self) -> bool {
        self.host == host()
    }
}

/// The process that has the study in `folder` open for writing, if there is one.
pub fn holder_of(folder: &Path) -> io::Result<Option<Holder>> {
    let mut file = match File::open(folder.join(FILE)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => return Ok(None),
        Err(Errno::WOULDBLOCK) => {}
        Err(errno) => return Err(errno.into()),
    }
    let text = holder(&mut file);
    let words = text.strip_prefix("process ").and_then(|words| words.split_once(" on "));
    Ok(words.and_then(|(pid, host)| Some(Holder { pid: pid.parse().ok()?, host: host.to_owned() })))
}

/// The name of this host.
pub fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Whether this is the lock's file name.
pub(super) fn is_lock(name: &OsStr) -> bool {
    name == FILE
}

fn holder(file: &mut File) -> String {
    let mut text = String::new();
    match file.read_to_string(&mut text) {
        Ok(_) if !text.trim().is_empty() => text.trim().to_owned(),
        // The holder has the lock but has not yet written its process id and host.
        _ => "another process".to_owned(),
    }
}
