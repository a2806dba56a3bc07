//! Commands as the tasks of a job array of Slurm, through Slurm's own programs: `sbatch`, `squeue`, `sacct` and `scancel`.
//!
//! The command replaces the batch script's shell, so that the command gets the signal TERM itself: when it is cancelled,
//! when it is preempted, and 30 s before its time limit. A command starts again, with the same id and the same log, if
//! Slurm preempts it or its host fails.
//!
//! Without accounting, Slurm keeps no record of a task that is cancelled while it waits. Only the launcher that has
//! cancelled the task knows that; for other launchers the task is [`Status::Gone`].
//!
//! The job's variables are passed through the environment of `sbatch`. Other users can see the arguments of `sbatch` and the script.

mod call;
mod options;
mod queue;

use crate::job::check_ids;
use crate::{Job, JobId, Launcher, LauncherError, Status, shell};
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

/// The engine's name in errors.
const ENGINE: &str = "Slurm";
/// The largest number of ids in one command line.
const IDS: usize = 500;
const MIB: u64 = 1 << 20;

/// The launcher of Slurm.
#[derive(Debug)]
pub struct Slurm {
    options: Vec<String>,
    /// The tasks that were cancelled while they waited. Slurm keeps no record of such a task.
    never_started: HashSet<JobId>,
}

impl Slurm {
    /// A launcher with options of `sbatch`, as in `partition=debug,time=2:00:00`.
    ///
    /// # Errors
    /// If an option is invalid, or is one that the launcher sets itself.
    pub fn new(options: &str) -> Result<Self, LauncherError> {
        Ok(Self { options: options::parse(options)?, never_started: HashSet::new() })
    }

    /// The arguments of `sbatch`. The user's options come last, and override the others.
    fn arguments(&self, job: &Job, count: u64) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = [
            "--parsable",
            "--nodes=1",
            "--ntasks=1",
            "--requeue",
            "--open-mode=append",
            "--signal=B:TERM@30",
            // This exports all variables that `call::sbatch` sets for `sbatch`.
            "--export=ALL",
        ]
        .map(Into::into)
        .into();
        arguments.push(format!("--job-name={}", job.name).into());
        arguments.push(format!("--array=0-{}", count.saturating_sub(1)).into());
        arguments.push(with_path("--chdir=", job.folder.as_os_str().as_bytes()));
        arguments.push(with_path("--output=", &output_pattern(job)));
        let resources = job.resources;
        let mut ask =
            |name: &str, value: Option<String>| arguments.extend(value.map(|value| format!("--{name}={value}").into()));
        ask("cpus-per-task", resources.cpus.map(|cpus| cpus.to_string()));
        ask("mem", resources.memory_bytes.map(|bytes| format!("{}M", bytes.div_ceil(MIB))));
        ask("gpus", resources.gpus.map(|gpus| gpus.to_string()));
        arguments.extend(self.options.iter().map(OsString::from));
        arguments
    }
}

impl Launcher for Slurm {
    fn submit(&mut self, job: &Job, count: u64) -> Result<Vec<JobId>, LauncherError> {
        job.check()?;
        if count == 0 {
            return Ok(Vec::new());
        }
        job.make_log_folder()?;
        let answer = call::sbatch(&self.arguments(job, count), &job.environment, script(job))?;
        let number = number(&answer).ok_or(LauncherError::Answer { engine: "sbatch", answer: answer.trim().into() })?;
        tracing::debug!(job = job.name, number, count, "submitted an array to Slurm");
        Ok((0..count).map(|index| JobId::from(format!("{number}_{index}"))).collect())
    }

    fn status(&mut self, ids: &[JobId]) -> Result<Vec<Status>, LauncherError> {
        check(ids)?;
        let mut statuses = queue::status(ids)?;
        for (id, status) in ids.iter().zip(&mut statuses) {
            if *status == Status::Gone && self.never_started.contains(id) {
                *status = Status::cancelled();
            }
        }
        Ok(statuses)
    }

    fn cancel(&mut self, ids: &[JobId]) -> Result<(), LauncherError> {
        for (id, status) in ids.iter().zip(self.status(ids)?) {
            if matches!(status, Status::Waiting { .. }) {
                self.never_started.insert(id.clone());
            }
        }
        for ids in ids.chunks(IDS) {
            // Without --quiet, `scancel` fails for a job that has ended.
            let arguments = ["--quiet"].into_iter().chain(ids.iter().map(JobId::as_str));
            call::run("scancel", arguments)?;
        }
        Ok(())
    }

    fn logs(&self, job: &Job, id: &JobId) -> Result<String, LauncherError> {
        check(std::slice::from_ref(id))?;
        crate::read_log(&job.log_path(id))
    }
}

/// The batch script, in which the command replaces the shell.
fn script(job: &Job) -> Vec<u8> {
    let mut script = b"#!/bin/sh\nexec ".to_vec();
    script.extend(shell::words(&job.command));
    script.push(b'\n');
    script
}

/// The path of the logs, in the form that `sbatch` expects: `%` begins a placeholder.
fn output_pattern(job: &Job) -> Vec<u8> {
    let mut pattern = Vec::new();
    for &byte in job.log_folder().as_os_str().as_bytes() {
        pattern.extend(if byte == b'%' { b"%%".to_vec() } else { vec![byte] });
    }
    pattern.extend(b"/%x-%A_%a.log");
    pattern
}

fn with_path(option: &str, path: &[u8]) -> OsString {
    OsString::from_vec([option.as_bytes(), OsStr::from_bytes(path).as_bytes()].concat())
}

/// The job's number in the output of `sbatch --parsable`: `NUMBER` or `NUMBER;CLUSTER`.
fn number(answer: &str) -> Option<u64> {
    answer.trim().split(';').next()?.parse().ok()
}

/// Refuses ids that are not a job's number and a task's number.
fn check(ids: &[JobId]) -> Result<(), LauncherError> {
    check_ids(ids, ENGINE, |id| queue::array(id).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Resources;
    use expect_test::expect;

    #[test]
    fn sbatch_gets_options_and_a_script_without_secrets() {
        let job = Job {
            name: "study".into(),
            command: ["/a b/run", "it's"].map(Into::into).into(),
            environment: vec![("TOKEN".into(), "secret".into())],
            folder: "/shared/50%".into(),
            resources: Resources { cpus: Some(4), memory_bytes: Some((3 << 20) + 1), gpus: Some(1) },
        };
        let slurm = Slurm::new("partition=debug,exclusive,requeue").unwrap();
        let arguments: Vec<_> = slurm.arguments(&job, 8).into_iter().map(|word| word.into_string().unwrap()).collect();
        expect![[r#"
            --parsable
            --nodes=1
            --ntasks=1
            --requeue
            --open-mode=append
            --signal=B:TERM@30
            --export=ALL
            --job-name=study
            --array=0-7
            --chdir=/shared/50%
            --output=/shared/50%%/logs/%x-%A_%a.log
            --cpus-per-task=4
            --mem=4M
            --gpus=1
            --partition=debug
            --exclusive
            --requeue"#]]
        .assert_eq(&arguments.join("\n"));
        assert_eq!(script(&job), b"#!/bin/sh\nexec '/a b/run' 'it'\\''s'\n");
    }

    #[test]
    fn number_of_a_job_is_read_with_and_without_a_cluster() {
        assert_eq!(["12\n", "12;east\n", "no\n", ""].map(number), [Some(12), Some(12), None, None]);
    }

    #[test]
    fn id_of_another_engine_is_refused() {
        let error = Slurm::new("").unwrap().cancel(&["12_0".into(), "--user=root".into()]).unwrap_err();
        assert_eq!(error.to_string(), "`--user=root` is not a job of Slurm; use the launcher that has submitted it");
    }
}
