//! Requests to stop (SIGINT, SIGTERM, SIGHUP) as a file descriptor that poll(2) can wait for. Installs no handler.
#![expect(unsafe_code, reason = "signal sets and signalfd have no safe interface in rustix")]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

const STOP_SIGNALS: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// The stop signals of this thread, blocked until this value is dropped, or longer if they were blocked before.
#[derive(Debug)]
pub struct Signals {
    fd: OwnedFd,
    earlier: libc::sigset_t,
}

impl Signals {
    /// Blocks the stop signals in the calling thread and in threads that it starts later: a process with several threads
    /// calls this function before it starts them.
    pub fn hold() -> io::Result<Signals> {
        let set = stop_set();
        let earlier = change_mask(libc::SIG_BLOCK, &set)?;
        // SAFETY: `set` is an initialised signal set; -1 asks for a new descriptor.
        let fd = unsafe { libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just made and has no other owner.
        Ok(Signals { fd: unsafe { OwnedFd::from_raw_fd(fd) }, earlier })
    }

    /// The number of stop signals that have arrived since the last call. Does not wait.
    pub fn take(&self) -> io::Result<usize> {
        take(&self.fd)
    }

    /// Returns a second reader of the same signals.
    pub fn reader(&self) -> io::Result<SignalReader> {
        Ok(SignalReader(self.fd.try_clone()?))
    }
}

fn take(fd: &OwnedFd) -> io::Result<usize> {
    const RECORD_BYTES: usize = size_of::<libc::signalfd_siginfo>();
    let mut records = [0; 8 * RECORD_BYTES];
    match rustix::io::read(fd, &mut records) {
        Ok(length) => Ok(length / RECORD_BYTES),
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(0),
        Err(errno) => Err(errno.into()),
    }
}

/// A reader of the stop signals that a [`Signals`] blocks: a signal is read only once, by either of the two.
#[derive(Debug)]
pub struct SignalReader(OwnedFd);

impl SignalReader {
    /// The number of unread stop signals that have arrived. Does not wait.
    pub fn take(&self) -> io::Result<usize> {
        take(&self.0)
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        if let Err(error) = change_mask(libc::SIG_SETMASK, &self.earlier) {
            tracing::warn!(fd = self.fd.as_raw_fd(), %error, "the stop signals stay blocked");
        }
    }
}

/// Unblocks the stop signals, which this process has inherited from one that holds them back with [`Signals::hold`].
///
/// # Errors
/// The system's errors.
pub fn unblock_stop_signals() -> io::Result<()> {
    change_mask(libc::SIG_UNBLOCK, &stop_set()).map(drop)
}

/// Gives every signal its default effect and unblocks it, whatever this process inherited.
pub(super) fn reset() -> io::Result<()> {
    // Programs do not usually ignore the real-time signals beyond 31. SIGKILL and SIGSTOP cannot be set. SIGSEGV and SIGBUS
    // have the handlers of Rust's runtime, which report a stack overflow.
    for signal in (1..32).filter(|signal| ![libc::SIGKILL, libc::SIGSTOP, libc::SIGSEGV, libc::SIGBUS].contains(signal))
    {
        // SAFETY: SIG_DFL is a valid disposition for every signal but the two left out above.
        if unsafe { libc::signal(signal, libc::SIG_DFL) } == libc::SIG_ERR {
            return Err(io::Error::last_os_error());
        }
    }
    let mut all = MaybeUninit::uninit();
    // SAFETY: sigfillset initialises the set that it is given.
    let all = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        all.assume_init()
    };
    change_mask(libc::SIG_UNBLOCK, &all).map(drop)
}

fn stop_set() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset initialises the set that it is given; the signals are valid.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in STOP_SIGNALS {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        set.assume_init()
    }
}

/// Changes the set of signals that this thread blocks; returns the earlier set.
fn change_mask(how: libc::c_int, set: &libc::sigset_t) -> io::Result<libc::sigset_t> {
    // SAFETY: an all-zero signal set is valid, and is written by the call.
    let mut earlier: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is initialised, and `earlier` is a signal set.
    match unsafe { libc::pthread_sigmask(how, set, &raw mut earlier) } {
        0 => Ok(earlier),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}
