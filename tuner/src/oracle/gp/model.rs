//! A Gaussian process over points of the unit cube: its hyper-parameters by maximum a posteriori, and what it predicts.
//! Knows no trials.

use super::kernel::{Axis, matern, matern_and_slope};
use super::matrix::{Cholesky, dot};
use super::minimise::minimise;

/// Bounds of the lengthscales' logarithms.
const LENGTHSCALES: (f64, f64) = (-5.3, 3.0);
/// Bounds of the logarithm of the noise's share of the variance.
const NOISE: (f64, f64) = (-18.0, 0.0);
/// Weight of the prior that the variance is that of the data, in observations.
const VARIANCE_PRIOR: f64 = 4.0;

/// What a process is made of, apart from its data.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Hyper {
    /// Logarithm of each axis' lengthscale.
    pub(super) log_lengthscales: Vec<f64>,
    /// Logarithm of the noise's variance over the signal's.
    pub(super) log_noise: f64,
}

impl Hyper {
    /// The prior's centre: lengthscales that grow with the dimension (Hvarfner et al. 2024, arXiv 2402.02229), and
    /// little noise.
    pub(super) fn prior(dimensions: usize) -> Hyper {
        let log_lengthscale = std::f64::consts::SQRT_2 + 0.5 * (dimensions as f64).ln() - 3.0;
        Hyper { log_lengthscales: vec![log_lengthscale; dimensions], log_noise: -9.0 }
    }

    fn from_vector(vector: &[f64]) -> Hyper {
        let (log_noise, log_lengthscales) = vector.split_last().map_or((0.0, &[][..]), |(last, rest)| (*last, rest));
        Hyper { log_lengthscales: log_lengthscales.to_vec(), log_noise }
    }

    fn to_vector(&self) -> Vec<f64> {
        self.log_lengthscales.iter().copied().chain([self.log_noise]).collect()
    }

    /// One over each squared lengthscale.
    fn weights(&self) -> Vec<f64> {
        self.log_lengthscales.iter().map(|log| (-2.0 * log).exp()).collect()
    }

    /// Minus the logarithm of the prior's density, and its gradient added to `gradient`.
    fn penalty(&self, gradient: &mut [f64]) -> f64 {
        let prior = Hyper::prior(self.log_lengthscales.len()).to_vector();
        let deviations: Vec<f64> = self.to_vector().iter().zip(&prior).map(|(x, mean)| x - mean).collect();
        let last = deviations.len() - 1;
        let variance = |index: usize| if index == last { 16.0 } else { 3.0 };
        gradient.iter_mut().enumerate().for_each(|(index, slope)| *slope += deviations[index] / variance(index));
        deviations.iter().enumerate().map(|(index, x)| x * x / (2.0 * variance(index))).sum()
    }
}

/// Points and values that a process is fitted to.
#[derive(Clone, Debug)]
pub(super) struct Data<'a> {
    pub(super) axes: &'a [Axis],
    pub(super) points: &'a [Vec<f64>],
    pub(super) values: &'a [f64],
}

impl Data<'_> {
    /// Squared differences along each axis of each pair of points, one pair after the other.
    fn squares(&self) -> Vec<f64> {
        let mut squares = Vec::with_capacity(self.points.len() * self.points.len() / 2 * self.axes.len());
        for (index, a) in self.points.iter().enumerate() {
            for b in &self.points[..index] {
                let differences = self.axes.iter().zip(a.iter().zip(b)).map(|(axis, (a, b))| axis.difference(*a, *b));
                squares.extend(differences.map(|difference| difference * difference));
            }
        }
        squares
    }
}

/// A fit, and how probable it makes the data: minus the logarithm of the posterior density.
#[derive(Clone, Debug)]
pub(super) struct Fit {
    pub(super) hyper: Hyper,
    pub(super) badness: f64,
}

/// Finds the most probable hyper-parameters from `start`.
pub(super) fn fit(data: &Data<'_>, start: &Hyper, evaluations: usize) -> Fit {
    let squares = data.squares();
    let bounds: Vec<(f64, f64)> = data.axes.iter().map(|_| LENGTHSCALES).chain([NOISE]).collect();
    let badness = |vector: &[f64], gradient: &mut [f64]| badness(data, &squares, &Hyper::from_vector(vector), gradient);
    let minimum = minimise(&start.to_vector(), &bounds, evaluations, badness);
    Fit { hyper: Hyper::from_vector(&minimum.point), badness: minimum.value }
}

/// Minus the logarithm of the posterior density of `hyper`, up to a constant of the data's size, and its gradient.
///
/// Mean and variance are integrated out: the mean under a flat prior, the variance under an inverse gamma one.
fn badness(data: &Data<'_>, squares: &[f64], hyper: &Hyper, gradient: &mut [f64]) -> f64 {
    let (size, dimensions) = (data.points.len(), data.axes.len());
    let (weights, noise) = (hyper.weights(), hyper.log_noise.exp());
    let mut matrix = vec![0.0; size * size];
    let mut slopes = Vec::with_capacity(size * size / 2);
    let mut pairs = squares.chunks_exact(dimensions);
    for row in 0..size {
        for (entry, pair) in matrix[row * size..row * size + row].iter_mut().zip(&mut pairs) {
            let (value, slope) = matern_and_slope(dot(pair, &weights));
            *entry = value;
            slopes.push(slope);
        }
        matrix[row * size + row] = 1.0 + noise;
    }
    let Some(factor) = Cholesky::of(matrix, size) else { return f64::INFINITY };
    let centred = Centred::of(&factor, data.values);
    let freedom = size as f64 + VARIANCE_PRIOR;
    let variance = (centred.energy + VARIANCE_PRIOR) / freedom;
    let inverse = factor.inverse();
    gradient.fill(0.0);
    let mut by_noise = 0.0;
    let mut pairs = squares.chunks_exact(dimensions).zip(&slopes);
    for row in 0..size {
        let (row_alpha, row_inverse) = (centred.alpha[row] / variance, &inverse[row * size..=row * size + row]);
        for ((alpha, inverse), (pair, slope)) in centred.alpha[..row].iter().zip(row_inverse).zip(&mut pairs) {
            let by_entry = (inverse - row_alpha * alpha) * slope;
            gradient.iter_mut().zip(pair).for_each(|(sum, square)| *sum += by_entry * square);
        }
        by_noise += row_inverse[row] - row_alpha * centred.alpha[row];
    }
    // A squared distance changes by -2 w d² with the lengthscale's logarithm; each pair stands for two entries.
    gradient.iter_mut().zip(&weights).for_each(|(slope, weight)| *slope *= -2.0 * weight);
    gradient[dimensions] = 0.5 * noise * by_noise;
    let likelihood = 0.5 * freedom * variance.ln() + factor.half_log_determinant();
    likelihood + hyper.penalty(gradient)
}

/// The values without their mean, as the kernel weighs it.
struct Centred {
    mean: f64,
    /// `R⁻¹ (y - mean)`.
    alpha: Vec<f64>,
    /// `(y - mean)ᵀ R⁻¹ (y - mean)`.
    energy: f64,
}

impl Centred {
    fn of(factor: &Cholesky, values: &[f64]) -> Centred {
        let mut ones = vec![1.0; values.len()];
        factor.solve(&mut ones);
        let mean = dot(&ones, values) / ones.iter().sum::<f64>();
        let centred: Vec<f64> = values.iter().map(|value| value - mean).collect();
        let mut alpha = centred.clone();
        factor.solve(&mut alpha);
        let energy = dot(&centred, &alpha);
        Centred { mean, alpha, energy }
    }
}

/// A process that predicts.
#[derive(Clone, Debug)]
pub(super) struct Process {
    axes: Vec<Axis>,
    points: Vec<Vec<f64>>,
    weights: Vec<f64>,
    factor: Cholesky,
    alpha: Vec<f64>,
    mean: f64,
    variance: f64,
}

/// What a process expects of a function's value at a point, noise apart.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Prediction {
    pub(super) mean: f64,
    pub(super) deviation: f64,
}

impl Process {
    /// The process with these hyper-parameters and data. Noise is raised until the numbers allow it.
    pub(super) fn new(data: &Data<'_>, hyper: &Hyper) -> Process {
        let (size, weights) = (data.points.len(), hyper.weights());
        let squares = data.squares();
        let mut noise = hyper.log_noise.exp();
        let factor = loop {
            let mut matrix = vec![0.0; size * size];
            let mut pairs = squares.chunks_exact(weights.len());
            for row in 0..size {
                for (entry, pair) in matrix[row * size..row * size + row].iter_mut().zip(&mut pairs) {
                    *entry = matern(dot(pair, &weights));
                }
                matrix[row * size + row] = 1.0 + noise;
            }
            match Cholesky::of(matrix, size) {
                Some(factor) => break factor,
                None => noise = noise.max(1e-9) * 10.0,
            }
        };
        let Centred { mean, alpha, energy } = Centred::of(&factor, data.values);
        let variance = (energy + VARIANCE_PRIOR) / (size as f64 + VARIANCE_PRIOR);
        let (axes, points) = (data.axes.to_vec(), data.points.to_vec());
        Process { axes, points, weights, factor, alpha, mean, variance }
    }

    pub(super) fn predict(&self, point: &[f64]) -> Prediction {
        let mut covariance: Vec<f64> = self.points.iter().map(|other| matern(self.square(point, other))).collect();
        let mean = self.mean + dot(&covariance, &self.alpha);
        self.factor.solve_lower(&mut covariance);
        let left = (1.0 - dot(&covariance, &covariance)).max(1e-12);
        Prediction { mean, deviation: (self.variance * left).sqrt() }
    }

    /// The prediction, and the gradients of its mean and its deviation.
    pub(super) fn predict_with_slopes(&self, point: &[f64]) -> (Prediction, Vec<f64>, Vec<f64>) {
        let pairs: Vec<(f64, f64)> =
            self.points.iter().map(|other| matern_and_slope(self.square(point, other))).collect();
        let covariance: Vec<f64> = pairs.iter().map(|(value, _)| *value).collect();
        let mut solved = covariance.clone();
        self.factor.solve(&mut solved);
        let left = (1.0 - dot(&covariance, &solved)).max(1e-12);
        let deviation = (self.variance * left).sqrt();
        let mut by_mean = vec![0.0; point.len()];
        let mut by_deviation = vec![0.0; point.len()];
        for ((other, (_, slope)), (alpha, solved)) in self.points.iter().zip(&pairs).zip(self.alpha.iter().zip(&solved))
        {
            for (index, axis) in self.axes.iter().enumerate() {
                let by_coordinate = 2.0 * slope * self.weights[index] * axis.difference(point[index], other[index]);
                by_mean[index] += by_coordinate * alpha;
                by_deviation[index] += by_coordinate * solved;
            }
        }
        // σ² = v (1 - kᵀ R⁻¹ k), so that dσ = -v kᵀ R⁻¹ dk / σ.
        by_deviation.iter_mut().for_each(|slope| *slope *= -self.variance / deviation);
        let mean = self.mean + dot(&covariance, &self.alpha);
        (Prediction { mean, deviation }, by_mean, by_deviation)
    }

    /// Squared distance in lengthscales.
    fn square(&self, a: &[f64], b: &[f64]) -> f64 {
        let mut square = 0.0;
        for (index, axis) in self.axes.iter().enumerate() {
            let difference = axis.difference(a[index], b[index]);
            square += self.weights[index] * difference * difference;
        }
        square
    }
}
