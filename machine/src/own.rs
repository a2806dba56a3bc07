//! What this process asks about itself.

use crate::memory::kibibytes;
use crate::process;
use rustix::process::Signal;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _};
use std::path::PathBuf;

/// The program of this process, even if its file has been replaced since it started.
pub const PROGRAM: &str = "/proc/self/exe";

/// The path by which this process opens a file once more that it has open.
pub fn path_of(file: impl AsFd) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_fd().as_raw_fd()).into()
}

/// The path by which other processes of this user open a file that this process has open.
pub fn path_for_others(file: impl AsFd) -> PathBuf {
    process::path_of_file(std::process::id(), file.as_fd().as_raw_fd())
}

/// The numbers of this process's threads.
///
/// # Errors
/// If the system does not show them.
pub fn threads() -> io::Result<impl Iterator<Item = i32>> {
    let tasks = fs::read_dir("/proc/self/task")?;
    Ok(tasks.flatten().filter_map(|task| task.file_name().to_str()?.parse().ok()))
}

/// The name of a thread of this process.
///
/// # Errors
/// If the thread has ended.
pub fn thread_name(number: i32) -> io::Result<String> {
    let name = fs::read_to_string(format!("/proc/self/task/{number}/comm"))?;
    Ok(name.trim().to_owned())
}

/// Sets how soon the system ends this process when memory runs out: 1000 is before all others.
///
/// # Errors
/// If the system does not allow it, as in some sandboxes.
pub fn set_oom_score(score: u32) -> io::Result<()> {
    fs::write("/proc/self/oom_score_adj", score.to_string())
}

/// Asks the system to kill this process when its parent ends. A parent that has ended before the call sends no signal.
///
/// # Errors
/// If the system refuses it.
pub fn end_with_parent() -> io::Result<()> {
    Ok(rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?)
}

/// Makes this process the parent of each process below it whose own parent ends.
///
/// # Errors
/// If the system refuses it.
pub fn adopt_orphans() -> io::Result<()> {
    Ok(rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?)
}

/// The memory of this process, in bytes.
///
/// # Errors
/// If the system does not count it.
pub fn resident_bytes() -> io::Result<u64> {
    bytes("VmRSS:")
}

/// The greatest memory of this process since [`reset_peak`], or since its start, in bytes.
///
/// # Errors
/// If the system does not count it.
pub fn peak_bytes() -> io::Result<u64> {
    bytes("VmHWM:")
}

/// Makes the present memory of this process its [`peak_bytes`].
///
/// # Errors
/// If the system does not allow it.
pub fn reset_peak() -> io::Result<()> {
    // https://docs.kernel.org/filesystems/proc.html
    fs::write("/proc/self/clear_refs", "5")
}

fn bytes(name: &str) -> io::Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    kibibytes(&status, name).ok_or_else(|| io::Error::other(format!("/proc/self/status has no {name}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_among_its_process_threads() -> io::Result<()> {
        let named = std::thread::Builder::new().name("counted".to_owned());
        let thread = named.spawn(|| {
            let own = rustix::thread::gettid().as_raw_nonzero().get();
            io::Result::Ok((threads()?.any(|number| number == own), thread_name(own)?))
        })?;
        assert_eq!(thread.join().unwrap()?, (true, "counted".to_owned()));
        Ok(())
    }

    #[test]
    fn the_peak_is_at_least_the_present_memory() -> io::Result<()> {
        reset_peak()?;
        let present = resident_bytes()?;
        assert!(present > 100_000 && peak_bytes()? + (1 << 20) > present);
        Ok(())
    }

    #[test]
    fn an_open_file_is_opened_once_more() -> io::Result<()> {
        use std::io::Write as _;
        let mut file = tempfile::tempfile()?;
        file.write_all(b"text")?;
        assert_eq!(fs::read(path_of(&file))?, b"text");
        assert_eq!(fs::read(path_for_others(&file))?, b"text");
        Ok(())
    }
}
