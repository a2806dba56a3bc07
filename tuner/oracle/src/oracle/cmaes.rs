//! CMA-ES as a sampler: decides which trials make up a generation and which parameters the strategy moves. Its modules
//! contain the mathematics.
//!
//! The strategy moves numbers, and choices of two values, that every trial asks for. All other parameters come from one
//! good trial, so a conditional parameter keeps the choice that it depends on.

mod eigen;
mod margin;
mod rates;
mod restarts;
mod strategy;

use super::history::{History, Row};
use super::random::generator;
use super::sampler::Sampler;
use super::settings::Outcome;
use super::survival::{Fitness, survivors};
use super::text::{SettingError, SettingsText};
use super::variation;
use crate::inferred::{Dimension, Space};
use ferrotune_space::{Distribution, Scale};
use rand::{Rng, RngExt};
use restarts::{Form, Run};
use std::ops::Bound;
use strategy::Candidate;

/// The number of draws for one trial; the sampler uses the first draw that no other trial has.
const DRAWS: usize = 10;
/// The number of generations after which a trial is no longer regarded as a draw of the strategy.
const MEMORY: usize = 3;
/// The largest number of cells of an axis with cells; an axis with more cells is treated as continuous.
const MOST_CELLS: f64 = 4096.0;
/// The share of the trials, one in this many, that are the best and give the values of the other parameters.
const PARENTS: usize = 4;
/// The share of another study's trials, one in this many, that are the best and whose mean is the first mean.
const SOURCE_SHARE: usize = 10;

/// CMA-ES with margin and restarts.
///
/// A generation consists of the next ended trials in the order of their numbers, so a long trial delays no other trial,
/// and trials of other programs are draws, too. All fields are a cache of the history.
#[derive(Debug, Default)]
pub(super) struct CmaEs {
    form: Form,
    axes: Vec<Axis>,
    /// The mean of the first generation.
    mean: Vec<f64>,
    /// The trials from which the states were computed.
    told: Vec<Told>,
    /// The states after each generation, with the number of trials from which each has learnt.
    states: Vec<(usize, Run)>,
}

/// A parameter that the strategy moves.
#[derive(Clone, Debug, PartialEq)]
struct Axis {
    dimension: usize,
    distribution: Distribution,
}

/// An ended trial in the coordinates of the axes.
#[derive(Clone, Debug, PartialEq)]
struct Told {
    trial: u64,
    point: Vec<f64>,
    fitness: Fitness,
}

impl Sampler for CmaEs {
    fn propose(&mut self, history: &History, trial: u64) -> Option<Vec<f64>> {
        if history.rows.is_empty() {
            return None;
        }
        self.learn(history);
        let mut rng = generator(history.settings.seed, trial, "rest");
        let dimensions = history.space.dimensions.len();
        let mut point = if self.axes.len() < dimensions { descend(history, &mut rng) } else { vec![0.5; dimensions] };
        if let Some((_, run)) = self.states.last() {
            let draws = draws(run, history, trial);
            let place = |draw: &Candidate, point: &mut Vec<f64>| {
                self.axes.iter().zip(&draw.point).for_each(|(axis, unit)| point[axis.dimension] = *unit);
            };
            for draw in &draws {
                place(draw, &mut point);
                if !variation::is_repeated(history, &point) {
                    break;
                }
            }
        }
        Some(point)
    }
}

impl CmaEs {
    /// The sampler with the settings in `text`: `sigma0`, `population` and `separable`.
    pub(super) fn with(text: &SettingsText<'_>) -> Result<CmaEs, SettingError> {
        let usual = Form::default();
        let form = Form {
            sigma: text.number("sigma0", (Bound::Excluded(0.0), Bound::Included(1.0)))?.unwrap_or(usual.sigma),
            population: text.count("population", 4..=10_000)?.map(|count| count as usize),
            is_separable: text.switch("separable")?.unwrap_or(usual.is_separable),
        };
        Ok(CmaEs { form, ..CmaEs::default() })
    }

    /// Updates the states from the history.
    fn learn(&mut self, history: &History) {
        let axes = axes(&history.space);
        let mean = first_mean(&axes, history);
        if self.axes != axes || self.mean != mean {
            *self = CmaEs { axes, mean, form: self.form, ..CmaEs::default() };
        }
        if self.axes.is_empty() {
            return;
        }
        let told: Vec<Told> = history.rows.iter().filter_map(|row| self.told(row, history)).collect();
        let known = self.told.iter().zip(&told).take_while(|(known, told)| known == told).count();
        self.told = told;
        self.states.retain(|(count, _)| *count <= known);
        if self.states.is_empty() {
            let cells = self.axes.iter().map(Axis::cells).collect();
            self.states.push((0, Run::first(history.settings.seed, self.mean.clone(), cells, self.form)));
        }
        while let Some((count, run)) = self.states.last() {
            let next = count + run.strategy.population();
            let Some(generation) = self.told.get(*count..next) else { break };
            let state = self.after(run, generation, history);
            self.states.push((next, state));
        }
    }

    fn told(&self, row: &Row, history: &History) -> Option<Told> {
        let fitness = Fitness::of(&row.outcome, history.settings.objectives.len())?;
        Some(Told { trial: row.trial?, point: on_axes(&self.axes, row)?, fitness })
    }

    fn after(&self, run: &Run, generation: &[Told], history: &History) -> Run {
        let fitness: Vec<Fitness> = generation.iter().map(|told| told.fitness.clone()).collect();
        let order = survivors(&fitness, generation.len());
        let draws: Vec<Vec<f64>> = order.iter().map(|index| self.raw(run, &generation[*index], history)).collect();
        // A generation in which every trial failed gives no direction.
        if fitness[order[0]].is_lost() { run.clone() } else { run.after(&draws, fitness[order[0]].losses[0]) }
    }

    /// The draw of the trial before rounding to cells; for a trial from elsewhere, an equivalent draw.
    fn raw(&self, run: &Run, told: &Told, history: &History) -> Vec<f64> {
        for (_, state) in self.states.iter().rev().take(MEMORY) {
            let draws = draws(state, history, told.trial);
            let mut same = draws.into_iter().filter(|draw| {
                let pairs = draw.point.iter().zip(&told.point);
                self.axes.iter().zip(pairs).all(|(axis, (a, b))| variation::is_same(&axis.distribution, *a, *b))
            });
            if let Some(draw) = same.next() {
                return draw.raw;
            }
        }
        run.strategy.inject(&told.point)
    }
}

impl Axis {
    fn cells(&self) -> Option<u32> {
        match self.distribution {
            // The cells of a logarithmic axis have different widths.
            Distribution::Int { scale: Scale::Log | Scale::ReverseLog, .. } => None,
            _ => self.distribution.cells().filter(|cells| *cells <= MOST_CELLS).map(|cells| cells as u32),
        }
    }
}

/// A trial's coordinates; `None` if the trial did not ask for all the axes' parameters.
fn on_axes(axes: &[Axis], row: &Row) -> Option<Vec<f64>> {
    let point: Vec<f64> = axes.iter().map(|axis| row.point[axis.dimension]).collect();
    point.iter().all(|unit| !unit.is_nan()).then_some(point)
}

/// The first mean: the middle of the space, or the mean of the best trials of each other study, as in warm-starting CMA-ES (Nomura et
/// al. 2021, AAAI).
fn first_mean(axes: &[Axis], history: &History) -> Vec<f64> {
    let objectives = history.settings.objectives.len();
    let best_of = |rows: &[Row]| {
        let known = rows.iter().filter_map(|row| Some((on_axes(axes, row)?, Fitness::of(&row.outcome, objectives)?)));
        let (points, fitness): (Vec<Vec<f64>>, Vec<Fitness>) = known.unzip();
        let best = survivors(&fitness, points.len().div_ceil(SOURCE_SHARE));
        best.into_iter().map(|index| points[index].clone()).collect::<Vec<_>>()
    };
    let best: Vec<Vec<f64>> = history.earlier().flat_map(best_of).collect();
    let mean = |axis: usize| best.iter().map(|point| point[axis]).sum::<f64>() / best.len() as f64;
    if best.is_empty() { vec![0.5; axes.len()] } else { (0..axes.len()).map(mean).collect() }
}

/// The candidates for one trial.
fn draws(run: &Run, history: &History, trial: u64) -> Vec<Candidate> {
    let mut rng = generator(history.settings.seed, trial, "cmaes");
    (0..DRAWS).map(|_| run.strategy.ask(&mut rng)).collect()
}

/// The parameters that the strategy moves.
fn axes(space: &Space) -> Vec<Axis> {
    let dimensions = space.dimensions.iter().enumerate().filter(|(_, dimension)| {
        let is_ordered = match &dimension.distribution {
            Distribution::Choice { values, is_ordered } => *is_ordered || values.len() == 2,
            _ => true,
        };
        dimension.condition.is_none() && is_ordered && dimension.distribution.cells() != Some(1.0)
    });
    dimensions.map(|(dimension, known)| Axis { dimension, distribution: known.distribution.clone() }).collect()
}

/// A point whose values come from one of the best trials, with occasional mutations.
fn descend<R: Rng>(history: &History, rng: &mut R) -> Vec<f64> {
    let dimensions = &history.space.dimensions;
    let ended: Vec<(&Row, Fitness)> = history
        .rows
        .iter()
        .filter(|row| matches!(row.outcome, Outcome::Finished { .. } | Outcome::Pruned { .. }))
        .filter_map(|row| Some((row, Fitness::of(&row.outcome, history.settings.objectives.len())?)))
        .collect();
    let mut best = survivors(&ended.iter().map(|(_, fitness)| fitness.clone()).collect::<Vec<_>>(), ended.len());
    best.truncate(ended.len().div_ceil(PARENTS).max(2));
    let parent = (!best.is_empty()).then(|| ended[best[rng.random_range(0..best.len())]].0);
    let inherit = |index: usize| parent.map(|row| row.point[index]).filter(|unit| !unit.is_nan());
    let pass_on = |(index, dimension): (usize, &Dimension)| {
        variation::pass_on(inherit(index), &dimension.distribution, dimensions.len(), rng)
    };
    dimensions.iter().enumerate().map(pass_on).collect()
}
