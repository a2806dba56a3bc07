//! `--mirror FOLDER`: a second copy of the study on a disk that outlives this machine, such as Google Drive. A separate
//! thread writes the mirror, because such disks are slow. Each copy gets a new name and is never changed or renamed,
//! because the disk may upload a file while it is written. The thread removes only files that it has made. A mirror, like a
//! study's folder, may come from anyone: no name in it may lead out of it.

mod guard;
mod restore;

pub(super) use restore::restore;

use super::SupervisorError;
use ferrotune_journal::folder;
use ferrotune_journal::study_folder::{JOURNAL, LIBRARIES, LIBRARY, SHARED, TRIALS, file_error, of_trial};
use ferrotune_space::checkpoint::checkpoint_generation;
use ferrotune_space::seed;
use ferrotune_space::spec::StudySpec;
use guard::Place;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::SystemTime;

/// The files of a study that do not change after its start.
const FIXED: [&str; 3] = [LIBRARY, SHARED, LIBRARIES];
/// The name of a marker file in a copy of those files; it exists once the copy is complete.
const WHOLE: &str = "whole";
/// The number of copies of one file that are kept: the last copy may be torn.
const KEPT: usize = 2;

/// An order to the mirror's thread: a file to copy, or a trial to forget.
#[derive(Debug, PartialEq, Eq)]
enum Order {
    Checkpoint { trial: u64, file: String },
    Journal,
    Forget { trial: u64 },
}

/// The folder of the study's mirror, if the study has one. Changes nothing.
///
/// # Errors
/// If the mirror and the studies' folder overlap, or the mirror holds another study. For a study that will be overwritten,
/// also if the mirror holds anything that is not part of a mirror.
pub(super) fn of(spec: &StudySpec) -> Result<Option<PathBuf>, SupervisorError> {
    let Some(root) = &spec.supervision.mirror else { return Ok(None) };
    guard::check(spec, root)?;
    Ok(Some(root.join(&spec.project)))
}

/// A study's mirror, which a thread updates. Dropping this value waits for the copies that are still to be made.
#[derive(Debug)]
pub(super) struct Mirror {
    orders: Option<Sender<Order>>,
    thread: Option<JoinHandle<()>>,
}

impl Mirror {
    /// Starts to copy the study in `study` to `mirror`: first the files that do not change, then the ordered files.
    pub(super) fn start(study: &Path, mirror: &Path) -> Result<Mirror, SupervisorError> {
        folder::create_and_sync(mirror).map_err(file_error("create the mirror", mirror))?;
        folder::refuse_links(mirror)?;
        let (orders, received) = mpsc::channel();
        let copier = Copier { study: study.to_path_buf(), mirror: mirror.to_path_buf() };
        // A copy with the largest possible stamp would leave no name for later copies.
        unique(mirror).map_err(file_error("name a copy in the mirror", mirror))?;
        // The study may have got its mirror late, so older checkpoints are copied as well. New checkpoints are ordered.
        let earlier = checkpoints_in(study).map_err(file_error("list the checkpoints of", study))?;
        let thread =
            std::thread::Builder::new().name("mirror".to_owned()).spawn(move || copier.run(&earlier, &received));
        let thread = Some(thread.map_err(file_error("start the thread for the mirror", mirror))?);
        Ok(Mirror { orders: Some(orders), thread })
    }

    pub(super) fn checkpoint(&self, trial: u64, file: &str) {
        self.order(Order::Checkpoint { trial, file: file.to_owned() });
    }

    pub(super) fn journal(&self) {
        self.order(Order::Journal);
    }

    pub(super) fn forget(&self, trial: u64) {
        self.order(Order::Forget { trial });
    }

    fn order(&self, order: Order) {
        let sent = self.orders.as_ref().map_or(Ok(()), |orders| orders.send(order));
        if let Err(error) = sent {
            tracing::warn!(%error, "the mirror is not kept up any more");
        }
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        self.orders = None;
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::warn!("the mirror's thread panicked; the last copies may be missing");
        }
    }
}

/// The state of the mirror's thread.
struct Copier {
    study: PathBuf,
    mirror: PathBuf,
}

impl Copier {
    fn run(&self, earlier: &[(u64, String)], orders: &Receiver<Order>) {
        self.log(self.copy_fixed());
        self.log(self.copy_earlier(earlier));
        while let Ok(order) = orders.recv() {
            let mut due = vec![order];
            due.extend(orders.try_iter());
            // Of several orders for the journal, only the last one is carried out.
            let last_journal = due.iter().rposition(|order| *order == Order::Journal);
            for (index, order) in due.iter().enumerate() {
                match order {
                    Order::Checkpoint { trial, file } => self.log(self.copy_checkpoint(*trial, file)),
                    Order::Journal if last_journal != Some(index) => {}
                    Order::Journal => self.log(self.copy_journal()),
                    Order::Forget { trial } => {
                        let copies = of_trial(&self.mirror, *trial);
                        self.log(guard::remove_folder(&copies, Place::Trial));
                    }
                }
            }
        }
    }

    /// Logs a failed copy: a disk that fails for a while must not end the search.
    fn log(&self, result: io::Result<()>) {
        if let Err(error) = result {
            tracing::warn!(mirror = %self.mirror.display(), %error, "a copy for the mirror failed");
        }
    }

    fn copy_fixed(&self) -> io::Result<()> {
        let fixed = self.mirror.join(format!("start-{}", unique(&self.mirror)?));
        fs::create_dir(&fixed)?;
        for name in FIXED {
            copy_all(&self.study.join(name), &fixed.join(name))?;
        }
        // The copy is complete from here on.
        File::create(fixed.join(WHOLE))?.sync_all()?;
        for start in outdated(&self.mirror, guard::is_start)? {
            guard::remove_folder(&start, Place::Start)?;
        }
        Ok(())
    }

    /// Copies the journal, and the checkpoints of earlier trials that the mirror lacks.
    fn copy_earlier(&self, checkpoints: &[(u64, String)]) -> io::Result<()> {
        self.copy_journal()?;
        for (trial, file) in checkpoints {
            if !is_copied(&of_trial(&self.study, *trial).join(file), &of_trial(&self.mirror, *trial))? {
                self.copy_checkpoint(*trial, file)?;
            }
        }
        Ok(())
    }

    fn copy_journal(&self) -> io::Result<()> {
        let copy = format!("journal-{}.log", unique(&self.mirror)?);
        copy_all(&self.study.join(JOURNAL), &self.mirror.join(copy))?;
        guard::remove_all(&outdated(&self.mirror, guard::is_journal_copy)?)
    }

    fn copy_checkpoint(&self, trial: u64, file: &str) -> io::Result<()> {
        let source = of_trial(&self.study, trial).join(file);
        let target = of_trial(&self.mirror, trial);
        fs::create_dir_all(&target)?;
        folder::refuse_link(&target)?;
        copy_all(&source, &target.join(format!("{}.{}", file, unique(&target)?)))?;
        guard::remove_all(&outdated_checkpoints(&target, source.parent().unwrap_or(&self.study))?)
    }
}

/// The checkpoints of a study, each with the number of its trial.
fn checkpoints_in(study: &Path) -> io::Result<Vec<(u64, String)>> {
    let trials = study.join(TRIALS);
    let mut found = Vec::new();
    if trials.exists() {
        for name in names(&trials, |name| name.parse::<u64>().is_ok())? {
            let Ok(trial) = name.parse() else { continue };
            folder::refuse_link(&trials.join(&name))?;
            let files = names(&trials.join(&name), |file| checkpoint_generation(file).is_some())?;
            found.extend(files.into_iter().map(|file| (trial, file)));
        }
    }
    Ok(found)
}

/// Whether a folder of the mirror has a complete copy of a checkpoint, or needs no copy.
fn is_copied(checkpoint: &Path, copies: &Path) -> io::Result<bool> {
    let beginning = format!("{}.", checkpoint.file_name().unwrap_or_default().to_string_lossy());
    let bytes = match fs::symlink_metadata(checkpoint) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true), // the trial has removed this checkpoint
        metadata => metadata?.len(),
    };
    let is_whole = |name: &String| fs::symlink_metadata(copies.join(name)).is_ok_and(|copy| copy.len() == bytes);
    Ok(copies.exists() && names(copies, |name| name.starts_with(&beginning))?.iter().any(is_whole))
}

/// Copies a file, or the files in a folder. A source that does not exist is skipped; a symbolic link is refused.
fn copy_all(source: &Path, target: &Path) -> io::Result<()> {
    folder::refuse_link(source)?;
    let mut from = match File::open(source) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    if !from.metadata()?.is_dir() {
        let mut to = File::create_new(target)?;
        io::copy(&mut from, &mut to)?;
        return to.sync_all();
    }
    fs::create_dir(target)?;
    for entry in fs::read_dir(source)? {
        let entry = entry?;
        copy_all(&entry.path(), &target.join(entry.file_name()))?;
    }
    Ok(())
}

/// A unique suffix for a new copy in a folder. It sorts after the suffix of each earlier copy, even if this machine's clock
/// is behind the clock of the machine that made the earlier copies.
fn unique(folder: &Path) -> io::Result<String> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_micros() as u64;
    let copies = names(folder, |name| guard::stamp(name).is_some())?;
    let latest = copies.iter().filter_map(|name| Some((guard::stamp(name)?, name))).max();
    let stamp = match latest {
        Some((u64::MAX, name)) => {
            return Err(io::Error::other(format!("no name sorts after that of {name}; move it out of that folder")));
        }
        Some((latest, _)) => now.max(latest + 1),
        None => now,
    };
    Ok(format!("{stamp:020}-{:08x}", seed::draw() as u32))
}

/// The names in a folder that `wanted` accepts, sorted.
fn names(folder: &Path, wanted: impl Fn(&str) -> bool) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        names.extend(entry?.file_name().into_string().ok().filter(|name| wanted(name)));
    }
    names.sort_unstable();
    Ok(names)
}

/// All copies except the last ones.
fn outdated(folder: &Path, is_copy: impl Fn(&str) -> bool) -> io::Result<Vec<PathBuf>> {
    Ok(names(folder, is_copy)?.iter().rev().skip(KEPT).map(|name| folder.join(name)).collect())
}

/// The copies of a trial's checkpoints that can be removed. The last copies stay, and so does the last copy of each
/// checkpoint that the trial still has, such as that of its best step.
fn outdated_checkpoints(copies: &Path, trial: &Path) -> io::Result<Vec<PathBuf>> {
    let names = names(copies, guard::is_checkpoint_copy)?;
    let mut seen = BTreeSet::new();
    let mut outdated = Vec::new();
    for (index, name) in names.iter().rev().enumerate() {
        let file = name.rsplit_once('.').map_or(name.as_str(), |(file, _)| file);
        let is_last_of_its_checkpoint = seen.insert(file);
        if index >= KEPT && !(is_last_of_its_checkpoint && trial.join(file).exists()) {
            outdated.push(copies.join(name));
        }
    }
    Ok(outdated)
}

/// Empties the mirror of a study that will be overwritten.
///
/// # Errors
/// If the mirror contains anything else. Then nothing is removed.
pub(super) fn clear(mirror: &Path) -> Result<(), SupervisorError> {
    if !mirror.exists() {
        return Ok(());
    }
    Ok(guard::remove_all(&guard::contents_to_clear(mirror)?).map_err(file_error("clear the mirror", mirror))?)
}

#[cfg(test)]
mod tests;
