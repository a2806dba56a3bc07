//! When the device process ends: a minute after its last client, or at once where a client asks for it.

use super::Server;
use super::socket::Socket;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long the process waits for another client.
const LINGER: Duration = Duration::from_secs(60);

/// The variable with another time than [`LINGER`], in seconds.
const LINGER_VARIABLE: &str = "FERROTUNE_DEVICE_LINGER";

/// The end of the process.
#[derive(Debug)]
pub(super) struct Ending {
    linger: Duration,
    is_now: AtomicBool,
    /// The time since which the process has no client, as far as it has looked.
    idle_since: Mutex<Option<Instant>>,
    /// Becomes readable when a client has left or the process shall end.
    bell: OwnedFd,
}

impl Ending {
    pub(super) fn new() -> Result<Ending, String> {
        let linger = match std::env::var(LINGER_VARIABLE) {
            Ok(text) => text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).ok_or_else(|| {
                format!(
                    "{LINGER_VARIABLE} is {text:?}; it is the seconds that the device process waits for another client"
                )
            })?,
            Err(_) => LINGER,
        };
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(|error| error.to_string())?;
        Ok(Ending { linger, is_now: AtomicBool::new(false), idle_since: Mutex::default(), bell })
    }

    /// Ends the process at once.
    pub(super) fn now(&self) {
        self.is_now.store(true, Ordering::Relaxed);
        self.client_left();
    }

    /// Looks again whether there are clients.
    pub(super) fn client_left(&self) {
        // A bell that rings already cannot ring more.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }

    /// The time after which the process ends if no client comes; none while it is in use.
    fn left(&self, is_in_use: bool) -> Option<Duration> {
        let mut idle_since = self.idle_since.lock().unwrap_or_else(PoisonError::into_inner);
        if is_in_use {
            *idle_since = None;
            return None;
        }
        Some(self.linger.saturating_sub(idle_since.get_or_insert_with(Instant::now).elapsed()))
    }

    /// Waits for the next client; none when the process shall end.
    pub(super) fn next(&self, server: &Server, listener: &Socket) -> io::Result<Option<OwnedFd>> {
        loop {
            if self.is_now.load(Ordering::Relaxed) {
                listener.remove()?;
                return Ok(None);
            }
            let left = self.left(server.is_in_use());
            if left == Some(Duration::ZERO) {
                // A starter that holds the lock connects at this moment.
                match listener.remove_if_unlocked()? {
                    true => return Ok(None),
                    false => drop(self.left(true)),
                }
            }
            let timeout = left.map(Timespec::try_from).transpose().map_err(io::Error::other)?;
            let mut sources =
                [PollFd::new(listener, PollFlags::IN), PollFd::from_borrowed_fd(self.bell.as_fd(), PollFlags::IN)];
            match poll(&mut sources, timeout.as_ref()) {
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            if !sources[1].revents().is_empty() {
                // The count of the rings is not needed.
                let _ = rustix::io::read(&self.bell, &mut [0; 8]);
            }
            if !sources[0].revents().is_empty()
                && let Some(client) = listener.accept()?
            {
                return Ok(Some(client));
            }
        }
    }
}
