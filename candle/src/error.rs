//! What can fail when candle-core is made, each as one line that names the cure.

use crate::VERSION;
use std::path::{Path, PathBuf};
use std::{io, result};

/// Result of this crate.
pub type Result<T> = result::Result<T, Error>;

/// Why candle-core could not be made, or its changes could not be written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or folder cannot be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried, such as `read`.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Cargo cannot be started.
    #[error("cannot run {program}, which fetches candle-core {VERSION}: {source}")]
    NoCargo {
        /// The program that was called.
        program: String,
        /// The system's error.
        source: io::Error,
    },
    /// The network is needed, and there is none.
    #[error(
        "crates.io cannot be reached, and candle-core {VERSION} or a crate that it needs is not in cargo's cache; connect \
         once, then try again ({messages})"
    )]
    Unreachable {
        /// Cargo's errors.
        messages: String,
    },
    /// Cargo has another reason.
    #[error("cargo cannot fetch candle-core {VERSION}: {messages}")]
    Cargo {
        /// Cargo's errors.
        messages: String,
    },
    /// Cargo's answer lacks the package.
    #[error("`cargo metadata` does not say where candle-core {VERSION} is; use the cargo of Rust 1.95 or newer")]
    NoAnswer,
    /// A patch is not a unified diff.
    #[error("candle/patches/{path}.patch is no unified diff: {source}; write it anew with `cargo xtask candle --diff`")]
    Malformed {
        /// The file of candle-core.
        path: String,
        /// What is wrong with the patch.
        source: diffy::ParsePatchError,
    },
    /// A patch does not fit candle's file.
    #[error(
        "candle/patches/{path}.patch does not fit candle-core {VERSION}: {source}; write the change anew in \
         candle/candle-core, then run `cargo xtask candle --diff`"
    )]
    Hunk {
        /// The file of candle-core.
        path: String,
        /// Names the hunk by its number, from 1.
        source: diffy::ApplyError,
    },
    /// A patch changes a file that does not exist.
    #[error("candle/patches/{path}.patch: candle-core {VERSION} has no {path}")]
    NothingToPatch {
        /// The missing file of candle-core.
        path: String,
    },
    /// A whole file takes the place of candle's.
    #[error("candle/files/{path}: candle-core {VERSION} has this file already; change it with a patch")]
    Exists {
        /// The file of candle-core.
        path: String,
    },
    /// The folder has a file of somebody else's.
    #[error("{} is not written by Ferrotune; name another folder, or delete it", path.display())]
    Foreign {
        /// The file or folder.
        path: PathBuf,
    },
    /// A developer's edit is in no patch.
    #[error(
        "{} is edited, and our changes of candle-core are others now; write the edit into a patch with \
         `cargo xtask candle --diff`, or drop it: delete {}",
        folder.join(path).display(), folder.join("src").display()
    )]
    Edited {
        /// The folder of candle-core.
        folder: PathBuf,
        /// The edited file in it.
        path: String,
    },
    /// A file and its patch have both changed.
    #[error(
        "{path} of candle-core is edited, and its patch has changed since the folder was made; check out the older patch, run \
         `cargo xtask candle --diff`, and merge the two patches with git"
    )]
    Diverged {
        /// The file of candle-core.
        path: String,
    },
    /// A patch cannot delete a file.
    #[error("{path} is deleted, which a patch of candle-core cannot do; restore it, and leave its module out instead")]
    Deleted {
        /// The file of candle-core.
        path: String,
    },
    /// Nothing is made yet, so nothing is edited.
    #[error("{} has no sources that Ferrotune has made; run `cargo xtask candle`", folder.display())]
    NotMade {
        /// The folder of candle-core.
        folder: PathBuf,
    },
}

/// Makes an error of the system one that names the file.
pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::Io { action, path: path.to_owned(), source }
}
