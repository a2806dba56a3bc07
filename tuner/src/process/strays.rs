//! The processes under this one: who they are, and how none is left. Trusts no process group, since anyone can leave
//! theirs.

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions};
use std::fs;
use std::io;
use std::time::{Duration, Instant};

/// How long a killed process may take to leave before it is given up (one that waits for a driver may never).
const PATIENCE: Duration = Duration::from_secs(5);

/// Kills and reaps every child of this process until there is none. Killing one hands its own children to this
/// process, which is the subreaper, so the rounds go on.
pub(super) fn remove() -> io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Err(Errno::CHILD) => return Ok(()),
            Ok(Some(_)) | Err(Errno::INTR) => continue,
            Ok(None) => {}
            Err(errno) => return Err(errno.into()),
        }
        let children = children_of(std::process::id());
        for pid in &children {
            kill(*pid);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            tracing::warn!(?children, "processes of a trial do not end; they are left to the system");
            return Ok(());
        }
        if let Some(pid) = children.first() {
            wait_for_exit(*pid, left)?;
        }
    }
}

/// The children of a process, of all its threads; none if it has left.
pub(super) fn children_of(pid: u32) -> Vec<Pid> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else {
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
