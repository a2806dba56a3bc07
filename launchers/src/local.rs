//! Commands as processes of this machine, each in a process group of its own. This launcher is the reference for the
//! others.
//!
//! The commands end when the launcher is dropped. A killed process drops nothing, so a command that must not outlive the
//! launcher has to watch for its end. Processors and memory are not limited, all commands start at once, and GPUs are not
//! divided among them.

use crate::job::kept_environment;
use crate::{Job, JobId, Launcher, LauncherError, Status};
use ferrotune_machine::child;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The time from the signal TERM to the signal KILL.
const GRACE: Duration = Duration::from_secs(20);
/// The longest wait for a killed process to end.
const LEAVE: Duration = Duration::from_secs(2);

/// The launcher of this machine.
#[derive(Debug, Default)]
pub struct Local {
    commands: HashMap<JobId, Phase>,
    started: u64,
}

/// The phase of one command.
#[derive(Debug)]
enum Phase {
    Running(Child),
    /// The command has received the signal TERM.
    Cancelled {
        child: Child,
        kill_at: Instant,
    },
    Ended(Status),
}

impl Launcher for Local {
    fn submit(&mut self, job: &Job, count: u64) -> Result<Vec<JobId>, LauncherError> {
        job.check()?;
        if job.resources.gpus.is_some() {
            let problem =
                "the launcher `local` shares out no GPUs; name them in the job's variable CUDA_VISIBLE_DEVICES";
            return Err(LauncherError::Job { name: job.name.clone(), problem: problem.into() });
        }
        job.make_log_folder()?;
        let mut ids = Vec::new();
        for _ in 0..count {
            match self.start(job) {
                Ok(id) => ids.push(id),
                Err(error) => {
                    self.cancel(&ids)?;
                    return Err(error);
                }
            }
        }
        Ok(ids)
    }

    fn status(&mut self, ids: &[JobId]) -> Result<Vec<Status>, LauncherError> {
        self.step();
        let status = |id| match self.commands.get(id) {
            None => Status::Gone,
            Some(Phase::Ended(status)) => status.clone(),
            Some(_) => Status::Running,
        };
        Ok(ids.iter().map(status).collect())
    }

    /// Sends the signal TERM to the command's process group. If the command has not ended 20 s later, [`Launcher::status`]
    /// sends KILL, or at the latest the drop does.
    fn cancel(&mut self, ids: &[JobId]) -> Result<(), LauncherError> {
        for id in ids {
            if let Some(phase) = self.commands.get_mut(id) {
                phase.cancel(id);
            }
        }
        Ok(())
    }

    fn logs(&self, job: &Job, id: &JobId) -> Result<String, LauncherError> {
        crate::read_log(&job.log_path(id))
    }
}

impl Local {
    fn start(&mut self, job: &Job) -> Result<JobId, LauncherError> {
        let id = JobId::from(format!("{}-{}", std::process::id(), self.started));
        let path = job.log_path(&id);
        let log = OpenOptions::new().create(true).append(true).open(&path).map_err(LauncherError::file(&path))?;
        let errors = log.try_clone().map_err(LauncherError::file(&path))?;
        let mut words = job.command.iter();
        let program = words.next().map(|program| program.to_os_string()).unwrap_or_default();
        let child = Command::new(&program)
            .args(words)
            .current_dir(&job.folder)
            .env_clear()
            .envs(kept_environment())
            .envs(job.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .process_group(0)
            .spawn()
            .map_err(|source| LauncherError::Start { program: program.display().to_string(), source })?;
        tracing::debug!(job = job.name, %id, pid = child.id(), "started a command");
        self.started += 1;
        self.commands.insert(id.clone(), Phase::Running(child));
        Ok(id)
    }

    /// Updates the phase of each command.
    fn step(&mut self) {
        for (id, phase) in &mut self.commands {
            phase.step(id);
        }
    }
}

impl Drop for Local {
    /// Cancels the running commands, and waits until they have ended.
    fn drop(&mut self) {
        for (id, phase) in &mut self.commands {
            phase.cancel(id);
        }
        for (id, phase) in &mut self.commands {
            phase.end(id);
        }
    }
}

impl Phase {
    /// Sends the signal TERM, unless it has been sent already.
    fn cancel(&mut self, id: &JobId) {
        self.step(id);
        *self = match std::mem::replace(self, Self::Ended(Status::Gone)) {
            Self::Running(child) => {
                signal(&child, Signal::TERM, id);
                Self::Cancelled { child, kill_at: Instant::now() + GRACE }
            }
            other => other,
        };
    }

    /// Checks whether the command has ended, and kills it if its grace is over.
    fn step(&mut self, id: &JobId) {
        let (child, kill_at) = match self {
            Self::Running(child) => (child, None),
            Self::Cancelled { child, kill_at } => (child, Some(*kill_at)),
            Self::Ended(_) => return,
        };
        match has_ended(child) {
            Ok(true) => {
                // The command's remaining processes are killed with it. The id of its process group cannot be reused before
                // the command is reaped.
                signal(child, Signal::KILL, id);
                *self = Self::Ended(reap(child, kill_at.is_some()));
            }
            Ok(false) if kill_at.is_some_and(|at| at <= Instant::now()) => {
                tracing::warn!(%id, "a command has not ended after the signal TERM, and is killed");
                signal(child, Signal::KILL, id);
            }
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(%id, "something else in this process has waited for a command: {error}");
                *self = Self::Ended(Status::Gone);
            }
        }
    }

    /// Waits until a cancelled command has ended, and kills it if its grace is over.
    fn end(&mut self, id: &JobId) {
        if let Self::Cancelled { child, kill_at } = self {
            wait(child, kill_at.saturating_duration_since(Instant::now()), id);
            signal(child, Signal::KILL, id);
            wait(child, LEAVE, id);
        }
        self.step(id);
    }
}

/// Whether a child process has ended; does not reap it.
fn has_ended(child: &Child) -> rustix::io::Result<bool> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    Ok(waitid(WaitId::Pid(Pid::from_child(child)), options)?.is_some())
}

fn reap(child: &mut Child, cancelled: bool) -> Status {
    match child.try_wait() {
        _ if cancelled => Status::cancelled(),
        Ok(Some(status)) => Status::ended(status.code().unwrap_or(0).into(), status.signal().map(i64::from)),
        Ok(None) | Err(_) => Status::Gone,
    }
}

fn signal(child: &Child, signal: Signal, id: &JobId) {
    match kill_process_group(Pid::from_child(child), signal) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => {}
        Err(error) => tracing::warn!(%id, ?signal, "cannot send a signal to a command: {error}"),
    }
}

fn wait(child: &Child, limit: Duration, id: &JobId) {
    if let Err(error) = child::wait_for_exit(Pid::from_child(child), limit) {
        let error: io::Error = error;
        tracing::warn!(%id, "cannot wait for a command: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Resources;

    fn job(folder: &std::path::Path, script: &str) -> Job {
        Job {
            name: "test".into(),
            command: ["sh", "-c", script].map(Into::into).into(),
            environment: vec![("WORD".into(), "a b".into())],
            folder: folder.into(),
            resources: Resources::default(),
        }
    }

    #[test]
    fn drop_ends_a_command_and_what_it_has_started() {
        let folder = tempfile::tempdir().unwrap();
        let mut local = Local::default();
        let script = "sleep 600 & echo $! > child; trap 'echo bye; exit 0' TERM; echo $WORD; wait";
        let job = job(folder.path(), script);
        let ids = local.submit(&job, 1).unwrap();
        while local.logs(&job, &ids[0]).unwrap().is_empty() {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(local.status(&ids).unwrap(), [Status::Running]);
        drop(local);
        let mut next = Local::default();
        assert_eq!(next.logs(&job, &ids[0]).unwrap(), "a b\nbye\n");
        assert_eq!(next.status(&ids).unwrap(), [Status::Gone]);
        let left = std::fs::read_to_string(folder.path().join("child")).unwrap();
        let left = Pid::from_raw(left.trim().parse().unwrap()).unwrap();
        child::wait_for_exit(left, Duration::from_secs(10)).unwrap();
    }

    #[test]
    fn what_cannot_start_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let mut local = Local::default();
        let absent = Job { command: vec!["/nowhere".into()], ..job(folder.path(), "") };
        let error = local.submit(&absent, 2).unwrap_err().to_string();
        assert_eq!(error, "cannot start `/nowhere`: No such file or directory (os error 2)");
        let resources = Resources { gpus: Some(1), ..Resources::default() };
        let error = local.submit(&Job { resources, ..job(folder.path(), "") }, 1).unwrap_err().to_string();
        assert!(error.contains("CUDA_VISIBLE_DEVICES"), "{error}");
    }
}
