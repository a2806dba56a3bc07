//! Memory of a worker's process tree and of the machine, from /proc and the cgroup. Reads only what is cheap enough
//! for every 10 ms.

use super::strays::{children_of, number};
use super::{ProcessError, cgroup};
use rustix::process::Pid;
use std::fs;
use std::io;
use std::path::Path;

const GIB: u64 = 1 << 30;
/// The machine's free memory at which a trial must go, lest the kernel choose what does.
const FLOOR_BYTES: u64 = 500 << 20;

/// A trial that holds less is not what makes a machine short of memory.
const SMALL_TRIAL_BYTES: u64 = 64 << 20;

/// How much memory a trial may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// The most that a trial may hold, in bytes.
    pub trial_bytes: u64,
    /// The least that the machine (or container) must have left, in bytes.
    pub floor_bytes: u64,
}

/// What a worker may have allocated beyond its budget: what is allocated is not yet used, and only use is held to the
/// budget.
const ALLOCATION_SLACK_BYTES: u64 = 256 << 20;
/// A thread's stack, which counts as allocated.
const STACK_BYTES: u64 = 8 << 20;

impl Budget {
    /// The budget of each of `concurrency` trials: what the user asked for, or else an equal share of all that is
    /// available now less 10 %, at least 1 GB.
    pub fn choose(asked_bytes: Option<u64>, concurrency: u64) -> Result<Budget, ProcessError> {
        let available = available_bytes().map_err(ProcessError::system("read how much memory is available"))?;
        Ok(Budget::of(asked_bytes, available, concurrency))
    }

    fn of(asked_bytes: Option<u64>, available: u64, concurrency: u64) -> Budget {
        let usual = available.saturating_sub(GIB.max(available / 10)).max(available / 2) / concurrency.max(1);
        // On a machine that has next to nothing from the start, the floor must not end every trial.
        Budget { trial_bytes: asked_bytes.unwrap_or(usual), floor_bytes: FLOOR_BYTES.min(available / 4) }
    }

    /// What the system itself lets a worker of `threads` threads allocate, with `data_bytes` of shared data mapped:
    /// the net under the watch, for a trial that allocates faster than anyone can look.
    pub fn allocation_limit_bytes(&self, threads: u64, data_bytes: u64) -> u64 {
        let more =
            data_bytes.saturating_add(threads.saturating_mul(STACK_BYTES)).saturating_add(ALLOCATION_SLACK_BYTES);
        self.trial_bytes.saturating_add(more)
    }

    /// What the machine has left, in bytes, where that is less than it must have.
    pub fn machine_shortage(&self) -> Result<Option<u64>, ProcessError> {
        let available = available_bytes().map_err(ProcessError::system("read how much memory is available"))?;
        Ok(Some(available).filter(|available| *available < self.floor_bytes))
    }

    /// Who is at fault where a trial holds `held_bytes` and the machine is short, with `machine_bytes` left.
    pub fn shortage(&self, held_bytes: u64, machine_bytes: Option<u64>) -> Option<Shortage> {
        if held_bytes > self.trial_bytes {
            return Some(Shortage::OfTrial);
        }
        let available_bytes = machine_bytes?;
        let is_small = held_bytes < SMALL_TRIAL_BYTES || held_bytes < self.trial_bytes / 10;
        Some(if is_small { Shortage::Elsewhere { available_bytes } } else { Shortage::OfTrial })
    }
}

/// Whose fault it is that there is too little memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shortage {
    /// The trial's: over its budget, or large on a machine that has nothing left.
    OfTrial,
    /// Something else's: the trial is small, and so would the next ones be.
    Elsewhere {
        /// What the machine has left, in bytes.
        available_bytes: u64,
    },
}

/// The resident memory of this process less what it shares, in bytes; 0 where /proc is not readable.
pub fn own_resident_bytes() -> u64 {
    private_bytes(std::process::id()).unwrap_or(0)
}

/// The memory of a process and of all below it, in bytes.
pub fn tree_bytes(pid: u32) -> u64 {
    i32::try_from(pid).ok().and_then(Pid::from_raw).map_or(0, |pid| held_by(pid).memory_bytes)
}

/// Processes and threads that one trial may have; the machine has room for some tens of thousands.
pub const MOST_TASKS: u64 = 4096;

/// What a worker and everything below it hold, as far as it was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Resident memory less what is shared, which leaves out mapped files and the shared data, in bytes.
    pub memory_bytes: u64,
    /// Processes and their threads.
    pub tasks: u64,
}

pub(super) fn held_by(worker: Pid) -> Held {
    let mut held = Held::default();
    let mut pids = vec![worker];
    while let Some(pid) = pids.pop() {
        // A process that has just left holds nothing.
        held.memory_bytes += private_bytes(number(pid)).unwrap_or(0);
        held.tasks += tasks_of(pid);
        // A flood grows faster than it can be counted, and has to go as it is.
        if held.tasks > MOST_TASKS {
            break;
        }
        pids.extend(children_of(pid));
    }
    held
}

/// The threads of a process: each has a folder, and a folder has a link from each folder in it, and two more.
fn tasks_of(pid: Pid) -> u64 {
    let folder = fs::metadata(format!("/proc/{}/task", number(pid)));
    folder.map_or(0, |folder| std::os::unix::fs::MetadataExt::nlink(&folder).saturating_sub(2))
}

/// What a process holds for itself: resident less shared, in bytes; none where there is no such process.
pub fn private_bytes(pid: u32) -> Option<u64> {
    let statm = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let mut pages = statm.split_whitespace().skip(1).map_while(|field| field.parse::<u64>().ok());
    let (resident, shared) = (pages.next()?, pages.next()?);
    Some(resident.saturating_sub(shared) * rustix::param::page_size() as u64)
}

/// What can be had without swapping: the machine's figure, or the container's where that is lower.
///
/// # Errors
/// Where /proc is not readable.
pub fn available_bytes() -> io::Result<u64> {
    let meminfo = fs::read_to_string("/proc/meminfo")?;
    let machine = field(&meminfo, "MemAvailable:").ok_or(io::ErrorKind::InvalidData)? * 1024;
    Ok(cgroup::own_and_above().iter().filter_map(|folder| cgroup_available(folder)).fold(machine, u64::min))
}

/// The most that all processes together may hold, and who says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryLimit {
    /// In bytes.
    pub bytes: u64,
    /// `the machine` or `the container`.
    pub holder: &'static str,
}

/// The limit that applies here: the container's where there is one, else the machine's memory.
///
/// # Errors
/// Where /proc is not readable.
pub fn memory_limit() -> io::Result<MemoryLimit> {
    let meminfo = fs::read_to_string("/proc/meminfo")?;
    let machine = field(&meminfo, "MemTotal:").ok_or(io::ErrorKind::InvalidData)? * 1024;
    let container = cgroup::own_and_above().iter().filter_map(|folder| cgroup_limit(folder)).min();
    Ok(match container.filter(|bytes| *bytes < machine) {
        Some(bytes) => MemoryLimit { bytes, holder: "the container" },
        None => MemoryLimit { bytes: machine, holder: "the machine" },
    })
}

/// What a cgroup's limit leaves, counting file pages that can be dropped; `None` without a limit.
fn cgroup_available(folder: &Path) -> Option<u64> {
    let number = |name: &str| number_in(&folder.join(name));
    let limit = cgroup_limit(folder)?;
    let used = number("memory.current").or_else(|| number("memory.usage_in_bytes"))?;
    let stat = fs::read_to_string(folder.join("memory.stat")).ok()?;
    let droppable = field(&stat, "total_inactive_file").or_else(|| field(&stat, "inactive_file")).unwrap_or(0);
    Some(limit.saturating_sub(used.saturating_sub(droppable)))
}

/// A cgroup's limit in bytes, if it has one.
fn cgroup_limit(folder: &Path) -> Option<u64> {
    let limit = number_in(&folder.join("memory.max")).or_else(|| number_in(&folder.join("memory.limit_in_bytes")))?;
    // Version 1 writes "no limit" as a number near 2^63.
    (limit <= 1 << 60).then_some(limit)
}

fn number_in(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The number after `name` in a file of lines `NAME NUMBER …`.
pub(super) fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.split_whitespace().next() == Some(name))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    type TestResult = Result<(), Box<dyn std::error::Error + Send + Sync>>;

    #[test]
    fn default_budget_leaves_a_tenth_and_at_least_a_gibibyte() {
        assert_eq!(Budget::of(None, 100 * GIB, 1).trial_bytes, 90 * GIB);
        assert_eq!(Budget::of(None, 4 * GIB, 1).trial_bytes, 3 * GIB);
        assert_eq!(Budget::of(None, GIB, 1).trial_bytes, GIB / 2);
        assert_eq!(Budget::of(None, 100 * GIB, 3).trial_bytes, 30 * GIB);
        assert_eq!(Budget::of(Some(5), GIB, 2).trial_bytes, 5);
    }

    #[test]
    fn a_small_trial_is_not_at_fault_where_the_machine_is_short() {
        let budget = Budget { trial_bytes: 2 * GIB, floor_bytes: FLOOR_BYTES };
        let elsewhere = Some(Shortage::Elsewhere { available_bytes: 7 });
        assert_eq!(budget.shortage(GIB, None), None);
        assert_eq!(budget.shortage(GIB, Some(7)), Some(Shortage::OfTrial));
        assert_eq!(budget.shortage(3 * GIB, None), Some(Shortage::OfTrial));
        assert_eq!(budget.shortage(SMALL_TRIAL_BYTES - 1, Some(7)), elsewhere);
        assert_eq!(budget.shortage(2 * GIB / 10 - 1, Some(7)), elsewhere);
        let tiny = Budget { trial_bytes: 5, floor_bytes: FLOOR_BYTES };
        assert_eq!(tiny.shortage(6, Some(7)), Some(Shortage::OfTrial));
    }

    #[test]
    fn this_process_and_the_machine_have_memory() -> TestResult {
        assert!(own_resident_bytes() > 100_000);
        assert!(available_bytes()? > 1 << 20);
        Ok(())
    }

    #[test]
    fn threads_of_a_process_are_counted() {
        let before = held_by(rustix::process::getpid());
        let (stop, wait) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || wait.recv().is_err());
        let during = held_by(rustix::process::getpid());
        drop(stop);
        assert!(thread.join().is_ok_and(|stopped| stopped));
        assert!(before.tasks >= 1 && during.tasks > 1, "{before:?} {during:?}");
        assert!(during.memory_bytes > 100_000);
    }

    #[test]
    fn a_cgroup_limit_counts_droppable_file_pages_as_free() -> TestResult {
        let folder = tempfile::tempdir()?;
        for (name, text) in
            [("memory.max", "1000\n"), ("memory.current", "700\n"), ("memory.stat", "anon 1\ninactive_file 200\n")]
        {
            fs::write(folder.path().join(name), text)?;
        }
        assert_eq!(cgroup_available(folder.path()), Some(500));
        fs::write(folder.path().join("memory.max"), "max\n")?;
        assert_eq!(cgroup_available(folder.path()), None);
        Ok(())
    }
}
