//! ASHA (Li et al. 2020, A System for Massively Parallel Hyperparameter Tuning, MLSys): successive halving that never
//! waits for other trials. A trial continues as soon as it is among the best third of those that have trained as long;
//! the sampler chooses values. Keeps only what the records contain.

use super::hyperband::{self, ETA};
use super::sampler::{Sampler, Suggestions};
use super::settings::{Settings, loss};
use super::{Next, Oracle, idle, is_idle, wind_up};
use crate::record::{Ending, TrialRecord};
use crate::space::{Distribution, Value};
use crate::spec::Objective;

/// Asynchronous successive halving with eta 3, from rungs of one epoch on.
#[derive(Debug)]
pub(super) struct Asha {
    objective: Objective,
    suggestions: Suggestions,
    /// The epochs that the first trial announced, until its record has them.
    total: Option<u64>,
}

impl Asha {
    /// A search that starts `settings.max_trials` trials. There is one objective.
    pub(super) fn new(settings: Settings, sampler: Box<dyn Sampler>) -> Asha {
        let objective = settings.objective().clone();
        Asha { objective, suggestions: Suggestions::new(settings, sampler), total: None }
    }

    fn ladder<'a>(&'a self, resource: u64, trials: &'a [TrialRecord]) -> Ladder<'a> {
        let rungs = hyperband::rungs(resource, hyperband::most_exploratory(resource));
        Ladder { stops: rungs.into_iter().map(|(_, stop)| stop).collect(), trials, objective: &self.objective }
    }
}

impl Oracle for Asha {
    fn next(&mut self, trials: &[TrialRecord], running: &[u64]) -> Next {
        let may_start = (trials.len() as u64) < self.suggestions.limit(trials);
        let Some(resource) = hyperband::resource(trials, self.total) else {
            return if may_start { Next::New } else { wind_up(trials, running) };
        };
        let ladder = self.ladder(resource, trials);
        match ladder.next_promoted(running) {
            Some(trial) => Next::Continue { trial },
            None if may_start => Next::New,
            None => ladder.wind_up(running),
        }
    }

    fn suggest(&mut self, trial: u64, name: &str, distribution: &Distribution, trials: &[TrialRecord]) -> Value {
        self.suggestions.suggest(trial, name, distribution, trials)
    }

    fn epochs(&mut self, trial: u64, total: u64, trials: &[TrialRecord]) -> u64 {
        let resource = hyperband::resource(trials, self.total).unwrap_or(total.max(1));
        self.total.get_or_insert(resource);
        let ladder = self.ladder(resource, trials);
        let stop = trials.get(trial as usize).map_or(ladder.stops[0], |record| ladder.stop_of(record));
        if stop >= resource { total } else { stop.min(total) }
    }

    fn planned_epochs(&self, trials: &[TrialRecord], max_trials: u64) -> Option<u64> {
        let resource = hyperband::resource(trials, self.total)?;
        Some(hyperband::planned_epochs(max_trials, &self.ladder(resource, trials).stops))
    }

    fn pauses(&self) -> bool {
        true
    }
}

/// The rungs, and the rung that each trial has reached.
struct Ladder<'a> {
    /// Epochs of each rung.
    stops: Vec<u64>,
    trials: &'a [TrialRecord],
    objective: &'a Objective,
}

impl<'a> Ladder<'a> {
    /// A trial that waits at a rung and is among its best, on the highest rung that has one.
    fn next_promoted(&self, running: &[u64]) -> Option<u64> {
        let is_free = |trial: &&TrialRecord, rung| self.waits_at(trial, rung) && is_idle(trial, running);
        let waiting = |rung| self.best(rung).into_iter().find(|trial| is_free(trial, rung));
        (0..self.stops.len() - 1).rev().find_map(waiting).map(|trial| trial.number)
    }

    /// The next step when no trial may begin and none is promoted.
    ///
    /// Trials that have not reached their rung come first, because they may still change which trial is best, and so
    /// may running trials. If no trial has trained to the end then, the best of those that have trained longest does.
    fn wind_up(&self, running: &[u64]) -> Next {
        let open = || idle(self.trials, running);
        if let Some(trial) = open().find(|trial| self.is_short(trial)) {
            return Next::Continue { trial: trial.number };
        }
        if !running.is_empty() {
            return Next::Wait;
        }
        if !self.trials.iter().any(|trial| trial.ending == Some(Ending::Finished)) {
            let farthest = open().max_by(|a, b| {
                let key = |trial: &TrialRecord| (self.arrived(trial), -self.rank(trial, self.arrived(trial)));
                key(a).0.cmp(&key(b).0).then(key(a).1.total_cmp(&key(b).1)).then(b.number.cmp(&a.number))
            });
            return farthest.map_or(Next::Exhausted, |trial| Next::Continue { trial: trial.number });
        }
        open().next().map_or(Next::Exhausted, |trial| Next::Prune { trial: trial.number })
    }

    /// The epoch up to which `trial` may train now.
    fn stop_of(&self, trial: &TrialRecord) -> u64 {
        let arrived = self.arrived(trial);
        let Some(rung) = arrived.checked_sub(1) else { return self.stops[0] };
        let Some(above) = self.stops.get(arrived) else { return u64::MAX };
        // A trial that has waited runs only because it was promoted, whichever trials have reached the rung since.
        let is_named = trial.waited_at().is_some_and(|at| at >= self.stop(trial, rung));
        let is_best = || self.best(rung).iter().any(|best| best.number == trial.number);
        if is_named || is_best() { *above } else { self.stops[rung] }
    }

    /// Whether it has not reached its next rung; if it has no worker, it was interrupted.
    fn is_short(&self, trial: &TrialRecord) -> bool {
        let total = trial.epochs.unwrap_or(u64::MAX);
        let is_on_its_way = match self.arrived(trial).checked_sub(1) {
            None => true,
            Some(rung) => !self.waits_at(trial, rung),
        };
        is_on_its_way || trial.epochs_done() >= total
    }

    fn waits_at(&self, trial: &TrialRecord, rung: usize) -> bool {
        trial.ending.is_none() && trial.epochs_done() == self.stop(trial, rung)
    }

    /// The best third of the trials that have reached the end of the rung, best first.
    fn best(&self, rung: usize) -> Vec<&'a TrialRecord> {
        let members = self.trials.iter().filter(|trial| self.arrived(trial) > rung);
        let mut ranked: Vec<_> = members.map(|trial| (self.rank(trial, rung + 1), trial)).collect();
        ranked.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.number.cmp(&b.1.number)));
        let count = ranked.len() / ETA as usize;
        ranked.into_iter().take(count).map(|(_, trial)| trial).collect()
    }

    /// Number of rungs that the trial has completed.
    fn arrived(&self, trial: &TrialRecord) -> usize {
        (0..self.stops.len()).take_while(|rung| trial.epochs_done() >= self.stop(trial, *rung)).count()
    }

    /// The sort key of a trial: its best value on the first `rungs` rungs, where small is good. A trial without a value
    /// comes last.
    fn rank(&self, trial: &TrialRecord, rungs: usize) -> f64 {
        let stop = rungs.checked_sub(1).map_or(0, |rung| self.stop(trial, rung));
        let best = trial.summary_before(self.objective, stop);
        best.map_or(f64::INFINITY, |value| loss(self.objective, value))
    }

    /// The epoch at which a rung ends for `trial`, at most its whole training, which may be shorter than R.
    fn stop(&self, trial: &TrialRecord, rung: usize) -> u64 {
        trial.epochs.map_or(self.stops[rung], |total| total.min(self.stops[rung]))
    }
}
