//! The journal's file, to which other programs append, too. Every append is made under the common lock, after the lines of
//! the others. Cuts off only the remains of its own failed write, or of an interrupted one.

use super::append_lock::AppendLock;
use super::{JournalError, line};
use crate::study_folder::{JOURNAL, TORN_LINES};
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The longest time for which held-back lines may be in the file before they are on disk.
const MOST_UNSYNCED: Duration = Duration::from_millis(10);

/// The event that a completed write survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Survives {
    /// The write survives the end of this process at once, and the end of the machine some milliseconds later.
    Process,
    /// The write survives the end of the machine.
    Machine,
}

/// The journal's file, open for appending.
#[derive(Debug)]
pub(super) struct SharedFile {
    path: PathBuf,
    file: File,
    lock: AppendLock,
    /// The number of bytes in complete lines that were written or read here.
    length: u64,
    /// Complete lines of other programs that were read, and not yet taken by [`SharedFile::take_others`].
    others: Vec<u8>,
    /// Whether all lines that were written here are on disk.
    is_synced: bool,
    synced_at: Instant,
    /// Whether acknowledged facts are missing from the file.
    pub(super) is_behind: bool,
}

impl SharedFile {
    /// Opens the journal in `folder`, or makes an empty one. [`SharedFile::go_on_behind`] sets the position of the first new
    /// line.
    pub(super) fn open(folder: &Path) -> io::Result<SharedFile> {
        let path = folder.join(JOURNAL);
        let file = OpenOptions::new().read(true).append(true).create(true).open(&path)?;
        let lock = AppendLock::of(folder)?;
        let (length, others, is_synced, synced_at, is_behind) = (0, Vec::new(), true, Instant::now(), false);
        Ok(SharedFile { path, file, lock, length, others, is_synced, synced_at, is_behind })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn take_lock(&self) -> Result<(), JournalError> {
        self.lock.take().map_err(|source| JournalError::AppendLock { path: self.path.clone(), source })
    }

    pub(super) fn give_lock_back(&self) {
        self.lock.give_back();
    }

    /// Deletes all lines. The caller holds the lock.
    pub(super) fn empty(&mut self) -> Result<(), JournalError> {
        self.file.set_len(0).map_err(|source| self.io(source))
    }

    /// Continues after the first `length` bytes, which are complete lines that were read. Bytes after them are cut off as a
    /// torn line. If they are a complete line of another program, nothing is changed, and the result is false. The caller
    /// holds the lock.
    pub(super) fn go_on_behind(&mut self, length: u64) -> Result<bool, JournalError> {
        self.length = length;
        let rest = self.bytes_behind()?;
        if rest.ends_with(b"\n") && !line::is_ours(&rest) {
            return Ok(false);
        }
        self.cut_torn(&rest)?;
        Ok(true)
    }

    /// Reads the lines that other programs have appended, and cuts off a torn line of a dead writer. The caller holds the
    /// lock.
    pub(super) fn catch_up(&mut self) -> Result<(), JournalError> {
        self.read_others()?;
        let torn = self.bytes_behind()?;
        self.cut_torn(&torn)
    }

    /// Reads the complete lines that other programs have appended. Needs no lock.
    pub(super) fn read_others(&mut self) -> Result<(), JournalError> {
        let bytes = self.bytes_behind()?;
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        self.others.extend(&bytes[..whole]);
        self.length += whole as u64;
        Ok(())
    }

    /// Takes the lines of other programs that were read since the last call.
    pub(super) fn take_others(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.others)
    }

    /// Appends complete lines. The caller holds the lock, and has read the lines of others. The remains of a failed write
    /// are cut off again.
    pub(super) fn write(&mut self, text: &str, survives: Survives) -> Result<(), JournalError> {
        let is_due = survives == Survives::Machine || self.synced_at.elapsed() >= MOST_UNSYNCED;
        let written = self.file.write_all(text.as_bytes());
        let written = if is_due { written.and_then(|()| self.file.sync_data()) } else { written };
        if let Err(source) = written {
            self.cut_own(text)?;
            return Err(self.io(source));
        }
        self.length += text.len() as u64;
        self.is_synced = is_due;
        if is_due {
            self.synced_at = Instant::now();
        }
        Ok(())
    }

    /// Syncs all written lines to disk.
    pub(super) fn sync(&mut self) -> Result<(), JournalError> {
        if !self.is_synced {
            self.file.sync_data().map_err(|source| self.io(source))?;
            (self.is_synced, self.synced_at) = (true, Instant::now());
        }
        Ok(())
    }

    /// Fails if acknowledged facts were lost, because later facts would refer to trials that the file lacks.
    pub(super) fn check_is_whole(&self) -> Result<(), JournalError> {
        if self.is_behind { Err(JournalError::Behind { path: self.path.clone() }) } else { Ok(()) }
    }

    /// Cuts off the remains of a failed write of `text`, if nothing else has been appended since.
    fn cut_own(&mut self, text: &str) -> Result<(), JournalError> {
        // The flag is set until the cut succeeds: the next line would be joined to a partial line.
        self.is_behind = true;
        let left = self.bytes_behind()?;
        if !text.as_bytes().starts_with(&left) {
            return Err(JournalError::Behind { path: self.path.clone() });
        }
        self.cut()?;
        self.is_behind = false;
        Ok(())
    }

    /// Cuts off a line that its writer did not finish, and keeps a copy of it, because its writer is unknown.
    fn cut_torn(&mut self, torn: &[u8]) -> Result<(), JournalError> {
        if torn.is_empty() {
            return Ok(());
        }
        let kept = self.path.with_file_name(TORN_LINES);
        tracing::warn!(path = %self.path.display(), bytes = torn.len(), kept = %kept.display(), "a torn last line is cut off");
        let copied = OpenOptions::new().append(true).create(true).open(&kept);
        let copied =
            copied.and_then(|mut file| file.write_all(&[torn, b"\n"].concat()).and_then(|()| file.sync_data()));
        copied.map_err(|source| JournalError::Io { path: kept, source })?;
        self.cut()
    }

    fn cut(&mut self) -> Result<(), JournalError> {
        self.file.set_len(self.length).and_then(|()| self.file.sync_data()).map_err(|source| self.io(source))
    }

    /// The bytes after the lines that were written or read here.
    fn bytes_behind(&mut self) -> Result<Vec<u8>, JournalError> {
        let found = self.file.metadata().map_err(|source| self.io(source))?.len();
        let Some(more) = found.checked_sub(self.length) else {
            // Another program has cut off lines that were acknowledged.
            self.is_behind = true;
            return Err(JournalError::Behind { path: self.path.clone() });
        };
        let mut bytes = vec![0; more as usize];
        self.file.read_exact_at(&mut bytes, self.length).map_err(|source| self.io(source))?;
        Ok(bytes)
    }

    fn io(&self, source: io::Error) -> JournalError {
        JournalError::Io { path: self.path.clone(), source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type TestResult = Result<(), Box<dyn std::error::Error + Send + Sync>>;

    #[test]
    fn what_a_failed_write_left_is_cut_off_only_where_nothing_follows_it() -> TestResult {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join(JOURNAL);
        let mut file = SharedFile::open(folder.path())?;
        file.write("first\n", Survives::Machine)?;
        let append = |text: &str| OpenOptions::new().append(true).open(&path)?.write_all(text.as_bytes());
        append("sec")?;
        file.cut_own("second\n")?;
        assert_eq!(std::fs::read_to_string(&path)?, "first\n");
        file.check_is_whole()?;
        // Another program appends without the lock.
        append("sec{\"op_code\":4}\n")?;
        assert!(matches!(file.cut_own("second\n"), Err(JournalError::Behind { .. })));
        assert_eq!(std::fs::read_to_string(&path)?, "first\nsec{\"op_code\":4}\n");
        assert!(file.check_is_whole().is_err());
        Ok(())
    }
}
