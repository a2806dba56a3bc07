//! Distances between points of the unit cube, and the Matérn-5/2 kernel over them. Learns nothing.

use crate::space::{Dimension, Distribution, Space};

/// Lattices with more values are searched as if they were continuous.
const MOST_LEVELS: f64 = 50.0;

/// What a coordinate is, to the kernel and to the search for the best point.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Axis {
    /// Any number of the unit interval.
    Continuous,
    /// Numbers of a lattice, in their order.
    Levels(Vec<f64>),
    /// Values without an order: all are as far from each other.
    Choice(Vec<f64>),
}

/// The coordinate of a choice that a trial does not ask for.
const ABSENT: f64 = -1.0;

impl Axis {
    pub(super) fn all(space: &Space) -> Vec<Axis> {
        space.dimensions.iter().map(Axis::of).collect()
    }

    fn of(dimension: &Dimension) -> Axis {
        let distribution = &dimension.distribution;
        let levels = |count: f64| -> Vec<f64> {
            // Found by their values, for cells on a logarithmic scale are not equally wide.
            let mut levels: Vec<f64> = match distribution {
                Distribution::Int { low, high, log: true, .. } => {
                    let values = (*low..=*high).map(crate::space::Value::Int);
                    values.filter_map(|value| distribution.to_unit(&value)).collect()
                }
                _ => (0..count as usize).map(|index| (index as f64 + 0.5) / count).collect(),
            };
            levels.dedup();
            levels
        };
        match (distribution, distribution.cells()) {
            (Distribution::Choice { .. }, Some(count)) => Axis::Choice(levels(count)),
            (_, Some(count)) if count <= MOST_LEVELS => Axis::Levels(levels(count)),
            _ => Axis::Continuous,
        }
    }

    /// The coordinate that stands for a parameter that is not asked for.
    fn absent(&self) -> f64 {
        if let Axis::Choice(_) = self { ABSENT } else { 0.5 }
    }

    /// The nearest coordinate that a value has.
    pub(super) fn snap(&self, unit: f64) -> f64 {
        match self {
            Axis::Continuous => unit.clamp(0.0, 1.0),
            Axis::Levels(levels) => {
                let nearest = levels.iter().min_by(|a, b| (*a - unit).abs().total_cmp(&(*b - unit).abs()));
                nearest.copied().unwrap_or(unit)
            }
            // Equal cells.
            Axis::Choice(values) => values[((unit * values.len() as f64) as usize).min(values.len() - 1)],
        }
    }

    /// How far two coordinates are apart.
    pub(super) fn difference(&self, a: f64, b: f64) -> f64 {
        match self {
            Axis::Choice(_) => f64::from(u8::from(a != b)),
            _ => a - b,
        }
    }
}

/// A point with coordinates that the kernel can take: of values, and of those that are not asked for.
pub(super) fn embed(axes: &[Axis], space: &Space, point: &[f64]) -> Vec<f64> {
    let is_present = |index: usize| !point[index].is_nan() && space.is_active(index, point);
    let coordinate = |(index, axis): (usize, &Axis)| if is_present(index) { point[index] } else { axis.absent() };
    axes.iter().enumerate().map(coordinate).collect()
}

/// Matérn 5/2 of a squared distance.
pub(super) fn matern(square: f64) -> f64 {
    let distance = (5.0 * square).sqrt();
    (1.0 + distance + distance * distance / 3.0) * (-distance).exp()
}

/// [`matern`], and its derivative by the squared distance.
pub(super) fn matern_and_slope(square: f64) -> (f64, f64) {
    let distance = (5.0 * square).sqrt();
    let decay = (-distance).exp();
    ((1.0 + distance + distance * distance / 3.0) * decay, -5.0 / 6.0 * (1.0 + distance) * decay)
}
