//! Makes a snapshot of the process that holds the variables: a forked child that sleeps.
//!
//! The child connects to the supervisor, which alone decides whether the child wakes or ends. The fork copies memory, but not
//! threads and device contexts.
#![expect(unsafe_code, reason = "fork, and leaving a forked process without running what belongs to the other one")]

use super::dead_ends::{self, Cut, Identity};
use anyhow::{Context, Result};
use ferrotune_machine::own;
use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions, waitpid};
use std::collections::HashSet;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// The memory that must stay available to the machine if a cell changes all memory that the process and its snapshot share.
const RESERVE_BYTES: u64 = 512 << 20;

/// The byte that wakes a snapshot. At the end of the stream the snapshot ends.
pub(super) const WAKE: u8 = b'w';

/// The process in which the caller is after the fork.
pub(super) enum Fork {
    /// This process goes on; the snapshot sleeps.
    Original {
        /// The snapshot.
        snapshot: Pid,
        /// How long the fork took.
        cost: Duration,
    },
    /// There is not enough memory for a process and its snapshot, so there is no fork.
    Unguarded,
    /// This is the snapshot, and it has been woken: it takes the place of the original.
    Woken {
        /// Names of the original's threads, which were not copied.
        threads: Vec<String>,
        /// The pipes, sockets and locks that the snapshot has not kept.
        cut: Box<Cut>,
    },
}

/// Forks, if there is enough memory. In the child this returns only when the supervisor, at `socket`, has woken the child. The
/// child keeps no pipes and connections but its `own`.
pub(super) fn take(socket: &Path, own: &[Identity]) -> Result<Fork> {
    if !memory_suffices()? {
        return Ok(Fork::Unguarded);
    }
    let started = Instant::now();
    let threads = other_threads();
    // SAFETY: called on the main thread, between cells. The child calls nothing but system calls until it is woken; from
    // then on it uses no thread pool of the parent's, and whoever waits for it does so with a deadline.
    match unsafe { libc::fork() } {
        -1 => Err(std::io::Error::last_os_error()).context("fork"),
        0 => {
            let Some(cut) = sleep(socket, own) else {
                // SAFETY: ends this process at once; its exit handlers and buffers are the parent's.
                unsafe { libc::_exit(0) }
            };
            Ok(Fork::Woken { threads, cut: Box::new(cut) })
        }
        pid => {
            let snapshot = Pid::from_raw(pid).context("fork gave no process id")?;
            // Parent and child both call setpgid, so that the snapshot has left the group, which may be killed, in either order.
            if let Err(error) = rustix::process::setpgid(Some(snapshot), Some(snapshot)) {
                tracing::debug!("the snapshot has gone by itself: {error}");
            }
            Ok(Fork::Original { snapshot, cost: started.elapsed() })
        }
    }
}

/// Ends a process that the user's own code has forked, which must not go on as if it were the cell process.
pub(super) fn leave() -> ! {
    // SAFETY: ends this process at once; its exit handlers and buffers are the parent's.
    unsafe { libc::_exit(0) }
}

/// Sleeps until the supervisor has decided. If it wakes this process, returns what the process has lost; none if it has to end.
fn sleep(socket: &Path, own: &[Identity]) -> Option<Cut> {
    // The parent's process group is killed as a whole, so the snapshot must leave it.
    rustix::process::setpgid(None, None).ok()?;
    // A failure cannot be reported from here, and a snapshot that keeps too many descriptors is better than none.
    let cut = dead_ends::cut(own).unwrap_or(Cut::NOTHING);
    let mut supervisor = UnixStream::connect(socket).ok()?;
    let mut byte = [0];
    (supervisor.read_exact(&mut byte).is_ok() && byte == [WAKE]).then_some(cut)
}

/// Reaps snapshots that have ended. A snapshot is a child of the process that it was copied from.
pub(super) fn reap(snapshots: &mut Vec<Pid>) {
    snapshots.retain(|pid| matches!(waitpid(Some(*pid), WaitOptions::NOHANG), Ok(None) | Err(Errno::INTR)));
}

/// The names of the first few threads other than the calling one, without those that a woken snapshot starts anew.
fn other_threads() -> Vec<String> {
    const MOST: usize = 16;
    let Ok(threads) = own::threads() else { return Vec::new() };
    let this = rustix::thread::gettid().as_raw_nonzero().get();
    let others = threads.filter(|thread| *thread != this).take(4 * MOST);
    let names = others.filter_map(|thread| own::thread_name(thread).ok());
    let mut seen = HashSet::new();
    let names = names.filter_map(|name| {
        let is_own = name.starts_with(OWN_THREADS);
        match seen.insert(name.clone()) {
            true if is_own => None,
            // A thread without a name of its own has that of the thread, or of the program, that started it.
            false if is_own => Some("unnamed".to_owned()),
            _ if name == "exe" => Some("unnamed".to_owned()),
            _ => Some(name),
        }
    });
    names.take(MOST).collect()
}

/// The prefix of the names of the threads that the prelude starts, and starts again in a woken snapshot.
const OWN_THREADS: &str = "ferrotune-";

/// Whether memory is left even if the next cell changes everything that the process holds.
fn memory_suffices() -> Result<bool> {
    let held = ferrotune_machine::memory::own_resident_bytes();
    let available = ferrotune_machine::memory::available_bytes().context("cannot read how much memory is available")?;
    Ok(available > held + RESERVE_BYTES)
}
