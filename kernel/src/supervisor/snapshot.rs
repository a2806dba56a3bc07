//! Sleeping copies of the process that holds the variables: the crash net, and the way back.
//!
//! After every cell its process forks, and the child sleeps, as a client of the supervisor, which alone decides whether
//! it wakes or goes. Memory survives that way; threads and device contexts do not.
#![expect(unsafe_code, reason = "fork, and leaving a forked process without running what belongs to the other one")]

use anyhow::{Context, Result};
use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions, waitpid};
use std::collections::HashSet;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// What is left to the machine when a cell's process is counted twice.
const RESERVE_BYTES: u64 = 512 << 20;

/// The byte that wakes a sleeper; the end of the stream lets it go.
pub(super) const WAKE: u8 = b'w';

/// On which side of the fork the caller finds itself.
pub(super) enum Fork {
    /// This process goes on; the copy sleeps.
    Original {
        /// The copy.
        sleeper: Pid,
        /// How long the fork took.
        cost: Duration,
    },
    /// There is not enough memory for both.
    Unguarded,
    /// This is the copy, and it has been woken: it takes the original's place.
    Woken {
        /// Names of the original's threads, which did not come along.
        threads: Vec<String>,
    },
}

/// Forks, where memory allows. In the child this returns only when the supervisor, at `socket`, has woken it.
pub(super) fn take(socket: &Path) -> Result<Fork> {
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
            if !is_woken(socket) {
                // SAFETY: ends this process at once; its exit handlers and buffers are the parent's.
                unsafe { libc::_exit(0) }
            }
            Ok(Fork::Woken { threads })
        }
        pid => {
            let sleeper = Pid::from_raw(pid).context("fork gave no process id")?;
            // As the child does: whoever of the two is first, it is out of a group that may be killed now.
            if let Err(error) = rustix::process::setpgid(Some(sleeper), Some(sleeper)) {
                tracing::debug!("the snapshot has gone by itself: {error}");
            }
            Ok(Fork::Original { sleeper, cost: started.elapsed() })
        }
    }
}

/// Leaves a process that the user's own code has forked: it must not go on as if it were the notebook's.
pub(super) fn leave() -> ! {
    // SAFETY: ends this process at once; its exit handlers and buffers are the parent's.
    unsafe { libc::_exit(0) }
}

/// Sleeps until the supervisor has decided.
fn is_woken(socket: &Path) -> bool {
    // A group of its own: the parent's is killed as a whole.
    if rustix::process::setpgid(None, None).is_err() {
        return false;
    }
    let Ok(mut supervisor) = UnixStream::connect(socket) else { return false };
    let mut byte = [0];
    supervisor.read_exact(&mut byte).is_ok() && byte == [WAKE]
}

/// Takes note of sleepers that have gone. They are children of the process that they were copied from.
pub(super) fn reap(sleepers: &mut Vec<Pid>) {
    sleepers.retain(|pid| matches!(waitpid(Some(*pid), WaitOptions::NOHANG), Ok(None) | Err(Errno::INTR)));
}

/// Names of the threads beside the calling one, without those that a woken copy starts anew; the first few.
fn other_threads() -> Vec<String> {
    const MOST: usize = 16;
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return Vec::new() };
    let own = rustix::thread::gettid().as_raw_nonzero().to_string();
    let others = tasks.flatten().filter(|task| task.file_name().to_str() != Some(&own)).take(4 * MOST);
    let names = others.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    let mut seen = HashSet::new();
    let names = names.filter_map(|name| {
        let name = name.trim().to_owned();
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

/// How the names of the threads begin that the prelude starts, and starts again in a woken copy.
const OWN_THREADS: &str = "ferrotune-";

/// Whether the cell could change all that it holds, and the machine would still have memory left.
fn memory_suffices() -> Result<bool> {
    let held = ferrotune_machine::memory::own_resident_bytes();
    let available = ferrotune_machine::memory::available_bytes().context("cannot read how much memory is available")?;
    Ok(available > held + RESERVE_BYTES)
}
