//! A device that one process at a time can use: the process that uses it now, and the lock that gives searches their turns.
//! Opens no device, ends no process, and removes no file.

use super::ProcessError;
use ferrotune_machine::identity::start_ticks;
use ferrotune_machine::process;
use ferrotune_machine::process_tree::number;
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use rustix::process::{Flock, FlockType, Pid};
use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// The file that libtpu locks while a process uses the TPU.
const LOCK_FILE: &str = "/tmp/libtpu_lockfile";

/// The environment variable that names another lock file, for a plugin with a different one.
const LOCK_FILE_VARIABLE: &str = "FERROTUNE_TPU_LOCKFILE";

/// The path prefixes of the device nodes of TPUs; a number follows.
const NODES: [&str; 2] = ["/dev/accel", "/dev/vfio/"];

/// An exclusive device, from the point of view of one search.
#[derive(Debug)]
pub struct ExclusiveDevice {
    lock_file: PathBuf,
    /// The path of the turn file, beside the lock file. A search locks it while its trials may use the device.
    turn_file: PathBuf,
    turn: Option<File>,
}

impl ExclusiveDevice {
    /// The device of this machine, without the turn.
    pub fn of_this_machine() -> ExclusiveDevice {
        let lock_file = std::env::var_os(LOCK_FILE_VARIABLE).unwrap_or_else(|| LOCK_FILE.into());
        ExclusiveDevice::at(lock_file.into())
    }

    fn at(lock_file: PathBuf) -> ExclusiveDevice {
        let mut turn_file = lock_file.clone().into_os_string();
        turn_file.push(".ferrotune");
        ExclusiveDevice { lock_file, turn_file: turn_file.into(), turn: None }
    }

    /// Takes the turn, which is kept until this value is dropped. If another process has the turn or the device, returns a
    /// description of that process; the process `shared` serves this search, and is no other one. Call this function only while no
    /// worker of this process runs.
    ///
    /// # Errors
    /// If the turn file cannot be opened or locked.
    pub fn take(&mut self, shared: Option<u32>) -> Result<Option<String>, ProcessError> {
        if self.turn.is_none() {
            match try_lock(&self.turn_file).map_err(ProcessError::system("lock the file of the device's turn"))? {
                Some(file) => self.turn = Some(file),
                None => {
                    let holder = self.holder_of(|target| target == self.turn_file);
                    let holder =
                        holder.map_or_else(|| "another user".to_owned(), |(pid, _)| process::described(number(pid)));
                    return Ok(Some(format!("{holder} runs another search on it")));
                }
            }
        }
        Ok(self.user(shared))
    }

    /// A description of the process that uses the device.
    fn user(&self, shared: Option<u32>) -> Option<String> {
        let is_node = |target: &Path| {
            let target = target.to_str().unwrap_or_default();
            let number = NODES.iter().find_map(|node| target.strip_prefix(node));
            number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
        };
        let found = self.holder_of(|target| target == self.lock_file || is_node(target));
        let found = found.or_else(|| Some((locker(&self.lock_file)?, self.lock_file.clone())));
        let found = found.filter(|(pid, _)| Some(number(*pid)) != shared);
        found.map(|(pid, target)| format!("{} has {} open", process::described(number(pid)), target.display()))
    }

    /// A process other than this one that has a wanted file open. The files of other users' processes are invisible.
    fn holder_of(&self, is_wanted: impl Fn(&Path) -> bool) -> Option<(Pid, PathBuf)> {
        let own = rustix::process::getpid();
        let holders = process::all().filter(|pid| *pid != own).filter_map(|pid| {
            let mut targets = process::open_files(number(pid)).map(|(_, target)| target);
            Some((pid, targets.find(|target| is_wanted(target))?))
        });
        // A forked child has its parent's files open, too, and may have a smaller process id once ids have wrapped around.
        // So the oldest process is chosen.
        holders.min_by_key(|(pid, _)| start_ticks(*pid).ok().flatten().unwrap_or(u64::MAX))
    }
}

/// The process that has locked a file, which may belong to another user. This function only queries the lock: a lock held
/// for an instant could make another process fail that opens the device now.
fn locker(file: &Path) -> Option<Pid> {
    let file = File::open(file).ok()?;
    let probe = Flock::from(FlockType::WriteLock);
    match rustix::process::fcntl_getlk(&file, &probe) {
        Ok(lock) => lock.and_then(|lock| lock.pid),
        Err(errno) => {
            tracing::debug!(%errno, "whether the device's file is locked is unknown");
            None
        }
    }
}

/// Locks a file, and makes the file if it does not exist; none if another process holds the lock.
fn try_lock(path: &Path) -> io::Result<Option<File>> {
    // In a folder for all users, another user's symbolic link could lead anywhere.
    let no_follow = |options: &mut OpenOptions| options.custom_flags(libc::O_NOFOLLOW).open(path);
    let file = match no_follow(File::options().read(true)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let made = no_follow(File::options().read(true).write(true).create(true).truncate(false))?;
            // Other users wait for their turn with the same file, whatever the umask of its first user is.
            made.set_permissions(Permissions::from_mode(0o644))?;
            made
        }
        file => file?,
    };
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead as _, BufReader};
    use std::process::{Child, Command, Stdio};

    type TestResult = Result<(), Box<dyn std::error::Error + Send + Sync>>;

    /// Starts a process that runs these commands, prints that it has done so, and then waits.
    fn process(folder: &Path, commands: &str) -> io::Result<Child> {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{commands}; echo ready; read end")]).current_dir(folder);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let output = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        BufReader::new(output).read_line(&mut String::new())?;
        Ok(child)
    }

    fn end(mut child: Child) -> io::Result<()> {
        drop(child.stdin.take());
        child.wait().map(drop)
    }

    #[test]
    fn the_user_of_the_device_is_named_and_nothing_is_removed() -> TestResult {
        let folder = tempfile::tempdir()?;
        let folder = std::fs::canonicalize(folder.path())?;
        let file = folder.join("lockfile");
        let mut device = ExclusiveDevice::at(file.clone());
        assert_eq!(device.take(None)?, None);
        let stranger = process(&folder, "exec 3>lockfile")?;
        let expected = format!("process {} (sh) has {} open", stranger.id(), file.display());
        assert_eq!(device.take(None)?, Some(expected));
        end(stranger)?;
        assert_eq!(device.take(None)?, None);
        assert!(file.exists(), "a file that nobody has open is no obstacle");
        Ok(())
    }

    #[test]
    fn one_search_at_a_time_has_the_turn() -> TestResult {
        let folder = tempfile::tempdir()?;
        let folder = std::fs::canonicalize(folder.path())?;
        let mut device = ExclusiveDevice::at(folder.join("lockfile"));
        let other = process(&folder, "exec 3>lockfile.ferrotune; flock -n 3")?;
        let expected = format!("process {} (sh) runs another search on it", other.id());
        assert_eq!(device.take(None)?, Some(expected));
        end(other)?;
        assert_eq!(device.take(None)?, None);
        assert!(try_lock(&folder.join("lockfile.ferrotune"))?.is_none());
        drop(device);
        assert!(try_lock(&folder.join("lockfile.ferrotune"))?.is_some());
        Ok(())
    }
}
