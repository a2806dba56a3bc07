//! The files in /dev/shm, which is memory that outlives the process that took it. Removes a file only where one of the
//! trial's own processes has provably made it and nobody has it any more; reports the others.
//!
//! The proof: the system tells in order which names come into the folder, and which files there are opened and closed. It
//! tells of several opens in a row as of one. So while a new file has been opened, and none of those who opened it has
//! closed it, its maker is among the processes that have it; where these are all of one trial, the trial has made it. A
//! file that is made and closed before anyone can look has no such proof, and stays.

use ferrotune_machine::format::bytes;
use ferrotune_machine::process_tree::{below, number};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use rustix::process::Pid;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::{self, DirEntry};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirEntryExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Where POSIX shared memory lies.
const FOLDER: &str = "/dev/shm";
/// Looking for the makers of files takes at most one part in so many of the time.
const SHARE: u32 = 100;
/// How old a file is when its maker is looked for the last time: from the event of its creation to the moment when its
/// maker has it, a busy machine takes a while.
const PATIENCE: Duration = Duration::from_millis(20);
/// How long the folder is left alone after something has happened there, whatever others do in it.
const PAUSE: Duration = Duration::from_millis(5);
/// More files that wait for their makers are a flood of somebody's.
const MOST_NEW: usize = 1024;

/// The inodes of files. Those of shared memory are not used again before 2^32 others.
pub(super) type Inodes = BTreeSet<u64>;

/// What is known of the files of shared memory.
#[derive(Debug)]
pub struct SharedMemory {
    folder: PathBuf,
    /// The names that were there when no trial ran.
    known: BTreeSet<OsString>,
    /// What comes from now on. Where the system does not tell, no file is a trial's own.
    watch: Option<Watch>,
}

impl SharedMemory {
    /// The files that are there now, and what happens to them from now on.
    pub fn watched() -> SharedMemory {
        SharedMemory::of(Path::new(FOLDER))
    }

    fn of(folder: &Path) -> SharedMemory {
        let watch = Watch::start(folder).inspect_err(|error| {
            tracing::warn!(%error, folder = %folder.display(), "what trials leave there is reported and not removed");
        });
        SharedMemory { folder: folder.to_path_buf(), known: names_in(folder), watch: watch.ok() }
    }

    /// What to poll, if something is to be looked at now: it is readable when a file has come.
    pub(super) fn events(&self) -> Option<BorrowedFd<'_>> {
        let watch = self.watch.as_ref().filter(|watch| Instant::now() >= watch.next_look);
        watch.map(|watch| watch.inotify.as_fd())
    }

    /// Looks whether new files are in the hands of the processes of these trees, and notes them as made there.
    pub(super) fn look<'a>(&mut self, trees: impl IntoIterator<Item = (Pid, &'a mut Inodes)>) {
        let Some(watch) = &mut self.watch else { return };
        if let Err(error) = watch.look(&self.folder, trees) {
            tracing::warn!(%error, "what trials leave in shared memory is reported and not removed from now on");
            self.watch = None;
        }
    }

    /// Removes the files that are `made` by a trial which has left, and that nobody has; one line for each of them.
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

    /// One line for each file of this user that has come since the last call and that nobody has. To be called when no
    /// trial runs.
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

    /// The files that a process has open or mapped, with that process. Those of other users cannot be looked at.
    fn in_use(&self) -> BTreeMap<u64, Pid> {
        let held = processes().flat_map(|pid| held_by(pid, &self.folder));
        held.map(|held| (held.inode, held.pid)).collect()
    }
}

/// The events of the folder.
#[derive(Debug)]
struct Watch {
    inotify: OwnedFd,
    /// Files whose maker is looked for, by the name under which they came.
    new: BTreeMap<OsString, New>,
    /// How many names have come.
    names: u64,
    next_look: Instant,
}

/// A file that has come.
#[derive(Debug)]
struct New {
    /// Which of all names that have come it is, counted from 1.
    position: u64,
    since: Instant,
    is_opened: bool,
}

/// A process and those below it.
#[derive(Debug)]
struct Tree {
    pids: Vec<Pid>,
    /// The inodes of the new files that they have, by name.
    held: BTreeMap<OsString, u64>,
}

impl Watch {
    fn start(folder: &Path) -> io::Result<Watch> {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let wanted = WatchFlags::CREATE | WatchFlags::OPEN | WatchFlags::CLOSE | WatchFlags::DELETE | WatchFlags::MOVE;
        inotify::add_watch(&inotify, folder, wanted | WatchFlags::ONLYDIR)?;
        Ok(Watch { inotify, new: BTreeMap::new(), names: 0, next_look: Instant::now() })
    }

    fn look<'a>(&mut self, folder: &Path, trees: impl IntoIterator<Item = (Pid, &'a mut Inodes)>) -> io::Result<()> {
        let began = Instant::now();
        if began < self.next_look {
            return Ok(());
        }
        if self.take_events(folder)? {
            self.next_look = began + PAUSE;
        }
        if self.new.is_empty() {
            return Ok(());
        }
        let trees = trees.into_iter().map(|(root, made)| (self.search(root, folder), made));
        let trees: Vec<(Tree, &mut Inodes)> = trees.collect();
        let is_in_a_tree = |pid: &Pid| trees.iter().any(|(tree, _)| tree.pids.contains(pid));
        let holders = |name: &OsStr| trees.iter().filter(|(tree, _)| tree.held.contains_key(name)).count();
        let mut found: BTreeMap<OsString, u64> = BTreeMap::new();
        for (tree, _) in &trees {
            found.extend(
                tree.held.iter().filter(|(name, _)| holders(name) == 1).map(|(name, inode)| (name.clone(), *inode)),
            );
        }
        if !found.is_empty() {
            let others = processes().filter(|pid| !is_in_a_tree(pid));
            let others: Inodes = others.flat_map(|pid| held_by(pid, folder)).map(|held| held.inode).collect();
            found.retain(|_, inode| !others.contains(inode));
            // What was closed before all that was looked at is known only now.
            self.take_events(folder)?;
            found.retain(|name, _| self.new.get(name).is_some_and(|new| new.is_opened));
        }
        for (tree, made) in trees {
            made.extend(tree.held.iter().filter(|(name, _)| found.contains_key(*name)).map(|(_, inode)| inode));
        }
        self.new.retain(|name, _| !found.contains_key(name));
        self.new.retain(|_, new| began.saturating_duration_since(new.since) < PATIENCE);
        let now = Instant::now();
        self.next_look = self.next_look.max(now + SHARE * (now - began));
        Ok(())
    }

    /// A process and those below it, and what they have of the new files.
    fn search(&self, root: Pid, folder: &Path) -> Tree {
        let tree = || below(root).into_iter().chain([root]);
        let is_new = |held: &Held| self.new.contains_key(&held.name);
        let mut found: Vec<Held> = tree().flat_map(|pid| opened(pid, folder)).filter(is_new).collect();
        // Whoever maps a file need not have it open any more. This takes longer.
        if self.new.keys().any(|name| found.iter().all(|held| held.name != *name)) {
            found.extend(tree().flat_map(|pid| mapped(pid, folder)).filter(is_new));
        }
        // A process id that was free meanwhile may be another process by now.
        let pids: Vec<Pid> = tree().collect();
        found.retain(|held| pids.contains(&held.pid));
        Tree { pids, held: found.into_iter().map(|held| (held.name, held.inode)).collect() }
    }

    /// Takes in what has happened; says whether anything has.
    fn take_events(&mut self, folder: &Path) -> io::Result<bool> {
        let mut has_happened = false;
        let mut buffer = [MaybeUninit::uninit(); 1 << 12];
        let inotify = self.inotify.try_clone()?;
        let mut events = inotify::Reader::new(inotify, &mut buffer);
        loop {
            let event = match events.next() {
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => continue,
                event => event?,
            };
            has_happened = true;
            if event.events().contains(ReadFlags::IGNORED) {
                return Err(io::Error::new(io::ErrorKind::NotFound, "the folder is gone"));
            }
            if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                self.new.clear();
            }
            let name = event.file_name().map(|name| OsStr::from_bytes(name.to_bytes()));
            if let Some(name) = name.filter(|_| !event.events().contains(ReadFlags::ISDIR)) {
                self.note(event.events(), name, folder);
            }
        }
        if self.new.len() > MOST_NEW {
            self.new.clear();
        }
        Ok(has_happened)
    }

    fn note(&mut self, events: ReadFlags, name: &OsStr, folder: &Path) {
        if events.contains(ReadFlags::CREATE) {
            self.names += 1;
            // Others' files are not removed in any case. One that has another name by now is looked for by its first.
            let is_others = fs::symlink_metadata(folder.join(name)).is_ok_and(|file| !is_own(&file));
            let new = New { position: self.names, since: Instant::now(), is_opened: false };
            let earlier = self.new.insert(name.to_owned(), new);
            // Where two files had one name, which of them a process has cannot be told by it.
            if is_others || earlier.is_some() {
                self.new.remove(name);
            }
        } else if events.contains(ReadFlags::OPEN) {
            if let Some(new) = self.new.get_mut(name) {
                new.is_opened = true;
            }
        } else if events.intersects(ReadFlags::CLOSE_WRITE | ReadFlags::CLOSE_NOWRITE | ReadFlags::MOVED_TO) {
            self.new.remove(name);
        } else {
            // It is deleted, or has another name. A name that came later than this one may be a second one of the same
            // file, which is then older than it seems: its maker need not have it any more.
            let position = self.new.get(name).map_or(0, |new| new.position);
            self.new.retain(|_, new| new.position <= position);
        }
    }
}

/// A file of shared memory that a process has.
#[derive(Debug)]
struct Held {
    /// The name by which it was opened.
    name: OsString,
    inode: u64,
    pid: Pid,
}

/// All processes that this one can see.
fn processes() -> impl Iterator<Item = Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?))
}

/// The files of the folder that a process has open or mapped.
fn held_by(pid: Pid, folder: &Path) -> Vec<Held> {
    let mut held = opened(pid, folder);
    held.extend(mapped(pid, folder));
    held
}

/// The files of the folder that a process has open; none where it has left or is another user's.
fn opened(pid: Pid, folder: &Path) -> Vec<Held> {
    let descriptors = fs::read_dir(format!("/proc/{}/fd", number(pid))).into_iter().flatten().flatten();
    let held = descriptors.filter_map(|descriptor| {
        let name = name_in(folder, &fs::read_link(descriptor.path()).ok()?)?;
        Some(Held { name, inode: fs::metadata(descriptor.path()).ok()?.ino(), pid })
    });
    held.collect()
}

/// The files of the folder that a process has mapped.
fn mapped(pid: Pid, folder: &Path) -> Vec<Held> {
    let maps = fs::read(format!("/proc/{}/maps", number(pid))).unwrap_or_default();
    let held = maps.split(|byte| *byte == b'\n').filter_map(|line| {
        let start = line.iter().position(|byte| *byte == b'/')?;
        let name = name_in(folder, Path::new(OsStr::from_bytes(&line[start..])))?;
        let inode = std::str::from_utf8(&line[..start]).ok()?.split_whitespace().nth(4)?.parse().ok()?;
        Some(Held { name, inode, pid })
    });
    held.collect()
}

/// The name of the file at `path`, if it lies in the folder or did so when it was opened.
fn name_in(folder: &Path, path: &Path) -> Option<OsString> {
    let name = path.strip_prefix(folder).ok()?.as_os_str().as_bytes();
    let name = name.strip_suffix(b" (deleted)").unwrap_or(name);
    (!name.is_empty() && !name.contains(&b'/')).then(|| OsStr::from_bytes(name).to_owned())
}

fn files_in(folder: &Path) -> impl Iterator<Item = DirEntry> {
    // A machine without the folder has no shared memory to leave.
    fs::read_dir(folder).into_iter().flatten().flatten()
}

fn names_in(folder: &Path) -> BTreeSet<OsString> {
    files_in(folder).map(|file| file.file_name()).collect()
}

fn is_own_file(file: &DirEntry) -> bool {
    file.metadata().is_ok_and(|file| is_own(&file))
}

/// Whether it is a file, and this user's.
fn is_own(file: &fs::Metadata) -> bool {
    file.is_file() && file.uid() == rustix::process::geteuid().as_raw()
}

fn described(file: &DirEntry) -> String {
    format!("{} ({})", file.path().display(), bytes(file.metadata().map_or(0, |file| file.len())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::process::{Child, Command, Stdio};

    type TestResult = Result<(), Box<dyn std::error::Error + Send + Sync>>;

    /// A shell, as the process of a trial, that does what it is told.
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
            // The share of the time that looking may take is not what is tested.
            if let Some(watch) = &mut shared_memory.watch {
                watch.next_look = Instant::now();
            }
            shared_memory.look([(Pid::from_child(&self.child), &mut self.made)]);
        }

        /// Ends it, and says what becomes of what it has made.
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
        // Its own, held; a child's; one that gets its name as those of semaphores do.
        trial.run("exec 3>own; echo xy >&3")?;
        trial.run("{ sleep 1000 & } 4>childs")?;
        trial.run("exec 5>sem.tmp; ln sem.tmp sem; rm sem.tmp")?;
        trial.look(&mut shared_memory);
        // Another's that it opens: while the other has it, and after the other has closed it.
        other.run("exec 3>attached")?;
        trial.run("exec 6<>attached")?;
        other.run("echo x >handed")?;
        trial.run("exec 7<>handed")?;
        trial.look(&mut shared_memory);
        // Another's older file that it opens by a new name: linked, and renamed over a new one.
        other.run("ln old linked; rm old")?;
        trial.run("exec 8<>linked")?;
        trial.look(&mut shared_memory);
        trial.run("exec 9<older")?;
        other.run(">renamed; mv older renamed")?;
        trial.look(&mut shared_memory);
        // Its own, but closed before anyone looks.
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
        // What the other process still has is not even worth a line.
        let mut reported = shared_memory.report_new();
        reported.sort_unstable();
        let stays = |name, bytes: u64| line(name, &format!("({bytes} B), which stays: who made it is not known"));
        assert_eq!(reported, [stays("brief", 2), stays("handed", 2), stays("linked", 1), stays("renamed", 1)]);
        assert_eq!(shared_memory.report_new(), Vec::<String>::new());
        other.end(&shared_memory)?;
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

    #[test]
    fn mapped_file_is_found_by_its_inode() -> TestResult {
        let own = fs::canonicalize(std::env::current_exe()?)?;
        let folder = own.parent().ok_or("no folder")?;
        let found = mapped(rustix::process::getpid(), folder);
        let found = found.iter().find(|held| Some(held.name.as_os_str()) == own.file_name()).ok_or("not mapped")?;
        assert_eq!(found.inode, fs::metadata(&own)?.ino());
        Ok(())
    }
}
