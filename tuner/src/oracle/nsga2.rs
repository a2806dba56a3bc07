//! NSGA-II (Deb et al. 2002, IEEE TEC 6(2)): evolves the trials towards all trade-offs between several objectives. Also
//! works with one objective, and with conditional parameters, which children inherit one by one.
//!
//! In the steady-state form of Durillo et al. (2009, EMO): each trial that ends competes with the survivors at once, so
//! concurrent trials never wait for a generation.

use super::history::{History, Row};
use super::qmc;
use super::random::generator;
use super::sampler::Sampler;
use super::survival::{Fitness, Standing, standings, survivors};
use super::variation;
use crate::space::Distribution;
use rand::{Rng, RngExt};

/// Smallest and largest number of survivors; in between it is a share of the search.
const POPULATION: (u64, u64) = (10, 50);
const POPULATION_SHARE: u64 = 5;
/// Probability that a child has two parents.
const CROSSOVER: f64 = 0.9;
/// Number of children for one trial; the first child that no other trial has is used.
const CHILDREN: usize = 10;

/// NSGA-II.
#[derive(Debug, Default)]
pub(super) struct Nsga2 {
    /// The trials that the survivors come from. Both are caches of the history.
    told: Vec<Individual>,
    survivors: Vec<Individual>,
}

/// An ended trial.
#[derive(Clone, Debug)]
struct Individual {
    trial: u64,
    point: Vec<f64>,
    fitness: Fitness,
}

impl Sampler for Nsga2 {
    fn propose(&mut self, history: &History, trial: u64) -> Option<Vec<f64>> {
        let dimensions = history.space.dimensions.len();
        let population = population(history);
        self.learn(history, population);
        if dimensions == 0 {
            return None;
        }
        if self.told.len() < population || self.survivors.is_empty() {
            return Some(qmc::point(history.settings.seed, trial, dimensions));
        }
        let fitness: Vec<Fitness> = self.survivors.iter().map(|survivor| survivor.fitness.clone()).collect();
        let standings = standings(&fitness);
        let mut rng = generator(history.settings.seed, trial, "nsga2");
        let mut child = self.child(history, &standings, &mut rng);
        for _ in 1..CHILDREN {
            if !variation::is_repeated(history, &child) {
                break;
            }
            child = self.child(history, &standings, &mut rng);
        }
        Some(child)
    }
}

impl Nsga2 {
    /// Lets each trial that has ended since the last call compete with the survivors.
    fn learn(&mut self, history: &History, population: usize) {
        let told: Vec<Individual> = history.rows.iter().filter_map(|row| Individual::of(row, history)).collect();
        let is_grown = told.len() >= self.told.len() && self.told.iter().zip(&told).all(|(a, b)| a.is_same(b));
        if !is_grown {
            *self = Nsga2::default();
        }
        for individual in &told[self.told.len()..] {
            if !individual.fitness.is_lost() {
                self.survivors.push(individual.clone());
            }
            if self.survivors.len() > population {
                let fitness: Vec<Fitness> = self.survivors.iter().map(|survivor| survivor.fitness.clone()).collect();
                let mut kept = survivors(&fitness, population);
                kept.sort_unstable();
                self.survivors = kept.into_iter().map(|index| self.survivors[index].clone()).collect();
            }
        }
        self.told = told;
    }

    fn child<R: Rng>(&self, history: &History, standings: &[Standing], rng: &mut R) -> Vec<f64> {
        let mut parent = || {
            let (a, b) = (rng.random_range(0..standings.len()), rng.random_range(0..standings.len()));
            if standings[b].beats(&standings[a]) { b } else { a }
        };
        let (mother, father) = (&self.survivors[parent()].point, &self.survivors[parent()].point);
        let has_two = rng.random_bool(CROSSOVER);
        let dimensions = &history.space.dimensions;
        let mut child = Vec::with_capacity(dimensions.len());
        for (index, dimension) in dimensions.iter().enumerate() {
            let father = if has_two { father[index] } else { mother[index] };
            let inherited = inherit(mother[index], father, &dimension.distribution, rng);
            child.push(variation::pass_on(inherited, &dimension.distribution, dimensions.len(), rng));
        }
        child
    }
}

/// One parameter of a child: the value of one parent, or a value between both.
fn inherit<R: Rng>(mother: f64, father: f64, distribution: &Distribution, rng: &mut R) -> Option<f64> {
    let is_mixed = rng.random::<bool>();
    let either = if rng.random::<bool>() { mother } else { father };
    match (mother.is_nan(), father.is_nan()) {
        (true, true) => None,
        (true, false) => Some(father),
        (false, true) => Some(mother),
        _ if !distribution.has_order() => Some(either),
        _ => Some(if is_mixed { variation::cross(mother, father, rng) } else { mother }),
    }
}

fn population(history: &History) -> usize {
    // At most 50.
    (history.settings.max_trials / POPULATION_SHARE).clamp(POPULATION.0, POPULATION.1) as usize
}

impl Individual {
    fn of(row: &Row, history: &History) -> Option<Individual> {
        let fitness = Fitness::of(&row.outcome, history.settings.objectives.len())?;
        Some(Individual { trial: row.trial, point: row.point.clone(), fitness })
    }

    /// Equality, where a parameter that neither has asked for counts as equal.
    fn is_same(&self, other: &Individual) -> bool {
        let units = |individual: &Individual| individual.point.iter().map(|unit| unit.to_bits()).collect::<Vec<_>>();
        self.trial == other.trial && self.fitness == other.fitness && units(self) == units(other)
    }
}
