//! Operations on folders. New folders are on disk once they are made: a name survives a power cut only if its parent folder
//! was synced. Folders that may come from anyone are checked: a name in a study's folder must not lead out of it.

use std::ffi::OsStr;
use std::fs::{self, File, FileType};
use std::io;
use std::path::{Path, PathBuf};

/// A reason why a study's folder, or a mirror, cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// A symbolic link: the file that is written, read or removed under its name may be any of the user's files.
    #[error("{} is a symbolic link, which a study must not have: it leads out of the folder; put what it names there itself", path.display())]
    Link {
        /// The path of the link.
        path: PathBuf,
    },
    /// A pipe, a socket or a device.
    #[error("{} is neither a file nor a folder; remove it", path.display())]
    Special {
        /// The path of the special file.
        path: PathBuf,
    },
    /// The folder cannot be read.
    #[error("cannot look at {}: {source}", path.display())]
    Unreadable {
        /// The path of the folder, or of the entry in it.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

impl From<FolderError> for io::Error {
    fn from(error: FolderError) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidInput, error)
    }
}

/// Refuses a folder in which a name leads elsewhere. The contents of its subfolders are not checked. A folder that does not
/// exist is accepted, and so is a file in its place: the code that needs the folder reports that error.
pub fn refuse_links(folder: &Path) -> Result<(), FolderError> {
    refuse_links_of(folder, |_| true)
}

/// Refuses a folder in which a name accepted by `ours` leads elsewhere. Users may put any other names there.
pub(crate) fn refuse_links_of(folder: &Path, ours: impl Fn(&OsStr) -> bool) -> Result<(), FolderError> {
    let unreadable = |source| FolderError::Unreadable { path: folder.to_owned(), source };
    let entries = match fs::read_dir(folder) {
        Err(error) if is_absence(&error) => return Ok(()),
        entries => entries.map_err(unreadable)?,
    };
    for entry in entries {
        let entry = entry.map_err(unreadable)?;
        if ours(&entry.file_name()) {
            refuse(&entry.path(), entry.file_type().map_err(unreadable)?)?;
        }
    }
    Ok(())
}

/// Refuses a path whose last name leads elsewhere. A path that does not exist is accepted.
pub fn refuse_link(path: &Path) -> Result<(), FolderError> {
    match fs::symlink_metadata(path) {
        Err(error) if is_absence(&error) => Ok(()),
        Err(source) => Err(FolderError::Unreadable { path: path.to_owned(), source }),
        Ok(found) => refuse(path, found.file_type()),
    }
}

/// The result of a removal, in which a file that does not exist counts as removed.
pub fn removed(outcome: io::Result<()>) -> io::Result<()> {
    match outcome {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Whether an error means that a path does not exist.
pub fn is_absence(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn refuse(path: &Path, kind: FileType) -> Result<(), FolderError> {
    match kind {
        kind if kind.is_symlink() => Err(FolderError::Link { path: path.to_owned() }),
        kind if kind.is_file() || kind.is_dir() => Ok(()),
        _ => Err(FolderError::Special { path: path.to_owned() }),
    }
}

/// Makes a folder and its missing parents, and syncs the parent of each folder that it made.
pub fn create_and_sync(folder: &Path) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    let parent = folder.parent().filter(|parent| !parent.as_os_str().is_empty());
    if let Some(parent) = parent.filter(|parent| !parent.exists()) {
        create_and_sync(parent)?;
    }
    match fs::create_dir(folder) {
        // Another process may have made the folder meanwhile.
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists || !folder.is_dir() => Err(error),
        _ => sync(parent.unwrap_or(Path::new("."))),
    }
}

/// Copies a file to `target`. The copy is complete or absent at any time, and is on disk when this function returns.
pub fn install(source: &Path, target: &Path) -> io::Result<()> {
    let mut from = File::open(source)?;
    write_whole(target, |to| io::copy(&mut from, to).map(drop))
}

/// Writes a file that is complete or absent at any time, and is on disk when this function returns.
pub(crate) fn write_whole(target: &Path, write: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    let mut partial = target.as_os_str().to_owned();
    partial.push(".partial");
    let partial = Path::new(&partial);
    let mut to = File::create(partial)?;
    write(&mut to)?;
    to.sync_all()?;
    fs::rename(partial, target)?;
    sync(target.parent().unwrap_or(Path::new(".")))
}

/// Syncs the names in a folder to disk.
pub fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder).and_then(|folder| folder.sync_all())
}

#[cfg(test)]
mod tests {
    use super::*;

    type TestResult = Result<(), Box<dyn std::error::Error + Send + Sync>>;

    #[test]
    fn missing_folders_are_made_and_those_that_are_there_stay() -> TestResult {
        let directory = tempfile::tempdir()?;
        let deep = directory.path().join("studies/digits/trials/0");
        create_and_sync(&deep)?;
        fs::write(deep.join("output.log"), "kept")?;
        create_and_sync(&deep)?;
        assert_eq!(fs::read_to_string(deep.join("output.log"))?, "kept");
        Ok(())
    }

    #[test]
    fn names_that_lead_elsewhere_are_refused_and_named() -> TestResult {
        let directory = tempfile::tempdir()?;
        let (study, outside) = (directory.path().join("digits"), directory.path().join("outside"));
        refuse_links(&study)?;
        fs::create_dir_all(study.join("trials/0"))?;
        fs::write(study.join("journal.log"), "")?;
        refuse_links(&study)?;
        for target in [outside.as_path(), Path::new("journal.log"), Path::new("trials")] {
            let link = study.join("lock");
            std::os::unix::fs::symlink(target, &link)?;
            let error = refuse_links(&study).err().ok_or("it passed")?.to_string();
            assert!(error.starts_with(&format!("{} is a symbolic link", link.display())), "{error}");
            assert!(refuse_link(&link).is_err());
            refuse_links_of(&study, |name| name != "lock")?;
            fs::remove_file(link)?;
        }
        let _socket = std::os::unix::net::UnixListener::bind(study.join("objective.so"))?;
        assert!(matches!(refuse_links(&study), Err(FolderError::Special { .. })));
        refuse_links(&study.join("journal.log"))?;
        refuse_link(&study.join("journal.log/lock"))?;
        Ok(())
    }

    #[test]
    fn a_file_in_the_way_is_an_error() -> TestResult {
        let directory = tempfile::tempdir()?;
        fs::write(directory.path().join("digits"), "")?;
        assert!(create_and_sync(&directory.path().join("digits")).is_err());
        assert!(create_and_sync(&directory.path().join("digits/trials")).is_err());
        Ok(())
    }
}
