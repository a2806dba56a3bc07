//! The processes under this one: who they are, and how none is left. Trusts no process group, since anyone can leave
//! theirs.

use super::TRIAL_VARIABLE;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions};
use std::fs;
use std::io;
use std::time::{Duration, Instant};

/// How long a killed process may take to leave before it is given up (one that waits for a driver may never).
const PATIENCE: Duration = Duration::from_secs(5);

/// Kills and reaps every child of this process that is none of `living`, until there is none; gives how many there
/// were. A worker is the reaper of all that it starts, so what comes to this process was left by one that has ended.
/// Killing one hands its own children to this process, so the rounds go on.
pub(super) fn remove(living: &[u32]) -> io::Result<usize> {
    let deadline = Instant::now() + PATIENCE;
    let mut removed = 0;
    loop {
        let mut strays = children_of(rustix::process::getpid());
        strays.retain(|pid| !living.contains(&number(*pid)));
        let Some(first) = strays.first().copied() else { return Ok(removed) };
        for pid in &strays {
            kill_all(&below(*pid));
            kill(*pid);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            tracing::warn!(?strays, "processes of a trial do not end; they are left to the system");
            return Ok(removed);
        }
        wait_for_exit(first, left)?;
        for pid in strays {
            match rustix::process::waitpid(Some(pid), WaitOptions::NOHANG) {
                Ok(Some(_)) => removed += 1,
                Ok(None) | Err(Errno::INTR | Errno::CHILD) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

/// Kills what trials of supervisors that are dead have left: workers die with their supervisor, but not what has left
/// their process group. Gives how many there were.
pub(super) fn remove_orphans() -> usize {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?));
    let orphans: Vec<Pid> = pids.filter(|pid| supervisor_of(*pid).is_some_and(is_dead)).collect();
    kill_all(&orphans);
    orphans.len()
}

/// The supervisor of the trial in which a process was started, if it was started in one.
fn supervisor_of(pid: Pid) -> Option<Pid> {
    // That of another user cannot be read, and is none of ours.
    let environment = fs::read(format!("/proc/{}/environ", number(pid))).ok()?;
    let tag = format!("{TRIAL_VARIABLE}=");
    let variables = environment.split(|byte| *byte == 0);
    let value = variables.filter_map(|variable| variable.strip_prefix(tag.as_bytes())).next()?;
    let supervisor = value.rsplit(|byte| *byte == b'/').next()?;
    Pid::from_raw(std::str::from_utf8(supervisor).ok()?.parse().ok()?)
}

pub(super) fn is_dead(pid: Pid) -> bool {
    rustix::process::test_kill_process(pid) == Err(Errno::SRCH)
}

/// Everything below a process, without itself.
pub(super) fn below(pid: Pid) -> Vec<Pid> {
    let mut found = Vec::new();
    let mut parents = vec![pid];
    while let Some(pid) = parents.pop() {
        let children = children_of(pid);
        found.extend(&children);
        parents.extend(children);
    }
    found
}

pub(super) fn kill_all(pids: &[Pid]) {
    pids.iter().for_each(|pid| kill(*pid));
}

/// A process id as the number that it is.
pub(super) fn number(pid: Pid) -> u32 {
    pid.as_raw_nonzero().get().unsigned_abs()
}

/// The children of a process, of all its threads; none if it has left.
pub(super) fn children_of(pid: Pid) -> Vec<Pid> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{}/task", number(pid))) else {
        return Vec::new();
    };
    let mut children = Vec::new();
    for task in tasks.flatten() {
        // A thread that ends between the two reads has handed its children on.
        if let Ok(text) = fs::read_to_string(task.path().join("children")) {
            children.extend(text.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)));
        }
    }
    children
}

fn kill(pid: Pid) {
    if let Err(errno) = rustix::process::kill_process(pid, Signal::KILL)
        && errno != Errno::SRCH
    {
        tracing::warn!(pid = pid.as_raw_pid(), %errno, "a process of a trial cannot be killed");
    }
}

fn wait_for_exit(pid: Pid, limit: Duration) -> io::Result<()> {
    let pidfd = match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
        Err(Errno::SRCH) => return Ok(()),
        other => other?,
    };
    let timeout = Timespec::try_from(limit).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    match rustix::event::poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&timeout)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}
