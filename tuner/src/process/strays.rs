//! Removes the processes that trials leave behind. Does not rely on process groups, because a process can leave its group.

use super::TRIAL_VARIABLE;
use ferrotune_machine::child::wait_for_exit;
use ferrotune_machine::handle::Handle;
use ferrotune_machine::identity::Identity;
use ferrotune_machine::process;
use ferrotune_machine::process_tree::{below, children_of, number};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions};
use std::collections::BTreeSet;
use std::io;
use std::time::{Duration, Instant};

/// The longest wait for a killed process to end. A process that takes longer is held by a driver, and is left to the
/// system.
const PATIENCE: Duration = Duration::from_secs(5);

/// Kills and reaps every child of this process that is not in `living`, and returns the process ids of the killed children.
/// A worker is the reaper of all processes that it starts, so only workers that have ended leave children to this process.
/// A killed child leaves its own children to this process, so this repeats until no child is left. A device process serves all processes
/// of its user, and is no trial's, though it may be a child of this process: it leaves the process that has started it.
pub(super) fn remove(living: &[u32]) -> io::Result<BTreeSet<u32>> {
    let deadline = Instant::now() + PATIENCE;
    let mut removed = BTreeSet::new();
    loop {
        let mut strays = children_of(rustix::process::getpid());
        strays.retain(|pid| !living.contains(&number(*pid)) && !is_device_process(*pid));
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
                Ok(Some(_)) => {
                    removed.insert(number(pid));
                }
                Ok(None) | Err(Errno::INTR | Errno::CHILD) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

/// Whether a process is the device process of this program, which opens a plugin for all processes of its user.
fn is_device_process(pid: Pid) -> bool {
    let words = process::command(number(pid)).unwrap_or_default();
    process::has_own_program(number(pid)) && words.split(|byte| *byte == 0).nth(1) == Some(b"device")
}

/// The line of a trial's record about processes that the trial has left.
pub(super) fn described(count: usize) -> String {
    format!("{count} process{}, killed", if count == 1 { "" } else { "es" })
}

/// Kills the remaining processes of trials whose supervisors are dead, in any study of this user and of this PID namespace.
/// A worker dies with its supervisor, but a process that has left the worker's process group does not.
pub fn remove_orphans() {
    let orphans = kill_orphans();
    if orphans > 0 {
        tracing::info!(orphans, "processes of trials whose supervisors died were killed");
    }
}

fn kill_orphans() -> usize {
    process::all().filter(|pid| kill_if_orphan(*pid)).count()
}

/// Kills a process if its supervisor is dead, and returns whether it did.
fn kill_if_orphan(pid: Pid) -> bool {
    // The descriptor is opened before the supervisor is read: a later process with the same id is not the process of this
    // descriptor.
    let Ok(Some(process)) = Handle::open(pid) else { return false };
    let is_orphan = supervisor_of(pid).is_some_and(|supervisor| supervisor.is_dead());
    is_orphan
        && process.signal(Signal::KILL).unwrap_or_else(|error| {
            tracing::warn!(pid = pid.as_raw_pid(), %error, "a process of an earlier trial cannot be killed");
            false
        })
}

/// The supervisor of the trial that started a process of this user, if a trial started it.
fn supervisor_of(pid: Pid) -> Option<Identity> {
    // A process that has ended, or belongs to another user, has no supervisor here.
    let owner = process::owner(number(pid)).ok()?;
    let environment = process::environment(number(pid)).ok()?;
    if owner != rustix::process::geteuid().as_raw() {
        return None;
    }
    let tag = format!("{TRIAL_VARIABLE}=");
    let variables = environment.split(|byte| *byte == 0);
    let value = variables.filter_map(|variable| variable.strip_prefix(tag.as_bytes())).next()?;
    let supervisor = value.rsplit(|byte| *byte == b'/').next()?;
    Identity::parse(std::str::from_utf8(supervisor).ok()?)
}

/// Kills processes; a process that has already ended is not an error.
pub(super) fn kill_all(pids: &[Pid]) {
    pids.iter().for_each(|pid| kill(*pid));
}

/// Waits until killed processes are gone. A process that a driver holds is left to the system.
pub(super) fn wait_for_all(pids: &[Pid]) -> io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    pids.iter().try_for_each(|pid| wait_for_exit(*pid, deadline.saturating_duration_since(Instant::now())).map(drop))
}

fn kill(pid: Pid) {
    if let Err(errno) = rustix::process::kill_process(pid, Signal::KILL)
        && errno != Errno::SRCH
    {
        tracing::warn!(pid = pid.as_raw_pid(), %errno, "a process of a trial cannot be killed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::{Child, Command};

    type TestResult = Result<(), Box<dyn std::error::Error + Send + Sync>>;

    /// Starts a process that looks like a trial of this supervisor.
    fn trial_of(supervisor: impl std::fmt::Display) -> io::Result<Child> {
        let child = Command::new("sleep").arg("1000").env(TRIAL_VARIABLE, format!("strays/0/{supervisor}")).spawn()?;
        // The system shows the environment of a new program only some time after its parent continues.
        while process::environment(child.id())?.is_empty() {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(child)
    }

    #[test]
    fn only_what_a_dead_supervisor_of_this_pid_namespace_has_left_is_killed() -> TestResult {
        let own = Identity::own()?;
        let mut gone = Command::new("true").spawn()?;
        let dead = Identity { pid: Pid::from_child(&gone), ..own };
        gone.wait()?;
        let mut stay = [
            trial_of(own)?,
            trial_of(Identity { namespace: own.namespace + 1, ..dead })?,
            trial_of(Identity { namespace: own.namespace + 1, start_ticks: own.start_ticks + 1, ..own })?,
            // Earlier versions wrote no namespace.
            trial_of(number(dead.pid))?,
        ];
        let mut go = [trial_of(dead)?, trial_of(Identity { start_ticks: own.start_ticks + 1, ..own })?];
        kill_orphans();
        for child in &mut go {
            assert_eq!(child.wait()?.signal(), Some(Signal::KILL.as_raw()));
        }
        for child in &mut stay {
            assert_eq!(child.try_wait()?, None);
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }
}
