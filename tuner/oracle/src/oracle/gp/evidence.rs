//! The trials in the form that the Gaussian process needs: embedded points, one loss for each, and the points that must
//! not be repeated. Decides nothing.

use super::kernel::{Axis, embed};
use super::model::Hyper;
use super::region::Step;
use crate::forecast::Regression;
use crate::oracle::history::{History, Row};
use crate::oracle::settings::Outcome;
use rand::RngExt as _;
use rand_pcg::Pcg64;
use std::ops::RangeInclusive;

/// The largest number of pruned trials without a forecast that count as running, the newest ones. Each costs another process.
const MOST_UNKNOWN: usize = 20;

/// The number of losses that the first model needs. Its priors are strong, so few losses are enough.
const INITIAL: usize = 3;
/// The number of complete trainings that the first model needs.
const WHOLES: usize = 2;

/// The weight of the sum of losses relative to the largest loss, when several losses become one (Knowles 2006, ParEGO).
const SUM: f64 = 0.05;

/// The losses to which a process is fitted.
#[derive(Debug)]
pub(super) struct Observed {
    pub(super) points: Vec<Vec<f64>>,
    pub(super) losses: Vec<f64>,
    /// The standard deviation of each loss's error: 0 unless the loss is a forecast.
    pub(super) deviations: Vec<f64>,
}

impl Observed {
    fn among(points: &[Vec<f64>], losses: &[f64], deviations: &[f64], indices: &[usize]) -> Observed {
        Observed {
            points: indices.iter().map(|index| points[*index].clone()).collect(),
            losses: indices.iter().map(|index| losses[*index]).collect(),
            deviations: indices.iter().map(|index| deviations[*index]).collect(),
        }
    }

    /// The losses with these indices.
    pub(super) fn chosen(&self, indices: &[usize]) -> Observed {
        Observed::among(&self.points, &self.losses, &self.deviations, indices)
    }
}

/// The data of the trials of a study so far.
#[derive(Clone, Debug)]
pub(super) struct Evidence {
    pub(super) axes: Vec<Axis>,
    /// The centre of the prior of a model's hyper-parameters.
    pub(super) prior: Hyper,
    /// Trials with a loss, in the order of their numbers; `None` for a trial of another study.
    pub(super) numbers: Vec<Option<u64>>,
    pub(super) points: Vec<Vec<f64>>,
    pub(super) losses: Vec<f64>,
    /// The standard deviation of each loss's error: 0 unless the loss is a forecast.
    deviations: Vec<f64>,
    /// Whether each loss is that of a complete training, as far as the model can know.
    pub(super) is_whole: Vec<bool>,
    /// Whether each trial kept the constraints.
    pub(super) is_feasible: Vec<bool>,
    /// The distance beyond each constraint's bound of each trial; empty for a trial of which none is known.
    pub(super) excesses: Vec<Vec<f64>>,
    /// Whether the losses are the trials' excesses over the constraints, because no complete training has kept them yet.
    pub(super) is_of_excesses: bool,
    /// The points of the running trials.
    pub(super) open: Vec<Vec<f64>>,
    /// The points of the trials that failed or exceeded the memory.
    pub(super) failed: Vec<Vec<f64>>,
}

impl Evidence {
    /// Gathers the evidence of these trials of the history. Combines several losses into one with weights that `rng` draws.
    /// A pruned trial has the forecast of its final loss.
    pub(super) fn of(history: &History, rows: &[Row], rng: &mut Pcg64) -> Evidence {
        let axes = Axis::all(&history.space);
        let forecasts = Forecasts::from(rows);
        let mut evidence = Evidence {
            prior: Hyper::prior(axes.len(), active(rows)),
            axes,
            numbers: Vec::new(),
            points: Vec::new(),
            losses: Vec::new(),
            deviations: Vec::new(),
            is_whole: Vec::new(),
            is_feasible: Vec::new(),
            excesses: Vec::new(),
            is_of_excesses: false,
            open: Vec::new(),
            failed: Vec::new(),
        };
        let (mut vectors, mut violations, mut unknown) = (Vec::new(), Vec::new(), Vec::new());
        for row in rows {
            let point = embed(&evidence.axes, &history.space, &row.point);
            let mut deviation = 0.0;
            let (losses, violation, excesses) = match &row.outcome {
                Outcome::Finished { losses, violation, excesses } => (losses.clone(), *violation, excesses.as_slice()),
                // The trial was pruned for its bad value; with several objectives the other losses are unknown.
                Outcome::Pruned { loss: Some(loss), .. } if history.settings.objectives.len() == 1 => {
                    // Without a forecast, nothing is known of the loss, as of a running trial.
                    let Some((loss, error)) = forecasts.last_loss(row, *loss) else {
                        unknown.push(point);
                        continue;
                    };
                    deviation = error;
                    (vec![loss], 0.0, [].as_slice())
                }
                Outcome::Pruned { .. } => continue,
                Outcome::Open => {
                    evidence.open.push(point);
                    continue;
                }
                Outcome::Failed | Outcome::OutOfMemory => {
                    evidence.failed.push(point);
                    continue;
                }
            };
            evidence.numbers.push(row.trial);
            evidence.points.push(point);
            evidence.deviations.push(deviation);
            evidence.is_whole.push(row.curve.is_empty() || matches!(row.outcome, Outcome::Finished { .. }));
            evidence.is_feasible.push(violation <= 0.0);
            evidence.excesses.push(excesses.to_vec());
            violations.push(violation);
            vectors.push(losses);
        }
        evidence.open.extend(unknown.into_iter().rev().take(MOST_UNKNOWN));
        evidence.losses = scalar(&vectors, rng);
        evidence.seek_feasible(&violations);
        evidence
    }

    /// These trials, of an earlier study, as evidence for a search that knows too little itself. Nothing is known of the losses of its `own`
    /// trials in the unit of the earlier ones.
    pub(super) fn before(&self, own: &Evidence) -> Evidence {
        let open = own.points.iter().chain(&own.open).cloned().collect();
        Evidence { open, failed: own.failed.clone(), ..self.clone() }
    }

    /// Makes the excesses over the constraints the losses, if no complete training has kept the constraints: the search is then for
    /// one that does. A trial whose excess is not known has the largest one.
    fn seek_feasible(&mut self, excesses: &[f64]) {
        let keeps = |index: usize| self.is_whole[index] && self.is_feasible[index];
        let known = |excess: &f64| *excess > 0.0 && excess.is_finite();
        let largest = excesses.iter().copied().filter(known).fold(0.0, f64::max);
        if largest == 0.0 || (0..self.points.len()).any(keeps) {
            return;
        }
        self.losses = excesses.iter().map(|excess| if known(excess) { *excess } else { largest }).collect();
        self.deviations.fill(0.0);
        self.is_feasible.fill(true);
        self.excesses.fill(Vec::new());
        self.is_of_excesses = true;
    }

    /// Whether the losses are enough for a model.
    pub(super) fn is_enough(&self) -> bool {
        let wholes = self.is_whole.iter().filter(|is_whole| **is_whole).count();
        self.losses.len() >= INITIAL && wholes >= WHOLES
    }

    /// Whether the losses are few beside trials that earlier studies have chosen.
    pub(super) fn is_few(&self) -> bool {
        self.losses.len() < 2 * INITIAL
    }

    /// The losses of these trials.
    pub(super) fn observed(&self, members: &[usize]) -> Observed {
        Observed::among(&self.points, &self.losses, &self.deviations, members)
    }

    /// The trials as steps for the trust region. A trial that broke a constraint, or was pruned before its end, has the worst
    /// loss.
    pub(super) fn steps(&self, is_local: impl Fn(u64) -> bool) -> Vec<Step<'_>> {
        let worst = self.losses.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let step = |index: usize| Step {
            point: &self.points[index],
            loss: if self.is_feasible[index] && self.is_whole[index] { self.losses[index] } else { worst },
            is_local: self.numbers[index].is_some_and(&is_local),
        };
        (0..self.points.len()).map(step).collect()
    }

    /// Indices of the trials nearest to a point: all within `reach`, as far as `count` allows.
    pub(super) fn nearest(&self, centre: &[f64], reach: f64, count: RangeInclusive<usize>) -> Vec<usize> {
        let square = |point: &[f64]| -> f64 {
            let pairs = self.axes.iter().zip(centre.iter().zip(point));
            pairs.map(|(axis, (a, b))| axis.difference(*a, *b).powi(2)).sum()
        };
        let mut nearest: Vec<(f64, usize)> = self.points.iter().map(|point| square(point)).zip(0..).collect();
        nearest.sort_by(|a, b| a.0.total_cmp(&b.0));
        let inside = nearest.iter().filter(|(square, _)| *square <= reach * reach).count();
        let mut members: Vec<usize> =
            nearest.iter().take(inside.max(*count.start()).min(*count.end())).map(|(_, index)| *index).collect();
        members.sort_unstable();
        members
    }

    /// The largest distance of two points along any axis.
    pub(super) fn apart(&self, a: &[f64], b: &[f64]) -> f64 {
        let pairs = self.axes.iter().zip(a.iter().zip(b));
        pairs.map(|(axis, (a, b))| axis.difference(*a, *b).abs()).fold(0.0, f64::max)
    }

    /// Whether some point was tried twice and had the same loss both times: then the losses have no noise.
    pub(super) fn repeats_agree(&self) -> bool {
        // A forecast is no loss that was had.
        let is_had = |index: &usize| self.is_whole[*index];
        let pairs = || (0..self.points.len()).filter(is_had).map(|index| (&self.points[index], &self.losses[index]));
        pairs().enumerate().any(|(index, (point, loss))| {
            pairs().take(index).any(|(other, known)| loss == known && is_same(other, point))
        })
    }
}

/// Forecasts of the final losses of pruned trials.
struct Forecasts {
    /// The regression at each stage.
    regressions: Vec<Regression>,
    /// The best final loss.
    best: f64,
}

impl Forecasts {
    fn from(rows: &[Row]) -> Forecasts {
        let finished = rows.iter().filter_map(|row| match &row.outcome {
            Outcome::Finished { losses, .. } => Some((row.curve.as_slice(), *losses.first()?)),
            _ => None,
        });
        let stages = rows.iter().map(|row| row.curve.len()).max().unwrap_or(0);
        let regressions = (0..stages).map(|stage| Regression::at(stage, finished.clone())).collect();
        let best = finished.map(|(_, last)| last).fold(f64::INFINITY, f64::min);
        Forecasts { regressions, best }
    }

    /// The final loss of a pruned trial from its last stage, and the standard deviation of that loss's error; `None` without a
    /// forecast. A trial that announced no epochs has the loss of its last report, since no stage of it is known.
    fn last_loss(&self, row: &Row, reported: f64) -> Option<(f64, f64)> {
        if row.curve.is_empty() {
            return Some((reported, 0.0));
        }
        let (stage, early) = row.curve.iter().enumerate().find_map(|(stage, loss)| Some((stage, (*loss)?)))?;
        let forecast = self.regressions[stage].forecast(early)?;
        // Only a finished trial can be the best one.
        Some((forecast.mean.max(self.best), forecast.deviation()?))
    }
}

/// Whether two points of the unit cube are equal.
pub(super) fn is_same(a: &[f64], b: &[f64]) -> bool {
    a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-7)
}

/// The average number of parameters that a trial asks for; at least one.
pub(super) fn active(rows: &[Row]) -> f64 {
    let asked: usize = rows.iter().map(|row| row.point.iter().filter(|unit| !unit.is_nan()).count()).sum();
    (asked as f64 / rows.len().max(1) as f64).max(1.0)
}

/// Combines each vector of losses into one loss.
fn scalar(vectors: &[Vec<f64>], rng: &mut Pcg64) -> Vec<f64> {
    let objectives = vectors.first().map_or(1, Vec::len);
    if objectives == 1 {
        return vectors.iter().filter_map(|losses| losses.first().copied()).collect();
    }
    // Exponential draws divided by their sum are uniform on the simplex.
    let draws: Vec<f64> = (0..objectives).map(|_| -(1.0 - rng.random::<f64>()).ln()).collect();
    let total: f64 = draws.iter().sum();
    let ranges: Vec<(f64, f64)> = (0..objectives)
        .map(|index| {
            let losses = vectors.iter().map(|losses| losses[index]);
            let low = losses.clone().fold(f64::INFINITY, f64::min);
            (low, (losses.fold(f64::NEG_INFINITY, f64::max) - low).max(f64::MIN_POSITIVE))
        })
        .collect();
    let weighted = |losses: &Vec<f64>| {
        let parts = losses.iter().zip(&ranges).zip(&draws);
        let parts: Vec<f64> = parts.map(|((loss, (low, range)), draw)| draw / total * (loss - low) / range).collect();
        parts.iter().copied().fold(0.0, f64::max) + SUM * parts.iter().sum::<f64>()
    };
    vectors.iter().map(weighted).collect()
}
