//! ASHA (Li et al. 2020, A System for Massively Parallel Hyperparameter Tuning, MLSys): successive halving that never
//! waits for other trials. A trial continues as soon as it is among the best third of the trials that have trained as long;
//! the sampler chooses values. Keeps only a cache of the records.

use super::hyperband::{self, Halving};
use super::sampler::{Sampler, Suggestions};
use super::settings::{Settings, loss};
use super::text::{SettingError, SettingsText};
use super::{Next, Oracle, is_idle, random, wind_up};
use ferrotune_space::objective::Objective;
use ferrotune_space::record::{Ending, TrialRecord};
use ferrotune_space::{Distribution, Value};

/// Asynchronous successive halving, with rungs from one epoch on. If there are several brackets, each begins one rung later
/// than the one before it.
#[derive(Debug)]
pub(super) struct Asha {
    halving: Halving,
    /// Number of brackets, at least 1; brackets beyond the number of rungs are ignored.
    brackets: u64,
    seed: u64,
    objective: Objective,
    suggestions: Suggestions,
    /// The epochs that the first trial announced, until its record has them.
    total: Option<u64>,
}

impl Asha {
    /// The oracle of a search that starts `settings.max_trials` trials. The search has one objective.
    pub(super) fn new(settings: Settings, sampler: Box<dyn Sampler>) -> Asha {
        Asha {
            halving: Halving::default(),
            brackets: 1,
            seed: settings.seed,
            objective: settings.objective().clone(),
            suggestions: Suggestions::new(settings, sampler),
            total: None,
        }
    }

    /// This oracle with the settings in `text`: `factor`, `min` (the grace period) and `brackets`.
    pub(super) fn with(self, text: &SettingsText<'_>) -> Result<Asha, SettingError> {
        let brackets = text.count("brackets", 1..=20)?.unwrap_or(self.brackets);
        Ok(Asha { halving: Halving::read(text)?, brackets, ..self })
    }

    /// The epochs of each rung of the first bracket.
    fn stops(&self, resource: u64) -> Vec<u64> {
        let rungs = hyperband::rungs(resource, hyperband::most_exploratory(resource, self.halving), self.halving);
        rungs.into_iter().map(|(_, stop)| stop).collect()
    }

    /// The brackets, with their trials.
    fn ladders<'a>(&'a self, resource: u64, trials: &'a [TrialRecord]) -> Vec<Ladder<'a>> {
        let stops = self.stops(resource);
        let shares = shares(self.brackets, stops.len());
        let ladder = |first: usize| {
            let members = trials.iter().filter(|trial| self.bracket_of(trial.number, &shares) == first).collect();
            let (stops, factor) = (stops[first..].to_vec(), self.halving.factor);
            Ladder { first, stops, factor, members, objective: &self.objective }
        };
        (0..shares.len()).map(ladder).collect()
    }

    /// The bracket of a trial, which depends on its number and the seed.
    fn bracket_of(&self, trial: u64, shares: &[f64]) -> usize {
        if shares.len() == 1 {
            return 0;
        }
        let draw = random::hash(&[&self.seed.to_le_bytes(), &trial.to_le_bytes(), b"bracket"]) as f64 / u64::MAX as f64;
        let ends = shares.iter().scan(0.0, |end, share| {
            *end += share;
            Some(*end)
        });
        ends.take_while(|end| *end <= draw).count().min(shares.len() - 1)
    }
}

impl Oracle for Asha {
    fn next(&mut self, trials: &[TrialRecord], running: &[u64]) -> Next {
        let may_start = (trials.len() as u64) < self.suggestions.limit(trials);
        let Some(resource) = hyperband::resource(trials, self.total) else {
            return if may_start { Next::New } else { wind_up(trials, running) };
        };
        let ladders = self.ladders(resource, trials);
        match ladders.iter().find_map(|ladder| ladder.next_promoted(running)) {
            Some(trial) => Next::Continue { trial },
            None if may_start => Next::New,
            None => wind_up_brackets(&ladders, trials, running),
        }
    }

    fn suggest(&mut self, trial: u64, name: &str, distribution: &Distribution, trials: &[TrialRecord]) -> Value {
        self.suggestions.suggest(trial, name, distribution, trials)
    }

    fn epochs(&mut self, trial: u64, total: u64, trials: &[TrialRecord]) -> u64 {
        let resource = hyperband::resource(trials, self.total).unwrap_or(total.max(1));
        self.total.get_or_insert(resource);
        let ladders = self.ladders(resource, trials);
        let ladder = &ladders[self.bracket_of(trial, &shares(self.brackets, self.stops(resource).len()))];
        let stop = trials.get(trial as usize).map_or(ladder.stops[0], |record| ladder.stop_of(record));
        if stop >= resource { total } else { stop.min(total) }
    }

    fn planned_epochs(&self, trials: &[TrialRecord], max_trials: u64) -> Option<u64> {
        let resource = hyperband::resource(trials, self.total)?;
        let stops = self.stops(resource);
        let of_bracket = |(first, share): (usize, f64)| {
            let size = (max_trials as f64 * share).round() as u64;
            hyperband::planned_epochs(size, &stops[first..], self.halving.factor)
        };
        Some(shares(self.brackets, stops.len()).into_iter().enumerate().map(of_bracket).sum())
    }

    fn pauses(&self) -> bool {
        true
    }
}

/// The next step when no trial may begin and none is promoted.
///
/// Trials that have not reached their rung come first, because they and the running trials may still change which trial is
/// best. If no trial has then trained to the end, the best of those that have trained longest continues.
fn wind_up_brackets(ladders: &[Ladder<'_>], trials: &[TrialRecord], running: &[u64]) -> Next {
    let mut open: Vec<(&Ladder<'_>, &TrialRecord)> = Vec::new();
    for ladder in ladders {
        open.extend(ladder.members.iter().filter(|trial| is_idle(trial, running)).map(|trial| (ladder, *trial)));
    }
    if let Some((_, trial)) = open.iter().find(|(ladder, trial)| ladder.is_short(trial)) {
        return Next::Continue { trial: trial.number };
    }
    if !running.is_empty() {
        return Next::Wait;
    }
    if !trials.iter().any(|trial| trial.ending == Some(Ending::Finished)) {
        let key = |(ladder, trial): &(&Ladder<'_>, &TrialRecord)| {
            let arrived = ladder.arrived(trial);
            (ladder.first + arrived, -ladder.rank(trial, arrived))
        };
        let farthest = open.iter().max_by(|a, b| {
            key(a).0.cmp(&key(b).0).then(key(a).1.total_cmp(&key(b).1)).then(b.1.number.cmp(&a.1.number))
        });
        return farthest.map_or(Next::Exhausted, |(_, trial)| Next::Continue { trial: trial.number });
    }
    open.first().map_or(Next::Exhausted, |(_, trial)| Next::Prune { trial: trial.number })
}

/// The share of the trials that each bracket has: brackets with more rungs have more. As in Ray Tune, the number of rungs
/// is the logarithm of the share.
fn shares(brackets: u64, rungs: usize) -> Vec<f64> {
    let weights: Vec<f64> = (0..brackets.min(rungs as u64)).map(|bracket| (-(bracket as f64)).exp()).collect();
    let sum: f64 = weights.iter().sum();
    weights.into_iter().map(|weight| weight / sum).collect()
}

/// The rungs of a bracket, and the rung that each of its trials has reached.
struct Ladder<'a> {
    /// The index in the first bracket of the rung at which this bracket begins.
    first: usize,
    /// Epochs of each rung.
    stops: Vec<u64>,
    factor: u64,
    members: Vec<&'a TrialRecord>,
    objective: &'a Objective,
}

impl<'a> Ladder<'a> {
    /// The trial to promote: it waits at a rung and is among the best there, on the highest rung with such a trial.
    fn next_promoted(&self, running: &[u64]) -> Option<u64> {
        let is_free = |trial: &&TrialRecord, rung| self.waits_at(trial, rung) && is_idle(trial, running);
        let waiting = |rung| self.best(rung).into_iter().find(|trial| is_free(trial, rung));
        (0..self.stops.len() - 1).rev().find_map(waiting).map(|trial| trial.number)
    }

    /// The epoch up to which `trial` may train now.
    fn stop_of(&self, trial: &TrialRecord) -> u64 {
        let arrived = self.arrived(trial);
        let Some(rung) = arrived.checked_sub(1) else { return self.stops[0] };
        let Some(above) = self.stops.get(arrived) else { return u64::MAX };
        // A trial that has waited runs only because it was promoted, even if other trials have reached the rung since then.
        let is_named = trial.waited_at().is_some_and(|at| at >= self.stop(trial, rung));
        let is_best = || self.best(rung).iter().any(|best| best.number == trial.number);
        if is_named || is_best() { *above } else { self.stops[rung] }
    }

    /// Whether the trial has not reached its next rung; such a trial without a worker was interrupted.
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

    /// The best trials, one in `factor`, of those that have reached the end of the rung, best first.
    fn best(&self, rung: usize) -> Vec<&'a TrialRecord> {
        let members = self.members.iter().copied().filter(|trial| self.arrived(trial) > rung);
        let mut ranked: Vec<_> = members.map(|trial| (self.rank(trial, rung + 1), trial)).collect();
        ranked.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.number.cmp(&b.1.number)));
        let count = ranked.len() / self.factor as usize;
        ranked.into_iter().take(count).map(|(_, trial)| trial).collect()
    }

    /// The number of rungs that the trial has completed.
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

    /// The epoch at which a rung ends for `trial`, at most its complete training, which may be shorter than R.
    fn stop(&self, trial: &TrialRecord, rung: usize) -> u64 {
        trial.epochs.map_or(self.stops[rung], |total| total.min(self.stops[rung]))
    }
}
