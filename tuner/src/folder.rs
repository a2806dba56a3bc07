//! Folders that are on disk once they are made: a name survives a power cut only if the folder that holds it was synced.

use std::fs::{self, File};
use std::io;
use std::path::Path;

/// Makes a folder and those above it that are missing, and syncs the parent of every one that it made.
pub(crate) fn create_and_sync(folder: &Path) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    let parent = folder.parent().filter(|parent| !parent.as_os_str().is_empty());
    if let Some(parent) = parent.filter(|parent| !parent.exists()) {
        create_and_sync(parent)?;
    }
    match fs::create_dir(folder) {
        // Another process may have made it meanwhile.
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists || !folder.is_dir() => Err(error),
        _ => sync(parent.unwrap_or(Path::new("."))),
    }
}

/// Copies a file to where it is to be; it is there whole or not at all, and on disk when this returns.
pub(crate) fn install(source: &Path, target: &Path) -> io::Result<()> {
    let mut from = File::open(source)?;
    write_whole(target, |to| io::copy(&mut from, to).map(drop))
}

/// Writes a file that is there whole or not at all, and on disk when this returns.
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

/// Puts the names in a folder on disk.
pub(crate) fn sync(folder: &Path) -> io::Result<()> {
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
    fn a_file_in_the_way_is_an_error() -> TestResult {
        let directory = tempfile::tempdir()?;
        fs::write(directory.path().join("digits"), "")?;
        assert!(create_and_sync(&directory.path().join("digits")).is_err());
        assert!(create_and_sync(&directory.path().join("digits/trials")).is_err());
        Ok(())
    }
}
