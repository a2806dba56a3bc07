//! Bayesian optimisation with a Gaussian process: a global arm and a trust-region arm in turn. For searches of up to a
//! few hundred trials; its cost grows with their cube.

mod acquisition;
mod kernel;
mod matrix;
mod minimise;
mod model;
mod region;
pub(super) mod regret;
mod warp;

use super::history::{History, Outcome, Row};
use super::qmc;
use super::sampler::{Sampler, generator};
use acquisition::{Promise, Quest};
use kernel::{Axis, embed};
use model::{Data, Fit, Hyper, Process, fit};
use rand_pcg::Pcg64;
use region::Region;
use warp::{WARPS, Warp};

/// Gaussian-process search.
#[derive(Debug, Default)]
pub(super) struct Gp;

impl Sampler for Gp {
    fn propose(&mut self, history: &History, trial: u64) -> Option<Vec<f64>> {
        let dimensions = history.space.dimensions.len();
        if dimensions == 0 {
            return None;
        }
        let evidence = Evidence::of(history, trial);
        if evidence.losses.len() < initial(dimensions) {
            return Some(qmc::point(history.settings.seed, trial, dimensions));
        }
        let mut rng = generator(&history.settings, trial, "gp");
        let point = if is_local(trial) { evidence.local(&mut rng) } else { evidence.global(&mut rng) };
        point.or_else(|| Some(qmc::point(history.settings.seed, trial, dimensions)))
    }
}

/// How many trials are spread over the space before anything is modelled.
fn initial(dimensions: usize) -> usize {
    4 + dimensions
}

/// The arms take turns.
fn is_local(trial: u64) -> bool {
    trial % 2 == 1
}

/// What the trials have shown, embedded for the kernel.
struct Evidence<'a> {
    history: &'a History,
    axes: Vec<Axis>,
    /// Trials with a loss, in the order of their numbers.
    numbers: Vec<u64>,
    points: Vec<Vec<f64>>,
    losses: Vec<f64>,
    /// Trials that run.
    open: Vec<Vec<f64>>,
    /// Trials that failed, did not fit into memory or broke a constraint.
    failed: Vec<Vec<f64>>,
}

impl<'a> Evidence<'a> {
    fn of(history: &'a History, _trial: u64) -> Evidence<'a> {
        let axes = Axis::all(&history.space);
        let mut evidence = Evidence {
            history,
            axes,
            numbers: Vec::new(),
            points: Vec::new(),
            losses: Vec::new(),
            open: Vec::new(),
            failed: Vec::new(),
        };
        for row in &history.rows {
            let point = embed(&evidence.axes, &history.space, &row.point);
            match loss(row) {
                Some(loss) => {
                    evidence.numbers.push(row.trial);
                    evidence.points.push(point);
                    evidence.losses.push(loss);
                }
                None if row.outcome == Outcome::Open => evidence.open.push(point),
                None => evidence.failed.push(point),
            }
        }
        evidence
    }

    fn global(&self, rng: &mut Pcg64) -> Option<Vec<f64>> {
        let all: Vec<usize> = (0..self.points.len()).collect();
        self.search(&all, |_| Region::whole(self.axes.len()), rng)
    }

    fn local(&self, rng: &mut Pcg64) -> Option<Vec<f64>> {
        let centre = &self.points[self.best()];
        let side = region::side(self.successes());
        let mut nearest: Vec<(f64, usize)> =
            self.points.iter().map(|point| self.distance(centre, point)).zip(0..).collect();
        nearest.sort_by(|a, b| a.0.total_cmp(&b.0));
        let inside = nearest.iter().filter(|(distance, _)| *distance <= side * side).count();
        let count = inside.max(5 * self.axes.len() + 5).min(nearest.len());
        let mut members: Vec<usize> = nearest[..count].iter().map(|(_, index)| *index).collect();
        members.sort_unstable();
        self.search(&members, |hyper| Region::around(centre, side, &hyper.log_lengthscales, &self.axes), rng)
    }

    fn search(&self, members: &[usize], region: impl FnOnce(&Hyper) -> Region, rng: &mut Pcg64) -> Option<Vec<f64>> {
        let mut points: Vec<Vec<f64>> = members.iter().map(|index| self.points[*index].clone()).collect();
        let losses: Vec<f64> = members.iter().map(|index| self.losses[*index]).collect();
        let (warp, Fit { hyper, .. }) = self.best_fit(&points, &losses);
        let mut values = warp.apply(&losses).values;
        let best = values.iter().copied().fold(f64::INFINITY, f64::min);
        let mut process = Process::new(&Data { axes: &self.axes, points: &points, values: &values }, &hyper);
        for open in &self.open {
            // A trial that runs is believed to come out as predicted, so that its place promises nothing more.
            values.push(process.predict(open).mean);
            points.push(open.clone());
            process = Process::new(&Data { axes: &self.axes, points: &points, values: &values }, &hyper);
        }
        let mut order: Vec<usize> = (0..losses.len()).collect();
        order.sort_by(|a, b| losses[*a].total_cmp(&losses[*b]));
        let good: Vec<Vec<f64>> = order.iter().take(3).map(|index| points[*index].clone()).collect();
        let known: Vec<Vec<f64>> = self.points.iter().chain(&self.open).chain(&self.failed).cloned().collect();
        let quest = Quest {
            promise: &Promise { process, best, failure: self.failure() },
            axes: &self.axes,
            space: &self.history.space,
            region: &region(&hyper),
            good: &good,
            known: &known,
            scales: hyper.log_lengthscales.iter().map(|log| log.exp().min(1.0)).collect(),
        };
        quest.run(rng)
    }

    /// The warp and the hyper-parameters that make the losses most probable.
    fn best_fit(&self, points: &[Vec<f64>], losses: &[f64]) -> (Warp, Fit) {
        let start = Hyper::prior(self.axes.len());
        let fits = WARPS.into_iter().map(|warp| {
            let warped = warp.apply(losses);
            let fit = fit(&Data { axes: &self.axes, points, values: &warped.values }, &start, 30);
            (warp, Fit { badness: fit.badness - warped.log_stretch, ..fit })
        });
        let best = fits.min_by(|a, b| a.1.badness.total_cmp(&b.1.badness));
        best.unwrap_or((Warp::Linear, Fit { hyper: start, badness: f64::INFINITY }))
    }

    /// A process over which trials fail, if any have.
    fn failure(&self) -> Option<Process> {
        if self.failed.is_empty() {
            return None;
        }
        let points: Vec<Vec<f64>> = self.points.iter().chain(&self.failed).cloned().collect();
        let values: Vec<f64> = (0..points.len()).map(|index| f64::from(u8::from(index >= self.points.len()))).collect();
        let data = Data { axes: &self.axes, points: &points, values: &values };
        let fit = fit(&data, &Hyper::prior(self.axes.len()), 15);
        Some(Process::new(&data, &fit.hyper))
    }

    fn best(&self) -> usize {
        (0..self.losses.len()).min_by(|a, b| self.losses[*a].total_cmp(&self.losses[*b])).unwrap_or(0)
    }

    /// For each trial that was chosen in the trust region, whether it was better than all before it.
    fn successes(&self) -> impl Iterator<Item = bool> {
        let first = initial(self.axes.len());
        let mut best = f64::INFINITY;
        let judged = self.numbers.iter().zip(&self.losses).enumerate().map(move |(index, (number, loss))| {
            let success = *loss < best;
            best = best.min(*loss);
            (index >= first && is_local(*number)).then_some(success)
        });
        judged.flatten()
    }

    fn distance(&self, a: &[f64], b: &[f64]) -> f64 {
        let pairs = self.axes.iter().zip(a.iter().zip(b));
        pairs.map(|(axis, (a, b))| axis.difference(*a, *b).powi(2)).sum()
    }
}

/// The loss of a trial that has one and kept to the constraints.
fn loss(row: &Row) -> Option<f64> {
    match &row.outcome {
        Outcome::Finished { losses, violation } if *violation == 0.0 => losses.first().copied(),
        Outcome::Pruned { loss, .. } => *loss,
        _ => None,
    }
}
