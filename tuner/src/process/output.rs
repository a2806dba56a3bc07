//! The output of a worker: its last 64 KiB are kept in the trial's `output.log`. Never displays it.

use super::ProcessError;
use std::fs;
use std::io::{self, PipeReader, PipeWriter, Read as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::PathBuf;

/// The number of bytes of the output that are kept.
const KEPT_BYTES: usize = 64 << 10;
/// The number of bytes at the end of the output that are searched for the reason of an abort.
const LAST_WORDS_BYTES: usize = 1 << 10;
/// The number of bytes that are read in one turn, so that a worker that never stops printing cannot delay the checks of its
/// memory.
const TURN_BYTES: usize = 1 << 20;

/// The reading end of a worker's output.
#[derive(Debug)]
pub(super) struct Output {
    path: PathBuf,
    reader: Option<PipeReader>,
    tail: Vec<u8>,
}

impl Output {
    /// The output of one worker, and the end of the pipe that the worker writes to. The output of the trial's earlier
    /// workers is kept.
    pub(super) fn open(path: PathBuf) -> Result<(Output, PipeWriter), ProcessError> {
        let tail = match fs::read(&path) {
            Ok(earlier) => earlier,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(source) => return Err(ProcessError::Write { path, source }),
        };
        let (reader, writer) = io::pipe().map_err(ProcessError::system("open the worker's output"))?;
        rustix::io::ioctl_fionbio(&reader, true).map_err(ProcessError::system("set up the worker's output"))?;
        Ok((Output { path, reader: Some(reader), tail }, writer))
    }

    /// The descriptor to poll, while a process may still write.
    pub(super) fn reader(&self) -> Option<BorrowedFd<'_>> {
        self.reader.as_ref().map(|reader| reader.as_fd())
    }

    /// Reads the new output, up to the limit of one turn.
    pub(super) fn drain(&mut self) {
        let mut chunk = [0; 1 << 14];
        let mut taken = 0;
        while let Some(reader) = self.reader.as_mut()
            && taken < TURN_BYTES
        {
            match reader.read(&mut chunk) {
                Ok(length) if length > 0 => {
                    taken += length;
                    self.tail.extend_from_slice(&chunk[..length]);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Every writer has closed its end, and all output has been read.
                Ok(_) | Err(_) => self.reader = None,
            }
            if self.tail.len() > 2 * KEPT_BYTES {
                self.forget_the_oldest();
            }
        }
    }

    /// Writes the log, if anything was printed.
    pub(super) fn save(&mut self) -> Result<(), ProcessError> {
        self.forget_the_oldest();
        if self.tail.is_empty() {
            return Ok(());
        }
        fs::write(&self.path, &self.tail).map_err(|source| ProcessError::Write { path: self.path.clone(), source })
    }

    /// The size of the allocation that failed, as Rust's runtime prints it before it aborts.
    pub(super) fn refused_bytes(&self) -> Option<u64> {
        let end = &self.tail[self.tail.len().saturating_sub(LAST_WORDS_BYTES)..];
        let text = String::from_utf8_lossy(end);
        let (_, words) = text.rsplit_once("memory allocation of ")?;
        words.split_once(" bytes failed")?.0.parse().ok()
    }

    fn forget_the_oldest(&mut self) {
        let excess = self.tail.len().saturating_sub(KEPT_BYTES);
        self.tail.drain(..excess);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    type TestResult = Result<(), Box<dyn std::error::Error + Send + Sync>>;

    #[test]
    fn only_the_last_part_of_a_long_output_is_kept() -> TestResult {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("output.log");
        let (mut output, mut writer) = Output::open(path.clone())?;
        for line in 0..20_000 {
            writeln!(writer, "line {line}")?;
            output.drain();
        }
        output.save()?;
        let log = fs::read_to_string(path)?;
        assert_eq!(log.len(), KEPT_BYTES);
        assert!(log.ends_with("line 19999\n"));
        Ok(())
    }

    #[test]
    fn an_allocation_that_failed_is_read_from_the_last_words() -> TestResult {
        let folder = tempfile::tempdir()?;
        for (text, bytes) in [
            ("memory allocation of 3221225472 bytes failed\nnote: run with …\n", Some(3_221_225_472)),
            ("memory allocation of many bytes failed\n", None),
            ("aborted\n", None),
        ] {
            let (mut output, mut writer) = Output::open(folder.path().join("output.log"))?;
            writer.write_all(text.as_bytes())?;
            drop(writer);
            output.drain();
            assert_eq!(output.refused_bytes(), bytes, "{text}");
        }
        Ok(())
    }

    #[test]
    fn a_second_worker_continues_the_log() -> TestResult {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("output.log");
        for text in ["first\n", "second\n"] {
            let (mut output, mut writer) = Output::open(path.clone())?;
            writer.write_all(text.as_bytes())?;
            drop(writer);
            output.drain();
            output.save()?;
        }
        assert_eq!(fs::read_to_string(path)?, "first\nsecond\n");
        Ok(())
    }
}
