//! The cell process' own descriptors. Cells that close or replace the first three descriptors do not reach them.

use super::dead_ends::{Identity, identity};
use anyhow::Result;
use rustix::io::fcntl_dupfd_cloexec;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Programs that close descriptors at random close low ones.
const FIRST_PRIVATE: i32 = 100;

/// What descriptors 0, 1 and 2 must refer to, and the socket to the supervisor.
pub(super) struct Descriptors {
    nothing: OwnedFd,
    stdout: OwnedFd,
    stderr: OwnedFd,
    supervisor: OwnedFd,
}

impl Descriptors {
    /// Moves the supervisor's socket away from descriptor 0. What it refers to then is empty.
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

    /// What descriptor 0 refers to.
    pub(super) fn nothing(&self) -> Result<Identity> {
        Ok(identity(&self.nothing)?)
    }

    /// What the process' own descriptors refer to.
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
