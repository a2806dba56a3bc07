//! Errors of launchers and their engines.

use crate::JobId;
use std::io;
use std::path::{Path, PathBuf};

/// The reason why an engine cannot do what a launcher requests.
#[derive(Debug, thiserror::Error)]
pub enum LauncherError {
    /// A text names no launcher.
    #[error(
        "there is no launcher `{text}`; use local, slurm, slurm:partition=NAME, ray:http://HOST:8265 or kubernetes:image=NAME"
    )]
    UnknownLauncher {
        /// The text that names no launcher.
        text: String,
    },
    /// An option of an engine is invalid.
    #[error("the option `{option}` of {engine} is wrong: {problem}")]
    Option {
        /// The name of the engine.
        engine: &'static str,
        /// The option, as the user gave it.
        option: String,
        /// What is wrong with the option, and what to do.
        problem: &'static str,
    },
    /// An address is not that of a Ray dashboard.
    #[error("`{address}` is not the address of Ray's dashboard; write it as ray:http://HOST:8265")]
    Address {
        /// The address, as the user gave it.
        address: String,
    },
    /// No engine can run a job.
    #[error("the job `{name}` cannot run: {problem}")]
    Job {
        /// The name of the job.
        name: String,
        /// What is wrong with the job, and what to do.
        problem: String,
    },
    /// A job id belongs to another engine.
    #[error("`{id}` is not a job of {engine}; use the launcher that has submitted it")]
    Id {
        /// The job id.
        id: JobId,
        /// The engine that received the id.
        engine: &'static str,
    },
    /// A job's program cannot be started.
    #[error("cannot start `{program}`: {source}")]
    Start {
        /// The path of the program.
        program: String,
        /// The system's reason.
        source: io::Error,
    },
    /// A program of an engine is not installed.
    #[error("`{program}` is not on PATH; install {package} here, or submit from a host that has it")]
    NoProgram {
        /// The name of the program.
        program: &'static str,
        /// The package with the program.
        package: &'static str,
    },
    /// A program of an engine has failed.
    #[error("`{program}` has failed: {reason}")]
    Failed {
        /// The name of the program.
        program: &'static str,
        /// The program's standard error.
        reason: String,
    },
    /// A program of an engine does not end.
    #[error("`{program}` has not ended within {limit_s} s; see with `{check}` whether its engine answers")]
    Silent {
        /// The name of the program.
        program: &'static str,
        /// The time limit in seconds.
        limit_s: u64,
        /// The command that shows whether the engine answers.
        check: &'static str,
    },
    /// An engine's answer cannot be read.
    #[error("the answer of {engine} cannot be read: {answer}")]
    Answer {
        /// The engine or its program.
        engine: &'static str,
        /// The text of the answer.
        answer: String,
    },
    /// Ray does not answer.
    #[error(
        "Ray does not answer at {address}: {source}; see that `ray start --head` runs and that this is its dashboard"
    )]
    Connection {
        /// The dashboard's address.
        address: String,
        /// The error of the connection.
        source: Box<ureq::Error>,
    },
    /// Ray refuses a request.
    #[error("Ray at {address} refuses {what} with status {status}: {reason}")]
    Refused {
        /// The dashboard's address.
        address: String,
        /// The request that was refused.
        what: String,
        /// The HTTP status of the answer.
        status: u16,
        /// The reason in Ray's answer.
        reason: String,
    },
    /// A file or a folder cannot be read or made.
    #[error("cannot use {}: {source}", path.display())]
    File {
        /// The path of the file or folder.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

impl LauncherError {
    /// An error constructor for `map_err`, for a file or folder.
    pub(crate) fn file(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        |source| Self::File { path, source }
    }
}
