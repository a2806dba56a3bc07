//! The study's journal: an append-only file that Optuna's `JournalFileBackend` reads, with a checksum on each line.
//! One writer at a time; every fact is on disk before the call that tells it returns. Never rewrites a line.

mod error;
mod facts;
mod line;
mod lock;
mod replay;

pub use error::JournalError;
pub use lock::{Holder, holder_of};

use crate::folder;
use crate::given::{Given, Values};
use crate::oracle::draw_seed;
use crate::record::{Parameter, TrialRecord};
use crate::space::Value;
use crate::wire::{Objective, StudySpec, Supervision};
use chrono::{DateTime, Utc};
use facts::Fact;
use lock::StudyLock;
use replay::Replay;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Version of our own facts in the journal (Optuna's format has none).
const VERSION: u64 = 2;

/// For how long lines that were held back may be in the file before they are on disk.
const MOST_UNSYNCED: Duration = Duration::from_millis(10);

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

/// A study that is open for writing, and closed to every other writer.
#[derive(Debug)]
pub struct Journal {
    spec: StudySpec,
    path: PathBuf,
    file: File,
    /// Bytes of whole lines in the file.
    length: u64,
    trials: u64,
    worker_id: String,
    /// Where each parameter was asked for last.
    places: BTreeMap<String, String>,
    /// The defaults of parameters, as they were given last.
    defaults: BTreeMap<String, Value>,
    /// Whole lines that are not in the file yet.
    held: String,
    is_holding: bool,
    /// Whether all lines of the file are on disk.
    is_synced: bool,
    /// Whether facts that were held back have been lost.
    is_behind: bool,
    synced_at: Instant,
    /// Held, and given up by the system when it is closed, however this process ends.
    _lock: StudyLock,
}

impl Journal {
    /// Opens the study in `folder`, or begins it; gives its trials so far.
    ///
    /// A torn last line is cut off. With `spec.overwrite` an earlier study is deleted first. Trials that a dead
    /// supervisor left come back without an ending. Fails if the folder cannot be written, if another process has
    /// the study open, if the journal is damaged or of a newer version, or if its objective is another one.
    pub fn open(folder: &Path, spec: &StudySpec) -> Result<(Journal, Vec<TrialRecord>), JournalError> {
        let (journal, trials, ()) = Journal::open_with(folder, spec, || Ok::<_, JournalError>(()))?;
        Ok((journal, trials))
    }

    /// The same, with something to `prepare` in the folder when it is locked, before anything is written about this
    /// search. Where that fails, the journal stays as it was.
    pub(crate) fn open_with<T, E: From<JournalError>>(
        folder: &Path,
        spec: &StudySpec,
        prepare: impl FnOnce() -> Result<T, E>,
    ) -> Result<(Journal, Vec<TrialRecord>, T), E> {
        if spec.overwrite && holds_no_study(folder) {
            return Err(JournalError::NotAStudy { folder: folder.to_owned() }.into());
        }
        let not_writable = |source| JournalError::NotWritable { folder: folder.to_owned(), source };
        folder::create_and_sync(folder).map_err(not_writable)?;
        let study_lock = StudyLock::take(folder, &spec.project)?;
        if spec.overwrite {
            delete_study(folder)?;
        }
        let path = folder.join(FILE);
        let file = OpenOptions::new().append(true).create(true).open(&path).map_err(not_writable)?;
        folder::sync(folder).map_err(not_writable)?;
        let mut replay = Replay::of(&path, &spec.project)?;
        if let Some(earlier) = replay.other_objectives(&spec.objectives) {
            let (study, wanted) = (spec.project.clone(), objectives_text(&spec.objectives));
            return Err(JournalError::OtherObjective { study, earlier, wanted }.into());
        }
        let prepared = prepare()?;
        let mut journal = Journal {
            spec: seeded(spec, replay.spec.as_ref()),
            length: replay.length,
            trials: replay.trials.len() as u64,
            worker_id: worker_id(),
            held: String::new(),
            is_holding: false,
            is_synced: true,
            is_behind: false,
            synced_at: Instant::now(),
            places: std::mem::take(&mut replay.places),
            defaults: std::mem::take(&mut replay.defaults),
            path,
            file,
            _lock: study_lock,
        };
        journal.cut_tail()?;
        journal.begin(&replay)?;
        Ok((journal, replay.trials, prepared))
    }

    /// Reads the study in `folder` without a lock, also while a search writes it. Fails if there is none, or if it
    /// is damaged or of a newer version.
    pub fn read(folder: &Path) -> Result<Study, JournalError> {
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

    /// A trial begins. Nothing is written for a trial that is there already and goes on.
    pub fn trial_started(&mut self, number: u64) -> Result<(), JournalError> {
        if number < self.trials {
            return Ok(());
        }
        if number > self.trials {
            return Err(JournalError::UnknownTrial { number, trials: self.trials });
        }
        self.append(&[Fact::TrialStarted])?;
        self.trials += 1;
        Ok(())
    }

    /// A trial with these values waits to begin; Optuna has such trials, too, and would begin it.
    pub fn trial_enqueued(&mut self, number: u64, preset: &Values) -> Result<(), JournalError> {
        if number != self.trials {
            return Err(JournalError::UnknownTrial { number, trials: self.trials });
        }
        self.append(&[Fact::TrialEnqueued { preset }])?;
        self.trials += 1;
        Ok(())
    }

    /// A trial that waited begins.
    pub fn enqueued_trial_started(&mut self, number: u64) -> Result<(), JournalError> {
        self.check_trial(number)?;
        self.append(&[Fact::EnqueuedTrialStarted { number }])
    }

    /// A trial begins as a copy of `parent`, whose checkpoint `file` it has now, too, if there is one.
    pub fn inherited(&mut self, number: u64, parent: u64, file: Option<&str>) -> Result<(), JournalError> {
        self.check_trial(number)?;
        let inheritance = facts::Inheritance { parent, file: file.map(str::to_owned) };
        self.append(&[facts::attribute(number, facts::INHERITANCE, &inheritance)])
    }

    /// An execution of a trial is over and another one follows: writes the values of the last one. The trial's reports
    /// and its checkpoint do not count any more.
    pub fn executed(&mut self, record: &TrialRecord) -> Result<(), JournalError> {
        self.check_trial(record.number)?;
        let values = record.executions.last();
        self.append(&[facts::attribute(record.number, facts::EXECUTED, &values)])
    }

    /// A parameter's value is chosen.
    pub fn parameter(&mut self, number: u64, name: &str, parameter: &Parameter) -> Result<(), JournalError> {
        self.check_trial(number)?;
        let Some(internal) = facts::internal_value(parameter) else {
            let (name, value) = (name.to_owned(), parameter.value.to_string());
            return Err(JournalError::OutsideRange { number, name, value });
        };
        self.append(&[Fact::Parameter { number, name, internal, distribution: &parameter.distribution }])
    }

    /// The objective asks for a parameter at `place` in its source, where it was not asked for before.
    pub fn asked_at(&mut self, name: &str, place: &str) -> Result<(), JournalError> {
        if place.is_empty() || self.place_of(name) == Some(place) {
            return Ok(());
        }
        self.append(&[facts::study_attribute(&format!("{}{name}", facts::PLACE), &place)])?;
        self.places.insert(name.to_owned(), place.to_owned());
        Ok(())
    }

    /// The objective gives a parameter a default that it did not have before.
    pub fn defaults_to(&mut self, name: &str, default: &Value) -> Result<(), JournalError> {
        if self.defaults.get(name) == Some(default) {
            return Ok(());
        }
        self.append(&[facts::study_attribute(&format!("{}{name}", facts::DEFAULT), default)])?;
        self.defaults.insert(name.to_owned(), default.clone());
        Ok(())
    }

    /// Where in the objective's source a parameter was asked for last.
    pub fn place_of(&self, name: &str) -> Option<&str> {
        self.places.get(name).map(String::as_str)
    }

    /// The objective has said how many epochs a whole training has.
    pub fn epochs(&mut self, number: u64, total: u64) -> Result<(), JournalError> {
        self.check_trial(number)?;
        self.append(&[facts::attribute(number, facts::EPOCHS, &total)])
    }

    /// Metrics of a step. A sole objective's becomes Optuna's intermediate value.
    pub fn report(
        &mut self,
        number: u64,
        step: u64,
        metrics: &BTreeMap<String, Option<f64>>,
    ) -> Result<(), JournalError> {
        self.check_trial(number)?;
        self.append(&facts::report(number, step, metrics, &self.spec.objectives))
    }

    /// A checkpoint is on disk; `file` is its name in the trial's folder, `step` the last step that it covers.
    pub fn checkpoint(&mut self, number: u64, step: u64, file: &str) -> Result<(), JournalError> {
        self.check_trial(number)?;
        self.append(&[facts::attribute(number, facts::CHECKPOINT, &facts::Checkpoint { step, file: file.to_owned() })])
    }

    /// The trial's checkpoint has been removed: it cannot be among the best any more.
    pub fn checkpoint_removed(&mut self, number: u64) -> Result<(), JournalError> {
        self.check_trial(number)?;
        self.append(&[facts::without_checkpoint(number)])
    }

    /// A worker of a trial starts: the trial does not wait any more, and until the journal has a pause or an end
    /// again it counts as interrupted. `unended` are the workers whose end the journal has not, with this one.
    pub fn worker_started(&mut self, number: u64, unended: u64) -> Result<(), JournalError> {
        self.check_trial(number)?;
        let waits = facts::attribute(number, facts::PAUSED_AT, &None::<u64>);
        self.append(&[waits, facts::attribute(number, facts::UNENDED_WORKERS, &unended)])
    }

    /// A trial waits, or its last worker has left: writes `paused_at`, `seconds` and `peak_bytes`. After the trial's
    /// end Optuna takes no notice of it.
    pub fn trial_paused(&mut self, record: &TrialRecord) -> Result<(), JournalError> {
        self.check_trial(record.number)?;
        self.append(&facts::usage(record))
    }

    /// A trial is over: writes what [`Journal::trial_paused`] does, the ending and the values. Optuna sees a failure
    /// where they are not all there and finite. A record without an ending counts as paused.
    pub fn trial_ended(&mut self, record: &TrialRecord) -> Result<(), JournalError> {
        self.check_trial(record.number)?;
        let mut facts = facts::usage(record);
        if let Some(ending) = &record.ending {
            facts.extend(facts::ended(record, ending, &self.spec));
        }
        self.append(&facts)
    }

    fn check_trial(&self, number: u64) -> Result<(), JournalError> {
        if number < self.trials {
            return Ok(());
        }
        Err(JournalError::UnknownTrial { number, trials: self.trials })
    }

    /// Writes what a new study begins with, and how this search differs from the last one.
    fn begin(&mut self, replay: &Replay) -> Result<(), JournalError> {
        let spec = self.spec.clone();
        let mut facts = Vec::new();
        if !replay.created {
            facts.push(Fact::StudyCreated { spec: &spec });
            if spec.objectives.len() > 1 {
                facts.push(facts::metric_names(&spec));
            }
        }
        // A study that an earlier version began holds facts of this one from now on.
        if replay.version != Some(VERSION) {
            facts.push(facts::study_attribute(facts::VERSION, &VERSION));
        }
        if replay.spec.as_ref() != Some(&spec) {
            facts.push(facts::study_attribute(facts::SPEC, &spec));
        }
        if facts.is_empty() { Ok(()) } else { self.append(&facts) }
    }

    /// Holds back what is told from now on, so that the facts of a short trial cost one write.
    pub(crate) fn hold(&mut self) {
        self.is_holding = true;
    }

    /// Writes what was held back, and holds back nothing more. It survives the process then, and the machine once it is
    /// synced, which a long series of short trials pays for once in a while.
    pub(crate) fn release(&mut self) -> Result<(), JournalError> {
        self.is_holding = false;
        self.write_held()?;
        if self.synced_at.elapsed() < MOST_UNSYNCED { Ok(()) } else { self.sync() }
    }

    /// Puts all that was told on disk.
    pub(crate) fn sync(&mut self) -> Result<(), JournalError> {
        self.check_is_whole()?;
        self.write_held()?;
        if !self.is_synced {
            self.file.sync_data().map_err(|source| self.io(source))?;
            (self.is_synced, self.synced_at) = (true, Instant::now());
        }
        Ok(())
    }

    /// After facts were lost that had been taken down, what follows would speak of trials that the file has not got.
    fn check_is_whole(&self) -> Result<(), JournalError> {
        if self.is_behind { Err(JournalError::Behind { path: self.path.clone() }) } else { Ok(()) }
    }

    fn write_held(&mut self) -> Result<(), JournalError> {
        if self.held.is_empty() {
            return Ok(());
        }
        let text = std::mem::take(&mut self.held);
        if let Err(source) = self.file.write_all(text.as_bytes()) {
            self.is_behind = true;
            self.cut_tail()?;
            return Err(self.io(source));
        }
        self.length += text.len() as u64;
        self.is_synced = false;
        Ok(())
    }

    /// One write and one fdatasync, if nothing is to be held back. What a failed one leaves is cut off again.
    fn append(&mut self, facts: &[Fact<'_>]) -> Result<(), JournalError> {
        self.check_is_whole()?;
        self.held.extend(facts.iter().map(|fact| line::encode(&fact.to_json(&self.worker_id))));
        if self.is_holding {
            return Ok(());
        }
        let before = self.length;
        self.sync().or_else(|error| {
            // Whoever told this hears that it is not there.
            self.is_behind = false;
            self.length = before;
            self.cut_tail()?;
            Err(error)
        })
    }

    /// Cuts off what follows the last whole line.
    fn cut_tail(&mut self) -> Result<(), JournalError> {
        let found = self.file.metadata().map_err(|source| self.io(source))?.len();
        if found > self.length {
            let (path, bytes) = (self.path.display(), found - self.length);
            tracing::warn!(%path, bytes, "the journal ends in a torn line, which is cut off");
            self.file.set_len(self.length).and_then(|()| self.file.sync_data()).map_err(|source| self.io(source))?;
        }
        Ok(())
    }

    fn io(&self, source: std::io::Error) -> JournalError {
        JournalError::Io { path: self.path.clone(), source }
    }
}

/// The spec with the seed that the search uses.
fn seeded(spec: &StudySpec, earlier: Option<&StudySpec>) -> StudySpec {
    let seed = spec.seed.or_else(|| earlier.and_then(|earlier| earlier.seed)).unwrap_or_else(draw_seed);
    // Not kept: all three are deeds of the call that asks for them, no properties of the study.
    let supervision = Supervision { background: false, ..spec.supervision.clone() };
    let given = Given { enqueued: Vec::new(), ..spec.given.clone() };
    StudySpec { seed: Some(seed), overwrite: false, supervision, given, ..spec.clone() }
}

fn objectives_text(objectives: &[Objective]) -> String {
    objectives.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// Optuna tells the writers of a journal apart by this; a line that begins so must have a checksum.
fn worker_id() -> String {
    format!("{}{}-{:x}", line::WORKER_PREFIX, std::process::id(), draw_seed())
}

/// Whether the folder has something in it that is not a study.
fn holds_no_study(folder: &Path) -> bool {
    let files = std::fs::read_dir(folder)
        .map_or(0, |entries| entries.flatten().filter(|entry| !lock::is_lock(&entry.file_name())).count());
    files > 0 && !folder.join(FILE).is_file()
}

/// Deletes everything but the lock, which is held. The journal goes last: until then the folder still is a study.
fn delete_study(folder: &Path) -> Result<(), JournalError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| JournalError::Io { path, source }
    };
    for entry in std::fs::read_dir(folder).map_err(failed(folder))? {
        let entry = entry.map_err(failed(folder))?;
        let path = entry.path();
        if entry.file_name() == FILE || lock::is_lock(&entry.file_name()) {
            continue;
        }
        let is_folder = entry.file_type().map_err(failed(&path))?.is_dir();
        let removed = if is_folder { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
        removed.map_err(failed(&path))?;
    }
    let path = folder.join(FILE);
    match std::fs::remove_file(&path) {
        Err(source) if source.kind() != ErrorKind::NotFound => Err(failed(&path)(source)),
        _ => Ok(()),
    }
}
