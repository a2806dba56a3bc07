//! The part of the space in which an arm looks: all of it, or a trust region around the best trial, which grows and
//! shrinks with the arm's success (TuRBO: Eriksson et al. 2019; TREGO: Diouane et al. 2022).

use super::kernel::Axis;

/// Side of the trust region at first, its largest and its smallest, as shares of the space's.
const SIDES: (f64, f64, f64) = (0.4, 0.8, 0.002);
/// What a success and a failure multiply the side by.
const FACTORS: (f64, f64) = (1.6, 0.75);

/// A box of the unit cube.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Region {
    /// Lower and upper bound of each axis.
    pub(super) bounds: Vec<(f64, f64)>,
    /// What the choices are kept at, mostly; `None` for the whole space.
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
            // One step to either side is always within reach.
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

/// The trust region's side after these outcomes of trials that were chosen in it, in their order.
pub(super) fn side(successes: impl Iterator<Item = bool>) -> f64 {
    let (first, largest, smallest) = SIDES;
    successes.fold(first, |side, success| {
        let next = side * if success { FACTORS.0 } else { FACTORS.1 };
        // A region that has become too small to find anything in starts over.
        if next < smallest { first } else { next.min(largest) }
    })
}
