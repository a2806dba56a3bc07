//! What the machine has between trials, so that what a trial leaves behind is seen: memory, and files in /dev/shm.
//! Removes a file only where it is new, this user's, and in nobody's hands.

use super::memory::{available_bytes, own_resident_bytes};
use super::{ProcessError, cuda};
use crate::record::{Bytes, MemoryCheck};
use std::collections::BTreeSet;
use std::fs::{self, DirEntry};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Where POSIX shared memory lies. It is memory that outlives the process that took it.
const SHARED_MEMORY: &str = "/dev/shm";

/// What may be missing after a trial without being worth a word: caches of the system, and other processes.
const TOLERATED_BYTES: u64 = 64 << 20;
/// How long the system may take to give back what a process held.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long a device's driver may.
const DEVICE_PATIENCE: Duration = Duration::from_secs(10);

/// The machine's memory, and that of the trials' device, at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// What it (or the container) has left, in bytes.
    pub available_bytes: u64,
    /// Processes that the system has killed for want of memory since it was started.
    pub oom_kills: u64,
    /// The device of the trials, if it is looked at.
    device: Option<String>,
    /// What is taken of its memory, in bytes; none where it has none of its own, or nobody tells.
    device_bytes: Option<u64>,
}

impl Machine {
    /// The machine as it is now, with the device of this name (`cpu`, `cuda:0`, …), which may take its driver a second.
    ///
    /// # Errors
    /// Where /proc is not readable.
    pub fn now(device: Option<&str>) -> Result<Machine, ProcessError> {
        let (device, device_bytes) = (device.map(str::to_owned), device.and_then(cuda::used_bytes));
        Ok(Machine { available_bytes: available()?, oom_kills: oom_kills(), device, device_bytes })
    }

    /// Whether the system has killed a process for want of memory since then.
    pub fn has_killed(&self) -> bool {
        oom_kills() > self.oom_kills
    }

    /// The machine now against what it was, with what was left behind. Where the trial ran `alone`, what it held must be
    /// back before the next one begins: this waits for it, and says what is missing where it does not come.
    ///
    /// # Errors
    /// Where /proc is not readable.
    pub fn check(&self, mut left: Vec<String>, alone: bool) -> Result<MemoryCheck, ProcessError> {
        let mut after_bytes = available()?;
        if alone {
            after_bytes = self.wait_for_memory()?;
            let missing = self.available_bytes.saturating_sub(after_bytes);
            if missing > TOLERATED_BYTES {
                left.push(format!("{} less available, which others may have taken meanwhile", Bytes(missing)));
            }
            left.extend(self.wait_for_device());
        }
        let (before_bytes, supervisor_bytes) = (self.available_bytes, own_resident_bytes());
        Ok(MemoryCheck { before_bytes, after_bytes, supervisor_bytes, left })
    }

    fn wait_for_memory(&self) -> Result<u64, ProcessError> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let bytes = available()?;
            if bytes.saturating_add(TOLERATED_BYTES) >= self.available_bytes || Instant::now() >= deadline {
                return Ok(bytes);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// A process that is gone may leave its device's memory to the driver for some time yet.
    fn wait_for_device(&self) -> Option<String> {
        let (device, before) = (self.device.as_ref()?, self.device_bytes?);
        let deadline = Instant::now() + DEVICE_PATIENCE;
        loop {
            let missing = cuda::used_bytes(device)?.saturating_sub(before);
            if missing <= TOLERATED_BYTES {
                return None;
            }
            if Instant::now() >= deadline {
                return Some(format!("{} of {}, not given back by its driver", Bytes(missing), device));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

fn available() -> Result<u64, ProcessError> {
    available_bytes().map_err(ProcessError::system("read how much memory is available"))
}

fn oom_kills() -> u64 {
    // Sandboxes without this file tell no kills.
    let vmstat = fs::read_to_string("/proc/vmstat").unwrap_or_default();
    super::memory::field(&vmstat, "oom_kill").unwrap_or(0)
}

/// The files of shared memory at a moment when no trial ran.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SharedMemory {
    files: BTreeSet<PathBuf>,
}

impl SharedMemory {
    /// The files that are there now.
    pub fn now() -> SharedMemory {
        SharedMemory { files: files_in(Path::new(SHARED_MEMORY)).map(|entry| entry.path()).collect() }
    }

    /// Removes what has come since then and is of no use to any process; one line for each such file. To be called
    /// when no trial runs.
    pub fn remove_new(&self) -> Vec<String> {
        let new = files_in(Path::new(SHARED_MEMORY)).filter(|entry| !self.files.contains(&entry.path()));
        let mut left: Vec<DirEntry> = new.filter(is_own_file).collect();
        if !left.is_empty() {
            let used = files_in_use();
            left.retain(|entry| !used.contains(&entry.path()));
        }
        left.iter().map(removed).collect()
    }
}

fn files_in(folder: &Path) -> impl Iterator<Item = DirEntry> {
    // A machine without the folder has no shared memory to leave.
    fs::read_dir(folder).into_iter().flatten().flatten()
}

fn is_own_file(entry: &DirEntry) -> bool {
    let own = rustix::process::geteuid().as_raw();
    entry.metadata().is_ok_and(|file| file.is_file() && file.uid() == own)
}

fn removed(entry: &DirEntry) -> String {
    let (path, bytes) = (entry.path(), entry.metadata().map_or(0, |file| file.len()));
    let what = match fs::remove_file(&path) {
        Ok(()) => "removed".to_owned(),
        Err(error) => format!("which cannot be removed: {error}"),
    };
    format!("{} ({}), {what}", path.display(), Bytes(bytes))
}

/// The files of shared memory that some process has open or mapped.
fn files_in_use() -> BTreeSet<PathBuf> {
    let mut used = BTreeSet::new();
    for process in files_in(Path::new("/proc")).map(|entry| entry.path()) {
        // Those of other users cannot be read, but then neither can they use a file of ours that is new.
        let descriptors = process.join("fd");
        let open = files_in(&descriptors).filter_map(|file| fs::read_link(file.path()).ok());
        used.extend(open.filter(|path| path.starts_with(SHARED_MEMORY)));
        let maps = fs::read_to_string(process.join("maps")).unwrap_or_default();
        used.extend(maps.lines().filter_map(|line| Some(PathBuf::from(&line[line.find(SHARED_MEMORY)?..]))));
    }
    used
}

/// Empties the folder for a trial's temporary files, or makes it.
pub(super) fn make_temporary(folder: &Path) -> io::Result<()> {
    remove_temporary(folder)?;
    fs::create_dir_all(folder)
}

/// Removes the folder for a trial's temporary files with all that is in it.
pub(super) fn remove_temporary(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type TestResult = Result<(), Box<dyn std::error::Error + Send + Sync>>;

    #[test]
    fn only_new_files_that_nobody_has_are_removed() -> TestResult {
        let name = |what: &str| PathBuf::from(format!("{SHARED_MEMORY}/ferrotune-test-{}-{what}", std::process::id()));
        let (old, new, open) = (name("old"), name("new"), name("open"));
        fs::write(&old, "x")?;
        let before = SharedMemory::now();
        fs::write(&new, "xy")?;
        let kept = fs::File::create(&open)?;
        let left = before.remove_new();
        assert!(left.contains(&format!("{} (2 B), removed", new.display())), "{left:?}");
        assert!(old.exists() && open.exists() && !new.exists());
        drop(kept);
        before.remove_new();
        assert!(old.exists() && !open.exists());
        fs::remove_file(old)?;
        Ok(())
    }
}
