//! The progress of an installation, by the sizes of files: rustup prints nothing while it downloads.

use crate::folders::bytes;
use ferrotune_machine::format;
use std::path::{Path, PathBuf};

/// The size of the download, and the size on disk after it: Rust 1.95.0 on x86-64, without documentation. On aarch64 the size on disk is 556 MiB.
pub(super) const DOWNLOAD: &str = "130 MiB";
pub(super) const DISK: &str = "570 MiB";

/// The sizes of the files below a folder in which rustup works.
pub(super) struct Size {
    folder: PathBuf,
    last: String,
}

impl Size {
    pub(super) fn of(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), last: String::new() }
    }

    /// The line to show if it has changed.
    pub(super) fn line(&mut self) -> Option<String> {
        let all = bytes(&self.folder);
        let downloads = bytes(&self.folder.join("rustup/downloads"));
        let unpacked = all.saturating_sub(downloads);
        let line = format!(
            "{} of about {DOWNLOAD} downloaded, {} of about {DISK} unpacked",
            format::bytes(downloads),
            format::bytes(unpacked)
        );
        let is_new = line != self.last;
        self.last.clone_from(&line);
        is_new.then_some(line)
    }
}
