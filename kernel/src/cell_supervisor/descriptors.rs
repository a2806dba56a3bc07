//! The cell process' own descriptors, which have high numbers: cells that close or replace descriptors 0 to 2 do not affect them.

use super::dead_ends::{Identity, identity};
use anyhow::Result;
use rustix::io::fcntl_dupfd_cloexec;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The lowest number of a private descriptor. Programs that close descriptors at random close low numbers.
const FIRST_PRIVATE: i32 = 100;

/// Copies of the files to which descriptors 0, 1 and 2 must refer, and the socket to the supervisor.
pub(super) struct Descriptors {
    nothing: OwnedFd,
    stdout: OwnedFd,
    stderr: OwnedFd,
    supervisor: OwnedFd,
}

impl Descriptors {
    /// Moves the supervisor's socket away from descriptor 0, which then refers to `/dev/null`.
    pub(super) fn take_over() -> Result<Self> {
        let nothing = File::open("/dev/null")?;
        let descriptors = Self {
            nothing: fcntl_dupfd_cloexec(&nothing, FIRST_PRIVATE)?,
            stdout: fcntl_dupfd_cloexec(rustix::stdio::stdout(), FIRST_PRIVATE)?,
            stderr: fcntl_dupfd_cloexec(rustix::stdio::stderr(), FIRST_PRIVATE)?,
            supervisor: fcntl_dupfd_cloexec(rustix::stdio::stdin(), FIRST_PRIVATE)?,
        };
        rustix::stdio::dup2_stdin(&descriptors.nothing)?;
        Ok(descriptors)
    }

    /// The socket to the supervisor, for reading and for writing.
    pub(super) fn supervisor(&self) -> Result<(File, File)> {
        let duplicate = || fcntl_dupfd_cloexec(&self.supervisor, FIRST_PRIVATE).map(File::from);
        Ok((duplicate()?, duplicate()?))
    }

    /// The identity of the file to which descriptor 0 refers, `/dev/null`.
    pub(super) fn nothing(&self) -> Result<Identity> {
        Ok(identity(&self.nothing)?)
    }

    /// The identities of the files to which the process' own descriptors refer.
    pub(super) fn own(&self) -> Result<[Identity; 3]> {
        Ok([identity(&self.stdout)?, identity(&self.stderr)?, identity(&self.supervisor)?])
    }

    /// Restores descriptors 0, 1 and 2 if a cell has closed or replaced them.
    pub(super) fn mend(&self) -> Result<()> {
        if !is_same(rustix::stdio::stdin(), &self.nothing) {
            rustix::stdio::dup2_stdin(&self.nothing)?;
        }
        if !is_same(rustix::stdio::stdout(), &self.stdout) {
            rustix::stdio::dup2_stdout(&self.stdout)?;
        }
        if !is_same(rustix::stdio::stderr(), &self.stderr) {
            rustix::stdio::dup2_stderr(&self.stderr)?;
        }
        Ok(())
    }
}

fn is_same(now: BorrowedFd<'_>, wanted: impl AsFd) -> bool {
    match (identity(now), identity(wanted)) {
        (Ok(now), Ok(wanted)) => now == wanted,
        _ => false,
    }
}
