//! The region of the space that an arm searches: the whole space, or a trust region around the best trial, which grows with
//! successes and shrinks with failures (TuRBO: Eriksson et al. 2019; TREGO: Diouane et al. 2022).

use super::kernel::Axis;

/// The initial, largest and smallest side of the trust region, as shares of the space.
const SIDES: (f64, f64, f64) = (0.4, 0.8, 0.002);
/// The factors of the side after a success and after a failure.
const FACTORS: (f64, f64) = (1.4, 0.85);
/// The smallest improvement that is a success, as a share of the distance between the best and the fifth best loss.
const GAIN: f64 = 0.05;
/// The smallest distance, along some axis, of a new region's centre from an abandoned region.
pub(super) const APART: f64 = 0.15;

/// A box of the unit cube.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Region {
    /// Lower and upper bound of each axis.
    pub(super) bounds: Vec<(f64, f64)>,
    /// The centre, whose values choices mostly keep; `None` for the whole space.
    pub(super) centre: Option<Vec<f64>>,
}

impl Region {
    pub(super) fn whole(dimensions: usize) -> Region {
        Region { bounds: vec![(0.0, 1.0); dimensions], centre: None }
    }

    /// The box of this side around a point; sides are in proportion to the lengthscales.
    pub(super) fn around(centre: &[f64], side: f64, log_lengthscales: &[f64], axes: &[Axis]) -> Region {
        let numeric: Vec<f64> = axes
            .iter()
            .zip(log_lengthscales)
            .filter(|(axis, _)| !matches!(axis, Axis::Choice(_)))
            .map(|(_, log)| *log)
            .collect();
        let mean = numeric.iter().sum::<f64>() / numeric.len().max(1) as f64;
        let bounds = axes.iter().zip(centre).zip(log_lengthscales).map(|((axis, centre), log)| match axis {
            Axis::Choice(_) => (0.0, 1.0),
            Axis::Continuous => bounds(*centre, 0.5 * side * (log - mean).clamp(-1.5, 1.5).exp()),
            // The box always contains one step of the lattice on each side.
            Axis::Fine(range) => {
                let step = 1.0 / range.cells().unwrap_or(f64::INFINITY);
                bounds(*centre, (0.5 * side * (log - mean).clamp(-1.5, 1.5).exp()).max(1.01 * step))
            }
            Axis::Levels(levels) => {
                let step = 1.0 / levels.len() as f64;
                bounds(*centre, (0.5 * side * (log - mean).clamp(-1.5, 1.5).exp()).max(1.01 * step))
            }
        });
        Region { bounds: bounds.collect(), centre: Some(centre.to_vec()) }
    }
}

fn bounds(centre: f64, half: f64) -> (f64, f64) {
    ((centre - half).max(0.0), (centre + half).min(1.0))
}

/// The state of the trust region.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Trust {
    /// The side of the region, as a share of the space's side.
    pub(super) side: f64,
    /// Index of the trial at the region's centre.
    pub(super) centre: usize,
    /// Index of the trial at the centre of the last abandoned region.
    pub(super) left: Option<usize>,
}

/// A trial in the form that the trust region needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step<'a> {
    pub(super) point: &'a [f64],
    pub(super) loss: f64,
    /// Whether the trial was proposed in the trust region.
    pub(super) is_local: bool,
}

impl Trust {
    /// The region after these trials, at least one, in their order. Depends only on these trials.
    ///
    /// A region that is too small is abandoned; the next one is around the best trial elsewhere.
    pub(super) fn after(steps: &[Step<'_>], apart: impl Fn(&[f64], &[f64]) -> f64) -> Trust {
        let (first, largest, smallest) = SIDES;
        let mut left: Option<usize> = None;
        let is_near = |left: Option<usize>, index: usize| {
            left.is_some_and(|left| apart(steps[left].point, steps[index].point) < APART)
        };
        let mut trust = Trust { side: first, centre: 0, left };
        for (index, step) in steps.iter().enumerate().skip(1) {
            let gain = steps[trust.centre].loss - step.loss;
            let is_better = gain > 0.0 && !is_near(left, index);
            if step.is_local {
                let success = is_better && gain > GAIN * spread(&steps[..index]);
                trust.side = (trust.side * if success { FACTORS.0 } else { FACTORS.1 }).min(largest);
            }
            if is_better {
                trust.centre = index;
            }
            if trust.side < smallest {
                left = Some(trust.centre);
                let elsewhere = (0..=index).filter(|other| !is_near(left, *other));
                let best = elsewhere.min_by(|a, b| steps[*a].loss.total_cmp(&steps[*b].loss));
                trust = Trust { side: first, centre: best.unwrap_or(trust.centre), left };
            }
        }
        trust
    }
}

/// The distance between the best and the fifth best loss, which determines the smallest improvement that is a success.
fn spread(steps: &[Step<'_>]) -> f64 {
    let mut losses: Vec<f64> = steps.iter().map(|step| step.loss).collect();
    let rank = 4.min(losses.len() - 1);
    let (below, fifth, _) = losses.select_nth_unstable_by(rank, f64::total_cmp);
    let best = below.iter().copied().fold(*fifth, f64::min);
    *fifth - best
}
