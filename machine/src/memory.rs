//! The memory of the machine, of its container and of single processes, from /proc. Cheap enough to be read every 10 ms.

use crate::process::place;
use crate::{Read, cgroup, field, file};
use std::fs;
use std::io;
use std::path::Path;

const MEMINFO: &str = "/proc/meminfo";

/// The memory that is available without swapping, in bytes: that of the machine, or that of the container if it is less.
///
/// # Errors
/// If /proc is not readable.
pub fn available_bytes() -> io::Result<u64> {
    let machine = kibibytes(&fs::read_to_string(MEMINFO)?, "MemAvailable:").ok_or(io::ErrorKind::InvalidData)?;
    Ok(cgroup::memory_available_bytes(&file).map_or(machine, |container| container.min(machine)))
}

/// The memory of a machine, in bytes.
pub fn total_bytes(read: Read<'_>) -> Option<u64> {
    kibibytes(&read(Path::new(MEMINFO))?, "MemTotal:")
}

/// The limit on the memory of all processes together, and what sets this limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryLimit {
    /// The limit in bytes.
    pub bytes: u64,
    /// The holder of the limit: `the machine` or `the container`.
    pub holder: &'static str,
}

/// The container's limit if it is below the machine's memory, or else the machine's memory.
///
/// # Errors
/// If /proc is not readable.
pub fn memory_limit() -> io::Result<MemoryLimit> {
    let machine = kibibytes(&fs::read_to_string(MEMINFO)?, "MemTotal:").ok_or(io::ErrorKind::InvalidData)?;
    Ok(match cgroup::memory_limit_bytes(&file).filter(|bytes| *bytes < machine) {
        Some(bytes) => MemoryLimit { bytes, holder: "the container" },
        None => MemoryLimit { bytes: machine, holder: "the machine" },
    })
}

/// The memory that a process does not share, in bytes: resident less shared; none if there is no such process.
pub fn private_bytes(pid: u32) -> Option<u64> {
    let statm = fs::read_to_string(place(pid, "statm")).ok()?;
    let mut pages = statm.split_whitespace().skip(1).map_while(|field| field.parse::<u64>().ok());
    let (resident, shared) = (pages.next()?, pages.next()?);
    Some(resident.saturating_sub(shared) * rustix::param::page_size() as u64)
}

/// The memory that this process does not share, in bytes; 0 if /proc is not readable.
pub fn own_resident_bytes() -> u64 {
    private_bytes(std::process::id()).unwrap_or(0)
}

/// The memory of a process in relation to processes that were forked from it, from `smaps_rollup`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rollup {
    /// The memory that becomes free when the process ends, in bytes.
    pub private_bytes: u64,
    /// The proportional share of the process in anonymous memory that it shares with others, in bytes.
    pub share_bytes: u64,
    /// The anonymous memory of the process, private and shared, in bytes.
    pub anonymous_bytes: u64,
}

impl Rollup {
    /// Reads the memory of a process; all zero if the process is gone. The read takes some 30 ms for a process of 1.5 GB.
    pub fn of(pid: u32) -> Rollup {
        Rollup::parse(&fs::read_to_string(place(pid, "smaps_rollup")).unwrap_or_default())
    }

    fn parse(text: &str) -> Rollup {
        let bytes = |name| kibibytes(text, name).unwrap_or(0);
        Rollup {
            private_bytes: bytes("Private_Clean:") + bytes("Private_Dirty:"),
            share_bytes: bytes("Pss_Anon:"),
            anonymous_bytes: bytes("Anonymous:"),
        }
    }
}

/// The number of processes that the system has killed for lack of memory since it started; none if the system does not
/// report it.
pub fn oom_kills() -> Option<u64> {
    field(&file(Path::new("/proc/vmstat"))?, "oom_kill")
}

/// A field of `/proc/meminfo`, or of a process' `status` or `smaps_rollup`, in bytes.
pub(crate) fn kibibytes(text: &str, name: &str) -> Option<u64> {
    field(text, name)?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_and_the_machine_have_memory() -> io::Result<()> {
        assert!(own_resident_bytes() > 100_000);
        assert!(available_bytes()? > 1 << 20);
        let limit = memory_limit()?;
        assert!(limit.bytes >= available_bytes()? && Some(limit.bytes) <= total_bytes(&file), "{limit:?}");
        Ok(())
    }

    #[test]
    fn memory_is_read_from_a_rollup() {
        let text = "55 rollup\nRss: 900 kB\nPss: 500 kB\nPss_Anon: 300 kB\nPrivate_Clean: 1 kB\nPrivate_Dirty: 2 kB\n\
                    Anonymous: 400 kB\n";
        let memory = Rollup::parse(text);
        let read = (memory.private_bytes, memory.share_bytes, memory.anonymous_bytes);
        assert_eq!(read, (3 << 10, 300 << 10, 400 << 10));
    }

    #[test]
    fn total_memory_is_that_of_the_described_machine() {
        assert_eq!(
            total_bytes(&|_| Some("MemTotal:  24536884 kB\nMemFree: 1 kB\n".to_owned())),
            Some(24_536_884 << 10)
        );
        assert_eq!(total_bytes(&|_| None), None);
    }
}
