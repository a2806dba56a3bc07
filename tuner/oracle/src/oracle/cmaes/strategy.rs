//! The evolution strategy with covariance matrix adaptation: pure mathematics on the unit cube. Knows no trials.
//!
//! Hansen (2016), The CMA Evolution Strategy: A Tutorial, arXiv:1604.00772, whose equations are named below, with the
//! margin of Hamano et al. (2022), arXiv:2205.13482, for axes that consist of cells.

use super::eigen::{self, Eigen};
use super::margin;
use super::rates::Rates;
use crate::normal;
use rand::Rng;

/// The number of draws before a point outside the cube is moved to its bounds.
const RESAMPLING: usize = 100;
/// The number of generations without a change of the best loss that ends a strategy, plus a number that depends on the dimensions.
const STAGNATION: usize = 10;
/// The standard deviation below which, on every axis, the strategy ends.
const SMALLEST_SPREAD: f64 = 1e-8;
/// The condition number of the covariance above which the strategy ends, because rounding errors dominate.
const LARGEST_CONDITION: f64 = 1e14;

/// A normal distribution over the unit cube that moves towards small losses.
///
/// An axis with cells is divided into that many equal parts, and a tried point lies in the middle of a cell.
#[derive(Clone, Debug)]
pub(super) struct Strategy {
    rates: Rates,
    /// Whether the covariance is diagonal.
    is_separable: bool,
    /// Number of cells of each axis; `None` for a continuous axis.
    cells: Vec<Option<u32>>,
    mean: Vec<f64>,
    sigma: f64,
    covariance: Vec<f64>,
    /// The eigenvectors and eigenvalues of `covariance`, with standard deviations in place of variances.
    axes: Eigen,
    path_sigma: Vec<f64>,
    path_covariance: Vec<f64>,
    /// Stretch of each axis that is used when a draw is rounded to its cell.
    margin: Vec<f64>,
    generation: i32,
    /// The best losses of the last generations.
    best_losses: Vec<f64>,
}

/// A draw, and the point of the cube that a trial tries for it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Candidate {
    /// The draw without rounding to cells; [`Strategy::tell`] learns from it.
    pub(super) raw: Vec<f64>,
    /// The point inside the cube, in the middle of its cells.
    pub(super) point: Vec<f64>,
}

impl Strategy {
    /// A strategy that begins at `mean` with standard deviation `sigma` on every axis, and `population` draws in a generation.
    pub(super) fn new(mean: Vec<f64>, sigma: f64, population: usize, cells: Vec<Option<u32>>) -> Strategy {
        let size = mean.len();
        let covariance: Vec<f64> = (0..size * size).map(|cell| f64::from(u8::from(cell % (size + 1) == 0))).collect();
        let margin_probability = 1.0 / (size * population) as f64;
        let margin = cells.iter().map(|cells| margin::first_stretch(*cells, sigma, margin_probability)).collect();
        Strategy {
            rates: Rates::new(size, population),
            is_separable: false,
            cells,
            axes: Eigen { values: vec![1.0; size], vectors: covariance.clone() },
            covariance,
            mean,
            sigma,
            path_sigma: vec![0.0; size],
            path_covariance: vec![0.0; size],
            margin,
            generation: 0,
            best_losses: Vec::new(),
        }
    }

    /// This strategy with a diagonal covariance, which learns faster and finds no dependences between axes.
    ///
    /// Ros and Hansen (2008), A Simple Modification in CMA-ES Achieving Linear Time and Space Complexity, PPSN X.
    pub(super) fn separable(self) -> Strategy {
        let rates = self.rates.separable(self.mean.len());
        Strategy { rates, is_separable: true, ..self }
    }

    /// The number of draws in a generation.
    pub(super) fn population(&self) -> usize {
        self.rates.weights.len()
    }

    /// Draws one candidate.
    pub(super) fn ask<R: Rng + ?Sized>(&self, rng: &mut R) -> Candidate {
        let mut raw = self.draw(rng);
        for _ in 1..RESAMPLING {
            if self.is_inside(&raw) {
                break;
            }
            raw = self.draw(rng);
        }
        for (value, cells) in raw.iter_mut().zip(&self.cells) {
            if cells.is_none() {
                *value = value.clamp(0.0, 1.0);
            }
        }
        let point = (0..raw.len()).map(|axis| self.tried(axis, raw[axis])).collect();
        Candidate { raw, point }
    }

    /// The draw that represents a point chosen elsewhere, moved no farther away than a likely draw.
    ///
    /// Hansen (2011), Injecting External Solutions Into CMA-ES, arXiv:1110.4181, equation 4.
    pub(super) fn inject(&self, point: &[f64]) -> Vec<f64> {
        let size = self.mean.len() as f64;
        let stretched = |axis: usize| (point[axis] - self.mean[axis]) / self.margin[axis] / self.sigma;
        let step: Vec<f64> = (0..point.len()).map(stretched).collect();
        let length = norm(&self.whiten(&step));
        let longest = size.sqrt() + 2.0 * size / (size + 2.0);
        let shrink = if length > longest { longest / length } else { 1.0 };
        self.mean.iter().zip(&step).map(|(mean, step)| mean + self.sigma * shrink * step).collect()
    }

    /// Learns from one generation: its draws, best first, and the best loss.
    ///
    /// The number of draws must be [`Strategy::population`].
    pub(super) fn tell(&mut self, draws: &[Vec<f64>], best_loss: f64) {
        self.best_losses.push(best_loss);
        self.generation += 1;
        let step = |raw: &Vec<f64>| raw.iter().zip(&self.mean).map(|(x, m)| (x - m) / self.sigma).collect();
        let steps: Vec<Vec<f64>> = draws.iter().map(step).collect();
        self.adapt(&steps);
        let probability = 1.0 / (self.mean.len() * self.population()) as f64;
        for axis in 0..self.mean.len() {
            if let Some(cells) = self.cells[axis] {
                let spread = self.sigma * self.covariance[axis * (self.mean.len() + 1)].sqrt();
                (self.mean[axis], self.margin[axis]) =
                    margin::correct(self.mean[axis], spread, self.margin[axis], cells, probability);
            }
        }
    }

    /// Whether the strategy ends: it has converged to a point, reached a plateau, or its numbers are unreliable.
    pub(super) fn is_over(&self) -> bool {
        let size = self.mean.len();
        let spread = (0..size).map(|axis| self.sigma * self.covariance[axis * (size + 1)].sqrt());
        let narrow = spread.fold(0.0, f64::max) < SMALLEST_SPREAD;
        let flat_for = STAGNATION + (30 * size).div_ceil(self.population());
        let last = &self.best_losses[self.best_losses.len().saturating_sub(flat_for)..];
        let flat = last.len() == flat_for && last.iter().all(|loss| (loss - last[0]).abs() <= 1e-12);
        let (shortest, longest) = bounds(&self.axes.values);
        narrow || flat || longest / shortest > LARGEST_CONDITION.sqrt() || !self.sigma.is_finite()
    }

    /// Updates mean, step size and covariance for the next generation, from this generation's steps, best first (eq. 41 to 47).
    fn adapt(&mut self, steps: &[Vec<f64>]) {
        let (size, rates) = (self.mean.len(), self.rates.clone());
        let size_f = size as f64;
        let mut mean_step = vec![0.0; size];
        for (weight, step) in rates.weights.iter().zip(steps).filter(|(weight, _)| **weight > 0.0) {
            mean_step.iter_mut().zip(step).for_each(|(sum, value)| *sum += weight * value);
        }
        let whitened = self.whiten(&mean_step);
        let gain = (rates.c_sigma * (2.0 - rates.c_sigma) * rates.mu_eff).sqrt();
        for (path, step) in self.path_sigma.iter_mut().zip(&whitened) {
            *path = (1.0 - rates.c_sigma) * *path + gain * step;
        }
        let length = norm(&self.path_sigma);
        let expected = size_f.sqrt() * (1.0 - 1.0 / (4.0 * size_f) + 1.0 / (21.0 * size_f * size_f));
        let unbiased = length / (1.0 - (1.0 - rates.c_sigma).powi(2 * (self.generation + 1))).sqrt();
        // If the step size grows fast, the covariance would grow too far along the path.
        let moving = f64::from(u8::from(unbiased < (1.4 + 2.0 / (size_f + 1.0)) * expected));
        let gain = moving * (rates.c_c * (2.0 - rates.c_c) * rates.mu_eff).sqrt();
        for (path, step) in self.path_covariance.iter_mut().zip(&mean_step) {
            *path = (1.0 - rates.c_c) * *path + gain * step;
        }
        let scaled: Vec<f64> = rates.weights.iter().zip(steps).map(|(w, step)| self.active(*w, step)).collect();
        let sum: f64 = rates.weights.iter().sum();
        let lost = (1.0 - moving) * rates.c_c * (2.0 - rates.c_c);
        let keep = 1.0 + rates.c_1 * lost - rates.c_1 - rates.c_mu * sum;
        for row in 0..size {
            let first = if self.is_separable { row } else { 0 };
            for column in first..=row {
                let rank_mu: f64 =
                    scaled.iter().zip(steps).map(|(weight, step)| weight * step[row] * step[column]).sum();
                let rank_one = self.path_covariance[row] * self.path_covariance[column];
                let entry = keep * self.covariance[row * size + column] + rates.c_1 * rank_one + rates.c_mu * rank_mu;
                self.covariance[row * size + column] = entry;
                self.covariance[column * size + row] = entry;
            }
        }
        self.mean.iter_mut().zip(&mean_step).for_each(|(mean, step)| *mean += self.sigma * step);
        // A distribution that is much wider than the cube has no advantage.
        self.sigma = (self.sigma * (rates.c_sigma / rates.d_sigma * (length / expected - 1.0)).exp()).min(10.0);
        self.axes = eigen::decompose(&self.covariance);
        self.axes.values.iter_mut().for_each(|value| *value = value.max(1e-30).sqrt());
    }

    /// A weight in the sum of the covariance: negative weights are scaled so that the matrix stays positive definite (eq. 46).
    fn active(&self, weight: f64, step: &[f64]) -> f64 {
        if weight >= 0.0 {
            return weight;
        }
        let length = norm(&self.whiten(step));
        weight * self.mean.len() as f64 / (length * length + 1e-8)
    }

    fn draw<R: Rng + ?Sized>(&self, rng: &mut R) -> Vec<f64> {
        let size = self.mean.len();
        let normal: Vec<f64> = self.axes.values.iter().map(|length| length * normal::draw(rng)).collect();
        let along = |row: usize| -> f64 { (0..size).map(|k| self.axes.vectors[row * size + k] * normal[k]).sum() };
        (0..size).map(|row| self.mean[row] + self.sigma * along(row)).collect()
    }

    /// The step in coordinates in which the distribution is isotropic: C^(-1/2) times the step.
    fn whiten(&self, step: &[f64]) -> Vec<f64> {
        let (size, vectors) = (step.len(), &self.axes.vectors);
        let project = |k: usize| -> f64 { (0..size).map(|row| vectors[row * size + k] * step[row]).sum() };
        let round: Vec<f64> = (0..size).map(|k| project(k) / self.axes.values[k]).collect();
        (0..size).map(|row| (0..size).map(|k| vectors[row * size + k] * round[k]).sum()).collect()
    }

    fn is_inside(&self, raw: &[f64]) -> bool {
        raw.iter().zip(&self.cells).all(|(value, cells)| cells.is_some() || (0.0..=1.0).contains(value))
    }

    fn tried(&self, axis: usize, raw: f64) -> f64 {
        match self.cells[axis] {
            None => raw,
            Some(cells) => {
                let stretched = self.mean[axis] + self.margin[axis] * (raw - self.mean[axis]);
                margin::middle(margin::cell(stretched, cells), cells)
            }
        }
    }
}

fn norm(vector: &[f64]) -> f64 {
    vector.iter().map(|value| value * value).sum::<f64>().sqrt()
}

fn bounds(values: &[f64]) -> (f64, f64) {
    values.iter().fold((f64::INFINITY, 0.0), |(low, high), value| (f64::min(low, *value), f64::max(high, *value)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_pcg::Pcg64;

    /// The number of generations until `goal` is reached, from the middle of a corner's octant.
    fn generations(size: usize, cells: &[Option<u32>], loss: impl Fn(&[f64]) -> f64, goal: f64) -> Option<usize> {
        let population = 4 + (3.0 * (size as f64).ln()) as usize;
        let mut strategy = Strategy::new(vec![0.25; size], 0.2, population, cells.to_vec());
        let mut rng = Pcg64::seed_from_u64(5);
        for generation in 0..2000 {
            let mut draws: Vec<(f64, Candidate)> = Vec::new();
            for _ in 0..population {
                let draw = strategy.ask(&mut rng);
                draws.push((loss(&draw.point), draw));
            }
            draws.sort_by(|a, b| a.0.total_cmp(&b.0));
            if draws[0].0 <= goal {
                return Some(generation);
            }
            let best = draws[0].0;
            strategy.tell(&draws.into_iter().map(|(_, draw)| draw.raw).collect::<Vec<_>>(), best);
        }
        None
    }

    fn sphere(point: &[f64]) -> f64 {
        point.iter().map(|x| (x - 0.7).powi(2)).sum()
    }

    #[test]
    fn narrow_and_tilted_valleys_are_followed_to_the_end() {
        let tilted = |point: &[f64]| {
            let axis = |k: usize| point[k] - 0.6;
            (axis(0) + axis(1)).powi(2)
                + 1e4 * (axis(0) - axis(1)).powi(2)
                + 1e2 * (axis(2) + axis(3)).powi(2)
                + (axis(2) - axis(3)).powi(2)
        };
        let rosenbrock = |point: &[f64]| {
            let x: Vec<f64> = point.iter().map(|x| 4.0 * x - 2.0).collect();
            x.windows(2).map(|x| 100.0 * (x[1] - x[0] * x[0]).powi(2) + (1.0 - x[0]).powi(2)).sum()
        };
        assert!(generations(5, &[None; 5], sphere, 1e-10).is_some_and(|count| count < 120));
        assert!(generations(4, &[None; 4], tilted, 1e-10).is_some_and(|count| count < 250));
        assert!(generations(4, &[None; 4], rosenbrock, 1e-8).is_some_and(|count| count < 400));
    }

    #[test]
    fn margin_keeps_cells_from_being_frozen() {
        // Every second axis has two cells; the far cell is right, but its effect is small at first.
        let cells: Vec<_> = (0..10).map(|axis| (axis % 2 == 1).then_some(2)).collect();
        let loss = |point: &[f64]| {
            let rugged: f64 = point.iter().step_by(2).map(|x| 1000.0 * (x - 0.6).powi(2)).sum();
            rugged + point.iter().skip(1).step_by(2).map(|x| 1e-3 * f64::from(u8::from(*x < 0.5))).sum::<f64>()
        };
        assert!(generations(10, &cells, loss, 1e-9).is_some());
    }

    #[test]
    fn candidates_stay_inside_the_cube_and_on_their_cells() {
        let cells = vec![None, Some(3), None, Some(7)];
        let mut strategy = Strategy::new(vec![0.02, 0.9, 1.0, 0.1], 2.0, 8, cells);
        let mut rng = Pcg64::seed_from_u64(1);
        for _ in 0..50 {
            let draws: Vec<Candidate> = (0..8).map(|_| strategy.ask(&mut rng)).collect();
            for draw in &draws {
                assert!(draw.point.iter().all(|x| (0.0..=1.0).contains(x)), "{draw:?}");
                let index = draw.point[1] * 3.0 - 0.5;
                assert!((index - index.round()).abs() < 1e-12);
                assert_eq!(draw.raw[0], draw.point[0]);
            }
            strategy.tell(&draws.into_iter().map(|draw| draw.raw).collect::<Vec<_>>(), 0.0);
        }
    }

    #[test]
    fn plain_ends_a_run_and_slopes_do_not() {
        let mut flat = Strategy::new(vec![0.5; 3], 0.2, 7, vec![None; 3]);
        let mut rng = Pcg64::seed_from_u64(1);
        for generation in 0..30 {
            assert_eq!(flat.is_over(), generation >= 10 + 13, "{generation}");
            let draws: Vec<_> = (0..7).map(|_| flat.ask(&mut rng).raw).collect();
            flat.tell(&draws, 1.0);
        }
    }

    #[test]
    fn point_from_elsewhere_moves_the_mean_no_farther_than_a_draw() {
        let strategy = Strategy::new(vec![0.5, 0.5], 0.01, 6, vec![None, None]);
        let far = strategy.inject(&[1.0, 0.5]);
        assert!((far[0] - 0.5 - 0.01 * (2f64.sqrt() + 1.0)).abs() < 1e-12, "{far:?}");
        let near = strategy.inject(&[0.501, 0.5]);
        assert!((near[0] - 0.501).abs() < 1e-15);
    }
}
