//! `--mirror FOLDER`: a second copy of the study on a disk that outlives this machine, such as Google Drive. Written by a
//! thread of its own, for such disks are slow; files get new names and are never changed or renamed there, since they
//! may be synced while they are written. Brings a study back whose own folder is gone. Like a study's folder a mirror may
//! come from anyone: no name in it may lead out of it.

use super::SupervisorError;
use super::error::file_error;
use crate::folder;
use crate::journal::Journal;
use crate::oracle::draw_seed;
use crate::wire::{checkpoint_file, checkpoint_generation};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::SystemTime;

const JOURNAL: &str = "journal.log";
const TRIALS: &str = "trials";
/// Files of a study that are as they are from its start on.
const FIXED: [&str; 3] = ["objective.so", "shared.safetensors", "libraries"];
/// Copies of one thing that are kept: the last may be torn.
const KEPT: usize = 2;

/// What is to be copied, or is of no use any more.
#[derive(Debug, PartialEq, Eq)]
enum Order {
    Checkpoint { trial: u64, file: String },
    Journal,
    Forget { trial: u64 },
}

/// A study's mirror, kept up by a thread until this is dropped, which waits for what is still to be copied.
#[derive(Debug)]
pub(super) struct Mirror {
    orders: Option<Sender<Order>>,
    thread: Option<JoinHandle<()>>,
}

impl Mirror {
    /// Begins to copy the study in `study` to `mirror`: first all that does not change, then what is ordered.
    pub(super) fn start(study: &Path, mirror: &Path) -> Result<Mirror, SupervisorError> {
        folder::create_and_sync(mirror).map_err(file_error("create the mirror", mirror))?;
        folder::refuse_links(mirror)?;
        let (orders, received) = mpsc::channel();
        let copier = Copier { study: study.to_path_buf(), mirror: mirror.to_path_buf() };
        let thread = std::thread::Builder::new().name("mirror".to_owned()).spawn(move || copier.run(&received));
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

/// What the thread works with.
struct Copier {
    study: PathBuf,
    mirror: PathBuf,
}

impl Copier {
    fn run(&self, orders: &Receiver<Order>) {
        self.log(self.copy_fixed());
        while let Ok(order) = orders.recv() {
            let mut due = vec![order];
            due.extend(orders.try_iter());
            // Of several journals only the last is worth its time.
            let last_journal = due.iter().rposition(|order| *order == Order::Journal);
            for (index, order) in due.iter().enumerate() {
                match order {
                    Order::Checkpoint { trial, file } => self.log(self.copy_checkpoint(*trial, file)),
                    Order::Journal if last_journal != Some(index) => {}
                    Order::Journal => self.log(self.copy_journal()),
                    Order::Forget { trial } => self.log(remove(&self.mirror.join(TRIALS).join(trial.to_string()))),
                }
            }
        }
    }

    /// A disk that fails for a while must not end the search.
    fn log(&self, result: io::Result<()>) {
        if let Err(error) = result {
            tracing::warn!(mirror = %self.mirror.display(), %error, "a copy for the mirror failed");
        }
    }

    fn copy_fixed(&self) -> io::Result<()> {
        let fixed = self.mirror.join(format!("start-{}", unique()));
        fs::create_dir(&fixed)?;
        for name in FIXED {
            copy_all(&self.study.join(name), &fixed.join(name))?;
        }
        // Whole from here on.
        File::create(fixed.join("whole"))?.sync_all()?;
        keep_last(&self.mirror, |name| name.starts_with("start-"))
    }

    fn copy_journal(&self) -> io::Result<()> {
        copy_all(&self.study.join(JOURNAL), &self.mirror.join(format!("journal-{}.log", unique())))?;
        keep_last(&self.mirror, |name| name.starts_with("journal-"))
    }

    fn copy_checkpoint(&self, trial: u64, file: &str) -> io::Result<()> {
        let source = self.study.join(TRIALS).join(trial.to_string()).join(file);
        let target = self.mirror.join(TRIALS).join(trial.to_string());
        fs::create_dir_all(&target)?;
        folder::refuse_link(&target)?;
        copy_all(&source, &target.join(format!("{}.{}", file, unique())))?;
        keep_last(&target, |_| true)
    }
}

/// Copies a file, or the files in a folder; what is not there need not be copied, and what leads elsewhere must not be.
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

/// Later names sort after earlier ones, and none comes twice.
fn unique() -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    format!("{:020}-{:08x}", now.as_micros(), draw_seed() as u32)
}

/// The names in a folder that are wanted, in order.
fn names(folder: &Path, wanted: impl Fn(&str) -> bool) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        names.extend(entry?.file_name().into_string().ok().filter(|name| wanted(name)));
    }
    names.sort_unstable();
    Ok(names)
}

fn keep_last(folder: &Path, wanted: impl Fn(&str) -> bool) -> io::Result<()> {
    for name in names(folder, wanted)?.iter().rev().skip(KEPT) {
        remove(&folder.join(name))?;
    }
    Ok(())
}

fn remove(path: &Path) -> io::Result<()> {
    let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Removes a mirror, of a study that is to be begun anew.
pub(super) fn clear(mirror: &Path) -> Result<(), SupervisorError> {
    remove(mirror).map_err(file_error("clear the mirror", mirror))
}

/// Brings the study back into `study`, where it is gone and the mirror has it.
pub(super) fn restore(mirror: &Path, study: &Path) -> Result<(), SupervisorError> {
    if study.join(JOURNAL).exists() || !mirror.exists() {
        return Ok(());
    }
    restore_files(mirror, study).map_err(file_error("bring the study back from", mirror))
}

fn restore_files(mirror: &Path, study: &Path) -> io::Result<()> {
    folder::refuse_links(mirror)?;
    let journals = names(mirror, |name| name.starts_with("journal-"))?;
    // Where a copy was cut off, the one before it is whole.
    let Some(journal) = journals.iter().rev().find(|name| is_journal(&mirror.join(name))) else { return Ok(()) };
    folder::create_and_sync(study)?;
    let starts = names(mirror, |name| name.starts_with("start-"))?;
    if let Some(start) = starts.iter().rev().map(|name| mirror.join(name)).find(|start| start.join("whole").exists()) {
        for name in FIXED {
            remove(&study.join(name))?;
            copy_all(&start.join(name), &study.join(name))?;
        }
    }
    let trials = mirror.join(TRIALS);
    let is_trial = |name: &str| name.parse::<u64>().is_ok();
    for trial in if trials.exists() { names(&trials, is_trial)? } else { Vec::new() } {
        restore_checkpoints(&trials.join(&trial), &study.join(TRIALS).join(&trial))?;
    }
    // Last, for with it the study is there.
    folder::install(&mirror.join(journal), &study.join(JOURNAL))
}

/// The largest copy of each generation: a smaller one was cut off.
fn restore_checkpoints(from: &Path, to: &Path) -> io::Result<()> {
    folder::refuse_link(from)?;
    folder::refuse_links(from)?;
    let mut copies: BTreeMap<u64, (u64, PathBuf)> = BTreeMap::new();
    for name in names(from, |_| true)? {
        let Some(generation) = name.rsplit_once('.').and_then(|(file, _)| checkpoint_generation(file)) else {
            continue;
        };
        let path = from.join(&name);
        let copy = (fs::metadata(&path)?.len(), path);
        let largest = copies.entry(generation).or_insert_with(|| copy.clone());
        if copy.0 > largest.0 {
            *largest = copy;
        }
    }
    folder::create_and_sync(to)?;
    copies.iter().try_for_each(|(number, (_, path))| folder::install(path, &to.join(checkpoint_file(*number))))
}

fn is_journal(path: &Path) -> bool {
    Journal::check(path).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::Journal;
    use crate::wire::{Direction, Objective, StudySpec};

    type TestResult = Result<(), Box<dyn std::error::Error + Send + Sync>>;

    fn spec(directory: &Path) -> StudySpec {
        let objectives = vec![Objective::new("loss", Direction::Min)];
        StudySpec { directory: directory.to_path_buf(), seed: Some(1), ..StudySpec::new("it", objectives) }
    }

    #[test]
    fn study_comes_back_past_copies_that_were_cut_off() -> TestResult {
        let directory = tempfile::tempdir()?;
        let (study, mirror_folder) = (directory.path().join("it"), directory.path().join("drive/it"));
        let (mut journal, _) = Journal::open(&study, &spec(directory.path()))?;
        journal.begin_trial(&mut Vec::new())?;
        fs::write(study.join("objective.so"), "an objective")?;
        let trial = study.join("trials/0");
        fs::create_dir_all(&trial)?;
        let mirror = Mirror::start(&study, &mirror_folder)?;
        for generation in 0..4 {
            fs::write(trial.join(checkpoint_file(generation)), format!("weights {generation}"))?;
            mirror.checkpoint(0, &checkpoint_file(generation));
            mirror.journal();
        }
        drop(mirror);
        let kept = names(&mirror_folder.join("trials/0"), |_| true)?;
        assert_eq!(kept.len(), KEPT, "{kept:?}");
        // What a machine that died while it copied leaves.
        fs::write(mirror_folder.join(format!("journal-{}.log", unique())), "{\"op_co")?;
        fs::create_dir(mirror_folder.join(format!("start-{}", unique())))?;
        let torn = format!("{}.{}", checkpoint_file(3), unique());
        fs::write(mirror_folder.join("trials/0").join(torn), "weig")?;

        let expected = fs::read(study.join(JOURNAL))?;
        drop(journal);
        fs::remove_dir_all(&study)?;
        restore(&mirror_folder, &study)?;
        assert_eq!(fs::read(study.join(JOURNAL))?, expected);
        assert_eq!(fs::read_to_string(study.join("objective.so"))?, "an objective");
        assert_eq!(fs::read_to_string(trial.join(checkpoint_file(3)))?, "weights 3");
        assert_eq!(Journal::read(&study)?.trials.len(), 1);
        // A study that is there is left alone.
        fs::write(study.join("objective.so"), "another")?;
        restore(&mirror_folder, &study)?;
        assert_eq!(fs::read_to_string(study.join("objective.so"))?, "another");
        Ok(())
    }

    #[test]
    fn mirror_that_leads_elsewhere_gives_nothing_and_takes_nothing() -> TestResult {
        let directory = tempfile::tempdir()?;
        let (study, drive) = (directory.path().join("it"), directory.path().join("drive/it"));
        let outside = directory.path().join("thesis");
        fs::create_dir(&outside)?;
        ["1", "2", "3"].into_iter().try_for_each(|chapter| fs::write(outside.join(chapter), "a chapter"))?;
        let (mut journal, _) = Journal::open(&study, &spec(directory.path()))?;
        journal.trial_started(0)?;
        fs::write(study.join("objective.so"), "an objective")?;
        fs::create_dir_all(study.join("trials/0"))?;
        fs::write(study.join("trials/0").join(checkpoint_file(0)), "weights")?;
        // Each trial has a folder there, of which only the last two files are kept.
        fs::create_dir_all(drive.join("trials"))?;
        std::os::unix::fs::symlink(&outside, drive.join("trials/0"))?;
        let mirror = Mirror::start(&study, &drive)?;
        mirror.checkpoint(0, &checkpoint_file(0));
        mirror.journal();
        drop(mirror);
        assert_eq!(names(&outside, |_| true)?, ["1", "2", "3"]);
        drop(journal);
        fs::remove_dir_all(&study)?;
        let error = restore(&drive, &study).err().ok_or("it came back")?.to_string();
        assert!(error.contains("trials/0 is a symbolic link") && !study.join(JOURNAL).exists(), "{error}");
        // Nor does a file of the user's come into the study in the place of its objective.
        fs::remove_file(drive.join("trials/0"))?;
        let start = names(&drive, |name| name.starts_with("start-"))?.pop().ok_or("no start")?;
        let objective = drive.join(start).join("objective.so");
        fs::remove_file(&objective)?;
        std::os::unix::fs::symlink(outside.join("1"), &objective)?;
        let error = restore(&drive, &study).err().ok_or("it came back")?.to_string();
        assert!(error.contains("objective.so is a symbolic link"), "{error}");
        std::os::unix::fs::symlink(&outside, drive.join("other"))?;
        assert!(Mirror::start(&study, &drive).is_err());
        Ok(())
    }

    #[test]
    fn trials_that_cannot_win_leave_the_mirror_too() -> TestResult {
        let directory = tempfile::tempdir()?;
        let (study, mirror_folder) = (directory.path().join("it"), directory.path().join("drive/it"));
        fs::create_dir_all(study.join("trials/2"))?;
        fs::write(study.join("trials/2").join(checkpoint_file(0)), "weights")?;
        let mirror = Mirror::start(&study, &mirror_folder)?;
        mirror.checkpoint(2, &checkpoint_file(0));
        mirror.forget(2);
        drop(mirror);
        assert!(mirror_folder.join("trials").exists() && !mirror_folder.join("trials/2").exists());
        clear(&mirror_folder)?;
        assert!(!mirror_folder.exists());
        Ok(())
    }
}
