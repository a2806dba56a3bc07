//! Finds the trial that has made a file, while the trial runs.
//!
//! The proof: inotify reports in order the names that are created in the folder, and the files that are opened and closed.
//! It reports several opens in a row as one. So if a new file has been opened, and no process that opened it has closed it,
//! its maker is among the processes that have it open. If all these processes belong to one trial, that trial has made the
//! file. There is no such proof for a file that is made and closed before the next look, so that file stays.

use super::holders::{Held, held_by, mapped, opened};
use super::{Inodes, is_own};
use ferrotune_machine::process;
use ferrotune_machine::process_tree::below;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use rustix::process::Pid;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

/// The inverse of the largest share of time that the search for makers takes: 1/100.
const PAUSE_FACTOR: u32 = 100;
/// The age of a file at which the search for its maker is given up. On a busy machine some time passes between the event of
/// the file's creation and the moment at which its maker has it open.
const PATIENCE: Duration = Duration::from_millis(20);
/// The shortest time between two searches, however often other processes change the folder.
const PAUSE: Duration = Duration::from_millis(5);
/// The number of new files above which no makers are searched for.
const MOST_NEW: usize = 1024;

/// The events of the folder, and the files whose makers are still unknown.
#[derive(Debug)]
pub(super) struct Watch {
    pub(super) inotify: OwnedFd,
    /// The files whose maker is searched for, by the names under which they were created.
    new: BTreeMap<OsString, New>,
    /// The number of names that have been created.
    names: u64,
    pub(super) next_look: Instant,
}

/// A file that has been created.
#[derive(Debug)]
struct New {
    /// The position of its name among all created names, counted from 1.
    position: u64,
    since: Instant,
    is_opened: bool,
}

/// A process and its descendants.
#[derive(Debug)]
struct Tree {
    pids: Vec<Pid>,
    /// The inodes of the new files that these processes have open or mapped, by name.
    held: BTreeMap<OsString, u64>,
}

impl Watch {
    pub(super) fn start(folder: &Path) -> io::Result<Watch> {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let wanted = WatchFlags::CREATE | WatchFlags::OPEN | WatchFlags::CLOSE | WatchFlags::DELETE | WatchFlags::MOVE;
        inotify::add_watch(&inotify, folder, wanted | WatchFlags::ONLYDIR)?;
        Ok(Watch { inotify, new: BTreeMap::new(), names: 0, next_look: Instant::now() })
    }

    /// Adds each new file that one of these process trees has provably made to the inodes of that tree.
    pub(super) fn look<'a>(
        &mut self,
        folder: &Path,
        trees: impl IntoIterator<Item = (Pid, &'a mut Inodes)>,
    ) -> io::Result<()> {
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
            let others = process::all().filter(|pid| !is_in_a_tree(pid));
            let others: Inodes = others.flat_map(|pid| held_by(pid, folder)).map(|held| held.inode).collect();
            found.retain(|_, inode| !others.contains(inode));
            // The close event of a file that was closed before /proc was read may arrive only now.
            self.take_events(folder)?;
            found.retain(|name, _| self.new.get(name).is_some_and(|new| new.is_opened));
        }
        for (tree, made) in trees {
            made.extend(tree.held.iter().filter(|(name, _)| found.contains_key(*name)).map(|(_, inode)| inode));
        }
        self.new.retain(|name, _| !found.contains_key(name));
        self.new.retain(|_, new| began.saturating_duration_since(new.since) < PATIENCE);
        let now = Instant::now();
        self.next_look = self.next_look.max(now + PAUSE_FACTOR * (now - began));
        Ok(())
    }

    /// Searches a process tree for the new files that it has open or mapped.
    fn search(&self, root: Pid, folder: &Path) -> Tree {
        let tree = || below(root).into_iter().chain([root]);
        let is_new = |held: &Held| self.new.contains_key(&held.name);
        let mut found: Vec<Held> = tree().flat_map(|pid| opened(pid, folder)).filter(is_new).collect();
        // A file may be mapped and closed. Mappings are read only if needed, because that takes longer.
        if self.new.keys().any(|name| found.iter().all(|held| held.name != *name)) {
            found.extend(tree().flat_map(|pid| mapped(pid, folder)).filter(is_new));
        }
        // A process that has left the tree meanwhile may have passed its id on to another process.
        let pids: Vec<Pid> = tree().collect();
        found.retain(|held| pids.contains(&held.pid));
        Tree { pids, held: found.into_iter().map(|held| (held.name, held.inode)).collect() }
    }

    /// Reads the pending events, and returns whether there were any.
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
            // Other users' files are never removed. A renamed file is searched for by its first name.
            let is_other_users = fs::symlink_metadata(folder.join(name)).is_ok_and(|file| !is_own(&file));
            let new = New { position: self.names, since: Instant::now(), is_opened: false };
            let same_name = self.new.insert(name.to_owned(), new);
            // If two files have had the same name, the name does not identify the file that a process has open.
            if is_other_users || same_name.is_some() {
                self.new.remove(name);
            }
        } else if events.contains(ReadFlags::OPEN) {
            if let Some(new) = self.new.get_mut(name) {
                new.is_opened = true;
            }
        } else if events.intersects(ReadFlags::CLOSE_WRITE | ReadFlags::CLOSE_NOWRITE | ReadFlags::MOVED_TO) {
            self.new.remove(name);
        } else {
            // The file is deleted or renamed. A name that was created later may be a second name of the same file. That
            // file is then older than it seems, and its maker may have closed it.
            let position = self.new.get(name).map_or(0, |new| new.position);
            self.new.retain(|_, new| new.position <= position);
        }
    }
}
