//! Tests that read files: each one runs again in a process of its own that knows the reader, which cargo builds as an example.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A folder for the files of a test, in the process that knows the reader. `None` in the first process, after the test has succeeded
/// in the second one.
pub(crate) fn folder(test: &str) -> Option<tempfile::TempDir> {
    if std::env::var_os("FERROTUNE_READER").is_some() {
        return Some(tempfile::tempdir().unwrap());
    }
    let own = std::env::current_exe().unwrap();
    let reader: PathBuf = own.ancestors().nth(2).unwrap().join("examples/reader");
    assert!(reader.exists(), "there is no {}: cargo build -p ferrotune-data --example reader", reader.display());
    let output = Command::new(own).args(["--exact", test]).env("FERROTUNE_READER", reader).output().unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{text}");
    assert!(text.contains("1 passed"), "there is no test {test}: {text}");
    None
}

/// Writes a file, and returns its path as text.
pub(crate) fn write(folder: &Path, name: &str, bytes: impl AsRef<[u8]>) -> String {
    let file = folder.join(name);
    std::fs::write(&file, bytes).unwrap();
    file.to_str().unwrap().to_owned()
}
