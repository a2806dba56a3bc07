//! Places commands on existing engines: processes of this machine, Slurm, Ray and Kubernetes.
//!
//! A [`Job`] is a command that runs a given number of times. The engine decides where and when each command starts;
//! [`Launcher::status`] returns the status of each. A cancelled command gets the signal TERM, and KILL when the engine's
//! grace is over.
//!
//! A command receives the engine's own environment and the job's variables. From the environment of the submitting process
//! it receives only the variables that find programs and set the user's language (`environment.rs`).
//!
//! This crate starts no engine, copies no files to other hosts, and submits nothing again: a command that an engine has
//! lost is [`Status::Gone`]. The crate does not know what the commands do.

mod call;
mod error;
mod id;
mod job;
mod kubernetes;
mod local;
mod ray;
mod shell;
mod slurm;

use std::io;
use std::path::Path;

pub use error::LauncherError;
pub use id::JobId;
pub use job::{Job, Resources, Status};
pub use kubernetes::Kubernetes;
pub use local::Local;
pub use ray::Ray;
pub use slurm::Slurm;

/// An engine that runs commands.
pub trait Launcher {
    /// Submits a job's command `count` times; returns an id for each run. If one run cannot be submitted, none stays
    /// submitted.
    ///
    /// # Errors
    /// If no engine can run the job, or if the engine refuses the job or does not answer.
    fn submit(&mut self, job: &Job, count: u64) -> Result<Vec<JobId>, LauncherError>;

    /// The statuses of commands, in the order of `ids`.
    ///
    /// # Errors
    /// If an id does not belong to this engine, or the engine does not answer.
    fn status(&mut self, ids: &[JobId]) -> Result<Vec<Status>, LauncherError>;

    /// Cancels commands, and does not wait for their ends. Commands that have ended stay unchanged, and commands that the
    /// engine does not know are skipped.
    ///
    /// # Errors
    /// If an id does not belong to this engine, or the engine refuses the request or does not answer.
    fn cancel(&mut self, ids: &[JobId]) -> Result<(), LauncherError>;

    /// The standard output and standard error of a job's command; empty if the command has not started.
    ///
    /// # Errors
    /// If the log cannot be read.
    fn logs(&self, job: &Job, id: &JobId) -> Result<String, LauncherError>;
}

/// The launcher that a text names: `local`, `slurm`, `slurm:partition=debug,time=2:00:00`, `ray:http://127.0.0.1:8265` or
/// `kubernetes:image=NAME`.
///
/// The text after `slurm:` contains options of `sbatch`, which override those of the launcher; an option without a value is
/// a flag, as in `slurm:exclusive`. [`Kubernetes::new`] describes the text after `kubernetes:`.
///
/// # Errors
/// If there is no such launcher, or an option or an address is invalid. No engine is contacted.
///
/// ```
/// assert!(ferrotune_launchers::launcher("slurm:partition=debug,time=2:00:00").is_ok());
/// let error = ferrotune_launchers::launcher("ray:head").err().ok_or("no error")?;
/// assert_eq!(error.to_string(), "`head` is not the address of Ray's dashboard; write it as ray:http://HOST:8265");
/// # Ok::<(), &str>(())
/// ```
pub fn launcher(text: &str) -> Result<Box<dyn Launcher>, LauncherError> {
    match text.split_once(':').unwrap_or((text, "")) {
        ("local", "") => Ok(Box::new(Local::default())),
        ("slurm", options) => Ok(Box::new(Slurm::new(options)?)),
        ("ray", address) => Ok(Box::new(Ray::new(address)?)),
        ("kubernetes", options) => Ok(Box::new(Kubernetes::new(options)?)),
        _ => Err(LauncherError::UnknownLauncher { text: text.into() }),
    }
}

/// Cancels the runs of a job that were submitted before this error, and returns the error.
fn taken_back(launcher: &mut dyn Launcher, job: &Job, ids: &[JobId], error: LauncherError) -> LauncherError {
    if let Err(error) = launcher.cancel(ids) {
        tracing::warn!(job = job.name, "cannot cancel what was submitted: {error}");
    }
    error
}

/// The text of a log; empty if there is no log yet.
fn read_log(path: &Path) -> Result<String, LauncherError> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(source) => Err(LauncherError::File { path: path.into(), source }),
    }
}
