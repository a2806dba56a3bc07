//! Restarts: begins another strategy, from another point, when one has ended. Does not learn from trials itself.
//!
//! Hansen (2009), Benchmarking a BI-Population CMA-ES, GECCO workshop: alternates between a population that doubles
//! each time, for functions with a global structure, and small populations with small steps, for functions without one.

use super::strategy::Strategy;
use crate::oracle::random;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

/// The largest number of doublings of the population.
const MOST_DOUBLINGS: u32 = 8;

/// The settings from which a run makes its strategies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Form {
    /// Initial standard deviation on each axis of the unit cube.
    pub(super) sigma: f64,
    /// Number of draws in each generation of the first strategy; Hansen's default if the number is not given.
    pub(super) population: Option<usize>,
    /// Whether the covariance is diagonal.
    pub(super) is_separable: bool,
}

impl Default for Form {
    fn default() -> Form {
        Form { sigma: 1.0 / 6.0, population: None, is_separable: false }
    }
}

/// A strategy, and the counts of the strategies before it.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) strategy: Strategy,
    cells: Vec<Option<u32>>,
    form: Form,
    seed: u64,
    /// The number of restarts so far.
    restarts: u64,
    /// The number of times that the large population has been doubled.
    doublings: u32,
    is_large: bool,
    /// Number of draws of strategies with the large population.
    spent_large: usize,
    /// Number of draws of strategies with small populations.
    spent_small: usize,
}

impl Run {
    /// The run of the first strategy, which begins at `mean`.
    pub(super) fn first(seed: u64, mean: Vec<f64>, cells: Vec<Option<u32>>, form: Form) -> Run {
        let strategy = Strategy::new(mean, form.sigma, form.population(cells.len()), cells.clone());
        let strategy = if form.is_separable { strategy.separable() } else { strategy };
        Run { strategy, cells, form, seed, restarts: 0, doublings: 0, is_large: true, spent_large: 0, spent_small: 0 }
    }

    /// The run after another generation, best draw first; if the strategy ends, the run of its successor.
    pub(super) fn after(&self, draws: &[Vec<f64>], best_loss: f64) -> Run {
        let mut next = self.clone();
        next.strategy.tell(draws, best_loss);
        let spent = if next.is_large { &mut next.spent_large } else { &mut next.spent_small };
        *spent += draws.len();
        if next.strategy.is_over() {
            next.restart();
        }
        next
    }

    fn restart(&mut self) {
        self.restarts += 1;
        let mut rng =
            Pcg64::seed_from_u64(random::hash(&[&self.seed.to_le_bytes(), &self.restarts.to_le_bytes(), b"run"]));
        let default = self.form.population(self.cells.len());
        self.is_large = self.spent_large <= self.spent_small;
        let (population, sigma) = if self.is_large {
            self.doublings = (self.doublings + 1).min(MOST_DOUBLINGS);
            (default << self.doublings, self.form.sigma)
        } else {
            let half_large = 0.5 * f64::from(1_u32 << self.doublings);
            let factor = half_large.powf(rng.random::<f64>().powi(2));
            ((default as f64 * factor) as usize, self.form.sigma * 10_f64.powf(-2.0 * rng.random::<f64>()))
        };
        let mean = self.cells.iter().map(|_| rng.random()).collect();
        let strategy = Strategy::new(mean, sigma, population.max(4), self.cells.clone());
        self.strategy = if self.form.is_separable { strategy.separable() } else { strategy };
    }
}

impl Form {
    /// The size of the population; if none is given, that of Hansen (2016), equation 48.
    fn population(self, size: usize) -> usize {
        self.population.unwrap_or(4 + (3.0 * (size as f64).ln()) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plains_are_left_with_large_and_small_populations_by_turns() {
        let mut run = Run::first(3, vec![0.5; 2], vec![None; 2], Form::default());
        let mut rng = Pcg64::seed_from_u64(1);
        let mut populations = vec![run.strategy.population()];
        for _ in 0..2000 {
            let draws: Vec<_> = (0..run.strategy.population()).map(|_| run.strategy.ask(&mut rng).raw).collect();
            let before = run.restarts;
            run = run.after(&draws, 1.0);
            if run.restarts > before {
                populations.push(run.strategy.population());
            }
        }
        assert_eq!(populations[0], 6);
        assert!(populations.contains(&12) && populations.contains(&24) && populations.contains(&48), "{populations:?}");
        assert!(run.spent_small * 3 > run.spent_large, "{} {}", run.spent_small, run.spent_large);
    }
}
