//! Bayesian optimisation with a Gaussian process: a global arm and a trust-region arm alternate. For searches of up to
//! a few hundred trials, because the cost grows with the cube of their number.

mod acquisition;
pub(super) mod bandit;
mod barrier;
mod earlier;
mod evidence;
mod excess;
mod expectation;
mod kernel;
mod matrix;
mod minimise;
mod model;
mod region;
pub(super) mod regret;
pub(super) mod slices;
mod warp;

use super::history::History;
use super::qmc;
use super::random::generator;
use super::sampler::Sampler;
use super::text::{SettingError, SettingsText};
use crate::inferred::Space;
use acquisition::{Promise, Quest};
use barrier::Barrier;
use earlier::Earlier;
use evidence::{Evidence, Observed, is_same};
use expectation::{Expectation, PriorMean};
use kernel::{Axis, Shape, embed};
use model::{Data, Fit, Hyper, Process, fit};
use rand_pcg::Pcg64;
use region::{APART, Region, Trust};
use std::sync::Arc;
use warp::{Scaling, WARPS, Warp, Warped};

/// The trust region begins after this many losses, plus one for each parameter.
const WHOLE: usize = 4;
/// The interval at which a trial searches the whole space.
const ARMS: u64 = 3;
/// The smallest gain of a trust region, as a share of the distance from the best loss to the median loss. If the region's best
/// point promises less, the trial searches the whole space.
const LEAST_GAIN: f64 = 1e-4;
/// The numbers of trials for choosing the kind of model (`ROUGH`) and for fitting its hyper-parameters (`FINE`). More trials
/// take time and change little.
const ROUGH: usize = 64;
const FINE: usize = 120;
/// The numbers of trials in the model of the whole space (`MOST`) and in the model of a trust region (`MOST_NEAR`).
const MOST: usize = 300;
const MOST_NEAR: usize = 60;
/// The numbers of evaluations of the likelihood for the first warp, for each further warp, for another smoothness, and for the
/// final fit.
const EVALUATIONS: [usize; 4] = [12, 6, 8, 12];
/// The smallest initial noise of the last rough fit: the logarithm of the noise's share of the signal's variance.
const LOG_NOISE: f64 = -3.0;
/// The logarithm of the factor by which that fit must be more probable than the others, since few losses of a rugged function look
/// like noise.
const DOUBT: f64 = 2.0;
/// The share of the signal's variance below which noise is negligible: losses are then used without noise.
const NEGLIGIBLE: f64 = 0.01;
/// The number of good points around which both arms search.
const GOOD: usize = 3;

/// The Gaussian-process sampler.
#[derive(Debug, Default)]
pub(super) struct Gp {
    /// The noise's variance as a share of the signal's; `None` learns it.
    noise: Option<f64>,
    /// Whether the last proposal repeats a trial.
    repeats: bool,
    /// The models of earlier studies, as for the last proposal: a cache.
    earlier: Vec<Arc<Earlier>>,
}

impl Gp {
    /// The sampler with the setting in `text`: `noise`.
    pub(super) fn with(text: &SettingsText<'_>) -> Result<Gp, SettingError> {
        Ok(Gp { noise: text.number("noise", 0.0..=1.0)?, ..Gp::default() })
    }
}

impl Sampler for Gp {
    fn propose(&mut self, history: &History, trial: u64) -> Option<Vec<f64>> {
        self.repeats = false;
        let dimensions = history.space.dimensions.len();
        if dimensions == 0 {
            return None;
        }
        let mut rng = generator(history.settings.seed, trial, "gp");
        let known = std::mem::take(&mut self.earlier);
        self.earlier = Earlier::all(history, &known, |evidence| self.prior(evidence), &rng);
        let evidence = Evidence::of(history, history.own(), &mut rng);
        let spread = || qmc::point(history.settings.seed, trial, dimensions);
        if !evidence.is_enough() {
            return Some(self.first(history, &evidence, trial, spread(), &mut rng));
        }
        if !self.earlier.is_empty() && evidence.is_few() {
            let view = View::of(&evidence, &[], false, &self.prior(&evidence), &self.earlier, &mut rng);
            // The earlier studies are wrong, and what they have chosen tells little.
            if view.promise.expectation.prior.is_empty() {
                return Some(spread());
            }
        }
        let in_trust_region = evidence.losses.len() >= WHOLE + dimensions && is_local(trial);
        let barriers = Barrier::all(&evidence);
        let mut search = |in_trust_region: bool| {
            let prior = self.prior(&evidence);
            let mut view = View::of(&evidence, &barriers, in_trust_region, &prior, &self.earlier, &mut rng);
            view.assume_open();
            let found = view.search(&history.space, &mut rng);
            found.map(|(score, point)| (score + view.worth.ln(), point))
        };
        let near = in_trust_region.then(|| search(true)).flatten();
        let near = near.filter(|(log_gain, _)| *log_gain >= LEAST_GAIN.ln());
        let found = near.or_else(|| search(false)).map(|(_, point)| point);
        self.repeats = found.as_ref().is_some_and(|point| evidence.points.iter().any(|other| is_same(other, point)));
        Some(found.unwrap_or_else(spread))
    }

    fn repeats(&self) -> bool {
        self.repeats
    }

    fn begins_in_the_middle(&self) -> bool {
        true
    }
}

impl Gp {
    fn prior(&self, evidence: &Evidence) -> Hyper {
        evidence.prior.clone().with_noise(self.noise)
    }

    /// A point for a search that knows too little itself. By turns, it is the most promising one by the model of an earlier study, and one
    /// that needs no model: first the middle, and then the `spread` one. If the earlier studies are wrong, this search has then not seen
    /// bad points alone.
    fn first(&self, history: &History, own: &Evidence, trial: u64, spread: Vec<f64>, rng: &mut Pcg64) -> Vec<f64> {
        let Some(turn) = (trial / 2).checked_rem(self.earlier.len() as u64) else { return spread };
        if trial.is_multiple_of(2) {
            let coordinate = |(axis, unit): (&Axis, &f64)| match axis {
                Axis::Choice(_) => axis.snap(*unit),
                _ => axis.snap(0.5),
            };
            let middle: Vec<f64> = own.axes.iter().zip(&spread).map(coordinate).collect();
            let middle = embed(&own.axes, &history.space, &middle);
            let known = own.points.iter().chain(&own.open).chain(&own.failed);
            return if { known }.any(|point| is_same(point, &middle)) { spread } else { middle };
        }
        let evidence = self.earlier[turn as usize].evidence.before(own);
        let barriers = Barrier::all(&evidence);
        let mut view = View::of(&evidence, &barriers, false, &self.prior(&evidence), &[], rng);
        view.assume_open();
        view.search(&history.space, rng).map_or(spread, |(_, point)| point)
    }
}

fn is_local(trial: u64) -> bool {
    !trial.is_multiple_of(ARMS)
}

/// A process over the losses of some trials, and the region in which to search for a better point.
struct View<'a> {
    evidence: &'a Evidence,
    hyper: Hyper,
    /// The points and values to which the process is fitted, and the variances of the values' own errors. The values are those beyond the
    /// prior mean.
    points: Vec<Vec<f64>>,
    values: Vec<f64>,
    errors: Vec<f64>,
    /// The loss that one unit of the values is worth near the best value.
    worth: f64,
    scaling: Scaling,
    promise: Promise<'a>,
    region: Region,
    /// The best points of the view.
    good: Vec<Vec<f64>>,
}

impl<'a> View<'a> {
    /// The view of an arm: the trust region, or the whole space.
    fn of(
        evidence: &'a Evidence,
        barriers: &'a [Barrier],
        in_trust_region: bool,
        prior: &Hyper,
        earlier: &[Arc<Earlier>],
        rng: &mut Pcg64,
    ) -> View<'a> {
        let dimensions = evidence.axes.len();
        let trust = in_trust_region.then(|| {
            let mut steps = evidence.steps(is_local);
            steps.iter_mut().take(WHOLE + dimensions).for_each(|step| step.is_local = false);
            Trust::after(&steps, |a, b| evidence.apart(a, b))
        });
        let members: Vec<usize> = match &trust {
            Some(trust) => evidence.nearest(
                &evidence.points[trust.centre],
                trust.side,
                (5 * dimensions + 5).min(MOST_NEAR)..=MOST_NEAR,
            ),
            None => thinned(&evidence.losses, MOST),
        };
        let observed = evidence.observed(&members);
        let (warp, hyper) = model(&evidence.axes, &observed, prior);
        let Warped { values, errors, worth, scaling, .. } = warp.apply(&observed.losses, &observed.deviations);
        let Observed { points, losses, .. } = observed;
        let data = Data { axes: &evidence.axes, points: &points, values: &values, errors: &errors };
        let process = Process::new(&data, &hyper);
        // What exceeds constraints is no objective.
        let alike = earlier.iter().filter(|earlier| earlier.evidence.is_of_excesses == evidence.is_of_excesses);
        let mean = PriorMean::of(&alike.collect::<Vec<_>>(), &process, &points, &values, rng);
        let beyond: Vec<f64> = values.iter().zip(&points).map(|(value, point)| value - mean.at(point)).collect();
        let (hyper, process) = if mean.is_empty() {
            (hyper, process)
        } else {
            let data = Data { values: &beyond, ..data };
            let hyper = fit(&data, prior, &hyper, EVALUATIONS[3]).hyper;
            let process = Process::new(&data, &hyper);
            (hyper, process)
        };
        let expectation = Expectation::around(mean, process);
        let is_noisy = hyper.log_noise >= NEGLIGIBLE.ln() && losses.iter().any(|loss| *loss != losses[0]);
        // A noisy value may be low by chance; the model's expected value is not.
        let expected: Vec<f64> = if is_noisy {
            points.iter().map(|point| expectation.predict(point).mean).collect()
        } else {
            values.clone()
        };
        let lowest = |is_candidate: &dyn Fn(usize) -> bool| {
            let keeps = |index: &usize| evidence.is_whole[members[*index]] && evidence.is_feasible[members[*index]];
            let candidates = (0..points.len()).filter(|index| keeps(index) && is_candidate(*index));
            candidates.min_by(|a, b| expected[*a].total_cmp(&expected[*b]))
        };
        // If no trial of the view keeps the constraints, the score uses only the probability of keeping them.
        let worst = || values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let best = lowest(&|_| true).map_or_else(worst, |index| expected[index]);
        let region = trust.as_ref().map_or_else(
            || Region::whole(dimensions),
            |Trust { side, centre, left }| {
                let is_left =
                    |point: &Vec<f64>| left.is_some_and(|left| evidence.apart(&evidence.points[left], point) < APART);
                let centre = lowest(&|index| is_noisy && !is_left(&points[index]))
                    .map_or(&evidence.points[*centre], |index| &points[index]);
                Region::around(centre, *side, &hyper.log_lengthscales, &evidence.axes)
            },
        );
        let mut order: Vec<usize> = (0..points.len()).collect();
        order.sort_by(|a, b| expected[*a].total_cmp(&expected[*b]));
        let mut good = distinct(order.into_iter().map(|index| &points[index]), GOOD);
        good.extend(expectation.prior.best().cloned());
        let noise = if is_noisy { expectation.process.noise_deviation() } else { 0.0 };
        let promise = Promise { expectation, best, noise, barriers };
        View { evidence, hyper, points, values: beyond, errors, worth, scaling, promise, region, good }
    }

    /// Assumes that each running trial has the predicted value, so that its point promises no further improvement
    /// (Ginsbourger et al. 2010).
    fn assume_open(&mut self) {
        for open in &self.evidence.open {
            self.values.push(self.promise.expectation.process.predict(open).mean);
            self.points.push(open.clone());
            self.errors.push(0.0);
            let (points, values, errors) = (&self.points, &self.values, &self.errors);
            let data = Data { axes: &self.evidence.axes, points, values, errors };
            self.promise.expectation.process = Process::new(&data, &self.hyper);
        }
        if self.promise.noise > 0.0 {
            self.promise.noise = self.promise.expectation.process.noise_deviation();
        }
    }

    /// The most promising point, with the logarithm of its promise; `None` if all examined points are barred.
    fn search(&self, space: &Space, rng: &mut Pcg64) -> Option<(f64, Vec<f64>)> {
        let evidence = self.evidence;
        let may_repeat = self.promise.noise > 0.0 && !evidence.repeats_agree();
        let tried = evidence.points.iter().filter(|_| !may_repeat);
        let barred: Vec<Vec<f64>> = tried.chain(&evidence.open).chain(&evidence.failed).cloned().collect();
        let quest = Quest {
            promise: &self.promise,
            axes: &evidence.axes,
            space,
            region: &self.region,
            good: &self.good,
            barred: &barred,
            known: &evidence.points,
            scales: self.hyper.log_lengthscales.iter().map(|log| log.exp().min(1.0)).collect(),
        };
        quest.run(rng)
    }
}

/// The first few of these points that differ from each other.
fn distinct<'a>(points: impl Iterator<Item = &'a Vec<f64>>, most: usize) -> Vec<Vec<f64>> {
    let mut distinct: Vec<Vec<f64>> = Vec::with_capacity(most);
    for point in points {
        if distinct.len() < most && !distinct.iter().any(|other| is_same(other, point)) {
            distinct.push(point.clone());
        }
    }
    distinct
}

/// The warp and the hyper-parameters that make the losses most probable.
fn model(axes: &[Axis], observed: &Observed, prior: &Hyper) -> (Warp, Hyper) {
    let [first, further, smoother, last] = EVALUATIONS;
    let few = observed.chosen(&thinned(&observed.losses, ROUGH));
    let rough = |warp: Warp, start: &Hyper, evaluations: usize| {
        let warped = warp.apply(&few.losses, &few.deviations);
        let data = Data { axes, points: &few.points, values: &warped.values, errors: &warped.errors };
        let Fit { hyper, badness } = fit(&data, prior, start, evaluations);
        (badness - warped.log_stretch, warp, hyper)
    };
    let mut found = vec![rough(WARPS[0], prior, first)];
    for warp in &WARPS[1..] {
        // The hyper-parameters of this warp are close to those of the previous warp.
        let start = found[found.len() - 1].2.clone();
        found.push(rough(*warp, &start, further));
    }
    let by_badness = |a: &&(f64, Warp, Hyper), b: &&(f64, Warp, Hyper)| a.0.total_cmp(&b.0);
    let starts: Vec<(Warp, Hyper)> = found
        .first()
        .into_iter()
        .chain(found.iter().min_by(by_badness))
        .map(|(_, warp, hyper)| (*warp, Hyper { shape: Shape::Gaussian, ..hyper.clone() }))
        .collect();
    found.extend(starts.iter().map(|(warp, start)| rough(*warp, start, smoother)));
    if !prior.is_noise_given {
        // The likelihood has no slope along the noise if the noise is tiny, so a fit from there finds no noise.
        let (_, warp, hyper) = found.iter().min_by(by_badness).unwrap_or(&found[0]);
        let start = Hyper { log_noise: hyper.log_noise.max(LOG_NOISE), ..hyper.clone() };
        let (badness, warp, hyper) = rough(*warp, &start, smoother);
        found.push((badness + DOUBT, warp, hyper));
    }
    let (_, warp, start) = found.iter().min_by(by_badness).unwrap_or(&found[0]);
    let more = observed.chosen(&thinned(&observed.losses, FINE));
    let warped = warp.apply(&more.losses, &more.deviations);
    let data = Data { axes, points: &more.points, values: &warped.values, errors: &warped.errors };
    (*warp, fit(&data, prior, start, last).hyper)
}

/// Indices, in order, of at most `most` trials: half of them the best by loss, and the other half evenly chosen
/// from the others.
fn thinned(losses: &[f64], most: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..losses.len()).collect();
    if order.len() > most {
        order.sort_by(|a, b| losses[*a].total_cmp(&losses[*b]));
        let (good, rest) = order.split_at(most / 2);
        let even = (0..most - good.len()).map(|part| rest[part * rest.len() / (most - good.len())]);
        order = good.iter().copied().chain(even).collect();
        order.sort_unstable();
    }
    order
}
