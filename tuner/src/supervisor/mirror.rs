//! `--mirror FOLDER`: a second copy of the study on a disk that outlives this machine, such as Google Drive. Written by a
//! thread of its own, for such disks are slow; files get new names and are never changed or renamed there, since they
//! may be synced while they are written. Removes only what it has made. Like a study's folder a mirror may come from anyone:
//! no name in it may lead out of it.

mod guard;
mod restore;

pub(super) use restore::restore;

use super::SupervisorError;
use super::error::file_error;
use crate::folder;
use crate::seed::draw_seed;
use crate::spec::StudySpec;
use guard::Place;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::SystemTime;

const JOURNAL: &str = "journal.log";
const TRIALS: &str = "trials";
const LIBRARIES: &str = "libraries";
/// Files of a study that are as they are from its start on.
const FIXED: [&str; 3] = ["objective.so", "shared.safetensors", LIBRARIES];
/// In a copy of those files, once it is whole.
const WHOLE: &str = "whole";
/// Copies of one thing that are kept: the last may be torn.
const KEPT: usize = 2;

/// What is to be copied, or is of no use any more.
#[derive(Debug, PartialEq, Eq)]
enum Order {
    Checkpoint { trial: u64, file: String },
    Journal,
    Forget { trial: u64 },
}

/// The folder of the study's mirror, if it is to have one. Changes nothing.
///
/// # Errors
/// Where the mirror and the studies' folder overlap, where it holds another study, and, for a study that is to be begun
/// anew, where it holds anything else.
pub(super) fn of(spec: &StudySpec) -> Result<Option<PathBuf>, SupervisorError> {
    let Some(root) = &spec.supervision.mirror else { return Ok(None) };
    guard::check(spec, root)?;
    Ok(Some(root.join(&spec.project)))
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
                    Order::Forget { trial } => {
                        let copies = self.mirror.join(TRIALS).join(trial.to_string());
                        self.log(guard::remove_folder(&copies, Place::Trial));
                    }
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
        File::create(fixed.join(WHOLE))?.sync_all()?;
        for start in outdated(&self.mirror, guard::is_start)? {
            guard::remove_folder(&start, Place::Start)?;
        }
        Ok(())
    }

    fn copy_journal(&self) -> io::Result<()> {
        copy_all(&self.study.join(JOURNAL), &self.mirror.join(format!("journal-{}.log", unique())))?;
        guard::remove_all(&outdated(&self.mirror, guard::is_journal_copy)?)
    }

    fn copy_checkpoint(&self, trial: u64, file: &str) -> io::Result<()> {
        let source = self.study.join(TRIALS).join(trial.to_string()).join(file);
        let target = self.mirror.join(TRIALS).join(trial.to_string());
        fs::create_dir_all(&target)?;
        folder::refuse_link(&target)?;
        copy_all(&source, &target.join(format!("{}.{}", file, unique())))?;
        guard::remove_all(&outdated_checkpoints(&target, source.parent().unwrap_or(&self.study))?)
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

/// All but the last copies.
fn outdated(folder: &Path, is_copy: impl Fn(&str) -> bool) -> io::Result<Vec<PathBuf>> {
    Ok(names(folder, is_copy)?.iter().rev().skip(KEPT).map(|name| folder.join(name)).collect())
}

/// The copies of a trial's checkpoints that are of no use: not the last copies, and of each checkpoint that the trial still
/// has, such as that of its best step, not the last one.
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

/// Empties a mirror, of a study that is to be begun anew.
///
/// # Errors
/// Where something else is in it, which stays, as does all else then.
pub(super) fn clear(mirror: &Path) -> Result<(), SupervisorError> {
    if !mirror.exists() {
        return Ok(());
    }
    guard::remove_all(&guard::contents_to_clear(mirror)?).map_err(file_error("clear the mirror", mirror))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::{checkpoint_file, checkpoint_generation};
    use crate::journal::Journal;
    use crate::spec::{Direction, Objective, StudySpec};

    type TestResult = Result<(), Box<dyn std::error::Error + Send + Sync>>;

    pub(super) fn spec(directory: &Path) -> StudySpec {
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
        assert_eq!(kept.len(), 4, "the trial still has all of them: {kept:?}");
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
        // An empty journal is no study.
        fs::remove_dir_all(&study)?;
        fs::create_dir(&study)?;
        fs::write(study.join(JOURNAL), "")?;
        restore(&mirror_folder, &study)?;
        assert_eq!(fs::read(study.join(JOURNAL))?, expected);
        // A study that is there is left alone.
        fs::write(study.join("objective.so"), "another")?;
        restore(&mirror_folder, &study)?;
        assert_eq!(fs::read_to_string(study.join("objective.so"))?, "another");
        Ok(())
    }

    #[test]
    fn mirror_has_the_checkpoints_that_the_trial_has() -> TestResult {
        let directory = tempfile::tempdir()?;
        let (study, mirror) = (directory.path().join("it"), directory.path().join("drive/it"));
        let (trial, copies) = (study.join("trials/0"), mirror.join("trials/0"));
        fs::create_dir_all(&trial)?;
        let copier = Copier { study, mirror };
        for generation in 0..6 {
            fs::write(trial.join(checkpoint_file(generation)), "weights")?;
            // A trial keeps the last two, and that of its best step, which is the first one here.
            if generation > 2 {
                fs::remove_file(trial.join(checkpoint_file(generation - 2)))?;
            }
            copier.copy_checkpoint(0, &checkpoint_file(generation))?;
        }
        let copied = || -> io::Result<Vec<Option<u64>>> {
            let names = names(&copies, |_| true)?;
            Ok(names.iter().map(|name| checkpoint_generation(name.rsplit_once('.')?.0)).collect())
        };
        assert_eq!(copied()?, [Some(0), Some(4), Some(5)]);
        // Copies of one checkpoint, which a trial writes again when it is executed anew.
        (0..3).try_for_each(|_| copier.copy_checkpoint(0, &checkpoint_file(5)))?;
        assert_eq!(copied()?, [Some(0), Some(4), Some(5), Some(5)]);
        // Those that the trial has no more are kept while they are the last ones, for a later copy may fail.
        fs::remove_dir_all(&trial)?;
        copier.copy_checkpoint(0, &checkpoint_file(6))?;
        assert_eq!(copied()?, [Some(5), Some(5)]);
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
        journal.begin_trial(&mut Vec::new())?;
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
        assert_eq!(names(&mirror_folder, |_| true)?, Vec::<String>::new());
        Ok(())
    }

    #[test]
    fn copies_leave_other_files_of_the_mirror_alone() -> TestResult {
        let directory = tempfile::tempdir()?;
        let (study, mirror_folder) = (directory.path().join("it"), directory.path().join("drive/it"));
        let (journal, _) = Journal::open(&study, &spec(directory.path()))?;
        drop(journal);
        fs::create_dir_all(study.join("trials/0"))?;
        fs::create_dir_all(mirror_folder.join("trials/0"))?;
        let others =
            ["journal-1999.log", "journal-of-a-thesis.log", "start-here.txt", "trials/0/notes", "trials/0/a.b"];
        for other in others {
            fs::write(mirror_folder.join(other), other)?;
        }
        let mirror = Mirror::start(&study, &mirror_folder)?;
        for generation in 0..4 {
            fs::write(study.join("trials/0").join(checkpoint_file(generation)), "weights")?;
            mirror.checkpoint(0, &checkpoint_file(generation));
            mirror.journal();
        }
        mirror.forget(0);
        drop(mirror);
        for other in others {
            assert_eq!(fs::read_to_string(mirror_folder.join(other))?, other);
        }
        assert_eq!(names(&mirror_folder.join("trials/0"), |_| true)?, ["a.b", "notes"]);
        Ok(())
    }

    /// A study with a mirror of it, which ends before it is looked at.
    pub(super) fn mirrored(
        directory: &Path,
        drive: &Path,
    ) -> Result<StudySpec, Box<dyn std::error::Error + Send + Sync>> {
        let mut spec = spec(directory);
        spec.supervision.mirror = Some(drive.to_path_buf());
        let (journal, _) = Journal::open(&directory.join("it"), &spec)?;
        fs::create_dir_all(directory.join("it/libraries"))?;
        fs::write(directory.join("it/libraries/libstd.so"), "code")?;
        let mirror = Mirror::start(&directory.join("it"), &drive.join("it"))?;
        mirror.journal();
        drop((mirror, journal));
        Ok(spec)
    }

    #[test]
    fn mirror_is_cleared_only_of_what_this_program_made_of_this_study() -> TestResult {
        let root = tempfile::tempdir()?;
        let drive = root.path().join("drive");
        let mut spec = mirrored(&root.path().join("studies"), &drive)?;
        let mirror_folder = drive.join("it");
        let refusal = |spec: &StudySpec| of(spec).err().map(|error| error.to_string());
        assert_eq!(refusal(&spec), None);
        spec.overwrite = true;
        assert_eq!(refusal(&spec), None);

        // A folder of the user's in it.
        let chapter = mirror_folder.join("thesis/chapter-1.tex");
        fs::create_dir_all(mirror_folder.join("thesis"))?;
        fs::write(&chapter, "words")?;
        let message = refusal(&spec).ok_or("the mirror may not be cleared")?;
        assert!(message.contains("thesis, which is no part of a mirror"), "{message}");
        assert!(clear(&mirror_folder).is_err() && chapter.exists());
        assert!(!names(&mirror_folder, guard::is_journal_copy)?.is_empty());
        // A file of the user's within a folder of ours.
        fs::rename(mirror_folder.join("thesis"), root.path().join("thesis"))?;
        let start = names(&mirror_folder, guard::is_start)?.remove(0);
        fs::write(mirror_folder.join(&start).join("notes"), "words")?;
        let message = refusal(&spec).ok_or("the mirror may not be cleared")?;
        assert!(message.contains("notes, which is no part of a mirror"), "{message}");
        fs::remove_file(mirror_folder.join(&start).join("notes"))?;

        // Another study of that name, in another folder.
        let elsewhere = StudySpec { directory: root.path().join("elsewhere"), ..spec.clone() };
        let message = refusal(&elsewhere).ok_or("another study's mirror may not be cleared")?;
        assert!(message.contains("is the mirror of another study"), "{message}");
        let (journal, _) = Journal::open(&elsewhere.directory.join("it"), &elsewhere)?;
        drop(journal);
        for overwrite in [false, true] {
            let message =
                refusal(&StudySpec { overwrite, ..elsewhere.clone() }).ok_or("nor be mixed with this one's")?;
            assert!(message.contains("is the mirror of another study"), "{message}");
        }

        // So, too, where that one has an empty journal, as a search leaves that found no space for its files.
        fs::write(elsewhere.directory.join("it").join(JOURNAL), "")?;
        let message = refusal(&StudySpec { overwrite: true, ..elsewhere.clone() }).ok_or("it may not be cleared")?;
        assert!(message.contains("is the mirror of another study"), "{message}");

        // The study's own mirror, also where the study's folder is gone.
        fs::remove_dir_all(root.path().join("studies"))?;
        assert_eq!(refusal(&spec), None);
        clear(&mirror_folder)?;
        assert_eq!(names(&mirror_folder, |_| true)?, Vec::<String>::new());
        Ok(())
    }
}
