//! The lock that Optuna's `JournalFileBackend` takes for each append: a link `journal.log.lock` beside the journal, which
//! only one process can make. Optuna's default is a symbolic link, and its `JournalFileOpenLock` is a file of the same
//! name; each of them excludes the other. The lock is held for one append. It is not the lock of the study: see `lock`.

use crate::study_folder::{APPEND_LOCK as FILE, JOURNAL};
use ferrotune_space::seed;
use rustix::fs::{AtFlags, Mode, OFlags, Stat, openat, readlinkat, renameat, statat, symlinkat, unlinkat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// The target of our links. It leads to the journal, because Optuna checks the modification time of a link's target. Optuna
/// itself never writes the path in this form, so our links differ from Optuna's.
const OURS: &str = ".//journal.log";

/// The time after which Optuna assumes that the lock's holder is dead, if neither the lock nor the journal changes.
const GRACE: Duration = Duration::from_secs(30);

/// The shortest and the longest pause between two attempts to take a lock that another process holds.
const PAUSES: (Duration, Duration) = (Duration::from_micros(100), Duration::from_millis(10));

/// The lock of one study's journal.
#[derive(Debug)]
pub(super) struct AppendLock {
    /// The study's folder, independent of this process' working folder.
    folder: File,
    grace: Duration,
}

/// The observed state of a lock that another process holds. Two equal states mean the same lock, whose holder has written
/// nothing.
#[derive(Debug, PartialEq)]
struct Seen {
    inode: u64,
    made_at: (i64, u64),
    journal_changed_at: Option<(i64, u64)>,
}

impl AppendLock {
    pub(super) fn of(folder: &Path) -> io::Result<AppendLock> {
        Ok(AppendLock { folder: File::open(folder)?, grace: GRACE })
    }

    /// Takes the lock. Waits for a process that holds the lock, and removes the lock of a dead process, as Optuna does.
    ///
    /// The caller holds the study's lock. So a link of ours was left by a killed search, and becomes the caller's.
    pub(super) fn take(&self) -> io::Result<()> {
        let mut pause = PAUSES.0;
        let mut unchanged: Option<(Seen, Instant)> = None;
        while !self.make()? {
            if self.is_ours()? {
                return Ok(());
            }
            match (self.seen()?, &unchanged) {
                (None, _) => continue,
                (Some(seen), Some((before, since))) if seen == *before => {
                    if since.elapsed() > self.grace {
                        tracing::warn!(lock = FILE, "the holder of the journal's lock is dead; its lock is removed");
                        self.remove_dead()?;
                        unchanged = None;
                        continue;
                    }
                }
                (Some(seen), _) => unchanged = Some((seen, Instant::now())),
            }
            std::thread::sleep(pause);
            pause = (2 * pause).min(PAUSES.1);
        }
        Ok(())
    }

    /// Releases the lock, unless another process has meanwhile declared this one dead.
    pub(super) fn give_back(&self) {
        let removed = match readlinkat(&self.folder, FILE, Vec::new()) {
            Ok(target) if target.to_bytes() != OURS.as_bytes() => return,
            // A file system without symbolic links has a file instead.
            Ok(_) | Err(Errno::INVAL) => unlinkat(&self.folder, FILE, AtFlags::empty()),
            Err(errno) => Err(errno),
        };
        if let Err(errno) = removed {
            tracing::warn!(%errno, lock = FILE, "the journal's lock is not removed; Optuna waits for it");
        }
    }

    /// Makes the lock, unless it exists.
    fn make(&self) -> io::Result<bool> {
        let made = match symlinkat(OURS, &self.folder, FILE) {
            Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS) => {
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
                openat(&self.folder, FILE, flags, Mode::from_raw_mode(0o666)).map(drop)
            }
            made => made,
        };
        match made {
            Err(Errno::EXIST) => Ok(false),
            made => Ok(made.map(|()| true)?),
        }
    }

    fn is_ours(&self) -> io::Result<bool> {
        match readlinkat(&self.folder, FILE, Vec::new()) {
            Ok(target) => Ok(target.to_bytes() == OURS.as_bytes()),
            Err(Errno::INVAL | Errno::NOENT) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// The present state of the lock; none if it has been released.
    fn seen(&self) -> io::Result<Option<Seen>> {
        let stat = |name: &str| match statat(&self.folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => Ok(None),
            stat => stat.map(Some).map_err(io::Error::from),
        };
        let changed_at = |stat: &Stat| (stat.st_mtime, stat.st_mtime_nsec);
        let Some(lock) = stat(FILE)? else { return Ok(None) };
        let journal_changed_at = stat(JOURNAL)?.as_ref().map(changed_at);
        Ok(Some(Seen { inode: lock.st_ino, made_at: changed_at(&lock), journal_changed_at }))
    }

    /// Removes the lock of a dead process. The lock is renamed first, as in Optuna: of several processes that try this at
    /// once, only one succeeds.
    fn remove_dead(&self) -> io::Result<()> {
        let removed = format!("{FILE}{:x}-{}.rename", seed::draw(), std::process::id());
        match renameat(&self.folder, FILE, &self.folder, removed.as_str()) {
            Err(Errno::NOENT) => Ok(()),
            renamed => Ok(renamed.and_then(|()| unlinkat(&self.folder, removed.as_str(), AtFlags::empty()))?),
        }
    }
}

/// Whether this is the name of the lock, or of a lock that is being removed.
pub(super) fn is_lock(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| name == FILE || name.starts_with(FILE) && name.ends_with(".rename"))
}

#[cfg(test)]
mod tests {
    use super::*;

    type TestResult = Result<(), Box<dyn std::error::Error + Send + Sync>>;

    /// The lock of a new study, and its path.
    fn study() -> io::Result<(tempfile::TempDir, AppendLock, std::path::PathBuf)> {
        let folder = tempfile::tempdir()?;
        std::fs::write(folder.path().join(JOURNAL), "")?;
        let lock = AppendLock { grace: Duration::from_millis(50), ..AppendLock::of(folder.path())? };
        let path = folder.path().join(FILE);
        Ok((folder, lock, path))
    }

    #[test]
    fn locks_of_a_dead_optuna_are_removed_whatever_they_lead_to() -> TestResult {
        let (folder, lock, path) = study()?;
        // Optuna's link leads to the path of the journal as its user wrote it, which may not exist relative to this folder.
        for target in [folder.path().join(JOURNAL), "studies/digits/journal.log".into()] {
            std::os::unix::fs::symlink(target, &path)?;
            lock.take()?;
            assert_eq!(std::fs::read_link(&path)?, Path::new(OURS));
            lock.give_back();
        }
        // This is the lock of Optuna's `JournalFileOpenLock`.
        std::fs::write(&path, "")?;
        lock.take()?;
        lock.give_back();
        assert_eq!(std::fs::read_dir(folder.path())?.count(), 1, "nothing but the journal is left");
        Ok(())
    }

    #[test]
    fn a_holder_that_writes_is_waited_for() -> TestResult {
        let (folder, lock, path) = study()?;
        let lock = AppendLock { grace: Duration::from_secs(1), ..lock };
        std::os::unix::fs::symlink("elsewhere", &path)?;
        let writer = std::thread::spawn(move || -> io::Result<(Instant, tempfile::TempDir)> {
            // The loop takes longer than the grace.
            for count in 0..32 {
                std::thread::sleep(Duration::from_millis(50));
                std::fs::write(folder.path().join(JOURNAL), "x".repeat(count))?;
            }
            let given_back = Instant::now();
            std::fs::remove_file(folder.path().join(FILE))?;
            Ok((given_back, folder))
        });
        lock.take()?;
        let taken = Instant::now();
        let (given_back, _folder) = writer.join().map_err(|_| "the writer panicked")??;
        assert!(taken >= given_back);
        lock.give_back();
        Ok(())
    }

    #[test]
    fn a_lock_that_was_taken_away_is_not_given_back() -> TestResult {
        let (_folder, lock, path) = study()?;
        lock.take()?;
        std::fs::remove_file(&path)?;
        std::os::unix::fs::symlink("another", &path)?;
        lock.give_back();
        assert_eq!(std::fs::read_link(&path)?, Path::new("another"));
        Ok(())
    }
}
