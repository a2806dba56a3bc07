//! The study's journal: an append-only file that Optuna's `JournalFileBackend` reads and writes, with a checksum on each
//! line of ours. One search at a time, beside any number of Optuna's processes; every fact is on disk before the call that
//! tells it returns. Never rewrites a line.

mod append_lock;
mod error;
mod facts;
mod line;
mod lock;
mod replay;
mod shared_file;

pub use error::JournalError;
pub use lock::{Holder, holder_of};

use crate::folder;
use crate::given::Values;
use crate::oracle::draw_seed;
use crate::record::{Parameter, Runner, TrialRecord};
use crate::space::Value;
use crate::spec::{Objective, StudySpec};
use chrono::{DateTime, Utc};
use facts::Fact;
pub(crate) use lock::StudyLock;
use replay::Replay;
use shared_file::{SharedFile, Survives};
use std::collections::BTreeMap;
use std::fs::DirEntry;
use std::path::Path;

/// Version of our own facts in the journal (Optuna's format has none).
const VERSION: u64 = 2;

/// Name of the journal in a study's folder.
const FILE: &str = "journal.log";

/// A study as it stands on disk.
#[derive(Clone, Debug, PartialEq)]
pub struct Study {
    /// The search, as it was last started.
    pub spec: StudySpec,
    /// Its trials, by number.
    pub trials: Vec<TrialRecord>,
    /// When they ran, by number.
    pub times: Vec<Times>,
    /// The defaults that the objective gives its parameters, by name.
    pub defaults: BTreeMap<String, Value>,
}

/// When a trial ran, by the clock of the machine that wrote the journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// When its first worker began.
    pub started: Option<DateTime<Utc>>,
    /// When its end was known.
    pub ended: Option<DateTime<Utc>>,
}

/// A study that is open for writing, and closed to every other search.
#[derive(Debug)]
pub struct Journal {
    spec: StudySpec,
    file: SharedFile,
    /// What the file says beside the trials, whose records are the search's own; places and defaults are kept in it.
    replay: Replay,
    trials: u64,
    /// Whether lines of other programs have been applied since the search asked.
    has_news: bool,
    worker_id: String,
    /// Whole lines that are not in the file yet.
    held: String,
    is_holding: bool,
    /// Held, and given up by the system when it is closed, however this process ends.
    _lock: StudyLock,
}

impl Journal {
    /// Opens the study in `folder`, or begins it; gives its trials so far.
    ///
    /// A torn last line is cut off, and kept in a file beside the journal. With `spec.overwrite` an earlier study is deleted
    /// first. Trials that a dead supervisor left come back without an ending. Fails if the folder cannot be written, if
    /// another search has the study open, if the journal is damaged or of a newer version, if its objective is another one,
    /// or if a name in the folder leads out of it.
    pub fn open(folder: &Path, spec: &StudySpec) -> Result<(Journal, Vec<TrialRecord>), JournalError> {
        let (journal, trials, ()) = Journal::open_with(folder, spec, || Ok::<_, JournalError>(()))?;
        Ok((journal, trials))
    }

    /// The same, with something to `prepare` in the folder when it is locked, before anything is written about this
    /// search. Where that fails, the journal stays as it was; with `spec.overwrite` it is empty.
    pub(crate) fn open_with<T, E: From<JournalError>>(
        folder: &Path,
        spec: &StudySpec,
        prepare: impl FnOnce() -> Result<T, E>,
    ) -> Result<(Journal, Vec<TrialRecord>, T), E> {
        if spec.overwrite && holds_no_study(folder) {
            return Err(JournalError::NotAStudy { folder: folder.to_owned() }.into());
        }
        refuse_links(folder)?;
        let not_writable = |source| JournalError::NotWritable { folder: folder.to_owned(), source };
        folder::create_and_sync(folder).map_err(not_writable)?;
        let study_lock = StudyLock::take(folder, &spec.project)?;
        let file = SharedFile::open(folder).map_err(not_writable)?;
        folder::sync(folder).map_err(not_writable)?;
        let mut journal = Journal {
            spec: spec.clone(),
            file,
            replay: Replay::default(),
            trials: 0,
            has_news: false,
            worker_id: worker_id(),
            held: String::new(),
            is_holding: false,
            _lock: study_lock,
        };
        let mut trials = journal.locked(|journal| journal.read_study(folder))?;
        let prepared = prepare()?;
        journal.locked(|journal| journal.begin(&mut trials))?;
        Ok((journal, trials, prepared))
    }

    /// Reads the study in `folder` without a lock, also while a search writes it. Fails if there is none, if it is
    /// damaged or of a newer version, or if a name in the folder leads out of it.
    pub fn read(folder: &Path) -> Result<Study, JournalError> {
        refuse_links(folder)?;
        let missing = || JournalError::Missing { folder: folder.to_owned() };
        let path = folder.join(FILE);
        if !path.is_file() {
            return Err(missing());
        }
        let name = folder.file_name().unwrap_or(folder.as_os_str()).to_string_lossy();
        let replay = Replay::of(&path, &name)?;
        Ok(Study {
            spec: replay.spec.ok_or_else(missing)?,
            trials: replay.trials,
            times: replay.times,
            defaults: replay.defaults,
        })
    }

    /// The search of the journal in the file at `path`, such as a copy of one. Fails with what is wrong with it.
    pub(crate) fn spec_at(path: &Path) -> Result<StudySpec, JournalError> {
        let folder = path.parent().unwrap_or(path);
        let replay = Replay::of(path, &folder.to_string_lossy())?;
        replay.spec.ok_or_else(|| JournalError::Missing { folder: folder.to_owned() })
    }

    /// The search in force: as given to [`Journal::open`], with a seed — the given one, else that of the study so
    /// far, else one drawn now.
    pub fn spec(&self) -> &StudySpec {
        &self.spec
    }

    /// Takes in what other programs have appended, such as trials that Optuna has begun, ended or enqueued. `trials` are
    /// all records of the search. Says whether there was anything since the last call.
    pub fn read_on(&mut self, trials: &mut Vec<TrialRecord>) -> Result<bool, JournalError> {
        self.file.read_others()?;
        self.apply_others(trials)?;
        Ok(std::mem::take(&mut self.has_news))
    }

    /// Begins a new trial: adds its record to `trials`, which are all records of the search, behind those of other
    /// programs; gives its number.
    pub fn begin_trial(&mut self, trials: &mut Vec<TrialRecord>) -> Result<u64, JournalError> {
        self.create(&Fact::TrialStarted, TrialRecord::default(), trials)
    }

    /// Adds a trial with these values that waits to begin; Optuna has such trials, too, and may begin it. Gives its number.
    pub fn enqueue_trial(&mut self, preset: &Values, trials: &mut Vec<TrialRecord>) -> Result<u64, JournalError> {
        let record = TrialRecord { preset: preset.clone(), runner: Runner::Nobody, ..TrialRecord::default() };
        self.create(&Fact::TrialEnqueued { preset }, record, trials)
    }

    /// Begins a trial that waits, unless another program has begun it first; says whether it is ours now.
    pub fn begin_enqueued_trial(&mut self, number: u64, trials: &mut Vec<TrialRecord>) -> Result<bool, JournalError> {
        self.check_trial(number)?;
        let is_ours = self.locked(|journal| {
            journal.file.catch_up()?;
            journal.apply_others(trials)?;
            let is_free = trials.get(number as usize).is_some_and(TrialRecord::is_enqueued);
            if is_free {
                journal.write(&[Fact::EnqueuedTrialStarted { number }])?;
            }
            Ok(is_free)
        })?;
        if is_ours {
            trials[number as usize].runner = Runner::Search;
        }
        Ok(is_ours)
    }

    /// A trial begins as a copy of `parent`, whose checkpoint `file` it has now, too, if there is one.
    pub fn inherited(&mut self, number: u64, parent: u64, file: Option<&str>) -> Result<(), JournalError> {
        self.check_trial(number)?;
        let inheritance = facts::Inheritance { parent, file: file.map(str::to_owned) };
        self.tell(&[facts::attribute(number, facts::INHERITANCE, &inheritance)])
    }

    /// An execution of a trial is over and another one follows: writes the values of the last one. The trial's reports
    /// and its checkpoint do not count any more.
    pub fn executed(&mut self, record: &TrialRecord) -> Result<(), JournalError> {
        self.check_trial(record.number)?;
        let values = record.executions.last();
        self.tell(&[facts::attribute(record.number, facts::EXECUTED, &values)])
    }

    /// A parameter's value is chosen.
    pub fn parameter(&mut self, number: u64, name: &str, parameter: &Parameter) -> Result<(), JournalError> {
        self.check_trial(number)?;
        let Some(internal) = facts::internal_value(parameter) else {
            let (name, value) = (name.to_owned(), parameter.value.to_string());
            return Err(JournalError::OutsideRange { number, name, value });
        };
        self.tell(&[Fact::Parameter { number, name, internal, distribution: &parameter.distribution }])
    }

    /// The objective asks for a parameter at `place` in its source, where it was not asked for before.
    pub fn asked_at(&mut self, name: &str, place: &str) -> Result<(), JournalError> {
        if place.is_empty() || self.place_of(name) == Some(place) {
            return Ok(());
        }
        self.tell(&[facts::study_attribute(&format!("{}{name}", facts::PLACE), &place)])?;
        self.replay.places.insert(name.to_owned(), place.to_owned());
        Ok(())
    }

    /// The objective gives a parameter a default that it did not have before.
    pub fn defaults_to(&mut self, name: &str, default: &Value) -> Result<(), JournalError> {
        if self.replay.defaults.get(name) == Some(default) {
            return Ok(());
        }
        self.tell(&[facts::study_attribute(&format!("{}{name}", facts::DEFAULT), default)])?;
        self.replay.defaults.insert(name.to_owned(), default.clone());
        Ok(())
    }

    /// Where in the objective's source a parameter was asked for last.
    pub fn place_of(&self, name: &str) -> Option<&str> {
        self.replay.places.get(name).map(String::as_str)
    }

    /// The objective has said how many epochs a whole training has.
    pub fn epochs(&mut self, number: u64, total: u64) -> Result<(), JournalError> {
        self.check_trial(number)?;
        self.tell(&[facts::attribute(number, facts::EPOCHS, &total)])
    }

    /// Metrics of a step. A sole objective's becomes Optuna's intermediate value.
    pub fn report(
        &mut self,
        number: u64,
        step: u64,
        metrics: &BTreeMap<String, Option<f64>>,
    ) -> Result<(), JournalError> {
        self.check_trial(number)?;
        self.tell(&facts::report(number, step, metrics, &self.spec.objectives))
    }

    /// A checkpoint is on disk; `file` is its name in the trial's folder, `step` the last step that it covers.
    pub fn checkpoint(&mut self, number: u64, step: u64, file: &str) -> Result<(), JournalError> {
        self.check_trial(number)?;
        self.tell(&[facts::attribute(number, facts::CHECKPOINT, &facts::Checkpoint { step, file: file.to_owned() })])
    }

    /// The trial's checkpoint has been removed: it cannot be among the best any more.
    pub fn checkpoint_removed(&mut self, number: u64) -> Result<(), JournalError> {
        self.check_trial(number)?;
        self.tell(&[facts::without_checkpoint(number)])
    }

    /// A worker of a trial starts: the trial does not wait any more, and until the journal has a pause or an end
    /// again it counts as interrupted. `unended` are the workers whose end the journal has not, with this one.
    pub fn worker_started(&mut self, number: u64, unended: u64) -> Result<(), JournalError> {
        self.check_trial(number)?;
        let waits = facts::attribute(number, facts::PAUSED_AT, &None::<u64>);
        self.tell(&[waits, facts::attribute(number, facts::UNENDED_WORKERS, &unended)])
    }

    /// A trial waits, or its last worker has left: writes `paused_at`, `seconds` and `peak_bytes`. After the trial's
    /// end Optuna takes no notice of it.
    pub fn trial_paused(&mut self, record: &TrialRecord) -> Result<(), JournalError> {
        self.check_trial(record.number)?;
        self.tell(&facts::usage(record))
    }

    /// A trial is over: writes what [`Journal::trial_paused`] does, the ending and the values. Optuna sees a failure
    /// where they are not all there and finite. A record without an ending counts as paused.
    pub fn trial_ended(&mut self, record: &TrialRecord) -> Result<(), JournalError> {
        self.check_trial(record.number)?;
        let mut facts = facts::usage(record);
        if let Some(ending) = &record.ending {
            facts.extend(facts::ended(record, ending, &self.spec));
        }
        self.tell(&facts)
    }

    fn check_trial(&self, number: u64) -> Result<(), JournalError> {
        if number < self.trials {
            return Ok(());
        }
        Err(JournalError::UnknownTrial { number, trials: self.trials })
    }

    /// Reads the study, which with `overwrite` is deleted first. The lock is held.
    fn read_study(&mut self, folder: &Path) -> Result<Vec<TrialRecord>, JournalError> {
        if self.spec.overwrite {
            delete_study(folder)?;
            self.file.empty()?;
        }
        let mut replay = Replay::of(self.file.path(), &self.spec.project)?;
        if let Some(earlier) = replay.other_objectives(&self.spec.objectives) {
            let (study, wanted) = (self.spec.project.clone(), objectives_text(&self.spec.objectives));
            return Err(JournalError::OtherObjective { study, earlier, wanted });
        }
        if !self.file.go_on_behind(replay.length)? {
            let path = self.file.path().to_owned();
            return Err(Replay::damage(&path, &self.spec.project).unwrap_or(JournalError::Behind { path }));
        }
        let trials = std::mem::take(&mut replay.trials);
        (self.trials, self.replay) = (trials.len() as u64, replay);
        Ok(trials)
    }

    /// Writes what a new study begins with, and how this search differs from the last one. The lock is held.
    fn begin(&mut self, trials: &mut Vec<TrialRecord>) -> Result<(), JournalError> {
        self.file.catch_up()?;
        self.apply_others(trials)?;
        let spec = seeded(&self.spec, self.replay.spec.as_ref());
        let mut facts = Vec::new();
        if !self.replay.created {
            facts.push(Fact::StudyCreated { spec: &spec });
            if spec.objectives.len() > 1 {
                facts.push(facts::metric_names(&spec));
            }
        }
        // A study that an earlier version began holds facts of this one from now on.
        if self.replay.version != Some(VERSION) {
            facts.push(facts::study_attribute(facts::VERSION, &VERSION));
        }
        if self.replay.spec.as_ref() != Some(&spec) {
            facts.push(facts::study_attribute(facts::SPEC, &spec));
        }
        if !facts.is_empty() {
            self.write(&facts)?;
        }
        (self.replay.created, self.replay.spec, self.spec) = (true, Some(spec.clone()), spec);
        std::mem::swap(&mut self.replay.trials, trials);
        self.replay.name_values();
        std::mem::swap(&mut self.replay.trials, trials);
        Ok(())
    }

    /// Holds back what is told from now on, so that the facts of a short trial cost one write: that of the next trial's
    /// beginning.
    pub(crate) fn hold(&mut self) {
        self.is_holding = true;
    }

    /// Puts what was held back on disk, and holds back nothing more.
    pub(crate) fn release(&mut self) -> Result<(), JournalError> {
        self.is_holding = false;
        self.sync()
    }

    /// Puts all that was told on disk.
    pub(crate) fn sync(&mut self) -> Result<(), JournalError> {
        self.file.check_is_whole()?;
        if !self.held.is_empty() {
            self.append(&[])?;
        }
        self.file.sync()
    }

    /// Writes these facts, if nothing is to be held back.
    fn tell(&mut self, facts: &[Fact<'_>]) -> Result<(), JournalError> {
        if self.is_holding {
            self.file.check_is_whole()?;
            self.held.extend(facts.iter().map(|fact| line::encode(&fact.to_json(&self.worker_id))));
            return Ok(());
        }
        self.append(facts)
    }

    /// Appends these facts behind what other programs have written.
    fn append(&mut self, facts: &[Fact<'_>]) -> Result<(), JournalError> {
        self.locked(|journal| {
            journal.file.catch_up()?;
            journal.write(facts)
        })
    }

    /// Appends a line that makes a trial. Its number is the count of such lines before it, whoever wrote them.
    fn create(
        &mut self,
        fact: &Fact<'_>,
        record: TrialRecord,
        trials: &mut Vec<TrialRecord>,
    ) -> Result<u64, JournalError> {
        self.locked(|journal| {
            journal.file.catch_up()?;
            journal.apply_others(trials)?;
            journal.write(std::slice::from_ref(fact))
        })?;
        let number = trials.len() as u64;
        trials.push(TrialRecord { number, ..record });
        self.trials = number + 1;
        Ok(number)
    }

    /// Does something while no other program appends.
    fn locked<T>(&mut self, action: impl FnOnce(&mut Journal) -> Result<T, JournalError>) -> Result<T, JournalError> {
        self.file.check_is_whole()?;
        self.file.take_lock()?;
        let done = action(self);
        self.file.give_lock_back();
        done
    }

    /// Appends what was held back, and these facts. The lock is held, and what others have written has been read.
    fn write(&mut self, facts: &[Fact<'_>]) -> Result<(), JournalError> {
        let mut text = std::mem::take(&mut self.held);
        let is_acknowledged = !text.is_empty();
        text.extend(facts.iter().map(|fact| line::encode(&fact.to_json(&self.worker_id))));
        let survives = if self.is_holding { Survives::Process } else { Survives::Machine };
        let written = self.file.write(&text, survives);
        // Whoever told these facts hears that they are not there; whoever told what was held back has gone on.
        self.file.is_behind |= written.is_err() && is_acknowledged;
        written
    }

    /// Applies the lines of other programs that have been read, as they are when the study is opened.
    fn apply_others(&mut self, trials: &mut Vec<TrialRecord>) -> Result<(), JournalError> {
        let lines = self.file.take_others();
        if lines.is_empty() {
            return Ok(());
        }
        let (path, study) = (self.file.path().to_owned(), self.spec.project.as_str());
        std::mem::swap(&mut self.replay.trials, trials);
        let applied = self.replay.go_on(&lines, &path, study);
        std::mem::swap(&mut self.replay.trials, trials);
        self.has_news = true;
        self.trials = trials.len() as u64;
        applied.map_err(|error| {
            // From here on the records and the file differ. The whole file tells the number of the line.
            self.file.is_behind = true;
            Replay::damage(&path, study).unwrap_or(error)
        })
    }
}

/// The spec with the seed that the search uses.
fn seeded(spec: &StudySpec, earlier: Option<&StudySpec>) -> StudySpec {
    let seed = spec.seed.or_else(|| earlier.and_then(|earlier| earlier.seed)).unwrap_or_else(draw_seed);
    StudySpec { seed: Some(seed), ..spec.clone().without_call() }
}

fn objectives_text(objectives: &[Objective]) -> String {
    objectives.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// Optuna tells the writers of a journal apart by this; a line that begins so must have a checksum.
fn worker_id() -> String {
    format!("{}{}-{:x}", line::WORKER_PREFIX, std::process::id(), draw_seed())
}

/// Refuses a study's folder in which a name leads elsewhere, but for the links by which Optuna's writers lock the journal.
pub(crate) fn refuse_links(folder: &Path) -> Result<(), JournalError> {
    Ok(folder::refuse_links_of(folder, |name| !append_lock::is_lock(name))?)
}

/// Whether the folder has something in it that is not a study.
fn holds_no_study(folder: &Path) -> bool {
    let files =
        std::fs::read_dir(folder).map_or(0, |entries| entries.flatten().filter(|entry| !is_lock(entry)).count());
    files > 0 && !folder.join(FILE).is_file()
}

/// Whether this is one of the locks of a study.
pub(crate) fn is_lock(entry: &DirEntry) -> bool {
    lock::is_lock(&entry.file_name()) || append_lock::is_lock(&entry.file_name())
}

/// Deletes everything but the locks, which are held, and the journal: until that is emptied the folder still is a study.
fn delete_study(folder: &Path) -> Result<(), JournalError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| JournalError::Io { path, source }
    };
    for entry in std::fs::read_dir(folder).map_err(failed(folder))? {
        let entry = entry.map_err(failed(folder))?;
        let path = entry.path();
        if entry.file_name() == FILE || is_lock(&entry) {
            continue;
        }
        let is_folder = entry.file_type().map_err(failed(&path))?.is_dir();
        let removed = if is_folder { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
        removed.map_err(failed(&path))?;
    }
    Ok(())
}
