//! Population-based training (Jaderberg et al. 2017, arXiv:1711.09846) and PB2 (Parker-Holder et al. 2020,
//! arXiv:2002.02518): trials train at the same time, and at regular epochs copies of the best trials replace the worst. A copy
//! continues from its original's checkpoint with changed parameters, which a model chooses in PB2.
//!
//! A copy is a separate trial, so a record always has the parameters with which the trial was trained. By default
//! only floats change, because a checkpoint fits only one number of layers and the like. Keeps only a cache of the
//! records.

use super::gp::bandit::{self, Observation};
use super::qmc::Qmc;
use super::random::{self, generator};
use super::sampler::Suggestions;
use super::settings::{Settings, loss};
use super::text::{SettingError, SettingsText};
use super::{Next, Oracle, hyperband, is_idle, wind_up};
use crate::inferred::{Dimension, Space};
use ferrotune_space::record::{Ending, TrialRecord};
use ferrotune_space::{Distribution, Scale, Value};
use rand::RngExt;
use std::collections::BTreeMap;
use std::ops::Bound;

/// The number of comparisons of a population's trials during a training, unless the interval is given.
const GENERATIONS: u64 = 10;

/// The settings of population-based training.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Plan {
    /// The number of trials in a population; after a population has trained to the end, another one begins.
    population: u64,
    /// The number of epochs between two comparisons; a tenth of a training if it is not given.
    interval: Option<u64>,
    /// The share of the population that is replaced at a time, by copies of the same number of the best trials.
    quantile: f64,
    /// The probability that a copy's parameter is a new draw and not a changed value.
    resample: f64,
    /// The average factor, up or down, by which a parameter on a logarithmic scale changes.
    perturbation: f64,
    /// Whether whole numbers and choices change, too.
    changes_discrete: bool,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            population: 12,
            interval: None,
            quantile: 0.25,
            resample: 0.25,
            perturbation: 1.25,
            changes_discrete: false,
        }
    }
}

impl Plan {
    /// The settings for a population's size and its comparisons.
    fn of_population(text: &SettingsText<'_>) -> Result<Plan, SettingError> {
        let usual = Plan::default();
        let half = (Bound::Excluded(0.0), Bound::Included(0.5));
        Ok(Plan {
            population: text.count("population", 2..=1_000_000)?.unwrap_or(usual.population),
            interval: text.count("interval", 1..)?,
            quantile: text.number("quantile", half)?.unwrap_or(usual.quantile),
            ..usual
        })
    }

    fn read(text: &SettingsText<'_>) -> Result<Plan, SettingError> {
        let usual = Plan::of_population(text)?;
        let factor = (Bound::Excluded(1.0), Bound::Included(10.0));
        Ok(Plan {
            resample: text.number("resample", 0.0..=1.0)?.unwrap_or(usual.resample),
            perturbation: text.number("perturbation", factor)?.unwrap_or(usual.perturbation),
            changes_discrete: text.switch("discrete")?.unwrap_or(usual.changes_discrete),
            ..usual
        })
    }

    /// The number of trials that are replaced at a time.
    fn replaced(&self) -> usize {
        (self.population as f64 * self.quantile).round().max(1.0) as usize
    }

    /// The epochs after which the trials of a training are compared, and its last epoch.
    fn stops(&self, resource: u64) -> Vec<u64> {
        match self.interval {
            Some(interval) => (1..resource.div_ceil(interval)).map(|part| part * interval).chain([resource]).collect(),
            None => {
                let generations = GENERATIONS.min(resource);
                (1..=generations).map(|part| resource.saturating_mul(part).div_ceil(generations)).collect()
            }
        }
    }

    /// The average change of a parameter that is not on a logarithmic scale, as a share of its range: a tenth by default.
    fn share(&self) -> f64 {
        (0.4 * (self.perturbation - 1.0)).min(1.0)
    }
}

/// The way in which a copy's parameters change.
#[derive(Debug)]
enum Change {
    /// Each parameter changes separately, at random.
    Perturbation,
    /// All floats change together, to the values with the largest gain in a model (PB2). `chosen` caches the copies' values.
    Bandit { chosen: BTreeMap<u64, BTreeMap<String, Value>> },
}

/// The oracle of population-based training. It searches an objective without epochs by a Sobol sequence.
#[derive(Debug)]
pub(super) struct Pbt {
    change: Change,
    settings: Settings,
    plan: Plan,
    /// The values of trials that are not copies.
    suggestions: Suggestions,
    /// The epochs that the first trial announced, until its record has them.
    total: Option<u64>,
}

impl Pbt {
    /// The oracle of a search that starts `settings.max_trials` trials, including copies. The search has one objective.
    pub(super) fn new(settings: Settings) -> Pbt {
        let suggestions = Suggestions::new(settings.clone(), Box::new(Qmc));
        Pbt { change: Change::Perturbation, settings, plan: Plan::default(), suggestions, total: None }
    }

    /// The oracle PB2, with the settings in `text`: `population`, `interval` and `quantile`.
    pub(super) fn with_bandit(self, text: &SettingsText<'_>) -> Result<Pbt, SettingError> {
        let plan = Plan::of_population(text)?;
        Ok(Pbt { change: Change::Bandit { chosen: BTreeMap::new() }, plan, ..self })
    }

    /// This oracle with the settings in `text`: `population`, `interval`, `quantile`, `resample`, `perturbation` and `discrete`.
    pub(super) fn with(self, text: &SettingsText<'_>) -> Result<Pbt, SettingError> {
        Ok(Pbt { plan: Plan::read(text)?, ..self })
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
    /// The order matters: trials are pruned first, then copies begin, and only then do the originals continue.
    fn follow(&self, lineage: &mut Lineage, resource: u64, limit: u64, (trials, running): (&[TrialRecord], &[u64])) {
        let mut members = lineage.begin(self.plan.population, limit);
        let replaced_at_most = self.plan.replaced();
        for stop in self.plan.stops(resource) {
            let is_last = stop == resource;
            let stop = if is_last { u64::MAX } else { stop };
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
            if is_last {
                return;
            }
            records.sort_by(|a, b| self.rank(a, stop).total_cmp(&self.rank(b, stop)).then(a.number.cmp(&b.number)));
            let healthy = records.iter().filter(|trial| self.rank(trial, stop).is_finite()).count();
            let donors: Vec<u64> =
                records.iter().take(replaced_at_most.min(healthy)).map(|trial| trial.number).collect();
            let worst = records.len() - healthy.min(records.len().saturating_sub(replaced_at_most)).max(donors.len());
            let replaced = records.split_off(records.len() - worst.min(lineage.room(limit, stop, &records, trials)));
            if let Some(loser) = replaced.iter().find(|trial| is_idle(trial, running)) {
                lineage.next = Some(Next::Prune { trial: loser.number });
                return;
            }
            members = records.iter().map(|trial| trial.number).collect();
            let children = lineage.begin(replaced.len() as u64, limit);
            let first = children.first().copied().unwrap_or_default();
            for child in children {
                lineage.beginnings.insert(child, Beginning { stop, first });
                let draw = random::hash(&[&self.settings.seed.to_le_bytes(), &child.to_le_bytes(), b"donor"]);
                let drawn = donors.get(draw as usize % donors.len().max(1)).copied();
                let known = trials.get(child as usize).and_then(|trial| trial.parent);
                lineage.parents.extend(known.or(drawn).map(|donor| (child, donor)));
                members.push(child);
            }
        }
    }

    /// The sort key of a trial: its last value before `stop`, where small is good; infinite if the trial failed before, or if
    /// another program runs it.
    fn rank(&self, trial: &TrialRecord, stop: u64) -> f64 {
        let reported =
            trial.metrics.range(..stop).rev().find_map(|(_, metrics)| metrics.get(&self.settings.objective().metric));
        let has_arrived = has_arrived(trial, stop) && !trial.runs_elsewhere();
        let has_come = has_arrived || trial.ending == Some(Ending::Finished);
        let value = reported.copied().flatten().filter(|value| value.is_finite() && has_come);
        value.map_or(f64::INFINITY, |value| loss(self.settings.objective(), value))
    }

    /// The value that the model chooses for a parameter of a copy; `None` if it chooses none.
    fn chosen_value(&mut self, copy: u64, name: &str, original: &TrialRecord, trials: &[TrialRecord]) -> Option<Value> {
        let Change::Bandit { chosen } = &self.change else { return None };
        if let Some(values) = chosen.get(&copy) {
            return values.get(name).cloned();
        }
        let values = self.chosen(copy, original, trials);
        let value = values.get(name).cloned();
        if let Change::Bandit { chosen } = &mut self.change {
            chosen.insert(copy, values);
        }
        value
    }

    /// The values of a copy's floats that the model chooses; empty before the model can choose.
    fn chosen(&self, copy: u64, original: &TrialRecord, trials: &[TrialRecord]) -> BTreeMap<String, Value> {
        let Some(resource) = hyperband::resource(trials, self.total) else { return BTreeMap::new() };
        let lineage = self.lineage(resource, trials, &[]);
        let Some(Beginning { stop, first }) = lineage.beginnings.get(&copy).copied() else { return BTreeMap::new() };
        let floats = original.parameters.iter().filter(|(name, parameter)| {
            matches!(parameter.distribution, Distribution::Float { .. }) && self.settings.given.leaves_open(name)
        });
        let dimensions = floats.map(|(name, known)| Dimension::new(name.clone(), known.distribution.clone(), 0));
        let space = Space { dimensions: dimensions.collect() };
        let stops: Vec<u64> = self.plan.stops(resource);
        let intervals: Vec<(u64, u64)> =
            stops.iter().copied().zip(stops.iter().copied().skip(1)).filter(|(_, end)| *end <= stop).collect();
        let own = trials.iter().filter(|trial| trial.number < first);
        let observed = own.flat_map(|trial| {
            let point = space.encode(&trial.parameters);
            let changes = intervals
                .iter()
                .filter_map(|interval| Some((interval.1, self.change_of_loss(trial, *interval, trials)?)));
            let changes: Vec<(u64, f64)> = changes.filter(|_| point.iter().all(|unit| !unit.is_nan())).collect();
            let observation =
                move |(end, change)| Observation { point: point.clone(), time: end as f64 / resource as f64, change };
            changes.into_iter().map(observation)
        });
        let peers = trials.iter().filter(|trial| (first..copy).contains(&trial.number));
        let peers = peers.map(|trial| space.encode(&trial.parameters));
        let peers: Vec<Vec<f64>> = peers.filter(|point| point.iter().all(|unit| !unit.is_nan())).collect();
        let next = stops.iter().copied().find(|end| *end > stop).unwrap_or(resource);
        let time = next as f64 / resource as f64;
        let mut rng = generator(self.settings.seed, copy, "pb2");
        let point = bandit::choose(&space, &observed.collect::<Vec<_>>(), &peers, time, &mut rng);
        point.map(|point| space.decode(&point)).unwrap_or_default()
    }

    /// The change of a trial's loss in an interval in which it was trained; `None` without values at both ends.
    fn change_of_loss(&self, trial: &TrialRecord, (begin, end): (u64, u64), trials: &[TrialRecord]) -> Option<f64> {
        trial.metrics.range(begin..end).next()?;
        let metric = &self.settings.objective().metric;
        let before = |trial: &TrialRecord, stop: u64| {
            let mut reports = trial.metrics.range(..stop).rev();
            let value = reports.find_map(|(_, metrics)| *metrics.get(metric)?).filter(|value| value.is_finite());
            value.map(|value| loss(self.settings.objective(), value))
        };
        let parent = || trial.parent.and_then(|parent| before(trials.get(parent as usize)?, begin));
        Some(before(trial, end)? - before(trial, begin).or_else(parent)?)
    }

    /// A copy's value of a parameter that is `value` in the original; `None` if the range does not have that value.
    fn vary(&self, copy: u64, name: &str, distribution: &Distribution, value: &Value) -> Option<Value> {
        let mut rng = generator(self.settings.seed, copy, name);
        let (is_drawn, anything): (bool, f64) = (rng.random_bool(self.plan.resample), rng.random());
        // The change is 0.5 to 1.5 times the average, up or down, so that two copies of one trial differ.
        let moves = rng.random_range(0.5..1.5) * if rng.random::<bool>() { 1.0 } else { -1.0 };
        match (distribution, value) {
            (Distribution::Int { .. } | Distribution::Choice { .. }, _) if !self.plan.changes_discrete => {
                distribution.clamp_to_lattice(value)
            }
            _ if is_drawn => Some(distribution.from_unit(anything)),
            (Distribution::Float { scale: Scale::Log, .. }, Value::Float(value)) => {
                distribution.clamp_to_lattice(&Value::Float(value * self.plan.perturbation.powf(moves)))
            }
            (Distribution::Int { scale: Scale::Log, .. }, Value::Int(whole)) => {
                let moved = (*whole as f64 * self.plan.perturbation.powf(moves)).round() as i64;
                // A small number changes by one, not by a fraction.
                let moved = if moved == *whole { whole.saturating_add(moves.signum() as i64) } else { moved };
                distribution.clamp_to_lattice(&Value::Int(moved))
            }
            (Distribution::Choice { is_ordered: false, .. }, value) => distribution.clamp_to_lattice(value),
            (Distribution::Choice { .. }, value) => {
                let step = distribution.cells().map_or(1.0, |cells| 1.0 / cells);
                distribution.to_unit(value).map(|unit| distribution.from_unit(unit + moves.signum() * step))
            }
            (_, value) => {
                let share = self.plan.share();
                let step = distribution.cells().map_or(share, |cells| share.max(2.0 / cells));
                distribution.to_unit(value).map(|unit| distribution.from_unit(unit + moves * step))
            }
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
        let original = self.parent(trial, trials).and_then(|parent| trials.get(parent as usize));
        let known = original.and_then(|original| original.parameters.get(name));
        let chosen = original.and_then(|original| self.chosen_value(trial, name, original, trials));
        let chosen = chosen.and_then(|value| distribution.clamp_to_lattice(&value));
        let varied = chosen.or_else(|| self.vary(trial, name, distribution, &known?.value));
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
    /// The next step; `None` if all populations have trained to their end.
    next: Option<Next>,
    /// The number of trials that have begun, or begin next.
    begun: u64,
    /// The epoch (exclusive) up to which each trial may train now.
    stops: BTreeMap<u64, u64>,
    /// The original of each copy.
    parents: BTreeMap<u64, u64>,
    /// The beginning of each copy.
    beginnings: BTreeMap<u64, Beginning>,
}

/// The time at which a copy begins, and the copies that begin together with it.
#[derive(Clone, Copy, Debug)]
struct Beginning {
    /// The epoch (exclusive) at which the population was compared.
    stop: u64,
    /// The first of the copies that begin at this comparison.
    first: u64,
}

impl Lineage {
    /// The number of copies that may begin at the end of a generation of these members. If it is 0, the worst trials continue.
    ///
    /// When a member has trained beyond `stop`, the generation is over. Then no more copies begin, even if the search
    /// may have more trials now.
    fn room(&self, limit: u64, stop: u64, members: &[&TrialRecord], trials: &[TrialRecord]) -> usize {
        if members.iter().any(|member| member.epochs_done() > stop) {
            let later = trials.iter().skip(usize::try_from(self.begun).unwrap_or(usize::MAX));
            return later.take_while(|trial| trial.parent.is_some()).count();
        }
        usize::try_from(limit - self.begun).unwrap_or(usize::MAX)
    }

    /// Numbers for new trials, as many as the search's limit allows.
    fn begin(&mut self, count: u64, limit: u64) -> Vec<u64> {
        let first = self.begun;
        self.begun = (first + count).min(limit);
        (first..self.begun).collect()
    }
}

/// Whether a trial has trained to `stop`, or to its end if that comes first.
fn has_arrived(trial: &TrialRecord, stop: u64) -> bool {
    trial.epochs_done() >= trial.epochs.map_or(stop, |total| total.min(stop))
}
