//! The files in /dev/shm, whose memory outlives the process that allocated it. A file is removed only if one of the trial's
//! own processes has provably made it and no process uses it any more; other files are reported.

mod holders;
mod makers;

use ferrotune_machine::format::bytes;
use ferrotune_machine::process;
use ferrotune_machine::process_tree::number;
use holders::held_by;
use makers::Watch;
use rustix::process::Pid;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::{self, DirEntry};
use std::io::ErrorKind;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::{DirEntryExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The folder of POSIX shared memory.
const FOLDER: &str = "/dev/shm";

/// The inodes of files. An inode of shared memory is not reused before 2^32 other files have been made.
pub(super) type Inodes = BTreeSet<u64>;

/// The files in shared memory, with a watch for the files that trials make.
#[derive(Debug)]
pub struct SharedMemory {
    folder: PathBuf,
    /// The names of the files that existed when no trial ran.
    known: BTreeSet<OsString>,
    /// The watch for new files. Without inotify the makers of files are unknown, and no file is removed.
    watch: Option<Watch>,
}

impl SharedMemory {
    /// Records the present files, and starts the watch for new files.
    pub fn watched() -> SharedMemory {
        SharedMemory::of(Path::new(FOLDER))
    }

    fn of(folder: &Path) -> SharedMemory {
        // A container may have no such folder, and then trials leave nothing there.
        let watch = Watch::start(folder).inspect_err(|error| {
            if error.kind() != ErrorKind::NotFound {
                tracing::warn!(%error, folder = %folder.display(), "what trials leave there is reported and not removed");
            }
        });
        SharedMemory { folder: folder.to_path_buf(), known: names_in(folder), watch: watch.ok() }
    }

    /// The descriptor to poll, which is readable when a file has been created; none if the last look was too recent.
    pub(super) fn events(&self) -> Option<BorrowedFd<'_>> {
        let watch = self.watch.as_ref().filter(|watch| Instant::now() >= watch.next_look);
        watch.map(|watch| watch.inotify.as_fd())
    }

    /// Makes the next look happen however recent the last one is, because a trial ends.
    pub(super) fn look_now(&mut self) {
        if let Some(watch) = &mut self.watch {
            watch.next_look = Instant::now();
        }
    }

    /// Looks for the makers of new files, and adds each file to the inodes of the process tree that has made it.
    pub(super) fn look<'a>(&mut self, trees: impl IntoIterator<Item = (Pid, &'a mut Inodes)>) {
        let Some(watch) = &mut self.watch else { return };
        if let Err(error) = watch.look(&self.folder, trees) {
            tracing::warn!(%error, "what trials leave in shared memory is reported and not removed from now on");
            self.watch = None;
        }
    }

    /// Removes the files in `made`, from a trial that has ended, that no process uses. Returns a line for each file.
    pub(super) fn remove(&self, made: &Inodes) -> Vec<String> {
        let left: Vec<DirEntry> = files_in(&self.folder).filter(|file| made.contains(&file.ino())).collect();
        if left.is_empty() {
            return Vec::new();
        }
        let used = self.in_use();
        let line = |file: &DirEntry| {
            let described = described(file);
            match used.get(&file.ino()) {
                Some(pid) => format!("{described}, which process {} has; it stays", number(*pid)),
                None => match fs::remove_file(file.path()) {
                    Ok(()) => format!("{described}, removed"),
                    Err(error) => format!("{described}, which cannot be removed: {error}"),
                },
            }
        };
        left.iter().filter(|file| is_own_file(file)).map(line).collect()
    }

    /// A line for each file of this user that was created since the last call and that no process uses. Call this function
    /// only while no trial runs.
    pub(super) fn report_new(&mut self) -> Vec<String> {
        let known = std::mem::replace(&mut self.known, names_in(&self.folder));
        let new = files_in(&self.folder).filter(|file| !known.contains(&file.file_name()) && is_own_file(file));
        let new: Vec<DirEntry> = new.collect();
        if new.is_empty() {
            return Vec::new();
        }
        let used = self.in_use();
        let unused = new.iter().filter(|file| !used.contains_key(&file.ino()));
        unused.map(|file| format!("{}, which stays: who made it is not known", described(file))).collect()
    }

    /// The files that a process of this user has open or mapped, each with that process.
    fn in_use(&self) -> BTreeMap<u64, Pid> {
        let held = process::all().flat_map(|pid| held_by(pid, &self.folder));
        held.map(|held| (held.inode, held.pid)).collect()
    }
}

fn files_in(folder: &Path) -> impl Iterator<Item = DirEntry> {
    // A machine without the folder has no shared memory.
    fs::read_dir(folder).into_iter().flatten().flatten()
}

fn names_in(folder: &Path) -> BTreeSet<OsString> {
    files_in(folder).map(|file| file.file_name()).collect()
}

fn is_own_file(file: &DirEntry) -> bool {
    file.metadata().is_ok_and(|file| is_own(&file))
}

/// Whether the file is a regular file of this user.
fn is_own(file: &fs::Metadata) -> bool {
    file.is_file() && file.uid() == rustix::process::geteuid().as_raw()
}

fn described(file: &DirEntry) -> String {
    format!("{} ({})", file.path().display(), bytes(file.metadata().map_or(0, |file| file.len())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{self, BufRead as _, BufReader, Write as _};
    use std::process::{Child, Command, Stdio};

    type TestResult = Result<(), Box<dyn std::error::Error + Send + Sync>>;

    /// A shell that runs commands in place of a trial's process.
    struct Shell {
        child: Child,
        answers: BufReader<std::process::ChildStdout>,
        made: Inodes,
    }

    impl Shell {
        fn start(folder: &Path) -> io::Result<Shell> {
            let mut child =
                Command::new("sh").current_dir(folder).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
            let answers = BufReader::new(child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?);
            Ok(Shell { child, answers, made: Inodes::new() })
        }

        /// Runs commands, and waits until they are done.
        fn run(&mut self, commands: &str) -> io::Result<()> {
            let stdin = self.child.stdin.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
            writeln!(stdin, "{commands}; echo done")?;
            let mut answer = String::new();
            self.answers.read_line(&mut answer)?;
            assert_eq!(answer, "done\n", "{commands}");
            Ok(())
        }

        fn look(&mut self, shared_memory: &mut SharedMemory) {
            // The pauses between looks are not under test.
            shared_memory.look_now();
            shared_memory.look([(Pid::from_child(&self.child), &mut self.made)]);
        }

        /// Ends the shell, and returns the lines about the files that it has made.
        fn end(mut self, shared_memory: &SharedMemory) -> io::Result<Vec<String>> {
            drop(self.child.stdin.take());
            self.child.wait()?;
            Ok(shared_memory.remove(&self.made))
        }
    }

    #[test]
    fn only_files_that_a_trials_process_made_are_removed() -> TestResult {
        let folder = tempfile::tempdir()?;
        let folder = &fs::canonicalize(folder.path())?;
        let at = |name: &str| folder.join(name);
        fs::write(at("old"), "x")?;
        fs::write(at("older"), "x")?;
        let mut shared_memory = SharedMemory::of(folder);
        let (mut trial, mut other) = (Shell::start(folder)?, Shell::start(folder)?);
        // Three files that the trial has made and keeps open: its own, its child's, and one that is renamed like a
        // semaphore.
        trial.run("exec 3>own; echo xy >&3")?;
        trial.run("{ sleep 1000 & } 4>childs")?;
        trial.run("exec 5>sem.tmp; ln sem.tmp sem; rm sem.tmp")?;
        trial.look(&mut shared_memory);
        // Another process' files that the trial opens: one while the other process has it open, one after it has closed it.
        other.run("exec 3>attached")?;
        trial.run("exec 6<>attached")?;
        other.run("echo x >handed")?;
        trial.run("exec 7<>handed")?;
        trial.look(&mut shared_memory);
        // Another process' older files that the trial opens by a new name: one linked, one renamed over a new file.
        other.run("ln old linked; rm old")?;
        trial.run("exec 8<>linked")?;
        trial.look(&mut shared_memory);
        trial.run("exec 9<older")?;
        other.run(">renamed; mv older renamed")?;
        trial.look(&mut shared_memory);
        // A file of the trial's own, but closed before the next look.
        trial.run("echo x >brief")?;
        trial.look(&mut shared_memory);
        trial.run("kill $!; wait; :")?;
        let mut lines = trial.end(&shared_memory)?;
        lines.sort_unstable();
        let line = |name: &str, rest: &str| format!("{} {rest}", at(name).display());
        let removed = [line("childs", "(0 B), removed"), line("own", "(3 B), removed"), line("sem", "(0 B), removed")];
        assert_eq!(lines, removed);
        let left: Vec<OsString> = names_in(folder).into_iter().collect();
        assert_eq!(left, ["attached", "brief", "handed", "linked", "renamed"]);
        // A file that the other process still has open gets no line.
        let mut reported = shared_memory.report_new();
        reported.sort_unstable();
        let stays = |name, bytes: u64| line(name, &format!("({bytes} B), which stays: who made it is not known"));
        assert_eq!(reported, [stays("brief", 2), stays("handed", 2), stays("linked", 1), stays("renamed", 1)]);
        assert_eq!(shared_memory.report_new(), Vec::<String>::new());
        other.end(&shared_memory)?;
        Ok(())
    }

    #[test]
    fn a_trial_that_ends_is_looked_at_however_recent_the_last_look_is() -> TestResult {
        let folder = tempfile::tempdir()?;
        let folder = &fs::canonicalize(folder.path())?;
        let mut shared_memory = SharedMemory::of(folder);
        let mut trial = Shell::start(folder)?;
        trial.run("exec 3>own")?;
        if let Some(watch) = &mut shared_memory.watch {
            watch.next_look = Instant::now() + std::time::Duration::from_secs(1000);
        }
        shared_memory.look([(Pid::from_child(&trial.child), &mut trial.made)]);
        assert_eq!(trial.made, Inodes::new());
        trial.look(&mut shared_memory);
        let lines = trial.end(&shared_memory)?;
        assert_eq!(lines, [format!("{} (0 B), removed", folder.join("own").display())]);
        Ok(())
    }

    #[test]
    fn file_of_a_trial_that_somebody_uses_stays_and_is_named() -> TestResult {
        let folder = tempfile::tempdir()?;
        let folder = &fs::canonicalize(folder.path())?;
        let mut shared_memory = SharedMemory::of(folder);
        let mut trial = Shell::start(folder)?;
        trial.run("exec 3>own")?;
        trial.look(&mut shared_memory);
        let user = fs::File::open(folder.join("own"))?;
        let lines = trial.end(&shared_memory)?;
        let expected =
            format!("{} (0 B), which process {} has; it stays", folder.join("own").display(), std::process::id());
        assert_eq!(lines, [expected]);
        drop(user);
        assert!(folder.join("own").exists());
        Ok(())
    }
}
