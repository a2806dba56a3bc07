//! One search: the choice of the next trial, the answers to the requests of its trials, and the ends of its trials. Every
//! fact is in the journal before its answer is sent. Knows no processes and no clock: its drivers, `supervisor` and
//! `in_process`, have them.

mod addition;
mod answer;
mod error;
mod failures;
mod inheritance;
mod outcome;
mod parameter;
mod succession;
mod warm_start;

pub(crate) use answer::RunningTrial;
pub use error::SearchError;
pub(crate) use outcome::{Obstacle, Outcome};
pub(crate) use warm_start::warmed;

use failures::Failures;
use ferrotune_journal::{End, Journal, Usage};
use ferrotune_oracle::{Next, Oracle};
use ferrotune_space::event::Finish;
use ferrotune_space::given::Values;
use ferrotune_space::record::{Ending, Runner, TrialRecord};
use ferrotune_space::spec::{StudySpec, Supervision};
use std::collections::VecDeque;
use std::path::PathBuf;

/// The number of worker starts without an end or a checkpoint after which a trial is recorded as failed, because it
/// probably kills its supervisor.
const MOST_UNENDED_WORKERS: u64 = 5;

/// A search of an open study.
pub(crate) struct Search {
    /// The spec of the journal, with the seed filled in.
    pub(crate) spec: StudySpec,
    /// The study's folder.
    pub(crate) folder: PathBuf,
    pub(crate) journal: Journal,
    oracle: Box<dyn Oracle>,
    /// The trials that run before the oracle is asked: interrupted trials, enqueued trials, and trials with another
    /// execution.
    pub(crate) queue: VecDeque<u64>,
    failures: Failures,
    /// The number of trials in the study when this search began.
    earlier_trials: u64,
    /// Whether a trial has asked that no other trial begins.
    pub(crate) is_stopped: bool,
}

/// The next step of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Run {
        trial: u64,
    },
    /// A waiting trial has ended, and the search can be asked again.
    Ended {
        trial: u64,
    },
    /// Nothing begins until one of the running trials has ended.
    Wait,
    /// No further trial begins.
    Over(Finish),
}

impl Search {
    /// Makes the search of an open study, with these settings for the supervision of its trials.
    pub(crate) fn new(journal: Journal, folder: PathBuf, supervision: Supervision) -> Result<Search, SearchError> {
        let spec = StudySpec { supervision, ..journal.spec().clone() };
        let oracle = ferrotune_oracle::create(&spec)?;
        let failures = Failures::after(journal.trials());
        let queue = unfinished(journal.trials());
        let earlier_trials = journal.trials().len() as u64;
        Ok(Search { spec, folder, journal, oracle, queue, failures, earlier_trials, is_stopped: false })
    }

    /// Records an enqueued trial for each of these sets of values, to run before the oracle is asked. A set that a trial of
    /// the study already has is skipped. The best trials of the studies that this search learns from come last.
    pub(crate) fn enqueue(&mut self, enqueued: &[Values]) -> Result<(), SearchError> {
        let best: Vec<Values> = self.spec.warm_starts.iter().map(|warm_start| warm_start.best.clone()).collect();
        for preset in enqueued.iter().chain(&best) {
            if !self.trials().iter().any(|trial| trial.preset == *preset) {
                let number = self.journal.enqueue_trial(preset)?;
                self.queue.push_back(number);
            }
        }
        Ok(())
    }

    /// Whether as many trials have ended as the search allows, including the trials of other programs.
    pub(crate) fn has_all_trials(&mut self) -> Result<bool, SearchError> {
        self.hear_others()?;
        Ok(self.journal.ended() >= self.spec.max_trials)
    }

    /// Whether other searches run trials that this search takes over if those searches die. Trials of Optuna do not count,
    /// because nobody would notice that Optuna is dead. Trials that wait for more epochs do not count, either.
    pub(crate) fn others_run(&mut self) -> Result<bool, SearchError> {
        let theirs = self.trials().iter().filter(|trial| trial.runs_elsewhere() && trial.paused_at.is_none());
        let numbers: Vec<u64> = theirs.map(|trial| trial.number).collect();
        Ok(self.journal.any_has_signs(&numbers)?)
    }

    /// The number of epochs that all trials train together, if the oracle has a plan.
    pub(crate) fn planned_epochs(&self) -> Option<u64> {
        self.oracle.planned_epochs(self.trials(), self.spec.max_trials)
    }

    /// The next step of the search, given the trials in `running`.
    pub(crate) fn next(&mut self, running: &[u64]) -> Result<Step, SearchError> {
        if self.has_all_trials()? {
            return Ok(Step::Over(Finish::MaxTrials));
        }
        if self.is_stopped {
            return Ok(Step::Over(Finish::Stopped));
        }
        // A trial that another search had meanwhile may be in the queue again while its process still runs. That process
        // continues the trial.
        while let Some(place) = self.queue.iter().position(|trial| !running.contains(trial)) {
            let Some(trial) = self.queue.remove(place) else { break };
            if self.give_up(trial)? {
                return Ok(Step::Ended { trial });
            }
            if self.take_up(trial)? {
                return Ok(Step::Run { trial });
            }
        }
        let may_begin = (self.trials().len() as u64) < self.spec.max_trials;
        Ok(match self.oracle.next(self.journal.trials(), running) {
            Next::New if may_begin => match self.journal.begin_trial_within(self.spec.max_trials)? {
                Some(trial) => Step::Run { trial },
                // Other searches have begun the last trials.
                None => Step::Over(Finish::MaxTrials),
            },
            Next::Continue { trial } => Step::Run { trial },
            Next::Prune { trial } => {
                self.prune(trial)?;
                Step::Ended { trial }
            }
            // Once all trials have begun, the end of a trial changes the next step only if trials are paused.
            Next::Wait if !running.is_empty() && (may_begin || self.oracle.pauses()) => Step::Wait,
            Next::Wait | Next::Exhausted if may_begin => Step::Over(Finish::Exhausted),
            // A trial without an ending that does not run here belongs to another program.
            Next::New | Next::Wait | Next::Exhausted => Step::Over(Finish::MaxTrials),
        })
    }

    /// Reads the facts that other programs have written, and appends the trials that they have enqueued to the queue. Takes
    /// over the trials of dead searches.
    fn hear_others(&mut self) -> Result<(), SearchError> {
        if self.journal.read_on()? {
            let enqueued = self.journal.trials().iter().filter(|trial| trial.is_enqueued()).map(|trial| trial.number);
            let new: Vec<u64> = enqueued.filter(|number| !self.queue.contains(number)).collect();
            self.queue.extend(new);
        }
        self.succeed_the_dead()
    }

    /// Ends a trial during which its supervisor, or the machine, has died too often. Returns whether it did.
    fn give_up(&mut self, number: u64) -> Result<bool, SearchError> {
        let record = self.record(number);
        let unended = record.unended_workers;
        if unended < MOST_UNENDED_WORKERS || record.ending.is_some() {
            return Ok(false);
        }
        let reason = format!("its supervisor or the machine went down {unended} times in a row while it ran");
        let end = End::without_value(Ending::Failed { reason }, record);
        self.journal.trial_ended(number, Usage::of(self.record(number)), end)?;
        Ok(true)
    }

    /// Takes a trial from the queue, unless another program has begun or ended the trial meanwhile. Returns whether the
    /// trial may run.
    fn take_up(&mut self, number: u64) -> Result<bool, SearchError> {
        let record = self.record(number);
        Ok(match record.runner {
            Runner::Search => record.ending.is_none(),
            Runner::Nobody => self.journal.begin_enqueued_trial(number)?,
            Runner::Other => false,
        })
    }

    /// Ends a waiting trial that the oracle prunes.
    fn prune(&mut self, number: u64) -> Result<(), SearchError> {
        let record = self.record(number);
        let values = outcome::pruned_values(record, &self.spec);
        let end = End { values, ..End::without_value(Ending::Pruned, record) };
        Ok(self.journal.trial_ended(number, Usage::of(record), end)?)
    }

    /// Puts a trial that no longer runs back into the queue: at the front for another execution, at the end after an
    /// interruption or a postponement. The oracle decides about a paused trial.
    pub(crate) fn put_back(&mut self, number: u64, outcome: &Outcome) {
        match outcome {
            Outcome::Executed => self.queue.push_front(number),
            // A trial that has come back from another search is already in the queue.
            Outcome::Interrupted | Outcome::Postponed(_) if !self.queue.contains(&number) => {
                self.queue.push_back(number)
            }
            Outcome::Interrupted | Outcome::Postponed(_) | Outcome::Paused { .. } | Outcome::Ended { .. } => {}
        }
    }

    /// Decides whether the search can continue after this outcome of a trial; an error ends the search.
    pub(crate) fn judge(&mut self, trial: &RunningTrial, outcome: &Outcome) -> Result<(), SearchError> {
        let record = &self.journal.trials()[trial.number as usize];
        if let (Some(epochs), Outcome::Paused { .. }) = (trial.continued_from, outcome)
            && record.epochs_done() <= epochs
            && !trial.instructions.to_stop
        {
            return Err(SearchError::Stuck { number: trial.number, epochs });
        }
        // An objective that breaks after its first report had the chance to report every metric.
        let reports_were_due = !trial.has_returned && trial.outcome.is_some() && !record.metrics.is_empty();
        self.failures.judge(&self.spec, record, outcome, reports_were_due)
    }

    /// All trials, by number.
    pub(crate) fn trials(&self) -> &[TrialRecord] {
        self.journal.trials()
    }

    /// The record of a trial. A trial's number is its position, because every trial that was ever started has its record.
    pub(crate) fn record(&self, number: u64) -> &TrialRecord {
        &self.trials()[number as usize]
    }
}

/// The numbers of trials that an earlier search has interrupted, or that wait to begin.
fn unfinished(trials: &[TrialRecord]) -> VecDeque<u64> {
    let unfinished = trials.iter().filter(|trial| trial.ending.is_none() && trial.paused_at.is_none());
    unfinished.filter(|trial| trial.runner != Runner::Other).map(|trial| trial.number).collect()
}
