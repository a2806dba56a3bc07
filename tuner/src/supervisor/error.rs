//! Errors that keep a search with processes from beginning or continuing. A failed trial is not an error: it has an ending.

use super::TOKEN_BYTES;
use crate::process::ProcessError;
use crate::search::SearchError;
use ferrotune_journal::JournalError;
use ferrotune_journal::folder::FolderError;
use ferrotune_journal::study_folder::{FileError, file_error};
use ferrotune_machine::format::bytes;
use std::io;
use std::path::{Path, PathBuf};

/// The reason why a search with processes cannot begin or continue.
#[derive(Debug, thiserror::Error)]
pub enum SupervisorError {
    /// The file that describes the search cannot be read.
    #[error("cannot read the search {path}: {source}")]
    Spec {
        /// The path of the file.
        path: PathBuf,
        /// The system's or the parser's reason.
        source: io::Error,
    },
    /// A file of the study could not be written or read.
    #[error(transparent)]
    File(#[from] FileError),
    /// The code for workers on other hosts cannot be published, or cannot be run on this host.
    #[error(transparent)]
    Publication(#[from] PublicationError),
    /// The mirror and the folder of the studies are the same folder, or one contains the other.
    #[error(
        "the mirror {} and the study's folder {} are one folder, or one lies in the other; choose a --mirror elsewhere",
        mirror.display(),
        directory.display()
    )]
    MirrorOverlaps {
        /// The path of the mirror, as the user gave it.
        mirror: PathBuf,
        /// The folder that the mirror overlaps.
        directory: PathBuf,
    },
    /// The disk of the mirror is not mounted.
    #[error(
        "the mirror {} is not made, since there is no folder {}; mount its disk, or make that folder",
        mirror.display(),
        parent.display()
    )]
    NoDisk {
        /// The path of the mirror, as the user gave it.
        mirror: PathBuf,
        /// The missing folder.
        parent: PathBuf,
    },
    /// A mirror that has to be cleared contains something that is not part of a mirror.
    #[error(
        "the mirror {} holds {}, which is no part of a mirror, so --overwrite leaves it alone; move that away, or choose another --mirror or --project",
        mirror.display(),
        found.display()
    )]
    NotAMirror {
        /// The mirror of the study.
        mirror: PathBuf,
        /// The path of the foreign file or folder.
        found: PathBuf,
    },
    /// The mirror belongs to another study.
    #[error(
        "{} is the mirror of another study of that name; choose another --mirror or --project, or remove that folder yourself",
        mirror.display()
    )]
    OtherMirror {
        /// The mirror of the study.
        mirror: PathBuf,
    },
    /// The folder into which a study should be restored from its mirror contains something else.
    #[error(
        "{} holds {}, but no study, so the study in the mirror {} is not brought back into it; move that away, or choose another --directory or --project",
        study.display(),
        found.display(),
        mirror.display()
    )]
    NoStudy {
        /// The folder of the study.
        study: PathBuf,
        /// The path of the foreign content.
        found: PathBuf,
        /// The mirror of the study.
        mirror: PathBuf,
    },
    /// A file that the study needs cannot be copied into its folder.
    #[error(
        "cannot copy {file} into the study {} ({source}); free some space there or choose another --directory, then run it again",
        study.display()
    )]
    Copy {
        /// The file's name.
        file: String,
        /// The study's folder.
        study: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A file that the study needs is not in its folder.
    #[error("the study {} has no {file}; run the search from its own cell, which puts it there", study.display())]
    Lacking {
        /// The file's name.
        file: String,
        /// The study's folder.
        study: PathBuf,
    },
    /// The study's objective is not in its folder.
    #[error("the objective of the study {study} is in the program that began it; run that program again to go on")]
    OwnProgram {
        /// The study's folder.
        study: PathBuf,
    },
    /// The study's folder contains a symbolic link or a special file, or cannot be read.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The study comes from another user, or from a machine or a version that did not record what it compiled.
    #[error(
        "the study {} has code that this user has neither compiled nor trusted, and code can do whatever you can; if you know where it is from, go on with --trust, which is asked once for the same code",
        study.display()
    )]
    UnknownCode {
        /// The study's folder.
        study: PathBuf,
    },
    /// The study names a mirror folder that this user has never chosen or trusted.
    #[error(
        "the study {} wants to be copied to {}, which this user has never given to --mirror; give --mirror, or go on with --trust",
        study.display(),
        mirror.display()
    )]
    UnknownMirror {
        /// The study's folder.
        study: PathBuf,
        /// The mirror folder that the study names.
        mirror: PathBuf,
    },
    /// The journal names a library by a path rather than by a file name.
    #[error("the journal of the study {} names the library {}, which is no file's name; run the study's %%tune cell again", study.display(), library.display())]
    StrayLibrary {
        /// The study's folder.
        study: PathBuf,
        /// The library.
        library: PathBuf,
    },
    /// The journal cannot be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The search itself cannot begin or continue.
    #[error(transparent)]
    Search(#[from] SearchError),
    /// A worker cannot be started or watched.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// An engine cannot run the workers, or all of them have failed.
    #[error("{reason}")]
    Engine {
        /// The reason, in one line.
        reason: String,
    },
    /// Trials cannot run side by side on this device.
    #[error(
        "{device} takes one process at a time, so its trials run one after another; use --concurrency 1 instead of {concurrency}"
    )]
    OneAtATime {
        /// The device's name.
        device: String,
        /// The number of trials that were to run at the same time.
        concurrency: u64,
    },
    /// Another process uses the device.
    #[error(
        "{device} takes one process at a time, and {holder}, also after {wait_s} s; end that process or restart its notebook, then run the search again: it goes on where it is"
    )]
    DeviceInUse {
        /// The device's name.
        device: String,
        /// The process that uses the device, and the evidence for that.
        holder: String,
        /// The time for which the supervisor waited for the device, in seconds.
        wait_s: u64,
    },
    /// The device process of the trials does not start.
    #[error("{device} does not open: {reason}; when that is solved, run the search again: it goes on where it is")]
    Device {
        /// The device's name.
        device: String,
        /// The reason.
        reason: String,
    },
    /// Processes other than the trials use the machine's memory.
    #[error(
        "the machine has only {} of memory left, which the trials do not hold; free some, then run the search again: it goes on where it is",
        bytes(*.available_bytes)
    )]
    MachineShort {
        /// The memory that the machine has left, in bytes.
        available_bytes: u64,
    },
}

/// The reason why a worker cannot run the publication of a study's owner.
#[derive(Debug, thiserror::Error)]
pub enum PublicationError {
    /// The publication is not signed with this token: the token or the content is another one.
    #[error(
        "what study {study} has for workers is not signed with this token; take the file `token` in the folder of the search that was started last with --publish"
    )]
    Unsigned {
        /// The study.
        study: String,
    },
    /// The publication is signed, but this version cannot read it.
    #[error(
        "what study {study} has for workers cannot be read ({reason}); use the version of ferrotune that has published it"
    )]
    Unknown {
        /// The study.
        study: String,
        /// What is wrong with the publication.
        reason: String,
    },
    /// The objective is machine code for another processor architecture.
    #[error(
        "study {study} has code for {wanted}, and this host is {own}; start its workers on hosts of its architecture"
    )]
    Architecture {
        /// The study.
        study: String,
        /// The architecture of the code.
        wanted: String,
        /// The architecture of this host.
        own: &'static str,
    },
    /// A fetched file is not the file that was signed.
    #[error("the file {name} of study {study} is damaged in its database; start its search again with --publish")]
    Damaged {
        /// The study.
        study: String,
        /// The name of the file.
        name: String,
    },
    /// An object in a store is not the object that was signed.
    #[error(
        "{address}, which study {study} has for workers, has other bytes than were signed; remove that object, and start the study's search again with --publish"
    )]
    DamagedObject {
        /// The study.
        study: String,
        /// The address of the object.
        address: String,
    },
    /// A store lacks an object of the publication.
    #[error(
        "there is no {address}, which study {study} has for workers; start the study's search again with --publish"
    )]
    NoObject {
        /// The study.
        study: String,
        /// The address of the object.
        address: String,
    },
    /// An object store cannot be read or written.
    #[error("{0}")]
    Store(String),
    /// There is no token to sign with, or to check a signature with.
    #[error("{from} has no token, which is {} hexadecimal digits; take the file `token` in the study's folder", 2 * TOKEN_BYTES)]
    NoToken {
        /// The file or the environment variable without a token.
        from: String,
    },
    /// The objective is part of a program.
    #[error(
        "--publish needs an objective of a notebook; on other hosts, start the program itself with the same storage"
    )]
    OwnProgram,
}

/// The error for a file that the study needs and that cannot be read. A file that should be in the study's own folder may
/// be missing.
pub(super) fn read_error(
    action: &'static str,
    source: &Path,
    study: &Path,
) -> impl FnOnce(io::Error) -> SupervisorError {
    let (source, study) = (source.to_path_buf(), study.to_path_buf());
    move |error| match error.kind() {
        io::ErrorKind::NotFound if source.starts_with(&study) => {
            let file = source.file_name().unwrap_or_default().to_string_lossy().into_owned();
            SupervisorError::Lacking { file, study }
        }
        _ => file_error(action, &source)(error).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_memory_is_named_with_what_it_has_left() {
        let text = SupervisorError::MachineShort { available_bytes: 300 << 20 }.to_string();
        assert!(text.starts_with("the machine has only 300.0 MiB of memory left, "), "{text}");
    }
}
