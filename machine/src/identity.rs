//! The identity of a process. A process id alone can be reused, and belongs to different processes in different PID
//! namespaces. With the namespace and the start time it is unique. Ends no process.

use crate::process::place;
use crate::process_tree::number;
use rustix::io::Errno;
use rustix::process::Pid;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;

/// The position of the start time in `/proc/PID/stat`, counted from the field after the program's name.
const START_FIELD: usize = 19;

/// The identity of a process, for its supervisor or another process. Its text is `NAMESPACE-START-PID`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The inode of the PID namespace in which the process id is valid.
    pub namespace: u64,
    /// The start time of the process, in clock ticks since the machine started.
    pub start_ticks: u64,
    /// The process id.
    pub pid: Pid,
}

impl Identity {
    /// The identity of this process.
    ///
    /// # Errors
    /// If /proc is not readable, or shows another PID namespace, in which this namespace's process ids belong to other
    /// processes.
    pub fn own() -> io::Result<Identity> {
        let pid = rustix::process::getpid();
        if fs::read_link("/proc/self")?.to_str() != Some(&number(pid).to_string()) {
            let reason = "/proc shows another PID namespace; mount it anew, as `unshare --mount-proc` does";
            return Err(io::Error::new(io::ErrorKind::Unsupported, reason));
        }
        let start_ticks = start_ticks(pid)?.ok_or(io::ErrorKind::NotFound)?;
        Ok(Identity { namespace: own_namespace()?, start_ticks, pid })
    }

    /// Parses the text of an identity; none if the text is not an identity.
    pub fn parse(text: &str) -> Option<Identity> {
        let mut parts = text.splitn(3, '-');
        let (namespace, start, pid) = (parts.next()?, parts.next()?, parts.next()?);
        let pid = Pid::from_raw(pid.parse().ok()?)?;
        Some(Identity { namespace: namespace.parse().ok()?, start_ticks: start.parse().ok()?, pid })
    }

    /// Whether the process has certainly ended. A process of another PID namespace is invisible here, and may still run.
    pub fn is_dead(&self) -> bool {
        let is_seen_from_here = own_namespace().is_ok_and(|own| own == self.namespace);
        is_seen_from_here
            && match start_ticks(self.pid) {
                Ok(Some(start_ticks)) => start_ticks != self.start_ticks,
                // Some systems hide the processes of other users, but a signal still reaches them.
                Ok(None) => rustix::process::test_kill_process(self.pid) == Err(Errno::SRCH),
                Err(_) => false,
            }
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}-{}-{}", self.namespace, self.start_ticks, number(self.pid))
    }
}

/// The inode of this process' PID namespace; 0 on a system without PID namespaces.
fn own_namespace() -> io::Result<u64> {
    match fs::metadata("/proc/self/ns/pid") {
        Ok(namespace) => Ok(namespace.ino()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(error),
    }
}

/// The start time of a process, in clock ticks since the machine started; none if there is no such process.
///
/// # Errors
/// If /proc cannot be read.
pub fn start_ticks(pid: Pid) -> io::Result<Option<u64>> {
    let stat = match fs::read_to_string(place(number(pid), "stat")) {
        Err(error)
            if error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) =>
        {
            return Ok(None);
        }
        stat => stat?,
    };
    // The program's name is in parentheses, and may contain any character.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let start = fields.split_whitespace().nth(START_FIELD).and_then(|field| field.parse().ok());
    start.map(Some).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    type TestResult = Result<(), Box<dyn std::error::Error + Send + Sync>>;

    #[test]
    fn process_is_dead_once_its_id_is_free_or_another_process_has_it() -> TestResult {
        let own = Identity::own()?;
        assert_eq!(Identity::parse(&own.to_string()), Some(own));
        assert!(!own.is_dead());
        assert!(Identity { start_ticks: own.start_ticks + 1, ..own }.is_dead());
        assert!(!Identity { namespace: own.namespace + 1, start_ticks: own.start_ticks + 1, ..own }.is_dead());
        let mut child = std::process::Command::new("true").spawn()?;
        let pid = Pid::from_child(&child);
        let gone = Identity { pid, ..own };
        child.wait()?;
        assert!(gone.is_dead());
        assert!(!Identity { namespace: own.namespace + 1, ..gone }.is_dead());
        for text in ["", "1", "1-2", "1-2-x", "1-2-0", "it/3/17"] {
            assert_eq!(Identity::parse(text), None, "{text}");
        }
        Ok(())
    }
}
