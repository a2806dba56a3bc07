//! The errors when packages are made, each as one line that names the cure.

use crate::package::Upstream;
use diffy::patch_set::PatchSetParseError;
use std::path::{Path, PathBuf};
use std::{io, result};

/// The result of an operation of this crate.
pub type Result<T> = result::Result<T, Error>;

/// The reason why packages could not be made, or their changes could not be written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or folder cannot be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// The operation, such as `read`.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Cargo cannot be started.
    #[error("cannot run {program}, which fetches {upstream}: {source}")]
    NoCargo {
        /// The project.
        upstream: &'static Upstream,
        /// The program that was called.
        program: String,
        /// The system's error.
        source: io::Error,
    },
    /// The network is needed, but cannot be reached.
    #[error(
        "crates.io cannot be reached, and {upstream} or a crate that it needs is not in cargo's cache; connect \
         once, then try again ({messages})"
    )]
    Unreachable {
        /// The project.
        upstream: &'static Upstream,
        /// Cargo's errors.
        messages: String,
    },
    /// Cargo has failed for another reason than the network.
    #[error("cargo cannot fetch {upstream}: {messages}")]
    Cargo {
        /// The project.
        upstream: &'static Upstream,
        /// Cargo's errors.
        messages: String,
    },
    /// The answer of `cargo metadata` lacks a package.
    #[error("`cargo metadata` does not say where {upstream} is; use the cargo of Rust 1.95 or newer")]
    NoAnswer {
        /// The project.
        upstream: &'static Upstream,
    },
    /// A patch is not a unified diff.
    #[error("{}/patches/{topic}.patch is no unified diff: {source}; restore it with git", upstream.folder())]
    Malformed {
        /// The project.
        upstream: &'static Upstream,
        /// The name of the patch.
        topic: String,
        /// The parser's error.
        source: PatchSetParseError,
    },
    /// A patch does not fit a file.
    #[error(
        "{0}/patches/{topic}.patch does not fit {path} of {upstream}: {source}; take the hunk out of the patch, write the \
         change anew in {0}/{path}, then run `cargo xtask {1} --diff {topic}`", upstream.folder(), upstream.name
    )]
    Hunk {
        /// The project.
        upstream: &'static Upstream,
        /// The name of the patch.
        topic: String,
        /// The file.
        path: String,
        /// The failed hunk, by its number, from 1.
        source: diffy::ApplyError,
    },
    /// A patch changes a file that does not exist.
    #[error("{}/patches/{topic}.patch: {upstream} has no {path}", upstream.folder())]
    NothingToPatch {
        /// The project.
        upstream: &'static Upstream,
        /// The name of the patch.
        topic: String,
        /// The missing file.
        path: String,
    },
    /// One of our own files has the path of a file of the project.
    #[error("{}/files/{path}: {upstream} has this file already; change it with a patch", upstream.folder())]
    Exists {
        /// The project.
        upstream: &'static Upstream,
        /// The file.
        path: String,
    },
    /// One of our own files belongs to no package.
    #[error(
        "{}/files/{path} is in the sources of no package that is changed; move it below files/{}",
        upstream.folder(), upstream.packages[0].sources()
    )]
    NoPackage {
        /// The project.
        upstream: &'static Upstream,
        /// The file.
        path: String,
    },
    /// The folder has a file that this crate has not written.
    #[error("{} is not written by Ferrotune; name another folder, or delete it", path.display())]
    Foreign {
        /// The file or folder.
        path: PathBuf,
    },
    /// A file has an edit that is in no patch, and the changes are different now.
    #[error(
        "{} is edited, and our changes of {upstream} are others now; write the edit into a patch with \
         `cargo xtask {} --diff TOPIC`, or delete the file to drop it", folder.join(path).display(), upstream.name
    )]
    Edited {
        /// The project.
        upstream: &'static Upstream,
        /// The folder of our packages.
        folder: PathBuf,
        /// The edited file in the folder.
        path: String,
    },
    /// A file and its patches have both changed.
    #[error(
        "{path} of {upstream} is edited, and its patches have changed since it was made; check out the older patches, run \
         `cargo xtask {} --diff TOPIC`, and merge the patches with git", upstream.name
    )]
    Diverged {
        /// The project.
        upstream: &'static Upstream,
        /// The file.
        path: String,
    },
    /// A patch cannot delete a file.
    #[error("{path} is deleted, which a patch of {upstream} cannot do; restore it, and leave its module out instead")]
    Deleted {
        /// The project.
        upstream: &'static Upstream,
        /// The file.
        path: String,
    },
    /// The folder has no sources that were made, so it has no edits.
    #[error("{} has no sources that Ferrotune has made; run `cargo xtask {}`", folder.display(), upstream.name)]
    NotMade {
        /// The project.
        upstream: &'static Upstream,
        /// The folder of our packages.
        folder: PathBuf,
    },
    /// The name of a patch does not begin with a number.
    #[error(
        "{topic} is no name of a patch; begin it with a number, such as 06-sums-of-rows, since patches are applied in the order of their names"
    )]
    Unnumbered {
        /// The name.
        topic: String,
    },
    /// A new patch has no title.
    #[error(
        "there is no {0}/patches/{topic}.patch; for a new one, say what is wrong and what the patch does: \
         `cargo xtask {1} --diff {topic} --title \"…\"`", upstream.folder(), upstream.name
    )]
    Untitled {
        /// The project.
        upstream: &'static Upstream,
        /// The name of the new patch.
        topic: String,
    },
    /// A later patch changes the lines of an edit.
    #[error(
        "the edit of {path} changes or touches lines of {later}, which is applied after {topic}; write it into that one with \
         `cargo xtask {} --diff {later}`", upstream.name
    )]
    Overlap {
        /// The project.
        upstream: &'static Upstream,
        /// The edited file.
        path: String,
        /// The patch that the edit should go into.
        topic: String,
        /// The last patch that changes the file.
        later: String,
    },
}

/// Makes an error that names the file from an error of the system.
pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::Io { action, path: path.to_owned(), source }
}
