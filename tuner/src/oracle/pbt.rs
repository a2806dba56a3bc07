//! Population-based training (Jaderberg et al. 2017, arXiv:1711.09846): trials train at the same time, and at regular
//! epochs copies of the best trials replace the worst. A copy continues from its original's checkpoint with changed
//! parameters.
//!
//! A copy is a separate trial, so a record always has the parameters that the trial was trained with. Only floats
//! change, because a checkpoint fits only one number of layers and the like. Keeps only what the records contain.

use super::qmc::Qmc;
use super::random::{self, generator};
use super::sampler::Suggestions;
use super::settings::{Settings, loss};
use super::{Next, Oracle, hyperband, is_idle, wind_up};
use crate::record::{Ending, TrialRecord};
use crate::space::{Distribution, Scale, Value};
use rand::RngExt;
use std::collections::BTreeMap;

/// Trials of a population; after it has trained to the end, another population begins.
const POPULATION: u64 = 12;
/// Number of trials that are replaced at a time, by copies of as many of the best.
const REPLACED: usize = 3;
/// How often a population's trials are compared during a training.
const GENERATIONS: u64 = 10;
/// Probability that a copy's parameter is a new draw and not a changed value.
const RESAMPLING: f64 = 0.25;
/// Factor, up or down, by which a parameter on a logarithmic scale is moved on average.
const FACTOR: f64 = 1.25;
/// Share of its range by which any other parameter is moved on average.
const MOVE: f64 = 0.1;

/// Population-based training. An objective without epochs is searched like a Sobol sequence.
#[derive(Debug)]
pub(super) struct Pbt {
    settings: Settings,
    /// Gives the values of trials that are not copies.
    suggestions: Suggestions,
    /// The epochs that the first trial announced, until its record has them.
    total: Option<u64>,
}

impl Pbt {
    /// A search that starts `settings.max_trials` trials, copies among them. There is one objective.
    pub(super) fn new(settings: Settings) -> Pbt {
        Pbt { settings: settings.clone(), suggestions: Suggestions::new(settings, Box::new(Qmc)), total: None }
    }

    /// The state of every population.
    fn lineage(&self, resource: u64, trials: &[TrialRecord], running: &[u64]) -> Lineage {
        let mut lineage = Lineage::default();
        let limit = self.settings.max_trials.max(trials.len() as u64);
        while lineage.next.is_none() && lineage.begun < limit {
            self.follow(&mut lineage, resource, limit, (trials, running));
        }
        lineage
    }

    /// Follows the next population from its first trial to its last, or to the next step of the search.
    ///
    /// The order matters: first trials are pruned, then copies begin, and only then do the originals continue.
    fn follow(&self, lineage: &mut Lineage, resource: u64, limit: u64, (trials, running): (&[TrialRecord], &[u64])) {
        let mut members = lineage.begin(POPULATION, limit);
        let generations = GENERATIONS.min(resource);
        for generation in 1..=generations {
            let share = resource.saturating_mul(generation).div_ceil(generations);
            let stop = if generation == generations { u64::MAX } else { share };
            lineage.stops.extend(members.iter().map(|member| (*member, stop)));
            if members.iter().any(|member| trials.len() as u64 <= *member) {
                lineage.next = Some(Next::New);
                return;
            }
            let mut records: Vec<&TrialRecord> = members.iter().map(|member| &trials[*member as usize]).collect();
            let is_short = |trial: &&&TrialRecord| is_idle(trial, running) && !has_arrived(trial, stop);
            if let Some(short) = records.iter().find(is_short) {
                lineage.next = Some(Next::Continue { trial: short.number });
                return;
            }
            // A trial that has just reached this epoch may still be writing the checkpoint for its copies.
            if records.iter().any(|trial| running.contains(&trial.number)) {
                lineage.next = Some(Next::Wait);
                return;
            }
            if generation == generations {
                return;
            }
            records.sort_by(|a, b| self.rank(a, stop).total_cmp(&self.rank(b, stop)).then(a.number.cmp(&b.number)));
            let healthy = records.iter().filter(|trial| self.rank(trial, stop).is_finite()).count();
            let donors: Vec<u64> = records.iter().take(REPLACED.min(healthy)).map(|trial| trial.number).collect();
            let worst = records.len() - healthy.min(records.len().saturating_sub(REPLACED)).max(donors.len());
            let replaced = records.split_off(records.len() - worst.min(lineage.room(limit, stop, &records, trials)));
            if let Some(loser) = replaced.iter().find(|trial| is_idle(trial, running)) {
                lineage.next = Some(Next::Prune { trial: loser.number });
                return;
            }
            members = records.iter().map(|trial| trial.number).collect();
            for child in lineage.begin(replaced.len() as u64, limit) {
                let draw = random::hash(&[&self.settings.seed.to_le_bytes(), &child.to_le_bytes(), b"donor"]);
                let drawn = donors.get(draw as usize % donors.len().max(1)).copied();
                let known = trials.get(child as usize).and_then(|trial| trial.parent);
                lineage.parents.extend(known.or(drawn).map(|donor| (child, donor)));
                members.push(child);
            }
        }
    }

    /// The sort key of a trial: its last value before `stop`, where small is good; infinite if it failed before, or if
    /// another program runs it.
    fn rank(&self, trial: &TrialRecord, stop: u64) -> f64 {
        let reported =
            trial.metrics.range(..stop).rev().find_map(|(_, metrics)| metrics.get(&self.settings.objective().metric));
        let has_arrived = has_arrived(trial, stop) && !trial.runs_elsewhere();
        let has_come = has_arrived || trial.ending == Some(Ending::Finished);
        let value = reported.copied().flatten().filter(|value| value.is_finite() && has_come);
        value.map_or(f64::INFINITY, |value| loss(self.settings.objective(), value))
    }

    /// A copy's value of a parameter that is `value` in the original; `None` if the range does not have that value.
    fn vary(&self, copy: u64, name: &str, distribution: &Distribution, value: &Value) -> Option<Value> {
        let mut rng = generator(self.settings.seed, copy, name);
        let (is_drawn, anything): (bool, f64) = (rng.random_bool(RESAMPLING), rng.random());
        // Moves by 0.5 to 1.5 times the average, up or down, so that two copies of one trial differ.
        let moves = rng.random_range(0.5..1.5) * if rng.random::<bool>() { 1.0 } else { -1.0 };
        match (distribution, value) {
            (Distribution::Float { .. }, _) if is_drawn => Some(distribution.from_unit(anything)),
            (Distribution::Float { scale: Scale::Log, .. }, Value::Float(value)) => {
                distribution.clamp_to_lattice(&Value::Float(value * FACTOR.powf(moves)))
            }
            (Distribution::Float { .. }, value) => {
                let step = distribution.cells().map_or(MOVE, |cells| MOVE.max(2.0 / cells));
                distribution.to_unit(value).map(|unit| distribution.from_unit(unit + moves * step))
            }
            _ => distribution.clamp_to_lattice(value),
        }
    }
}

impl Oracle for Pbt {
    fn next(&mut self, trials: &[TrialRecord], running: &[u64]) -> Next {
        match hyperband::resource(trials, self.total) {
            Some(resource) => self.lineage(resource, trials, running).next.unwrap_or_else(|| wind_up(trials, running)),
            None if (trials.len() as u64) < self.settings.max_trials => Next::New,
            None => wind_up(trials, running),
        }
    }

    fn suggest(&mut self, trial: u64, name: &str, distribution: &Distribution, trials: &[TrialRecord]) -> Value {
        let original = self.parent(trial, trials).and_then(|parent| trials.get(parent as usize)?.parameters.get(name));
        let varied = original.and_then(|original| self.vary(trial, name, distribution, &original.value));
        varied.unwrap_or_else(|| self.suggestions.suggest(trial, name, distribution, trials))
    }

    fn epochs(&mut self, trial: u64, total: u64, trials: &[TrialRecord]) -> u64 {
        let resource = hyperband::resource(trials, self.total).unwrap_or(total.max(1));
        self.total.get_or_insert(resource);
        self.lineage(resource, trials, &[]).stops.get(&trial).map_or(total, |stop| total.min(*stop))
    }

    fn pauses(&self) -> bool {
        true
    }

    fn parent(&mut self, trial: u64, trials: &[TrialRecord]) -> Option<u64> {
        let resource = hyperband::resource(trials, self.total)?;
        self.lineage(resource, trials, &[]).parents.get(&trial).copied()
    }
}

/// The state of the populations, from the records.
#[derive(Debug, Default)]
struct Lineage {
    /// The next step; `None` if all trials that have begun have ended.
    next: Option<Next>,
    /// Number of trials that have begun, or begin next.
    begun: u64,
    /// The epoch (exclusive) to which each trial may train now.
    stops: BTreeMap<u64, u64>,
    /// The trial that each copy is a copy of.
    parents: BTreeMap<u64, u64>,
}

impl Lineage {
    /// How many copies may begin at the end of a generation of these members. If none may, the worst trials continue.
    ///
    /// When a member has trained beyond `stop`, the generation is over. No more copies begin then, even if the search
    /// may have more trials now.
    fn room(&self, limit: u64, stop: u64, members: &[&TrialRecord], trials: &[TrialRecord]) -> usize {
        if members.iter().any(|member| member.epochs_done() > stop) {
            let later = trials.iter().skip(usize::try_from(self.begun).unwrap_or(usize::MAX));
            return later.take_while(|trial| trial.parent.is_some()).count();
        }
        usize::try_from(limit - self.begun).unwrap_or(usize::MAX)
    }

    /// Numbers for new trials, as many as the search's limit leaves.
    fn begin(&mut self, count: u64, limit: u64) -> Vec<u64> {
        let first = self.begun;
        self.begun = (first + count).min(limit);
        (first..self.begun).collect()
    }
}

/// Whether it has trained to `stop`, or to the end if that comes first.
fn has_arrived(trial: &TrialRecord, stop: u64) -> bool {
    trial.epochs_done() >= trial.epochs.map_or(stop, |total| total.min(stop))
}
