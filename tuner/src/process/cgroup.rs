//! A memory cgroup for each trial, if this process may make cgroups. The system then enforces the trial's limit, including
//! file pages and all processes of the trial, and reports the trial that it has killed for lack of memory. In most
//! containers this process may not make cgroups, and only the other limits apply.

use super::strays;
use ferrotune_machine::cgroup::{Version, oom_kills, own_memory_cgroups};
use ferrotune_machine::identity::Identity;
use rustix::process::Pid;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The prefix of the name of a trial's cgroup; the supervisor's [`Identity`] and the trial follow.
const PREFIX: &str = "ferrotune-";

/// The longest wait for the processes of a cgroup to end after they are killed.
const PATIENCE: Duration = Duration::from_secs(2);

/// The parent of the trials' cgroups: the cgroup of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrialCgroups {
    parent: PathBuf,
    version: Version,
}

impl TrialCgroups {
    /// Tests whether this process may make cgroups with a memory limit, by making one and removing it again. Removes the
    /// cgroups of dead supervisors.
    pub fn find() -> Option<TrialCgroups> {
        let mut own = own_memory_cgroups().into_iter().map(|(version, parent)| TrialCgroups { parent, version });
        let found = own.find(|cgroups| match cgroups.probe() {
            Ok(()) => true,
            Err(error) => {
                tracing::debug!(folder = %cgroups.parent.display(), %error, "no cgroups for the trials here");
                false
            }
        })?;
        found.remove_abandoned();
        Some(found)
    }

    /// Makes a cgroup for one trial, whose processes together may use `limit_bytes`.
    ///
    /// # Errors
    /// If the system refuses the cgroup.
    pub(super) fn make(&self, trial: u64, limit_bytes: u64) -> io::Result<Cgroup> {
        self.named(&trial.to_string(), limit_bytes)
    }

    fn named(&self, name: &str, limit_bytes: u64) -> io::Result<Cgroup> {
        let folder = self.parent.join(format!("{PREFIX}{}-{name}", Identity::own()?));
        match fs::create_dir(&folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let cgroup = Cgroup { folder, version: self.version };
        match cgroup.limit(limit_bytes) {
            Ok(()) => Ok(cgroup),
            Err(error) => cgroup.remove().and(Err(error)),
        }
    }

    fn probe(&self) -> io::Result<()> {
        if self.version == Version::Two && !has_memory(&self.parent) {
            fs::write(self.parent.join("cgroup.subtree_control"), "+memory")?;
        }
        self.named("probe", 1 << 30)?.remove()
    }

    /// Removes the cgroups of dead supervisors. Their processes have been killed, or are being killed.
    fn remove_abandoned(&self) {
        let entries = fs::read_dir(&self.parent).into_iter().flatten().flatten();
        for folder in entries.map(|entry| entry.path()) {
            let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if owner_of(name).is_some_and(|owner| owner.is_dead())
                && let Err(error) = (Cgroup { folder, version: self.version }).remove()
            {
                tracing::debug!(%error, "the cgroup of an earlier trial stays");
            }
        }
    }
}

/// The supervisor that made the cgroup with this name.
fn owner_of(name: &str) -> Option<Identity> {
    let (owner, _) = name.strip_prefix(PREFIX)?.rsplit_once('-')?;
    Identity::parse(owner)
}

/// Whether cgroups below this one have the memory controller.
fn has_memory(folder: &Path) -> bool {
    let controllers = fs::read_to_string(folder.join("cgroup.subtree_control")).unwrap_or_default();
    controllers.split_whitespace().any(|controller| controller == "memory")
}

/// The cgroup of one trial.
#[derive(Debug)]
pub(super) struct Cgroup {
    folder: PathBuf,
    version: Version,
}

impl Cgroup {
    fn limit(&self, limit_bytes: u64) -> io::Result<()> {
        fs::write(self.folder.join(self.version.memory_limit_file()), limit_bytes.to_string())?;
        if self.version == Version::Two {
            // If the system killed only one process of the trial, the trial might wait for that process for ever.
            fs::write(self.folder.join("memory.oom.group"), "1")?;
            // A machine without swap has no such file.
            if let Err(error) = fs::write(self.folder.join("memory.swap.max"), "0") {
                tracing::trace!(%error, "the trial's swap is not limited");
            }
        }
        Ok(())
    }

    /// Moves a process and all its later children into the cgroup. A process that has already exited is not an error.
    pub(super) fn take(&self, pid: u32) -> io::Result<()> {
        match fs::write(self.folder.join("cgroup.procs"), pid.to_string()) {
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
            result => result,
        }
    }

    /// Kills every process in the cgroup, wherever it is in the process tree.
    pub(super) fn kill(&self) {
        // Linux before 5.14 has no such file, nor has version 1 of cgroups.
        if fs::write(self.folder.join("cgroup.kill"), "1").is_ok() {
            return;
        }
        let inside = fs::read_to_string(self.folder.join("cgroup.procs")).unwrap_or_default();
        let pids: Vec<Pid> = inside.lines().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect();
        strays::kill_all(&pids);
    }

    /// Whether the system has killed a process in the cgroup for exceeding its limit.
    pub(super) fn was_over(&self) -> bool {
        oom_kills(self.version, &self.folder) > 0
    }

    /// Removes the cgroup, and kills the processes that are still in it.
    ///
    /// # Errors
    /// If the processes do not end in time, or the system refuses.
    pub(super) fn remove(&self) -> io::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match fs::remove_dir(&self.folder) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy && Instant::now() < deadline => {
                    self.kill();
                    std::thread::sleep(Duration::from_millis(1));
                }
                result => return result,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type TestResult = Result<(), Box<dyn std::error::Error + Send + Sync>>;

    #[test]
    fn only_cgroups_of_dead_supervisors_of_this_pid_namespace_are_removed() -> TestResult {
        let parent = tempfile::tempdir()?;
        let own = Identity::own()?;
        let name = |owner: Identity| format!("{PREFIX}{owner}-3");
        let stay = [own, Identity { namespace: own.namespace + 1, start_ticks: own.start_ticks + 1, ..own }];
        let dead = Identity { start_ticks: own.start_ticks + 1, ..own };
        let named = [name(dead), name(stay[0]), name(stay[1]), format!("{PREFIX}999999-3"), format!("{PREFIX}notes")];
        for name in &named {
            fs::create_dir(parent.path().join(name))?;
        }
        TrialCgroups { parent: parent.path().to_owned(), version: Version::Two }.remove_abandoned();
        let is_there: Vec<bool> = named.iter().map(|name| parent.path().join(name).exists()).collect();
        assert_eq!(is_there, [false, true, true, true, true]);
        Ok(())
    }

    #[test]
    fn limits_of_the_second_version_are_its_files() -> TestResult {
        let parent = tempfile::tempdir()?;
        let cgroups = TrialCgroups { parent: parent.path().to_owned(), version: Version::Two };
        let cgroup = cgroups.make(7, 1000)?;
        cgroup.take(42)?;
        let read = |name: &str| fs::read_to_string(cgroup.folder.join(name));
        assert_eq!((read("memory.max")?, read("memory.oom.group")?), ("1000".to_owned(), "1".to_owned()));
        assert_eq!((read("memory.swap.max")?, read("cgroup.procs")?), ("0".to_owned(), "42".to_owned()));
        assert!(!cgroup.was_over());
        fs::write(cgroup.folder.join("memory.events"), "low 0\noom 1\noom_kill 1\n")?;
        assert!(cgroup.was_over());
        Ok(())
    }

    /// This test needs the right to make cgroups; `TrialCgroups::find` shows whether this process has it.
    #[test]
    fn process_over_the_limit_is_killed_and_known() -> TestResult {
        let Some(cgroups) = TrialCgroups::find() else { return Ok(()) };
        let cgroup = cgroups.named("test", 32 << 20)?;
        let mut child = std::process::Command::new("sh")
            .args(["-c", "read go; head -c 200000000 /dev/zero | tail -c 200000000 | wc -c"])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::null())
            .spawn()?;
        cgroup.take(child.id())?;
        assert!(!cgroup.was_over());
        drop(child.stdin.take());
        child.wait()?;
        assert!(cgroup.was_over());
        let folder = cgroup.folder.clone();
        cgroup.remove()?;
        assert!(!folder.exists());
        Ok(())
    }
}
