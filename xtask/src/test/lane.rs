//! Jobs that run one after the other while the tests run. Their output goes to a file, and is printed at the end if a job fails.

use crate::step;
use anyhow::{Context, Result, anyhow};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

/// The commands of a job, each of which needs the results of the previous one.
pub(super) type Job = Vec<Command>;

/// The jobs that run while the tests run.
pub(super) struct Lane {
    log: PathBuf,
    thread: JoinHandle<Result<()>>,
    is_stopped: Arc<AtomicBool>,
}

impl Lane {
    /// Starts the jobs. A job that fails is reported at once, and the other jobs still run.
    pub(super) fn start(log: &Path, jobs: Vec<Job>) -> Result<Self> {
        let output = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
        let is_stopped = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&is_stopped);
        let run = move || {
            let wanted = jobs.into_iter().take_while(|_| !stopped.load(Ordering::Relaxed));
            let results: Vec<Result<()>> = wanted.map(|job| run(job, &output)).collect();
            results.into_iter().collect()
        };
        Ok(Self { log: log.to_owned(), thread: thread::spawn(run), is_stopped })
    }

    /// Prevents the start of further jobs, because the tests have failed.
    pub(super) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }

    /// Waits for the last job.
    pub(super) fn join(self) -> Result<()> {
        let result = self.thread.join().map_err(|_| anyhow!("the thread of the jobs beside the tests panicked"))?;
        let printed = fs::read(&self.log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let printed = printed.unwrap_or_else(|error| format!("cannot read {}: {error}\n", self.log.display()));
        if result.is_err() {
            eprint!("{printed}");
        } else {
            // These lines show the number of passed tests.
            printed
                .lines()
                .filter(|line| line.starts_with("====") && line.contains("passed"))
                .for_each(|line| eprintln!("{line}"));
        }
        result
    }
}

fn run(job: Job, output: &File) -> Result<()> {
    job.into_iter().try_for_each(|mut command| {
        command.stdout(output.try_clone()?).stderr(output.try_clone()?);
        step::run(&mut command).inspect_err(|error| eprintln!("beside the tests: {error:#}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_job_that_fails_ends_there_and_the_others_run() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let jobs = vec![vec![sh("echo one; exit 3"), sh("echo two")], vec![sh("echo three")]];
        let error = Lane::start(&log, jobs).unwrap().join().unwrap_err();
        assert_eq!(error.to_string(), "sh ended with exit status: 3");
        assert_eq!(fs::read_to_string(log).unwrap(), "one\nthree\n");
    }
}
