//! The crash net: before a cell runs, its process forks, and the child sleeps.
//!
//! Where the cell ends well the sleeper is told to go. Where the process dies the sleeper wakes, with every variable as
//! it was before the cell. Memory survives that way; threads and device contexts do not.
#![expect(unsafe_code, reason = "fork, and leaving a forked process without running what belongs to the other one")]

use anyhow::Result;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, WaitOptions, waitpid};
use std::os::fd::OwnedFd;

/// What is left to the machine when a cell's process is counted twice.
const RESERVE_BYTES: u64 = 512 << 20;

/// On which side of the fork the caller finds itself.
pub(super) enum Fork {
    /// The cell is to be run, with the sleeper as a net.
    Cell(Snapshot),
    /// The cell is to be run without a net: there is not enough memory for both.
    Unguarded,
    /// The process that ran the cell has died; this one takes its place.
    Woken,
}

/// The sleeper, as its parent sees it.
#[derive(Debug)]
pub(super) struct Snapshot {
    pid: Pid,
    /// Closed with this process, however it ends; that wakes the sleeper.
    alive: OwnedFd,
}

impl Snapshot {
    pub(super) fn pid(&self) -> Pid {
        self.pid
    }

    /// The cell has ended well: the sleeper is not needed. It is reaped later.
    pub(super) fn discard(self) -> Pid {
        if let Err(error) = rustix::io::write(&self.alive, b"k") {
            tracing::debug!("the snapshot has gone by itself: {error}");
        }
        self.pid
    }
}

/// Forks, where memory allows. In the child this returns only when the parent has died.
pub(super) fn take() -> Result<Fork> {
    if !memory_suffices()? {
        return Ok(Fork::Unguarded);
    }
    let (asleep, alive) = pipe_with(PipeFlags::CLOEXEC)?;
    // SAFETY: called on the main thread, between cells. The child calls nothing but system calls until it is woken; from
    // then on it uses no thread pool of the parent's, and whoever waits for it does so with a deadline.
    match unsafe { libc::fork() } {
        -1 => Err(std::io::Error::last_os_error().into()),
        0 => {
            drop(alive);
            // A group of its own: the parent's is killed as a whole.
            if rustix::process::setpgid(None, None).is_err() || !sleep_until_parent_dies(&asleep) {
                // SAFETY: ends this process at once; its exit handlers and buffers are the parent's.
                unsafe { libc::_exit(0) }
            }
            Ok(Fork::Woken)
        }
        pid => match Pid::from_raw(pid) {
            Some(pid) => Ok(Fork::Cell(Snapshot { pid, alive })),
            None => Ok(Fork::Unguarded),
        },
    }
}

/// `true` when the parent has died, `false` when it needs no snapshot any more.
fn sleep_until_parent_dies(asleep: &OwnedFd) -> bool {
    let mut byte = [0];
    loop {
        match rustix::io::read(asleep, &mut byte) {
            Ok(0) => return true,
            Ok(_) => return false,
            Err(Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

/// Takes note of sleepers that have gone.
pub(super) fn reap(gone: &mut Vec<Pid>) {
    gone.retain(|pid| matches!(waitpid(Some(*pid), WaitOptions::NOHANG), Ok(None)));
}

/// Whether the cell could change all that it holds, and the machine would still have memory left.
fn memory_suffices() -> Result<bool> {
    let statm = std::fs::read_to_string("/proc/self/statm")?;
    let pages: Vec<u64> = statm.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let private = pages.get(1).copied().unwrap_or(0).saturating_sub(pages.get(2).copied().unwrap_or(0));
    let held = private * rustix::param::page_size() as u64;
    let meminfo = std::fs::read_to_string("/proc/meminfo")?;
    let available =
        meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:")?.split_whitespace().next()?.parse().ok());
    Ok(available.is_none_or(|kib: u64| kib * 1024 > held + RESERVE_BYTES))
}
