//! The driver of a search whose trials run in the calling thread: the same oracles, journal and records, without processes.
//! It isolates no trial and watches no memory: a trial that harms its process harms the search.

pub use crate::search::SearchError;
use crate::search::{self, Outcome, RunningTrial, Search, Step};
use ferrotune_journal::Journal;
use ferrotune_journal::study_folder;
use ferrotune_space::Parameter;
use ferrotune_space::event::Finish;
use ferrotune_space::record::TrialRecord;
use ferrotune_space::spec::{StudySpec, Supervision};
use ferrotune_space::wire::{Reply, Request};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

/// The time at which the facts of a trial are written to disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writing {
    /// Each fact is on disk before the call that records it returns.
    EachFact,
    /// The beginning of a trial is written at once, and its other facts together, when the next trial begins or this trial
    /// has a checkpoint. A trial that is interrupted before that begins again. Written facts survive the process at once,
    /// and the machine some milliseconds later. After [`InProcessSearch::sync`] all facts survive both.
    EachTrial,
}

/// The answer to a request for the next trial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Begun {
    /// This trial is running now.
    Trial(u64),
    /// The oracle has ended this waiting trial. Ask again.
    Ended(u64),
    /// The oracle waits for these running trials.
    Waiting(Vec<u64>),
    /// The search is over.
    Over(Finish),
}

/// A search that is open in this process.
pub struct InProcessSearch {
    search: Search,
    /// The trials that have begun in this process and have not ended.
    running: BTreeMap<u64, Running>,
    /// The seconds that trials have run in this process and that the journal will contain once the trials end.
    unrecorded_s: BTreeMap<u64, f64>,
    started: Instant,
    is_stopping: bool,
}

/// A running trial.
struct Running {
    trial: RunningTrial,
    began: Instant,
    /// The time at which its facts are written. A program that asks for trials and has each fact written at once judges
    /// failures itself.
    writing: Writing,
}

impl InProcessSearch {
    /// Opens or begins the study that `asked` describes. Fails as [`Journal::open`] and [`ferrotune_oracle::create`] do.
    pub fn open(asked: &StudySpec) -> Result<InProcessSearch, SearchError> {
        ferrotune_oracle::create(asked)?;
        let asked = &search::warmed(asked)?;
        // While a trial runs, this thread could send no heartbeat.
        let supervision = Supervision { heartbeat_s: 0, ..asked.supervision.clone() };
        let asked = &StudySpec { supervision, ..asked.clone() };
        let folder = asked.directory.join(&asked.project);
        let journal = Journal::open(&folder, &study_folder::stored(asked))?;
        study_folder::remove_all_leftovers(&folder, journal.trials())?;
        let supervision = journal.spec().supervision.clone();
        let mut search = Search::new(journal, folder, supervision)?;
        search.enqueue(&asked.given.enqueued)?;
        let (running, unrecorded_s) = (BTreeMap::new(), BTreeMap::new());
        Ok(InProcessSearch { search, running, unrecorded_s, started: Instant::now(), is_stopping: false })
    }

    /// The study's folder.
    pub fn folder(&self) -> &Path {
        &self.search.folder
    }

    /// All trials, by number.
    pub fn trials(&self) -> &[TrialRecord] {
        self.search.trials()
    }

    /// Adds a finished trial that was run elsewhere, with its parameters and a value for each objective, and writes the
    /// trial to disk.
    pub fn add(
        &mut self,
        parameters: &BTreeMap<String, Parameter>,
        values: Vec<f64>,
    ) -> Result<&TrialRecord, SearchError> {
        let number = self.search.add(parameters, values)?;
        self.sync()?;
        Ok(self.search.record(number))
    }

    /// Continues the search after a stop, or after its time limit.
    pub fn go_on(&mut self) {
        (self.is_stopping, self.started) = (false, Instant::now());
        self.search.is_stopped = false;
    }

    /// Makes running trials stop at their next report, and begins no other trial.
    pub fn stop(&mut self) {
        self.is_stopping = true;
    }

    /// Begins the next trial, or returns why there is none.
    pub fn begin(&mut self, writing: Writing) -> Result<Begun, SearchError> {
        match writing {
            Writing::EachTrial => self.search.journal.hold(),
            Writing::EachFact => self.search.journal.release()?,
        }
        if self.is_stopping {
            return Ok(Begun::Over(Finish::Interrupted));
        }
        if self.search.spec.timeout_s.is_some_and(|limit| self.started.elapsed().as_secs_f64() >= limit) {
            return Ok(Begun::Over(Finish::Timeout));
        }
        let running: Vec<u64> = self.running.keys().copied().collect();
        Ok(match self.search.next(&running)? {
            Step::Run { trial: number } => {
                let (trial, began) = (self.search.begin(number)?, Instant::now());
                self.running.insert(number, Running { trial, began, writing });
                Begun::Trial(number)
            }
            Step::Ended { trial } => Begun::Ended(trial),
            Step::Wait => Begun::Waiting(running),
            Step::Over(finish) => Begun::Over(finish),
        })
    }

    /// Answers a request of the running trial `number`.
    pub fn answer(&mut self, number: u64, request: &Request) -> Result<Reply, SearchError> {
        let Some(Running { trial, began, .. }) = self.running.get_mut(&number) else {
            return Ok(Reply::Refused { reason: format!("trial {number} has ended already; ask for another") });
        };
        let earlier_s = self.unrecorded_s.get(&number).copied().unwrap_or_default();
        trial.unrecorded_s = earlier_s + began.elapsed().as_secs_f64();
        let reply = self.search.answer(trial, request, self.is_stopping)?;
        if matches!(request, Request::Checkpoint { .. }) {
            // The objective continues on the assumption that its checkpoint is safe.
            self.search.journal.sync()?;
        }
        Ok(reply)
    }

    /// Writes all facts that the trials have recorded to disk.
    pub fn sync(&mut self) -> Result<(), SearchError> {
        Ok(self.search.journal.release()?)
    }

    /// Ends a trial that has given its result; an error ends the search.
    pub fn conclude(&mut self, number: u64) -> Result<&TrialRecord, SearchError> {
        if let Some(Running { trial, writing, .. }) = self.running.remove(&number)
            && let Some(outcome) = &trial.outcome
        {
            match outcome {
                Outcome::Paused { .. } | Outcome::Ended { .. } => self.unrecorded_s.remove(&number),
                Outcome::Executed | Outcome::Interrupted | Outcome::Postponed(_) => {
                    self.unrecorded_s.insert(number, trial.unrecorded_s)
                }
            };
            self.search.put_back(number, outcome);
            if let Outcome::Postponed(obstacle) = outcome {
                return Err(obstacle.clone().of_trial(number));
            }
            if writing == Writing::EachTrial {
                self.search.judge(&trial, outcome)?;
            }
        }
        Ok(self.search.record(number))
    }
}

impl std::fmt::Debug for InProcessSearch {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (folder, trials) = (self.folder(), self.trials().len());
        formatter.debug_struct("InProcessSearch").field("folder", &folder).field("trials", &trials).finish()
    }
}
