//! A study in a file of its folder: facts are lines behind those of other programs. Never rewrites a line.

use super::fact::{Fact, NewTrial, TrialFact};
use super::known::Known;
use super::replay::Replay;
use super::shared_file::{SharedFile, Survives};
use super::{JournalError, encode, line};
use ferrotune_space::seed;
use std::path::Path;

/// The journal's file, and what is to be written to it.
#[derive(Debug)]
pub(super) struct InFile {
    file: SharedFile,
    worker_id: String,
    /// Whole lines that are not in the file yet.
    held: String,
    pub(super) is_holding: bool,
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

    /// Reads the study. What follows its last whole line is cut off.
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

    /// Takes in what other programs have appended.
    pub(super) fn read_others(&mut self, known: &mut Known) -> Result<(), JournalError> {
        self.file.read_others()?;
        self.apply_others(known)
    }

    /// Writes these facts, unless they are to be held back, and then changes the records by them.
    pub(super) fn record(&mut self, known: &mut Known, facts: Vec<Fact<'_>>) -> Result<(), JournalError> {
        if !self.is_holding {
            return self.append(known, |_| facts);
        }
        self.file.check_is_whole()?;
        self.held.extend(facts.iter().map(|fact| encode::encode(fact, &self.worker_id)));
        known.apply(facts);
        Ok(())
    }

    /// Appends the facts that are due behind what other programs have written, which is known then. No other program
    /// appends meanwhile.
    pub(super) fn append<'a>(
        &mut self,
        known: &mut Known,
        due: impl FnOnce(&Known) -> Vec<Fact<'a>>,
    ) -> Result<(), JournalError> {
        self.locked(|journal| {
            journal.file.catch_up()?;
            journal.apply_others(known)?;
            let facts = due(known);
            if facts.is_empty() && journal.held.is_empty() { Ok(()) } else { journal.write(known, facts) }
        })
    }

    /// Adds a trial, behind those of other programs.
    pub(super) fn create(&mut self, known: &mut Known, trial: NewTrial) -> Result<u64, JournalError> {
        self.append(known, |_| vec![Fact::TrialCreated(trial)])?;
        Ok(known.replay.study.trials.len() as u64 - 1)
    }

    /// Begins a trial that waits, unless another program has begun it; says whether it is ours.
    pub(super) fn begin(&mut self, known: &mut Known, number: u64, fact: TrialFact<'_>) -> Result<bool, JournalError> {
        let mut is_free = false;
        self.append(known, |known| {
            is_free = known.replay.study.trials[number as usize].is_enqueued();
            if is_free { vec![Fact::Trial { number, fact }] } else { Vec::new() }
        })?;
        Ok(is_free)
    }

    /// Puts all that was recorded on disk.
    pub(super) fn sync(&mut self, known: &mut Known) -> Result<(), JournalError> {
        self.file.check_is_whole()?;
        if !self.held.is_empty() {
            self.append(known, |_| Vec::new())?;
        }
        self.file.sync()
    }

    /// Does something while no other program appends.
    fn locked<T>(&mut self, action: impl FnOnce(&mut InFile) -> Result<T, JournalError>) -> Result<T, JournalError> {
        self.file.check_is_whole()?;
        self.file.take_lock()?;
        let done = action(self);
        self.file.give_lock_back();
        done
    }

    /// Appends what was held back, and these facts, by which the records change then. The lock is held, and what others
    /// have written has been applied.
    fn write(&mut self, known: &mut Known, facts: Vec<Fact<'_>>) -> Result<(), JournalError> {
        let mut text = std::mem::take(&mut self.held);
        let is_acknowledged = !text.is_empty();
        text.extend(facts.iter().map(|fact| encode::encode(fact, &self.worker_id)));
        let survives = if self.is_holding { Survives::Process } else { Survives::Machine };
        let written = self.file.write(&text, survives);
        // The caller learns that these facts are lost; the callers of what was held back cannot any more.
        self.file.is_behind |= written.is_err() && is_acknowledged;
        written?;
        known.apply(facts);
        Ok(())
    }

    /// Applies the lines of other programs that have been read, as when the study is opened.
    fn apply_others(&mut self, known: &mut Known) -> Result<(), JournalError> {
        let lines = self.file.take_others();
        if lines.is_empty() {
            return Ok(());
        }
        known.has_news = true;
        let (path, study) = (self.file.path().to_owned(), known.name.as_str());
        known.replay.go_on(&lines, &path, study).map_err(|error| {
            // From here on the records and the file differ. The whole file tells the number of the line.
            self.file.is_behind = true;
            Replay::damage(&path, study).unwrap_or(error)
        })
    }
}

/// Optuna tells the writers of a journal apart by this; a line that begins so must have a checksum.
fn worker_id() -> String {
    format!("{}{}-{:x}", line::WORKER_PREFIX, std::process::id(), seed::draw())
}
