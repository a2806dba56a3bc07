//! What can fail when a package is made, each as one line that names the cure.

use crate::package::Package;
use std::path::{Path, PathBuf};
use std::{io, result};

/// Result of this crate.
pub type Result<T> = result::Result<T, Error>;

/// Why a package could not be made, or its changes could not be written.
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
    #[error("cannot run {program}, which fetches {package}: {source}")]
    NoCargo {
        /// The package.
        package: &'static Package,
        /// The program that was called.
        program: String,
        /// The system's error.
        source: io::Error,
    },
    /// The network is needed, and there is none.
    #[error(
        "crates.io cannot be reached, and {package} or a crate that it needs is not in cargo's cache; connect \
         once, then try again ({messages})"
    )]
    Unreachable {
        /// The package.
        package: &'static Package,
        /// Cargo's errors.
        messages: String,
    },
    /// Cargo has another reason.
    #[error("cargo cannot fetch {package}: {messages}")]
    Cargo {
        /// The package.
        package: &'static Package,
        /// Cargo's errors.
        messages: String,
    },
    /// Cargo's answer lacks the package.
    #[error("`cargo metadata` does not say where {package} is; use the cargo of Rust 1.95 or newer")]
    NoAnswer {
        /// The package.
        package: &'static Package,
    },
    /// A patch is not a unified diff.
    #[error("{}/patches/{path}.patch is no unified diff: {source}; write it anew with `cargo xtask {} --diff`", package.folder, package.folder)]
    Malformed {
        /// The package.
        package: &'static Package,
        /// The file of the package.
        path: String,
        /// What is wrong with the patch.
        source: diffy::ParsePatchError,
    },
    /// A patch does not fit the package's file.
    #[error(
        "{0}/patches/{path}.patch does not fit {package}: {source}; write the change anew in {0}/{1}, then run \
         `cargo xtask {0} --diff`", package.folder, package.name
    )]
    Hunk {
        /// The package.
        package: &'static Package,
        /// The file of the package.
        path: String,
        /// Names the hunk by its number, from 1.
        source: diffy::ApplyError,
    },
    /// A patch changes a file that does not exist.
    #[error("{}/patches/{path}.patch: {package} has no {path}", package.folder)]
    NothingToPatch {
        /// The package.
        package: &'static Package,
        /// The missing file of the package.
        path: String,
    },
    /// A whole file takes the place of the package's.
    #[error("{}/files/{path}: {package} has this file already; change it with a patch", package.folder)]
    Exists {
        /// The package.
        package: &'static Package,
        /// The file of the package.
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
        "{0} is edited, and our changes of {package} are others now; write the edit into a patch with \
         `cargo xtask {1} --diff`, or drop it: delete {2}",
        folder.join(path).display(), package.folder, folder.join("src").display()
    )]
    Edited {
        /// The package.
        package: &'static Package,
        /// The folder of the package.
        folder: PathBuf,
        /// The edited file in it.
        path: String,
    },
    /// A file and its patch have both changed.
    #[error(
        "{path} of {package} is edited, and its patch has changed since the folder was made; check out the older patch, run \
         `cargo xtask {} --diff`, and merge the two patches with git", package.folder
    )]
    Diverged {
        /// The package.
        package: &'static Package,
        /// The file of the package.
        path: String,
    },
    /// A patch cannot delete a file.
    #[error("{path} is deleted, which a patch of {package} cannot do; restore it, and leave its module out instead")]
    Deleted {
        /// The package.
        package: &'static Package,
        /// The file of the package.
        path: String,
    },
    /// Nothing is made yet, so nothing is edited.
    #[error("{} has no sources that Ferrotune has made; run `cargo xtask {}`", folder.display(), package.folder)]
    NotMade {
        /// The package.
        package: &'static Package,
        /// The folder of the package.
        folder: PathBuf,
    },
}

/// Makes an error of the system one that names the file.
pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::Io { action, path: path.to_owned(), source }
}
