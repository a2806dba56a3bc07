//! A search whose trials run in the thread that asks for them: the same oracle, journal and records, without processes.
//! Contains nothing and watches no memory: what a trial does to its process, it does to the search.

use super::failures::Failures;
use super::ledger::{Ledger, Question, Told, unfinished};
use super::outcome::{Answer, Outcome, pruned_values};
use super::{SupervisorError, files};
use crate::event::Finish;
use crate::journal::Journal;
use crate::oracle::{self, Next, Oracle};
use crate::record::{Ending, TrialRecord};
use crate::spec::StudySpec;
use crate::wire::{Reply, Request};
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// When the facts of a trial are written to disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writing {
    /// Each before the call that tells it returns.
    EachFact,
    /// The beginning at once, the rest together when the next trial begins or this one has a checkpoint; one that is cut
    /// off before begins again. They survive the process then, and the machine some milliseconds later; both at once
    /// after [`Local::sync`].
    EachTrial,
}

/// A search that is open in this process.
pub struct Local {
    spec: StudySpec,
    folder: PathBuf,
    journal: Journal,
    oracle: Box<dyn Oracle>,
    trials: Vec<TrialRecord>,
    /// Trials that an earlier process left in the middle.
    unfinished: VecDeque<u64>,
    /// Trials that have begun here and not ended.
    running: BTreeMap<u64, Running>,
    /// Trials with an ending.
    ended: u64,
    failures: Failures,
    started: Instant,
    is_stopping: bool,
}

/// A trial that runs.
struct Running {
    began: Instant,
    told: Told,
    outcome: Option<Outcome>,
    returned: bool,
    /// One whose facts are written as they come is asked for and told by a program that knows its own failures.
    writing: Writing,
}

impl Local {
    /// Opens the study that is asked for, or begins it. Fails as [`Journal::open`] and [`oracle::create`] do.
    pub fn open(asked: &StudySpec) -> Result<Local, SupervisorError> {
        oracle::create(asked)?;
        let folder = asked.directory.join(&asked.project);
        let (journal, trials) = Journal::open(&folder, &files::stored(asked))?;
        files::remove_all_leftovers(&folder, &trials)?;
        let spec = journal.spec().clone();
        let oracle = oracle::create(&spec)?;
        let mut local = Local {
            spec,
            folder,
            journal,
            oracle,
            unfinished: unfinished(&trials),
            failures: Failures::after(&trials),
            trials,
            running: BTreeMap::new(),
            ended: 0,
            started: Instant::now(),
            is_stopping: false,
        };
        local.count();
        let enqueued = local.ledger().enqueue(&asked.given.enqueued)?;
        local.unfinished.extend(enqueued);
        Ok(local)
    }

    fn ledger(&mut self) -> Ledger<'_> {
        let (spec, journal, oracle, trials) = (&self.spec, &mut self.journal, &mut *self.oracle, &mut self.trials);
        Ledger { spec, journal, oracle, trials }
    }

    /// The study's folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// All trials, by number.
    pub fn trials(&self) -> &[TrialRecord] {
        &self.trials
    }

    /// Takes the search up again, after a stop or at the end of its time.
    pub fn go_on(&mut self) {
        (self.is_stopping, self.started) = (false, Instant::now());
    }

    /// Has running trials stop at their next report, and begins no other.
    pub fn stop(&mut self) {
        self.is_stopping = true;
    }

    /// Begins the trial that is to run next, or says why there is none.
    pub fn begin(&mut self, writing: Writing) -> Result<Result<u64, Finish>, SupervisorError> {
        match writing {
            Writing::EachTrial => self.journal.hold(),
            Writing::EachFact => self.journal.release()?,
        }
        let number = match self.next()? {
            Ok(number) => number,
            Err(finish) => return Ok(Err(finish)),
        };
        let study = self.folder.clone();
        self.ledger().provide_checkpoints(number, &study)?;
        let (began, told, outcome, returned) = (Instant::now(), Told::default(), None, false);
        let running = Running { began, told, outcome, returned, writing };
        self.running.insert(number, running);
        Ok(Ok(number))
    }

    fn next(&mut self) -> Result<Result<u64, Finish>, SupervisorError> {
        loop {
            if self.is_stopping {
                return Ok(Err(Finish::Interrupted));
            }
            if self.spec.timeout_s.is_some_and(|limit| self.started.elapsed().as_secs_f64() >= limit) {
                return Ok(Err(Finish::Timeout));
            }
            let (journal, oracle, trials) = (&mut self.journal, &mut *self.oracle, &mut self.trials);
            let mut ledger = Ledger { spec: &self.spec, journal, oracle, trials };
            if ledger.hear_others(&mut self.unfinished)? {
                self.count();
            }
            if self.ended >= self.spec.max_trials {
                return Ok(Err(Finish::MaxTrials));
            }
            if let Some(number) = self.unfinished.pop_front() {
                if self.ledger().take_up(number)? {
                    return Ok(Ok(number));
                }
                continue;
            }
            let running: Vec<u64> = self.running.keys().copied().collect();
            match self.oracle.next(&self.trials, &running) {
                Next::New if (self.trials.len() as u64) < self.spec.max_trials => {
                    return Ok(Ok(self.journal.begin_trial(&mut self.trials)?));
                }
                Next::Continue { trial } => return Ok(Ok(trial)),
                Next::Prune { trial } => self.prune(trial)?,
                // What has been asked for and not told yet has to come first.
                Next::New | Next::Wait => return Ok(Err(Finish::MaxTrials)),
                // Those without an ending are another program's.
                Next::Exhausted if self.trials.len() as u64 >= self.spec.max_trials => {
                    return Ok(Err(Finish::MaxTrials));
                }
                Next::Exhausted => return Ok(Err(Finish::Exhausted)),
            }
        }
    }

    /// Counts the trials again after other programs have written some.
    fn count(&mut self) {
        self.ended = self.trials.iter().filter(|trial| trial.ending.is_some()).count() as u64;
    }

    fn prune(&mut self, number: u64) -> Result<(), SupervisorError> {
        let record = &mut self.trials[number as usize];
        (record.ending, record.values) = (Some(Ending::Pruned), pruned_values(record, &self.spec));
        self.journal.trial_ended(record)?;
        self.ended += 1;
        Ok(())
    }

    /// Answers a request of the trial `number`, which runs.
    pub fn answer(&mut self, number: u64, request: Request) -> Result<Reply, SupervisorError> {
        let refused = |reason| Ok(Reply::Refused { reason });
        let is_stopping = self.is_stopping;
        let Some(running) = self.running.get_mut(&number).filter(|running| running.outcome.is_none()) else {
            return refused(format!("trial {number} has ended already; ask for another"));
        };
        let (spec, journal, oracle, trials) = (&self.spec, &mut self.journal, &mut *self.oracle, &mut self.trials);
        let mut ledger = Ledger { spec, journal, oracle, trials };
        let answer = match request {
            Request::Hello => {
                let folder = self.folder.join("trials").join(number.to_string());
                return Ok(Reply::Assignment(ledger.assignment(number, &folder)));
            }
            Request::Suggest { name, distribution, default, place } => {
                return match ledger.suggest(number, Question { name, distribution, default, place })? {
                    Ok(value) => Ok(Reply::Value { value }),
                    Err(reason) => refused(reason),
                };
            }
            Request::Epochs { total, resume_at } => {
                return match ledger.epochs(number, total)? {
                    Ok(stop) => {
                        running.told.epochs = Some((stop, total));
                        Ok(Reply::Epochs { start: resume_at.min(stop), stop })
                    }
                    Err(reason) => refused(reason),
                };
            }
            Request::Report { step, metrics } => {
                if let Err(reason) = ledger.report(number, running.told, step, &metrics)? {
                    return refused(reason);
                }
                running.told.to_stop |= is_stopping;
                running.told.to_prune |= !running.told.to_stop && self.oracle.prunes(number, &self.trials);
                return Ok(Reply::Verdict { verdict: running.told.verdict() });
            }
            Request::Checkpoint { step, file } => {
                ledger.checkpoint(number, step, &file)?;
                // The objective goes on in the belief that it is safe.
                self.journal.sync()?;
                return Ok(Reply::Done);
            }
            Request::Finish { values } => {
                running.returned = true;
                Answer::Returned(values.into_iter().map(|value| value.filter(|value| value.is_finite())).collect())
            }
            Request::Postpone { reason } => Answer::Postponed(reason),
            Request::DiskFull { reason } => {
                self.running.remove(&number);
                self.unfinished.push_back(number);
                return Err(SupervisorError::DiskFull { number, reason });
            }
            Request::Fail { ending } => Answer::Broke(ending),
        };
        let told = running.told;
        ledger.record_mut(number).seconds += running.began.elapsed().as_secs_f64();
        running.outcome = Some(ledger.settle(number, answer, told)?);
        Ok(Reply::Done)
    }

    /// Puts all that the trials have told on disk.
    pub fn sync(&mut self) -> Result<(), SupervisorError> {
        Ok(self.journal.release()?)
    }

    /// Takes leave of a trial that has given its last word; an error ends the search.
    pub fn conclude(&mut self, number: u64) -> Result<&TrialRecord, SupervisorError> {
        let record = &self.trials[number as usize];
        if let Some(Running { outcome: Some(outcome), returned, writing, .. }) = self.running.remove(&number) {
            self.ended += u64::from(record.ending.is_some());
            match outcome {
                Outcome::Executed => self.unfinished.push_front(number),
                Outcome::Interrupted => self.unfinished.push_back(number),
                Outcome::Postponed { reason } => {
                    self.unfinished.push_back(number);
                    return Err(SupervisorError::Postponed { number, reason });
                }
                Outcome::Paused { .. } | Outcome::Ended { .. } => {}
            }
            if writing == Writing::EachTrial {
                let reports_were_due = !returned && !record.metrics.is_empty();
                self.failures.judge(&self.spec, record, &outcome, reports_were_due)?;
            }
        }
        Ok(record)
    }
}

impl std::fmt::Debug for Local {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Local").field("folder", &self.folder).field("trials", &self.trials.len()).finish()
    }
}
