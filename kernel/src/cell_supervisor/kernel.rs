//! The supervisor's connection to the kernel.

use super::streams::read_available;
use anyhow::{Context, Result};
use ferrotune_link::{KernelFrame, SupervisorOrder, wire};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// The socket to the kernel, with the bytes that have been read from it.
pub(super) struct Kernel {
    stream: UnixStream,
    bytes: Vec<u8>,
}

impl Kernel {
    pub(super) fn connect(path: &Path) -> Result<Self> {
        let stream = UnixStream::connect(path).context("cannot reach the kernel")?;
        Ok(Self { stream, bytes: Vec::new() })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    pub(super) fn tell(&mut self, frame: &KernelFrame) -> Result<()> {
        wire::write(&mut self.stream, frame).context("the kernel is gone")
    }

    /// Reads the bytes that have arrived; `false` once the kernel has gone.
    pub(super) fn read(&mut self) -> Result<bool> {
        self.stream.set_nonblocking(true)?;
        let open = read_available(&self.stream, &mut self.bytes);
        self.stream.set_nonblocking(false)?;
        open
    }

    /// Takes the next of the orders that have been read; none if there is no whole order.
    pub(super) fn take_order(&mut self) -> Result<Option<SupervisorOrder>> {
        Ok(wire::take(&mut self.bytes)?)
    }
}
