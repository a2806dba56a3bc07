//! Distances between points of the unit cube, and the Matérn-5/2 kernel over them. Learns nothing.

use crate::inferred::{Dimension, Space};
use ferrotune_space::Distribution;

/// The largest number of values of a lattice axis; a finer lattice is searched as a continuous axis, and the result is rounded.
const MOST_LEVELS: usize = 50;

/// The kind of a coordinate, for the kernel and for the search for the best point.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Axis {
    /// Any number of the unit interval.
    Continuous,
    /// Numbers of a lattice with many values.
    Fine(Distribution),
    /// Numbers of a lattice, in their order.
    Levels(Vec<f64>),
    /// Values without an order, which all have the same distance from each other.
    Choice(Vec<f64>),
}

/// The coordinate of a choice that a trial does not ask for.
const ABSENT: f64 = -1.0;

impl Axis {
    pub(super) fn all(space: &Space) -> Vec<Axis> {
        space.dimensions.iter().map(Axis::of).collect()
    }

    fn of(dimension: &Dimension) -> Axis {
        match (&dimension.distribution, dimension.distribution.levels(MOST_LEVELS)) {
            (Distribution::Choice { values, is_ordered: false }, levels) => {
                Axis::Choice(levels.unwrap_or_else(|| centres(values.len())))
            }
            (_, Some(levels)) => Axis::Levels(levels),
            (range, None) if range.cells().is_some() => Axis::Fine(range.clone()),
            (_, None) => Axis::Continuous,
        }
    }

    /// The coordinate of a parameter that a trial does not ask for.
    fn absent(&self) -> f64 {
        if let Axis::Choice(_) = self { ABSENT } else { 0.5 }
    }

    /// The value of the axis that is nearest to a coordinate.
    pub(super) fn snap(&self, unit: f64) -> f64 {
        match self {
            Axis::Continuous => unit.clamp(0.0, 1.0),
            Axis::Fine(range) => range.to_unit(&range.from_unit(unit)).unwrap_or(unit),
            Axis::Levels(levels) => {
                let nearest = levels.iter().min_by(|a, b| (*a - unit).abs().total_cmp(&(*b - unit).abs()));
                nearest.copied().unwrap_or(unit)
            }
            // All choices have cells of equal width.
            Axis::Choice(values) => values[((unit * values.len() as f64) as usize).min(values.len() - 1)],
        }
    }

    /// The distance of two coordinates.
    pub(super) fn difference(&self, a: f64, b: f64) -> f64 {
        match self {
            Axis::Choice(_) => f64::from(u8::from(a != b)),
            _ => a - b,
        }
    }
}

/// The middles of equal cells.
fn centres(cells: usize) -> Vec<f64> {
    (0..cells).map(|cell| (cell as f64 + 0.5) / cells as f64).collect()
}

/// A point in the kernel's coordinates, with coordinates also for parameters that the trial does not ask for.
pub(super) fn embed(axes: &[Axis], space: &Space, point: &[f64]) -> Vec<f64> {
    let is_present = |index: usize| !point[index].is_nan() && space.is_active(index, point);
    let coordinate = |(index, axis): (usize, &Axis)| if is_present(index) { point[index] } else { axis.absent() };
    axes.iter().enumerate().map(coordinate).collect()
}

/// The smoothness of the functions of a process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Shape {
    /// Twice differentiable: Matérn 5/2.
    Matern,
    /// Infinitely differentiable: the squared exponential.
    Gaussian,
}

/// A kernel over all axes together, plus the mean of kernels over each axis alone.
#[derive(Clone, Debug)]
pub(super) struct Kernel {
    shape: Shape,
    /// √5 over each lengthscale of the joint kernel.
    joint: Vec<f64>,
    /// √5 over each lengthscale of the single-axis kernels.
    single: Vec<f64>,
    /// The share of the single-axis kernels in the sum.
    share: f64,
}

impl Kernel {
    /// The kernel with these logarithms of the joint kernel's lengthscales; the logarithms for the single-axis kernels are lower by
    /// `log_narrowing`.
    pub(super) fn new(shape: Shape, log_lengthscales: &[f64], log_narrowing: f64, share: f64) -> Kernel {
        let joint: Vec<f64> = log_lengthscales.iter().map(|log| 5_f64.sqrt() * (-log).exp()).collect();
        let single = joint.iter().map(|scale| scale * log_narrowing.exp()).collect();
        Kernel { shape, joint, single, share }
    }

    /// Covariance of two points from their distances along the axes; 1 for a point with itself.
    pub(super) fn value(&self, distances: &[f64]) -> f64 {
        let square: f64 = distances.iter().zip(&self.joint).map(|(d, scale)| (d * scale).powi(2)).sum();
        let single: f64 = distances.iter().zip(&self.single).map(|(d, scale)| self.shape.covariance(d * scale).0).sum();
        (1.0 - self.share) * self.shape.covariance(square.sqrt()).0 + self.share / distances.len() as f64 * single
    }

    /// The covariance, and its derivatives by half of the squared distances.
    pub(super) fn value_and_square_slopes(&self, distances: &[f64], slopes: &mut [f64]) -> f64 {
        let scale = self.share / distances.len() as f64;
        let square: f64 = distances.iter().zip(&self.joint).map(|(d, scale)| (d * scale).powi(2)).sum();
        let (joint, joint_slope) = self.shape.covariance(square.sqrt());
        let mut sum = 0.0;
        for (index, distance) in distances.iter().enumerate() {
            let (value, slope) = self.shape.covariance(distance * self.single[index]);
            sum += value;
            slopes[index] = (1.0 - self.share) * joint_slope * self.joint[index].powi(2)
                + scale * slope * self.single[index].powi(2);
        }
        (1.0 - self.share) * joint + scale * sum
    }

    /// The covariance, and its derivatives by the logarithms of the lengthscales, by `log_narrowing`, and by the logit
    /// of the share.
    pub(super) fn value_and_slopes(&self, distances: &[f64], slopes: &mut [f64]) -> f64 {
        let dimensions = distances.len();
        let scale = self.share / dimensions as f64;
        let square: f64 = distances.iter().zip(&self.joint).map(|(d, scale)| (d * scale).powi(2)).sum();
        let (joint, joint_slope) = self.shape.covariance(square.sqrt());
        let by_joint = (1.0 - self.share) * joint_slope;
        let (mut sum, mut by_narrowing) = (0.0, 0.0);
        for index in 0..dimensions {
            let (joint, single) = (distances[index] * self.joint[index], distances[index] * self.single[index]);
            let (value, slope) = self.shape.covariance(single);
            let by_single = scale * slope * single * single;
            sum += value;
            by_narrowing += by_single;
            slopes[index] = -by_single - by_joint * joint * joint;
        }
        slopes[dimensions] = by_narrowing;
        slopes[dimensions + 1] = self.share * (1.0 - self.share) * (sum / dimensions as f64 - joint);
        (1.0 - self.share) * joint + scale * sum
    }
}

impl Shape {
    /// Covariance at a distance in units of the lengthscale over √5, and its derivative by half of the distance's
    /// square.
    fn covariance(self, distance: f64) -> (f64, f64) {
        match self {
            Shape::Matern => {
                let decay = exp_of_negative(-distance);
                ((1.0 + distance + distance * distance / 3.0) * decay, -(1.0 + distance) / 3.0 * decay)
            }
            Shape::Gaussian => {
                let decay = exp_of_negative(-0.1 * distance * distance);
                (decay, -0.2 * decay)
            }
        }
    }
}

/// The exponential function of a number that is not positive, to twelve digits. The standard library's function cannot
/// be inlined into a loop and would take three quarters of the time of a fit.
fn exp_of_negative(x: f64) -> f64 {
    // Adding this constant rounds to a whole number, and puts that number into the lowest bits.
    const ROUND: f64 = 6_755_399_441_055_744.0;
    const COEFFICIENTS: [f64; 11] = [
        1.0 / 3_628_800.0,
        1.0 / 362_880.0,
        1.0 / 40_320.0,
        1.0 / 5_040.0,
        1.0 / 720.0,
        1.0 / 120.0,
        1.0 / 24.0,
        1.0 / 6.0,
        0.5,
        1.0,
        1.0,
    ];
    let x = x.max(-700.0);
    let rounded = x * std::f64::consts::LOG2_E + ROUND;
    let rest = x - (rounded - ROUND) * std::f64::consts::LN_2;
    let power = f64::from_bits((rounded.to_bits() << 52).wrapping_add(1_f64.to_bits()));
    COEFFICIENTS.iter().fold(0.0, |sum, coefficient| sum * rest + coefficient) * power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_exponential_is_that_of_the_library() {
        for step in 0..100_000 {
            let x = f64::from(step) * -0.0069;
            assert!((exp_of_negative(x) / x.exp() - 1.0).abs() < 1e-11, "{x}");
        }
    }

    #[test]
    fn derivatives_are_slopes() {
        let logs = [-0.5, 0.3];
        let value = |logs: &[f64], narrowing: f64, logit: f64, distances: &[f64]| {
            Kernel::new(Shape::Matern, logs, narrowing, 1.0 / (1.0 + f64::exp(-logit))).value(distances)
        };
        let distances = [0.3, 0.8];
        let mut slopes = [0.0; 4];
        Kernel::new(Shape::Matern, &logs, 0.4, 1.0 / (1.0 + f64::exp(-0.2))).value_and_slopes(&distances, &mut slopes);
        let step = 1e-6;
        let by = [
            value(&[-0.5 + step, 0.3], 0.4, 0.2, &distances) - value(&[-0.5 - step, 0.3], 0.4, 0.2, &distances),
            value(&[-0.5, 0.3 + step], 0.4, 0.2, &distances) - value(&[-0.5, 0.3 - step], 0.4, 0.2, &distances),
            value(&logs, 0.4 + step, 0.2, &distances) - value(&logs, 0.4 - step, 0.2, &distances),
            value(&logs, 0.4, 0.2 + step, &distances) - value(&logs, 0.4, 0.2 - step, &distances),
        ];
        for (slope, difference) in slopes.iter().zip(by) {
            assert!((slope - difference / (2.0 * step)).abs() < 1e-6, "{slopes:?}");
        }
    }
}
