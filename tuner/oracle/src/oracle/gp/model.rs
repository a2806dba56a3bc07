//! A Gaussian process over points of the unit cube: fits its hyper-parameters by maximum a posteriori, and predicts.
//! Knows no trials.

use super::kernel::{Axis, Kernel, Shape};
use super::matrix::{Cholesky, dot};
use super::minimise::minimise;

/// Bounds of the lengthscales' logarithms.
const LENGTHSCALES: (f64, f64) = (-5.3, 3.0);
/// Bounds of the logarithm of the noise's share of the variance.
const NOISE: (f64, f64) = (-28.0, 0.0);
/// The weight, in observations, of the prior that the variance is that of the data.
const VARIANCE_PRIOR: f64 = 4.0;

/// The hyper-parameters of a process: a Matérn kernel over all axes together, plus a sum of kernels over single axes,
/// because losses are often close to such a sum.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Hyper {
    /// The smoothness of the function.
    pub(super) shape: Shape,
    /// Logarithm of each axis' lengthscale in the joint kernel.
    pub(super) log_lengthscales: Vec<f64>,
    /// The difference by which the logarithms of the lengthscales are lower in the sum.
    pub(super) log_narrowing: f64,
    /// The sum's share of the variance, as a logit.
    pub(super) logit_share: f64,
    /// Logarithm of the noise's variance over the signal's.
    pub(super) log_noise: f64,
    /// Whether the noise is given, and not learned.
    pub(super) is_noise_given: bool,
}

/// The bounds of [`Hyper::log_narrowing`] and of [`Hyper::logit_share`].
const NARROWING: (f64, f64) = (-1.0, 3.0);
const SHARE: (f64, f64) = (-6.0, 6.0);

impl Hyper {
    /// The centre of the prior: lengthscales that grow with the dimension (Hvarfner et al. 2024, arXiv 2402.02229), and
    /// little noise. Of the `dimensions`, a trial asks for `active` on average.
    pub(super) fn prior(dimensions: usize, active: f64) -> Hyper {
        let log_lengthscale = std::f64::consts::SQRT_2 + 0.5 * active.ln() - 2.3;
        let log_lengthscales = vec![log_lengthscale; dimensions];
        Hyper {
            shape: Shape::Matern,
            log_lengthscales,
            log_narrowing: 0.7,
            logit_share: 0.0,
            log_noise: -14.0,
            is_noise_given: false,
        }
    }

    /// These hyper-parameters with the given noise, as a share of the signal's variance; unchanged if none is given.
    pub(super) fn with_noise(self, share: Option<f64>) -> Hyper {
        match share {
            Some(share) => Hyper { log_noise: share.ln().max(NOISE.0), is_noise_given: true, ..self },
            None => self,
        }
    }

    /// The hyper-parameters at a point of the optimiser, with the other settings of this value.
    fn at(&self, vector: &[f64]) -> Hyper {
        let (log_lengthscales, rest) = vector.split_at(vector.len() - 3);
        let log_lengthscales = log_lengthscales.to_vec();
        Hyper { log_lengthscales, log_narrowing: rest[0], logit_share: rest[1], log_noise: rest[2], ..*self }
    }

    fn to_vector(&self) -> Vec<f64> {
        self.log_lengthscales.iter().copied().chain([self.log_narrowing, self.logit_share, self.log_noise]).collect()
    }

    fn kernel(&self) -> Kernel {
        let share = 1.0 / (1.0 + (-self.logit_share).exp());
        Kernel::new(self.shape, &self.log_lengthscales, self.log_narrowing, share)
    }

    /// Minus the logarithm of the density of the prior with this centre, and its gradient added to `gradient`.
    fn penalty(&self, prior: &Hyper, gradient: &mut [f64]) -> f64 {
        let dimensions = self.log_lengthscales.len();
        let mut penalty = 0.0;
        for (index, (x, mean)) in self.to_vector().iter().zip(&prior.to_vector()).enumerate() {
            let variance = match index.checked_sub(dimensions) {
                None => 1.0,
                Some(0) => 0.25,
                Some(1) => 4.0,
                Some(_) => 36.0,
            };
            gradient[index] += (x - mean) / variance;
            penalty += (x - mean).powi(2) / (2.0 * variance);
        }
        penalty
    }
}

/// The points and values to which a process is fitted.
#[derive(Clone, Debug)]
pub(super) struct Data<'a> {
    pub(super) axes: &'a [Axis],
    pub(super) points: &'a [Vec<f64>],
    pub(super) values: &'a [f64],
    /// The variance of each value's own error, in addition to the noise; empty if no value has one.
    pub(super) errors: &'a [f64],
}

impl Data<'_> {
    /// Distances along each axis of each pair of points, one pair after the other.
    fn distances(&self) -> Vec<f64> {
        let mut distances = Vec::with_capacity(self.points.len() * self.points.len() / 2 * self.axes.len());
        for (index, a) in self.points.iter().enumerate() {
            for b in &self.points[..index] {
                let pairs = self.axes.iter().zip(a.iter().zip(b));
                distances.extend(pairs.map(|(axis, (a, b))| axis.difference(*a, *b).abs()));
            }
        }
        distances
    }
}

/// A fit: hyper-parameters, and minus the logarithm of their posterior density.
#[derive(Clone, Debug)]
pub(super) struct Fit {
    pub(super) hyper: Hyper,
    pub(super) badness: f64,
}

/// Finds the most probable hyper-parameters, beginning at `start`; the centre of their prior is `prior`.
pub(super) fn fit(data: &Data<'_>, prior: &Hyper, start: &Hyper, evaluations: usize) -> Fit {
    let distances = data.distances();
    let noise = if start.is_noise_given { (start.log_noise, start.log_noise) } else { NOISE };
    let bounds: Vec<(f64, f64)> = data.axes.iter().map(|_| LENGTHSCALES).chain([NARROWING, SHARE, noise]).collect();
    let badness = |vector: &[f64], gradient: &mut [f64]| badness(data, &distances, prior, &start.at(vector), gradient);
    let minimum = minimise(&start.to_vector(), &bounds, evaluations, badness);
    Fit { hyper: start.at(&minimum.point), badness: minimum.value }
}

/// Minus the logarithm of the posterior density of `hyper`, up to a constant that depends on the data's size, and its gradient.
///
/// Mean and variance are integrated out: the mean under a flat prior, the variance under an inverse gamma one.
fn badness(data: &Data<'_>, distances: &[f64], prior: &Hyper, hyper: &Hyper, gradient: &mut [f64]) -> f64 {
    let (size, dimensions) = (data.points.len(), data.axes.len());
    let (kernel, noise) = (hyper.kernel(), hyper.log_noise.exp());
    let mut matrix = vec![0.0; size * size];
    // The slopes of each pair: by every axis' log lengthscale, by the narrowing, and by the share's logit.
    let stride = dimensions + 2;
    let mut slopes = vec![0.0; size * (size - 1) / 2 * stride];
    let mut pairs = distances.chunks_exact(dimensions).zip(slopes.chunks_exact_mut(stride));
    for row in 0..size {
        for (entry, (pair, slopes)) in matrix[row * size..row * size + row].iter_mut().zip(&mut pairs) {
            *entry = kernel.value_and_slopes(pair, slopes);
        }
        matrix[row * size + row] = 1.0 + noise + data.errors.get(row).unwrap_or(&0.0);
    }
    let Some(factor) = Cholesky::of(matrix, size) else { return f64::INFINITY };
    let centred = Centred::of(&factor, data.values);
    let freedom = size as f64 + VARIANCE_PRIOR;
    let variance = (centred.energy + VARIANCE_PRIOR) / freedom;
    let inverse = factor.inverse();
    gradient.fill(0.0);
    let mut by_noise = 0.0;
    let mut pairs = slopes.chunks_exact(stride);
    for row in 0..size {
        let (row_alpha, row_inverse) = (centred.alpha[row] / variance, &inverse[row * size..=row * size + row]);
        for ((alpha, inverse), slopes) in centred.alpha[..row].iter().zip(row_inverse).zip(&mut pairs) {
            // Each pair has two entries in the matrix, which cancels the half in the likelihood's gradient.
            let by_entry = inverse - row_alpha * alpha;
            gradient.iter_mut().zip(slopes).for_each(|(sum, slope)| *sum += by_entry * slope);
        }
        by_noise += row_inverse[row] - row_alpha * centred.alpha[row];
    }
    gradient[stride] = 0.5 * noise * by_noise;
    let likelihood = 0.5 * freedom * variance.ln() + factor.half_log_determinant();
    likelihood + hyper.penalty(prior, gradient)
}

/// The values minus their mean, which is weighted by the inverse R⁻¹ of the kernel matrix.
struct Centred {
    mean: f64,
    /// The vector `R⁻¹ (y - mean)`.
    alpha: Vec<f64>,
    /// The number `(y - mean)ᵀ R⁻¹ (y - mean)`.
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

/// A Gaussian process with fixed hyper-parameters, which predicts.
#[derive(Clone, Debug)]
pub(super) struct Process {
    axes: Vec<Axis>,
    points: Vec<Vec<f64>>,
    kernel: Kernel,
    factor: Cholesky,
    alpha: Vec<f64>,
    mean: f64,
    variance: f64,
    /// The ratio of the noise's variance to the signal's.
    noise: f64,
}

/// The prediction of a function's value at a point, without noise.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Prediction {
    pub(super) mean: f64,
    pub(super) deviation: f64,
}

impl Process {
    /// The process with these hyper-parameters and data. Raises the noise until the matrix is positive definite.
    pub(super) fn new(data: &Data<'_>, hyper: &Hyper) -> Process {
        let (size, kernel) = (data.points.len(), hyper.kernel());
        let distances = data.distances();
        let mut noise = hyper.log_noise.exp();
        let factor = loop {
            let mut matrix = vec![0.0; size * size];
            let mut pairs = distances.chunks_exact(data.axes.len());
            for row in 0..size {
                for (entry, pair) in matrix[row * size..row * size + row].iter_mut().zip(&mut pairs) {
                    *entry = kernel.value(pair);
                }
                matrix[row * size + row] = 1.0 + noise + data.errors.get(row).unwrap_or(&0.0);
            }
            match Cholesky::of(matrix, size) {
                Some(factor) => break factor,
                None => noise = noise.max(1e-9) * 10.0,
            }
        };
        let Centred { mean, alpha, energy } = Centred::of(&factor, data.values);
        let variance = (energy + VARIANCE_PRIOR) / (size as f64 + VARIANCE_PRIOR);
        let (axes, points) = (data.axes.to_vec(), data.points.to_vec());
        Process { axes, points, kernel, factor, alpha, mean, variance, noise }
    }

    /// The standard deviation of the noise of one value.
    pub(super) fn noise_deviation(&self) -> f64 {
        (self.variance * self.noise).sqrt()
    }

    /// What each of the process's points would be predicted as without its own value (Rasmussen and Williams 2006, equation 5.12). `values`
    /// are those of its points.
    pub(super) fn predict_left_out(&self, values: &[f64]) -> Vec<Prediction> {
        let (size, inverse) = (values.len(), self.factor.inverse());
        let left_out = |index: usize| {
            let precision = inverse[index * size + index];
            let mean = values[index] - self.alpha[index] / precision;
            Prediction { mean, deviation: (self.variance / precision).sqrt() }
        };
        (0..size).map(left_out).collect()
    }

    /// The mean of the prediction for a point.
    pub(super) fn mean_at(&self, point: &[f64]) -> f64 {
        self.mean + dot(&self.covariance(point), &self.alpha)
    }

    /// The mean of the prediction, and its gradient.
    pub(super) fn mean_with_slopes(&self, point: &[f64]) -> (f64, Vec<f64>) {
        let (covariance, slopes) = self.covariance_with_slopes(point);
        (self.mean + dot(&covariance, &self.alpha), self.gradient(point, &slopes, &self.alpha))
    }

    pub(super) fn predict(&self, point: &[f64]) -> Prediction {
        let mut covariance = self.covariance(point);
        let mean = self.mean + dot(&covariance, &self.alpha);
        self.factor.solve_lower(&mut covariance);
        let left = (1.0 - dot(&covariance, &covariance)).max(1e-12);
        Prediction { mean, deviation: (self.variance * left).sqrt() }
    }

    /// The prediction, and the gradients of its mean and its deviation.
    pub(super) fn predict_with_slopes(&self, point: &[f64]) -> (Prediction, Vec<f64>, Vec<f64>) {
        let (covariance, slopes) = self.covariance_with_slopes(point);
        let mut solved = covariance.clone();
        self.factor.solve(&mut solved);
        let left = (1.0 - dot(&covariance, &solved)).max(1e-12);
        let deviation = (self.variance * left).sqrt();
        let by_mean = self.gradient(point, &slopes, &self.alpha);
        let mut by_deviation = self.gradient(point, &slopes, &solved);
        // Since σ² = v (1 - kᵀ R⁻¹ k), dσ = -v kᵀ R⁻¹ dk / σ.
        by_deviation.iter_mut().for_each(|slope| *slope *= -self.variance / deviation);
        let mean = self.mean + dot(&covariance, &self.alpha);
        (Prediction { mean, deviation }, by_mean, by_deviation)
    }

    fn covariance(&self, point: &[f64]) -> Vec<f64> {
        self.points.iter().map(|other| self.kernel.value(&self.distances(point, other))).collect()
    }

    /// The covariances, and the slopes of each by the squares of the distances along the axes, one point after the other.
    fn covariance_with_slopes(&self, point: &[f64]) -> (Vec<f64>, Vec<f64>) {
        let mut slopes = vec![0.0; self.points.len() * point.len()];
        let rows = self.points.iter().zip(slopes.chunks_exact_mut(point.len()));
        let covariance =
            rows.map(|(other, slopes)| self.kernel.value_and_square_slopes(&self.distances(point, other), slopes));
        (covariance.collect(), slopes)
    }

    /// The gradient of a sum of the covariances with these weights.
    fn gradient(&self, point: &[f64], slopes: &[f64], weights: &[f64]) -> Vec<f64> {
        let mut gradient = vec![0.0; point.len()];
        for ((other, slopes), weight) in self.points.iter().zip(slopes.chunks_exact(point.len())).zip(weights) {
            for (index, axis) in self.axes.iter().enumerate() {
                gradient[index] += slopes[index] * axis.difference(point[index], other[index]) * weight;
            }
        }
        gradient
    }

    fn distances(&self, a: &[f64], b: &[f64]) -> Vec<f64> {
        self.axes.iter().zip(a.iter().zip(b)).map(|(axis, (a, b))| axis.difference(*a, *b).abs()).collect()
    }
}
