//! Reads whole lines and whole characters from pipes and sockets without waiting.

use anyhow::Result;
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};

/// The most bytes that one call reads, so that a cell which prints without end does not block the supervisor.
const MOST_BYTES: usize = 1 << 20;

/// A decoder of UTF-8 that arrives in pieces. Bytes that are not UTF-8 are replaced.
#[derive(Debug, Default)]
pub(crate) struct Utf8 {
    held: Vec<u8>,
}

impl Utf8 {
    pub(crate) fn push(&mut self, bytes: Vec<u8>) -> String {
        if self.held.is_empty() {
            // Mostly all characters are complete, and nothing is copied.
            match String::from_utf8(bytes) {
                Ok(text) => return text,
                Err(error) => self.held = error.into_bytes(),
            }
        } else {
            self.held.extend_from_slice(&bytes);
        }
        let cut = match std::str::from_utf8(&self.held) {
            // A character that is not complete yet waits for the rest.
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            _ => self.held.len(),
        };
        // If an invalid byte comes first, an incomplete character at the end is replaced, too.
        let text: Vec<u8> = self.held.drain(..cut).collect();
        String::from_utf8_lossy(&text).into_owned()
    }

    pub(crate) fn finish(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.held)).into_owned()
    }
}

/// Removes the first complete line from the bytes, and returns it with its line end.
pub(crate) fn take_line(bytes: &mut Vec<u8>) -> Option<Vec<u8>> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    Some(bytes.drain(..=end).collect())
}

/// Reads the bytes that have arrived; `false` at the end of the stream.
pub(crate) fn read_available(fd: impl AsFd, bytes: &mut Vec<u8>) -> Result<bool> {
    let mut buffer = [0; 65536];
    loop {
        match retry(|| rustix::io::read(&fd, &mut buffer)) {
            Ok(0) => return Ok(false),
            Ok(count) => bytes.extend_from_slice(&buffer[..count]),
            Err(Errno::AGAIN) => return Ok(true),
            Err(Errno::CONNRESET | Errno::PIPE) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        if bytes.len() >= MOST_BYTES {
            return Ok(true);
        }
    }
}

/// Repeats a system call that a signal has interrupted.
pub(crate) fn retry<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}

/// Makes reads from a descriptor return at once.
pub(crate) fn set_nonblocking(fd: &OwnedFd) -> Result<()> {
    let flags = rustix::fs::fcntl_getfl(fd)?;
    rustix::fs::fcntl_setfl(fd, flags | rustix::fs::OFlags::NONBLOCK)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_character_that_is_cut_waits_for_its_rest() {
        let mut text = Utf8::default();
        assert_eq!(text.push(vec![b'a', 0xc3]), "a");
        assert_eq!(text.push(vec![0xa9, b'b']), "\u{e9}b");
        assert_eq!(text.push(vec![0xff, b'c']), "\u{fffd}c");
        assert_eq!(text.push(vec![0xf0, 0x9f]), "");
        assert_eq!(text.finish(), "\u{fffd}");
    }

    #[test]
    fn lines_are_taken_whole() {
        let mut bytes = b"one\ntw".to_vec();
        assert_eq!(take_line(&mut bytes).as_deref(), Some(&b"one\n"[..]));
        assert_eq!(take_line(&mut bytes), None);
    }
}
