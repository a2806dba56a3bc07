//! The descendants of a process, and the resources that they hold. Does not rely on process groups, because a process can
//! leave its group. Ends no process.

use crate::memory::private_bytes;
use crate::process::place;
use rustix::process::Pid;
use std::fs;
use std::os::unix::fs::MetadataExt as _;

/// The number of processes and threads at which counting ends: a flood of processes grows faster than it can be counted.
pub const MOST_COUNTED_TASKS: u64 = 4096;

/// The resources that a process and its descendants hold, as far as they were counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// The resident memory without shared memory, in bytes. Mapped files and shared data are not included.
    pub memory_bytes: u64,
    /// The number of processes and their threads.
    pub tasks: u64,
}

/// The resources that a process and its descendants hold.
pub fn held_by(root: Pid) -> Held {
    let mut held = Held::default();
    let mut pids = vec![root];
    while let Some(pid) = pids.pop() {
        // A process that has just exited holds nothing.
        held.memory_bytes += private_bytes(number(pid)).unwrap_or(0);
        held.tasks += tasks_of(pid);
        if held.tasks > MOST_COUNTED_TASKS {
            break;
        }
        pids.extend(children_of(pid));
    }
    held
}

/// The memory of a process and its descendants, in bytes.
pub fn memory_bytes(pid: u32) -> u64 {
    i32::try_from(pid).ok().and_then(Pid::from_raw).map_or(0, |pid| held_by(pid).memory_bytes)
}

/// The descendants of a process.
pub fn below(pid: Pid) -> Vec<Pid> {
    let mut found = Vec::new();
    let mut parents = vec![pid];
    while let Some(pid) = parents.pop() {
        let children = children_of(pid);
        found.extend(&children);
        parents.extend(children);
    }
    found
}

/// The children of all threads of a process; none if the process has exited.
pub fn children_of(pid: Pid) -> Vec<Pid> {
    let Ok(tasks) = fs::read_dir(place(number(pid), "task")) else {
        return Vec::new();
    };
    let mut children = Vec::new();
    for task in tasks.flatten() {
        // A thread that ends between the two reads has passed its children on to another thread.
        if let Ok(text) = fs::read_to_string(task.path().join("children")) {
            children.extend(text.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)));
        }
    }
    children
}

/// A process id as a number.
pub fn number(pid: Pid) -> u32 {
    pid.as_raw_nonzero().get().unsigned_abs()
}

/// The number of threads of a process: each thread has a folder, and the link count of a folder is the number of its
/// subfolders plus two.
fn tasks_of(pid: Pid) -> u64 {
    let folder = fs::metadata(place(number(pid), "task"));
    folder.map_or(0, |folder| folder.nlink().saturating_sub(2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

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
    fn grandchildren_are_below_a_process() -> std::io::Result<()> {
        use std::io::{BufRead as _, BufReader};
        let mut shell = Command::new("sh");
        shell.args(["-c", "sleep 1000 & echo $!; wait"]).stdout(std::process::Stdio::piped());
        let mut child = shell.spawn()?;
        let mut grandchild = String::new();
        BufReader::new(child.stdout.take().ok_or(std::io::ErrorKind::BrokenPipe)?).read_line(&mut grandchild)?;
        let own = below(rustix::process::getpid());
        let below_child = below(Pid::from_child(&child));
        for pid in &below_child {
            rustix::process::kill_process(*pid, rustix::process::Signal::KILL)?;
        }
        child.wait()?;
        assert_eq!(below_child.iter().map(|pid| number(*pid).to_string()).collect::<Vec<_>>(), [grandchild.trim()]);
        assert!(own.contains(&Pid::from_child(&child)) && own.contains(&below_child[0]));
        Ok(())
    }
}
