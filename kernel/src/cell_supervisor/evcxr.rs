//! The supervisor's connection to evcxr: lines of text, which a relay passes on.

use super::accept;
use super::streams::{read_available, take_line};
use anyhow::Result;
use ferrotune_link::CellOrder;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};

/// The line that means the end of a cell to evcxr.
const COMPLETE: &[u8] = b"EVCXR_EXECUTION_COMPLETE\n";

/// A line that is not UTF-8, which is an error to evcxr. evcxr then keeps its list of variables as it was.
const REFUSED: &[u8] = b"\xff\n";

/// The connection to evcxr's present relay, and the socket at which the next relay connects.
pub(super) struct Evcxr {
    pub(super) listener: UnixListener,
    relay: Option<UnixStream>,
    bytes: Vec<u8>,
}

impl Evcxr {
    pub(super) fn new(listener: UnixListener) -> Self {
        Self { listener, relay: None, bytes: Vec::new() }
    }

    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.relay.as_ref().map(AsFd::as_fd)
    }

    /// Accepts the connection of a new relay; `false` if there is none.
    pub(super) fn accept(&mut self) -> Result<bool> {
        let Some(relay) = accept(&self.listener)? else { return Ok(false) };
        self.relay = Some(relay);
        self.bytes.clear();
        Ok(true)
    }

    /// Reads the lines that have arrived.
    pub(super) fn read(&mut self) -> Result<Vec<Vec<u8>>> {
        let Some(relay) = &self.relay else { return Ok(Vec::new()) };
        if !read_available(relay, &mut self.bytes)? {
            self.hang_up();
            return Ok(Vec::new());
        }
        Ok(std::iter::from_fn(|| take_line(&mut self.bytes)).collect())
    }

    pub(super) fn hang_up(&mut self) {
        self.relay = None;
    }

    pub(super) fn complete(&mut self) -> Result<()> {
        self.send(COMPLETE)
    }

    pub(super) fn refuse(&mut self) -> Result<()> {
        self.send(REFUSED)
    }

    pub(super) fn say(&mut self, line: &str) -> Result<()> {
        self.send(format!("{line}\n").as_bytes())
    }

    /// Sends a line. evcxr reads every line at once, so a blocking write is safe.
    fn send(&mut self, line: &[u8]) -> Result<()> {
        let Some(relay) = &mut self.relay else { return Ok(()) };
        relay.set_nonblocking(false)?;
        if let Err(error) = relay.write_all(line) {
            tracing::debug!("evcxr has gone: {error}");
        }
        relay.set_nonblocking(true)?;
        Ok(())
    }
}

/// Parses a line from evcxr into an order; none if the line is no order.
pub(super) fn order(line: &[u8], sample_ms: Option<u64>) -> Option<CellOrder> {
    let mut words = std::str::from_utf8(line).ok()?.split_whitespace();
    let (Some("LOAD_AND_RUN"), Some(library), Some(function)) = (words.next(), words.next(), words.next()) else {
        return None;
    };
    Some(CellOrder::Run { library: library.to_owned(), function: function.to_owned(), sample_ms })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_evcxr_names_library_and_function() {
        let (library, function) = ("/tmp/cell.so".to_owned(), "run_user_code_3".to_owned());
        let expected = CellOrder::Run { library, function, sample_ms: Some(10) };
        assert_eq!(order(b"LOAD_AND_RUN /tmp/cell.so run_user_code_3\n", Some(10)), Some(expected));
        assert_eq!(order(b"LOAD_AND_RUN /tmp/cell.so\n", None), None);
        assert_eq!(order(b"LOAD_AND_RUN \xff run\n", None), None);
    }
}
