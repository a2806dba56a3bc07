//! A writer to standard output that never blocks: a watcher that does not read must not delay the checks of a trial's
//! memory.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::os::fd::AsFd;

/// The number of unread bytes above which a watcher counts as gone.
const LONGEST_BACKLOG_BYTES: usize = 16 << 20;

/// The writing end of a pipe, with a buffer for bytes that the pipe does not accept yet. Dropping this value writes the
/// rest, however long that takes.
#[derive(Debug)]
pub(super) struct Backlog<W: Write + AsFd> {
    pipe: W,
    waiting: VecDeque<u8>,
}

impl<W: Write + AsFd> Backlog<W> {
    pub(super) fn new(pipe: W) -> io::Result<Backlog<W>> {
        rustix::io::ioctl_fionbio(&pipe, true)?;
        let waiting = VecDeque::new();
        Ok(Backlog { pipe, waiting })
    }

    /// Writes as many buffered bytes as the pipe accepts now.
    fn pass_on(&mut self) -> io::Result<()> {
        while !self.waiting.is_empty() {
            match self.pipe.write(self.waiting.as_slices().0) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(length) => drop(self.waiting.drain(..length)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl<W: Write + AsFd> Write for Backlog<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.waiting.len() > LONGEST_BACKLOG_BYTES {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.waiting.extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.pass_on()
    }
}

impl<W: Write + AsFd> Drop for Backlog<W> {
    fn drop(&mut self) {
        let blocking = rustix::io::ioctl_fionbio(&self.pipe, false).map_err(io::Error::from);
        if let Err(error) = blocking.and_then(|()| self.pass_on()) {
            tracing::warn!(%error, "the last events of the search were not read");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    #[test]
    fn writer_does_not_wait_for_its_reader_and_loses_nothing() -> io::Result<()> {
        let (mut reader, writer) = io::pipe()?;
        let mut backlog = Backlog::new(writer)?;
        // A pipe holds 64 KiB.
        for _ in 0..1000 {
            backlog.write_all(&[b'x'; 1000])?;
            backlog.flush()?;
        }
        let rest = std::thread::spawn(move || drop(backlog));
        let mut read = Vec::new();
        reader.read_to_end(&mut read)?;
        assert_eq!(read.len(), 1_000_000);
        assert!(rest.join().is_ok());
        Ok(())
    }

    #[test]
    fn reader_that_has_left_or_stopped_is_noticed() -> io::Result<()> {
        let (reader, writer) = io::pipe()?;
        let mut backlog = Backlog::new(writer)?;
        backlog.write_all(&vec![b'x'; LONGEST_BACKLOG_BYTES + (1 << 20)])?;
        backlog.flush()?;
        assert_eq!(backlog.write(b"x").map_err(|error| error.kind()), Err(io::ErrorKind::TimedOut));
        drop(reader);
        assert_eq!(backlog.flush().map_err(|error| error.kind()), Err(io::ErrorKind::BrokenPipe));
        Ok(())
    }
}
