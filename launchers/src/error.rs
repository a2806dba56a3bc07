//! Why an engine does not do what a launcher wants.

use crate::JobId;
use std::io;
use std::path::{Path, PathBuf};

/// Why an engine does not do what a launcher wants.
#[derive(Debug, thiserror::Error)]
pub enum LauncherError {
    /// A text names no launcher.
    #[error(
        "there is no launcher `{text}`; use local, slurm, slurm:partition=NAME, ray:http://HOST:8265 or kubernetes:image=NAME"
    )]
    UnknownLauncher {
        /// The text.
        text: String,
    },
    /// An option of an engine is wrong.
    #[error("the option `{option}` of {engine} is wrong: {problem}")]
    Option {
        /// The launcher's name.
        engine: &'static str,
        /// The option.
        option: String,
        /// What is wrong, and what to do.
        problem: &'static str,
    },
    /// An address is not one of Ray's dashboard.
    #[error("`{address}` is not the address of Ray's dashboard; write it as ray:http://HOST:8265")]
    Address {
        /// What was given.
        address: String,
    },
    /// No engine can run a job.
    #[error("the job `{name}` cannot run: {problem}")]
    Job {
        /// The job's name.
        name: String,
        /// What is wrong, and what to do.
        problem: String,
    },
    /// An id is of another engine.
    #[error("`{id}` is not a job of {engine}; use the launcher that has submitted it")]
    Id {
        /// The id.
        id: JobId,
        /// The engine that was asked.
        engine: &'static str,
    },
    /// A job's program does not start.
    #[error("cannot start `{program}`: {source}")]
    Start {
        /// The program.
        program: String,
        /// The system's reason.
        source: io::Error,
    },
    /// A program of an engine is not installed.
    #[error("`{program}` is not on PATH; install {package} here, or submit from a host that has it")]
    NoProgram {
        /// The program.
        program: &'static str,
        /// What brings it.
        package: &'static str,
    },
    /// A program of an engine has failed.
    #[error("`{program}` has failed: {reason}")]
    Failed {
        /// The program.
        program: &'static str,
        /// What it has written on its standard error.
        reason: String,
    },
    /// A program of an engine does not end.
    #[error("`{program}` has not ended within {limit_s} s; see with `{check}` whether its engine answers")]
    Silent {
        /// The program.
        program: &'static str,
        /// The time that it had.
        limit_s: u64,
        /// What shows whether the engine answers.
        check: &'static str,
    },
    /// An engine's answer cannot be read.
    #[error("the answer of {engine} cannot be read: {answer}")]
    Answer {
        /// The engine or its program.
        engine: &'static str,
        /// The answer.
        answer: String,
    },
    /// Ray does not answer.
    #[error(
        "Ray does not answer at {address}: {source}; see that `ray start --head` runs and that this is its dashboard"
    )]
    Connection {
        /// The dashboard's address.
        address: String,
        /// What has happened.
        source: Box<ureq::Error>,
    },
    /// Ray refuses a request.
    #[error("Ray at {address} refuses {what} with status {status}: {reason}")]
    Refused {
        /// The dashboard's address.
        address: String,
        /// What was asked.
        what: String,
        /// The answer's status.
        status: u16,
        /// What Ray says.
        reason: String,
    },
    /// A file or a folder cannot be read or made.
    #[error("cannot use {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

impl LauncherError {
    /// For `map_err`.
    pub(crate) fn file(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        |source| Self::File { path, source }
    }
}
