//! Locks on files that another process may remove or replace: a lock is valid only while its file is at its path. This module
//! changes no byte of a file.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Takes the exclusive lock on a file, and waits until no other process has it locked. Makes the file if it is missing.
pub(crate) fn alone(path: &Path) -> io::Result<File> {
    loop {
        let file = make(path)?;
        file.lock()?;
        if is_at(&file, path)? {
            return Ok(file);
        }
    }
}

/// Takes the exclusive lock on a file; none while another process has it locked. Makes the file if it is missing.
pub(crate) fn try_alone(path: &Path) -> io::Result<Option<File>> {
    loop {
        let file = make(path)?;
        if !is_free(&file)? {
            return Ok(None);
        }
        if is_at(&file, path)? {
            return Ok(Some(file));
        }
    }
}

/// The result of an attempt to lock a file that may be missing.
pub(crate) enum Found {
    Nothing,
    /// Another process has the file locked.
    Busy,
    Taken(File),
}

/// Takes the exclusive lock on a file, if the file exists and is not locked.
pub(crate) fn find_alone(path: &Path) -> io::Result<Found> {
    // NFS gives an exclusive lock only on a file that is open for writing. On a read-only disk the file is opened for reading.
    let file = match OpenOptions::new().append(true).open(path) {
        Err(error) if matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem) => {
            File::open(path)
        }
        file => file,
    };
    let Some(file) = present(file)? else { return Ok(Found::Nothing) };
    // A file that was replaced meanwhile belongs to a process that works with it now.
    Ok(if is_free(&file)? && is_at(&file, path)? { Found::Taken(file) } else { Found::Busy })
}

/// Takes a shared lock on a file, once no process has the exclusive lock; none if the file is missing. The file need not be
/// writable.
pub(super) fn shared(path: &Path) -> io::Result<Option<File>> {
    loop {
        let Some(file) = present(File::open(path))? else { return Ok(None) };
        file.lock_shared()?;
        if is_at(&file, path)? {
            return Ok(Some(file));
        }
    }
}

fn make(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

fn is_free(file: &File) -> io::Result<bool> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let own = file.metadata()?;
    let there = present(fs::metadata(path))?;
    Ok(there.is_some_and(|there| (there.dev(), there.ino()) == (own.dev(), own.ino())))
}

fn present<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn a_lock_holds_only_while_its_file_is_at_its_path() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let first = alone(&path).unwrap();
        assert!(is_at(&first, &path).unwrap() && try_alone(&path).unwrap().is_none());
        fs::remove_file(&path).unwrap();
        assert!(!is_at(&first, &path).unwrap());
        fs::write(&path, "of another process").unwrap();
        assert!(!is_at(&first, &path).unwrap());
        let _second = try_alone(&path).unwrap().unwrap();
        assert!(matches!(find_alone(&path).unwrap(), Found::Busy));
        assert_eq!(fs::read_to_string(&path).unwrap(), "of another process");
    }

    #[test]
    fn who_waits_for_a_lock_that_is_removed_gets_the_new_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let first = alone(&path).unwrap();
        let second = thread::scope(|scope| {
            let waiting = scope.spawn(|| alone(&path).unwrap());
            // The waiting thread has its own descriptor of the file, in addition to the first one.
            while open_descriptors(&path) < 2 {
                thread::yield_now();
            }
            fs::remove_file(&path).unwrap();
            drop(first);
            waiting.join().unwrap()
        });
        assert!(is_at(&second, &path).unwrap());
    }

    fn open_descriptors(path: &Path) -> usize {
        let own = fs::read_dir("/proc/self/fd").unwrap();
        own.filter(|entry| fs::read_link(entry.as_ref().unwrap().path()).is_ok_and(|to| to == path)).count()
    }

    #[test]
    fn a_shared_lock_needs_no_right_to_write_and_keeps_others_from_taking_the_file_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ready.json");
        assert!(shared(&path).unwrap().is_none());
        fs::write(&path, "{}").unwrap();
        let held = [shared(&path).unwrap().unwrap(), shared(&path).unwrap().unwrap()];
        assert!(matches!(find_alone(&path).unwrap(), Found::Busy));
        drop(held);
        assert!(matches!(find_alone(&path).unwrap(), Found::Taken(_)));
    }
}
