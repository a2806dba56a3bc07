//! Memory of the machine, of its container and of single processes, from /proc. Cheap enough to be read every 10 ms.

use crate::{Read, cgroup, field, file};
use std::fs;
use std::io;
use std::path::Path;

const MEMINFO: &str = "/proc/meminfo";

/// The memory that can be had without swapping, in bytes: the machine's, or the container's where that is less.
///
/// # Errors
/// Where /proc is not readable.
pub fn available_bytes() -> io::Result<u64> {
    let machine = kibibytes(&fs::read_to_string(MEMINFO)?, "MemAvailable:").ok_or(io::ErrorKind::InvalidData)?;
    Ok(cgroup::memory_available_bytes(&file).map_or(machine, |container| container.min(machine)))
}

/// The memory of a machine, in bytes.
pub fn total_bytes(read: Read<'_>) -> Option<u64> {
    kibibytes(&read(Path::new(MEMINFO))?, "MemTotal:")
}

/// The most that all processes together may hold, and who sets this limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryLimit {
    /// In bytes.
    pub bytes: u64,
    /// `the machine` or `the container`.
    pub holder: &'static str,
}

/// The container's limit where it is below the machine's memory, else the machine's memory.
///
/// # Errors
/// Where /proc is not readable.
pub fn memory_limit() -> io::Result<MemoryLimit> {
    let machine = kibibytes(&fs::read_to_string(MEMINFO)?, "MemTotal:").ok_or(io::ErrorKind::InvalidData)?;
    Ok(match cgroup::memory_limit_bytes(&file).filter(|bytes| *bytes < machine) {
        Some(bytes) => MemoryLimit { bytes, holder: "the container" },
        None => MemoryLimit { bytes: machine, holder: "the machine" },
    })
}

/// The memory that a process holds for itself, in bytes: resident less shared; none where there is no such process.
pub fn private_bytes(pid: u32) -> Option<u64> {
    let statm = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let mut pages = statm.split_whitespace().skip(1).map_while(|field| field.parse::<u64>().ok());
    let (resident, shared) = (pages.next()?, pages.next()?);
    Some(resident.saturating_sub(shared) * rustix::param::page_size() as u64)
}

/// The memory that this process holds for itself, in bytes; 0 where /proc is not readable.
pub fn own_resident_bytes() -> u64 {
    private_bytes(std::process::id()).unwrap_or(0)
}

/// How many processes the system has killed for want of memory since it started; none where it does not tell.
pub fn oom_kills() -> Option<u64> {
    field(&file(Path::new("/proc/vmstat"))?, "oom_kill")
}

/// A field of `/proc/meminfo`, in bytes.
fn kibibytes(meminfo: &str, name: &str) -> Option<u64> {
    field(meminfo, name)?.checked_mul(1024)
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
    fn total_memory_is_that_of_the_described_machine() {
        assert_eq!(
            total_bytes(&|_| Some("MemTotal:  24536884 kB\nMemFree: 1 kB\n".to_owned())),
            Some(24_536_884 << 10)
        );
        assert_eq!(total_bytes(&|_| None), None);
    }
}
