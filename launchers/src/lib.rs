//! Places commands on engines that exist: processes of this machine, Slurm, Ray and Kubernetes.
//!
//! A [`Job`] is a command that runs as often as asked. Its commands start where and when the engine wants; [`Launcher::status`]
//! says what has become of each. A command that is cancelled gets the signal TERM, and KILL when the engine's grace is over.
//!
//! An engine gives the commands its own environment and the job's variables, and nothing of the environment of the process that
//! submits them, save what finds programs and speaks the user's language (`environment.rs`).
//!
//! It starts no engine, copies no files to other hosts, and submits nothing again: what an engine has lost is
//! [`Status::Gone`]. It does not know what the commands do.

mod call;
mod environment;
mod error;
mod job;
mod kubernetes;
mod local;
mod ray;
mod shell;
mod slurm;

use std::io;
use std::path::Path;

pub use error::LauncherError;
pub use job::{Job, JobId, Resources, Status};
pub use kubernetes::Kubernetes;
pub use local::Local;
pub use ray::Ray;
pub use slurm::Slurm;

/// An engine that runs commands.
pub trait Launcher {
    /// Submits a job's command `count` times; gives an id for each. Where one cannot be submitted, none is left behind.
    ///
    /// # Errors
    /// Where the job says what no engine can run, and where the engine refuses it or does not answer.
    fn submit(&mut self, job: &Job, count: u64) -> Result<Vec<JobId>, LauncherError>;

    /// What has become of commands, in their order.
    ///
    /// # Errors
    /// Where an id is not one of this engine, and where the engine does not answer.
    fn status(&mut self, ids: &[JobId]) -> Result<Vec<Status>, LauncherError>;

    /// Cancels commands, and does not wait until they have ended. Those that have ended stay as they are, and those that the
    /// engine does not know are passed over.
    ///
    /// # Errors
    /// Where an id is not one of this engine, and where the engine refuses it or does not answer.
    fn cancel(&mut self, ids: &[JobId]) -> Result<(), LauncherError>;

    /// What a command of a job has written on its standard output and its standard error; nothing where it has not started.
    ///
    /// # Errors
    /// Where it cannot be read.
    fn logs(&self, job: &Job, id: &JobId) -> Result<String, LauncherError>;
}

/// The launcher that a text names: `local`, `slurm`, `slurm:partition=debug,time=2:00:00`, `ray:http://127.0.0.1:8265` or
/// `kubernetes:image=NAME`.
///
/// What follows `slurm:` is options of `sbatch`, which win over ours; one without a value is a flag, as in `slurm:exclusive`. What
/// follows `kubernetes:` is described at [`Kubernetes::new`].
///
/// # Errors
/// Where there is no such launcher, and where an option or an address is wrong. No engine is asked.
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

/// Cancels what was submitted of a job before this error, which is given back.
fn taken_back(launcher: &mut dyn Launcher, job: &Job, ids: &[JobId], error: LauncherError) -> LauncherError {
    if let Err(error) = launcher.cancel(ids) {
        tracing::warn!(job = job.name, "cannot cancel what was submitted: {error}");
    }
    error
}

/// A log's text, and nothing where there is no log yet.
fn read_log(path: &Path) -> Result<String, LauncherError> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(source) => Err(LauncherError::File { path: path.into(), source }),
    }
}
