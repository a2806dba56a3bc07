//! Hyperband (Li et al. 2018, JMLR 18): brackets of successive halving, from the most exploratory to plain random
//! search, repeatedly. Keeps only a cache of the records; the sampler chooses values.

use super::sampler::{Sampler, Suggestions};
use super::settings::{Settings, loss};
use super::text::{SettingError, SettingsText};
use super::{Next, Oracle, idle, is_idle, nothing_beside, wind_up};
use ferrotune_space::objective::Objective;
use ferrotune_space::record::{Ending, TrialRecord};
use ferrotune_space::{Distribution, Value};

/// The rungs of a search by successive halving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Halving {
    /// Eta: at each rung one trial in `factor` is promoted, to `factor` times the epochs. At least 2.
    pub(super) factor: u64,
    /// Epochs of the shortest trainings, at least 1.
    pub(super) min: u64,
}

impl Default for Halving {
    fn default() -> Halving {
        Halving { factor: 3, min: 1 }
    }
}

impl Halving {
    /// The values of `factor` and `min` in `text`, or their defaults.
    pub(super) fn read(text: &SettingsText<'_>) -> Result<Halving, SettingError> {
        let usual = Halving::default();
        let factor = text.count("factor", 2..=1000)?.unwrap_or(usual.factor);
        Ok(Halving { factor, min: text.count("min", 1..)?.unwrap_or(usual.min) })
    }
}

/// The Hyperband oracle.
///
/// The maximum resource R is the number of epochs of a complete training, which the first trial announces. A trial's
/// number determines its bracket; its reports and `paused_at` show how far it has trained.
#[derive(Debug)]
pub(super) struct Hyperband {
    order: Order,
    pub(super) halving: Halving,
    /// The number of times that all brackets run; `None` for as many as the search's limit of trials allows.
    iterations: Option<u64>,
    objective: Objective,
    pub(super) suggestions: Suggestions,
    /// The epochs that the first trial announced, until its record has them.
    total: Option<u64>,
}

/// The choice of the brackets that run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// All brackets, from the most exploratory to random search.
    All,
    /// Only the most exploratory bracket.
    MostExploratory,
}

impl Hyperband {
    /// The oracle of a search that starts `settings.max_trials` configurations in all, with values from `sampler`. The search
    /// has one objective.
    pub(super) fn new(settings: Settings, sampler: Box<dyn Sampler>) -> Hyperband {
        Hyperband {
            order: Order::All,
            halving: Halving::default(),
            iterations: None,
            objective: settings.objective().clone(),
            suggestions: Suggestions::new(settings, sampler),
            total: None,
        }
    }

    /// This oracle with the settings in `text`: `factor`, `min` and `iterations`.
    pub(super) fn with(self, text: &SettingsText<'_>) -> Result<Hyperband, SettingError> {
        Ok(Hyperband { halving: Halving::read(text)?, iterations: text.count("iterations", 1..)?, ..self })
    }

    /// Successive halving (Jamieson and Talwalkar 2016, AISTATS): the most exploratory bracket, repeatedly.
    pub(super) fn most_exploratory(settings: Settings, sampler: Box<dyn Sampler>) -> Hyperband {
        Hyperband { order: Order::MostExploratory, ..Hyperband::new(settings, sampler) }
    }

    /// The brackets in the order in which they run, up to the one that starts the last of `max_trials` configurations.
    fn brackets<'a>(
        &'a self,
        resource: u64,
        trials: &'a [TrialRecord],
        max_trials: u64,
    ) -> impl Iterator<Item = Bracket<'a>> {
        let (halving, s_max) = (self.halving, most_exploratory(resource, self.halving));
        let mut first = 0;
        let last = if self.order == Order::All { 0 } else { s_max };
        let rounds = self.iterations.map_or(usize::MAX, |rounds| usize::try_from(rounds).unwrap_or(usize::MAX));
        let count = rounds.saturating_mul((s_max - last) as usize + 1);
        let planned = (last..=s_max).rev().cycle().take(count).map_while(move |s| {
            let start = first;
            let rungs = rungs(resource, s, halving);
            first += rungs[0].0;
            let limit = max_trials.max(trials.len() as u64);
            (start < limit).then(|| Bracket::new(start, rungs, (limit, halving.factor), trials, &self.objective))
        });
        planned.fuse()
    }

    /// The epoch (exclusive) up to which `trial`, of `total` epochs in all, may train now, in a search of `max_trials`.
    fn stop_of(&self, trial: u64, total: u64, resource: u64, (trials, max_trials): (&[TrialRecord], u64)) -> u64 {
        // The record of a trial that begins may not be in `trials` yet, but its number is below this limit.
        let limit = max_trials.max(trial + 1);
        let bracket = self.brackets(resource, trials, limit).find(|bracket| bracket.holds(trial));
        let rung_stop = bracket.map_or(resource, |bracket| bracket.stop_of(trial));
        if rung_stop >= resource { total } else { rung_stop.min(total) }
    }

    /// The first open trial that has not trained all its allowed epochs, or that has trained them all and
    /// returned no value.
    ///
    /// Leaves out a trial that waits at the end of a rung, because its worker would return without training.
    fn first_interrupted(&self, resource: u64, search: (&[TrialRecord], u64), running: &[u64]) -> Option<u64> {
        let (trials, _) = search;
        let interrupted = |trial: &&TrialRecord| {
            let total = trial.epochs.unwrap_or(resource);
            let stop = self.stop_of(trial.number, total, resource, search);
            trial.epochs_done() < stop || stop >= total
        };
        idle(trials, running).find(interrupted).map(|trial| trial.number)
    }
}

impl Oracle for Hyperband {
    fn next(&mut self, trials: &[TrialRecord], running: &[u64]) -> Next {
        let max_trials = self.suggestions.limit(trials);
        let may_start = (trials.len() as u64) < max_trials;
        let Some(resource) = resource(trials, self.total) else {
            return if may_start { Next::New } else { wind_up(trials, running) };
        };
        let mut brackets = self.brackets(resource, trials, max_trials);
        let next = brackets.find_map(|bracket| bracket.next(may_start, running));
        let interrupted =
            || self.first_interrupted(resource, (trials, max_trials), running).map(|trial| Next::Continue { trial });
        next.or_else(interrupted).unwrap_or_else(|| nothing_beside(running))
    }

    fn suggest(&mut self, trial: u64, name: &str, distribution: &Distribution, trials: &[TrialRecord]) -> Value {
        self.suggestions.suggest(trial, name, distribution, trials)
    }

    fn epochs(&mut self, trial: u64, total: u64, trials: &[TrialRecord]) -> u64 {
        let resource = resource(trials, self.total).unwrap_or(total.max(1));
        self.total.get_or_insert(resource);
        let max_trials = self.suggestions.limit(trials);
        self.stop_of(trial, total, resource, (trials, max_trials))
    }

    fn planned_epochs(&self, trials: &[TrialRecord], max_trials: u64) -> Option<u64> {
        let resource = resource(trials, self.total)?;
        let brackets = self.brackets(resource, trials, max_trials);
        Some(brackets.map(|bracket| planned_epochs(bracket.size, &bracket.stops, bracket.factor)).sum())
    }

    fn pauses(&self) -> bool {
        true
    }
}

/// R from the first record that has it, so that it cannot change while a bracket runs; before such a record, `said`.
pub(super) fn resource(trials: &[TrialRecord], said: Option<u64>) -> Option<u64> {
    trials.iter().find_map(|trial| trial.epochs).or(said).map(|total| total.max(1))
}

/// The number of configurations and the epochs of each rung of bracket `s`, for a maximum resource `resource`.
pub(super) fn rungs(resource: u64, s: u32, halving: Halving) -> Vec<(u64, u64)> {
    let Halving { factor, min } = halving;
    let eta_s = factor.pow(s);
    let configurations = ((u64::from(most_exploratory(resource, halving)) + 1) * eta_s).div_ceil(u64::from(s) + 1);
    let rung = |i: u32| {
        let divisor = factor.pow(s - i);
        (configurations / factor.pow(i), (resource.saturating_add(divisor / 2) / divisor).max(min).min(resource))
    };
    (0..=s).map(rung).collect()
}

/// The number of epochs that `size` configurations train over rungs that end at `stops`.
pub(super) fn planned_epochs(size: u64, stops: &[u64], factor: u64) -> u64 {
    let begins = std::iter::once(&0).chain(stops);
    let rungs = stops.iter().zip(begins).enumerate();
    rungs.map(|(index, (stop, begin))| rung_size(size, index, factor) * stop.saturating_sub(*begin)).sum()
}

/// The number of configurations, of `size`, that a rung has. Even with fewer than planned, one trains to the end.
fn rung_size(size: u64, rung: usize, factor: u64) -> u64 {
    (size / factor.pow(rung as u32)).max(1)
}

/// s_max: the largest s with eta^s at most R in units of the shortest training, but at most a value that keeps a bracket's
/// size within u64.
pub(super) fn most_exploratory(resource: u64, halving: Halving) -> u32 {
    let most = (u64::MAX / 64).ilog(halving.factor);
    (resource / halving.min).max(1).ilog(halving.factor).min(most)
}

/// One bracket: its plan and its trials.
struct Bracket<'a> {
    /// The number of the bracket's first trial.
    first: u64,
    /// The number of configurations that the bracket starts: as planned, or fewer because of the search's limit.
    size: u64,
    /// The epochs of each rung.
    stops: Vec<u64>,
    factor: u64,
    members: &'a [TrialRecord],
    objective: &'a Objective,
}

/// The state of one rung.
struct Rung<'a> {
    members: Vec<&'a TrialRecord>,
    /// Whether every member has completed the rung, has ended, or is run by another program.
    complete: bool,
    /// The promoted trials, best first; empty until the rung is complete.
    promoted: Vec<&'a TrialRecord>,
}

impl<'a> Bracket<'a> {
    fn new(
        first: u64,
        rungs: Vec<(u64, u64)>,
        (limit, factor): (u64, u64),
        trials: &'a [TrialRecord],
        objective: &'a Objective,
    ) -> Bracket<'a> {
        let size = rungs[0].0.min(limit - first);
        let started = trials.len() as u64;
        // Both ends are at most `trials.len()`, which is a usize.
        let members = &trials[first.min(started) as usize..(first + size).min(started) as usize];
        let stops = rungs.into_iter().map(|(_, stop)| stop).collect();
        Bracket { first, size, stops, factor, members, objective }
    }

    fn holds(&self, trial: u64) -> bool {
        (self.first..self.first + self.size).contains(&trial)
    }

    /// The next step of this bracket; `None` if the bracket is finished or waits for running trials, so that another bracket may
    /// begin.
    fn next(&self, may_start: bool, running: &[u64]) -> Option<Next> {
        let last = self.stops.len() - 1;
        for (index, rung) in self.history().into_iter().enumerate() {
            if !rung.complete {
                let room = index == 0 && (self.members.len() as u64) < self.size && may_start;
                return room.then_some(Next::New);
            }
            if index == last {
                return None;
            }
            let waits =
                |trial: &&&TrialRecord| is_idle(trial, running) && trial.epochs_done() <= self.stop(trial, index);
            let dropped = |trial: &&&TrialRecord| !rung.promoted.iter().any(|other| other.number == trial.number);
            if let Some(loser) = rung.members.iter().filter(waits).find(dropped) {
                return Some(Next::Prune { trial: loser.number });
            }
            if let Some(winner) = rung.promoted.iter().find(waits) {
                return Some(Next::Continue { trial: winner.number });
            }
        }
        None
    }

    /// The epoch up to which `trial` may train now.
    fn stop_of(&self, trial: u64) -> u64 {
        let mut stop = self.stops[0];
        for (rung, next_stop) in self.history().iter().zip(self.stops.iter().skip(1)) {
            if rung.promoted.iter().any(|promoted| promoted.number == trial) {
                stop = *next_stop;
            }
        }
        stop
    }

    /// The rungs from the first to the first incomplete rung.
    fn history(&self) -> Vec<Rung<'a>> {
        let mut history = Vec::new();
        let mut members: Vec<&TrialRecord> = self.members.iter().collect();
        for index in 0..self.stops.len() {
            let started = index > 0 || self.members.len() as u64 == self.size;
            let is_settled = |trial: &&TrialRecord| trial.ending.is_some() || trial.runs_elsewhere();
            let arrived = |trial: &&TrialRecord| is_settled(trial) || trial.epochs_done() >= self.stop(trial, index);
            let complete = started && members.iter().all(arrived);
            let promoted = if complete { self.promote(&members, index) } else { Vec::new() };
            history.push(Rung { members, complete, promoted: promoted.clone() });
            if !complete {
                break;
            }
            members = promoted;
        }
        history
    }

    /// The best trials of a complete rung, as many as the plan promotes.
    ///
    /// A trial that was already promoted stays promoted, even if a repeated report changes the order. Trials that were
    /// pruned, have failed or are run by another program are left out, so that they do not take the place of a trial that can
    /// continue.
    fn promote(&self, members: &[&'a TrialRecord], index: usize) -> Vec<&'a TrialRecord> {
        let mut candidates: Vec<_> = members
            .iter()
            .filter(|trial| !trial.runs_elsewhere() && trial.epochs_done() >= self.stop(trial, index))
            .map(|trial| (trial.epochs_done() > self.stop(trial, index), *trial))
            .filter(|(beyond, trial)| *beyond || matches!(trial.ending, None | Some(Ending::Finished)))
            .map(|(beyond, trial)| (!beyond, self.rank(trial, index), trial))
            .collect();
        candidates.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.2.number.cmp(&b.2.number)));
        let beyond = candidates.iter().filter(|candidate| !candidate.0).count();
        let slots = rung_size(self.size, index + 1, self.factor) as usize;
        candidates.into_iter().take(slots.max(beyond)).map(|(_, _, trial)| trial).collect()
    }

    /// The sort key of a trial; small is good. A trial without a value comes last.
    fn rank(&self, trial: &TrialRecord, index: usize) -> f64 {
        let best = trial.summary_before(self.objective, self.stop(trial, index));
        best.map_or(f64::INFINITY, |value| loss(self.objective, value))
    }

    /// The epoch at which rung `index` ends for `trial`, at most its complete training, which may be shorter than R.
    fn stop(&self, trial: &TrialRecord, index: usize) -> u64 {
        trial.epochs.map_or(self.stops[index], |total| total.min(self.stops[index]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_of_81_epochs_are_those_of_the_paper() {
        // Li et al. 2018, algorithm 1: n = ceil(B / R * eta^s / (s + 1)) with B = (s_max + 1) * R.
        let usual = Halving::default();
        let table: Vec<_> = (0..=most_exploratory(81, usual)).rev().map(|s| rungs(81, s, usual)).collect();
        let paper = [
            vec![(81, 1), (27, 3), (9, 9), (3, 27), (1, 81)],
            vec![(34, 3), (11, 9), (3, 27), (1, 81)],
            vec![(15, 9), (5, 27), (1, 81)],
            vec![(8, 27), (2, 81)],
            vec![(5, 81)],
        ];
        assert_eq!(table, paper);
    }

    #[test]
    fn planned_epochs_are_those_of_every_rung() {
        assert_eq!(planned_epochs(9, &[1, 3, 9], 3), 9 + 3 * 2 + 6);
        assert_eq!(planned_epochs(2, &[1, 3, 9], 3), 2 + 2 + 6);
    }

    #[test]
    fn epochs_of_a_rung_are_rounded_to_the_nearest() {
        let usual = Halving::default();
        assert_eq!(rungs(20, 2, usual), [(9, 2), (3, 7), (1, 20)]);
        assert_eq!(rungs(1, 0, usual), [(1, 1)]);
        assert_eq!(rungs(2, 0, usual), [(1, 2)]);
    }

    #[test]
    fn factor_and_shortest_training_make_other_rungs() {
        let four = Halving { factor: 4, min: 1 };
        assert_eq!(most_exploratory(64, four), 3);
        assert_eq!(rungs(64, 3, four), [(64, 1), (16, 4), (4, 16), (1, 64)]);
        let long = Halving { factor: 3, min: 5 };
        assert_eq!(most_exploratory(81, long), 2);
        assert_eq!(rungs(81, 2, long), [(9, 9), (3, 27), (1, 81)]);
        // Rounding never makes a training shorter than the shortest, or longer than a complete training.
        assert_eq!(rungs(16, 1, long), [(3, 5), (1, 16)]);
        assert_eq!(rungs(3, 0, long), [(1, 3)]);
        for factor in [2, 3, 1000] {
            let most = most_exploratory(u64::MAX, Halving { factor, min: 1 });
            assert_eq!(rungs(u64::MAX, most, Halving { factor, min: 1 }).len() as u32, most + 1);
        }
    }
}
