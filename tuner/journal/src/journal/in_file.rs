//! A study in a file of its folder: new facts are appended after the lines of other programs. Never rewrites a line.

use super::fact::{Fact, NewTrial, TrialFact};
use super::format::TrialState;
use super::replay::{Known, Replay};
use super::shared_file::{SharedFile, Survives};
use super::state::Times;
use super::storage::Storage;
use super::{JournalError, encode, line};
use ferrotune_space::seed;
use std::path::Path;

/// The journal's file, and the lines to be written to it.
#[derive(Debug)]
pub(super) struct InFile {
    file: SharedFile,
    worker_id: String,
    /// Complete lines that are not in the file yet.
    held: String,
    is_holding: bool,
}

impl InFile {
    /// Opens the file in `folder`, or makes an empty one.
    pub(super) fn open(folder: &Path) -> std::io::Result<InFile> {
        let file = SharedFile::open(folder)?;
        Ok(InFile { file, worker_id: worker_id(), held: String::new(), is_holding: false })
    }

    /// Deletes all lines.
    pub(super) fn empty(&mut self) -> Result<(), JournalError> {
        self.locked(|journal| journal.file.empty())
    }

    /// Reads the study. Bytes after its last complete line are cut off.
    pub(super) fn read_study(&mut self, known: &mut Known) -> Result<(), JournalError> {
        self.locked(|journal| {
            known.replay = Replay::of(journal.file.path(), &known.name)?;
            if !journal.file.go_on_behind(known.replay.length)? {
                let path = journal.file.path().to_owned();
                return Err(Replay::damage(&path, &known.name).unwrap_or(JournalError::Behind { path }));
            }
            Ok(())
        })
    }

    /// Appends facts after the lines of other programs, which are applied first, so that `due` can depend on them. No other
    /// program appends meanwhile.
    fn append<'a>(&mut self, known: &mut Known, due: impl FnOnce(&Known) -> Vec<Fact<'a>>) -> Result<(), JournalError> {
        self.locked(|journal| {
            journal.file.catch_up()?;
            journal.apply_others(known)?;
            let facts = due(known);
            if facts.is_empty() && journal.held.is_empty() { Ok(()) } else { journal.write(known, facts) }
        })
    }

    /// Runs `action` while no other program appends.
    fn locked<T>(&mut self, action: impl FnOnce(&mut InFile) -> Result<T, JournalError>) -> Result<T, JournalError> {
        self.file.check_is_whole()?;
        self.file.take_lock()?;
        let done = action(self);
        self.file.give_lock_back();
        done
    }

    /// Appends the facts that were held back and these facts, and then applies these facts to the records. The lock is
    /// held, and the lines of others have been applied.
    fn write(&mut self, known: &mut Known, facts: Vec<Fact<'_>>) -> Result<(), JournalError> {
        let mut text = std::mem::take(&mut self.held);
        let is_acknowledged = !text.is_empty();
        text.extend(facts.iter().map(|fact| encode::encode(fact, &self.worker_id)));
        let survives = if self.is_holding { Survives::Process } else { Survives::Machine };
        let written = self.file.write(&text, survives);
        // The caller learns that these facts are lost; the callers that recorded the held-back facts cannot learn it any
        // more.
        self.file.is_behind |= written.is_err() && is_acknowledged;
        written?;
        known.apply(facts);
        Ok(())
    }

    /// Applies the new lines of other programs, as when the study is opened.
    fn apply_others(&mut self, known: &mut Known) -> Result<(), JournalError> {
        let lines = self.file.take_others();
        if lines.is_empty() {
            return Ok(());
        }
        known.has_news = true;
        let (path, study) = (self.file.path().to_owned(), known.name.as_str());
        known.replay.go_on(&lines, &path, study).map_err(|error| {
            // From here on the records and the file differ. Only the whole file gives the number of the damaged line.
            self.file.is_behind = true;
            Replay::damage(&path, study).unwrap_or(error)
        })
    }
}

impl Storage for InFile {
    fn begin_study(
        &mut self,
        known: &mut Known,
        due: &dyn Fn(&Known) -> Vec<Fact<'static>>,
    ) -> Result<(), JournalError> {
        self.append(known, due)
    }

    fn read_others(&mut self, known: &mut Known) -> Result<(), JournalError> {
        self.file.read_others()?;
        self.apply_others(known)
    }

    fn record(&mut self, known: &mut Known, facts: Vec<Fact<'_>>) -> Result<(), JournalError> {
        if !self.is_holding {
            return self.append(known, |_| facts);
        }
        self.file.check_is_whole()?;
        self.held.extend(facts.iter().map(|fact| encode::encode(fact, &self.worker_id)));
        known.apply(facts);
        Ok(())
    }

    fn hold(&mut self) {
        self.is_holding = true;
    }

    fn release(&mut self, known: &mut Known) -> Result<(), JournalError> {
        self.is_holding = false;
        self.sync(known)
    }

    fn sync(&mut self, known: &mut Known) -> Result<(), JournalError> {
        self.file.check_is_whole()?;
        if !self.held.is_empty() {
            self.append(known, |_| Vec::new())?;
        }
        self.file.sync()
    }

    /// Ignores `most`: no other search adds trials.
    fn create(&mut self, known: &mut Known, trial: NewTrial, _most: Option<u64>) -> Result<Option<u64>, JournalError> {
        self.append(known, |_| vec![Fact::TrialCreated(trial)])?;
        Ok(Some(known.replay.study.trials.len() as u64 - 1))
    }

    fn begin(&mut self, known: &mut Known, number: u64, times: Times) -> Result<bool, JournalError> {
        let fact = TrialFact::State { state: TrialState::Running, values: Vec::new(), times };
        let mut is_free = false;
        self.append(known, |known| {
            is_free = known.replay.study.trials[number as usize].is_enqueued();
            if is_free { vec![Fact::Trial { number, fact }] } else { Vec::new() }
        })?;
        Ok(is_free)
    }
}

/// The id by which Optuna distinguishes the writers of a journal. A line of ours, which has this prefix, must have a
/// checksum.
fn worker_id() -> String {
    format!("{}{}-{:x}", line::WORKER_PREFIX, std::process::id(), seed::draw())
}
