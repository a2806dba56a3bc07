//! NSGA-II (Deb et al. 2002, IEEE TEC 6(2)) and NSGA-III (Deb and Jain 2014, IEEE TEC 18(4)): evolve the trials towards the
//! Pareto front of several objectives. The two differ in the selection of survivors. Both also work with one objective, and with
//! conditional parameters, which children inherit one by one.
//!
//! Both have the steady-state form of Durillo et al. (2009, EMO): each trial that ends competes with the survivors at once, so
//! concurrent trials never wait for a generation.

use super::history::{History, Row};
use super::qmc;
use super::random::generator;
use super::sampler::Sampler;
use super::survival::{self, Fitness, Rank, ranks};
use super::text::{SettingError, SettingsText};
use super::{references, variation};
use ferrotune_space::Distribution;
use rand::{Rng, RngExt};

/// The smallest and the largest number of survivors; between these limits it is a share of the search.
const POPULATION: (u64, u64) = (10, 50);
const POPULATION_SHARE: u64 = 10;
/// The probability that a child has two parents.
const CROSSOVER: f64 = 0.9;
/// The number of children for one trial; the sampler uses the first child that no other trial has.
const CHILDREN: usize = 10;

/// The divisions of each axis between the reference points of NSGA-III, and the largest number of reference points.
const DIVISIONS: u64 = 3;
const MOST_REFERENCES: u64 = 10_000;

/// The sampler NSGA-II or NSGA-III.
#[derive(Debug)]
pub(super) struct Nsga {
    survival: Survival,
    /// The number of survivors; if it is not given, a share of the search.
    population: Option<usize>,
    /// The trials that have competed so far; like the survivors, a cache of the history.
    told: Vec<Individual>,
    survivors: Vec<Individual>,
}

/// The rule that selects survivors among trials that do not dominate each other.
#[derive(Clone, Debug)]
enum Survival {
    /// The rule of NSGA-II: trials with distant neighbours survive.
    Crowding,
    /// The rule of NSGA-III: trials near each of these reference points survive.
    References(Vec<Vec<f64>>),
}

impl Survival {
    /// The number of survivors: the given number, or else a share of the search, and with NSGA-III one for each reference point.
    fn population(&self, history: &History) -> usize {
        // The share is at most 50.
        let share = (history.settings.max_trials / POPULATION_SHARE).clamp(POPULATION.0, POPULATION.1) as usize;
        match self {
            Survival::Crowding => share,
            Survival::References(points) => share.max(points.len()),
        }
    }

    /// The indices of the members of a population that survive.
    fn survivors<R: Rng>(&self, fitness: &[Fitness], count: usize, rng: &mut R) -> Vec<usize> {
        match self {
            Survival::Crowding => {
                let mut kept = survival::survivors(fitness, count);
                kept.sort_unstable();
                kept
            }
            Survival::References(points) => references::survivors(fitness, count, points, rng),
        }
    }

    /// The ranks that decide which of two survivors becomes a parent. With reference points, all that keep the constraints are equal.
    fn ranks(&self, fitness: &[Fitness]) -> Vec<Rank> {
        let less = |own: &Fitness| fitness.iter().filter(|other| other.violation < own.violation).count();
        match self {
            Survival::Crowding => ranks(fitness),
            Survival::References(_) => fitness.iter().map(|own| Rank { front: less(own), distance: 0.0 }).collect(),
        }
    }
}

/// An ended trial as a member of the population.
#[derive(Clone, Debug)]
struct Individual {
    trial: Option<u64>,
    point: Vec<f64>,
    fitness: Fitness,
}

impl Sampler for Nsga {
    fn propose(&mut self, history: &History, trial: u64) -> Option<Vec<f64>> {
        let dimensions = history.space.dimensions.len();
        let population = self.population.unwrap_or_else(|| self.survival.population(history));
        self.learn(history, population);
        if dimensions == 0 {
            return None;
        }
        if self.told.len() < population || self.survivors.is_empty() {
            return Some(qmc::point(history.settings.seed, trial, dimensions));
        }
        let fitness: Vec<Fitness> = self.survivors.iter().map(|survivor| survivor.fitness.clone()).collect();
        let ranks = self.survival.ranks(&fitness);
        let mut rng = generator(history.settings.seed, trial, "nsga2");
        let mut child = self.child(history, &ranks, &mut rng);
        for _ in 1..CHILDREN {
            if !variation::is_repeated(history, &child) {
                break;
            }
            child = self.child(history, &ranks, &mut rng);
        }
        Some(child)
    }
}

impl Nsga {
    /// The sampler NSGA-II with the setting in `text`: `population`.
    pub(super) fn second(text: &SettingsText<'_>) -> Result<Nsga, SettingError> {
        Ok(Nsga::new(Survival::Crowding, population(text)?))
    }

    /// The sampler NSGA-III for this number of objectives, with the settings in `text`: `population` and `divisions`.
    pub(super) fn third(text: &SettingsText<'_>, objectives: usize) -> Result<Nsga, SettingError> {
        let divisions = text.count("divisions", 1..)?.unwrap_or(DIVISIONS);
        if references::simplex_size(objectives, divisions, MOST_REFERENCES).is_none() {
            let wanted =
                format!("a smaller number: {objectives} objectives have at most {MOST_REFERENCES} reference points");
            return Err(text.refused("divisions", &divisions.to_string(), &wanted));
        }
        let points = references::simplex(objectives, divisions);
        Ok(Nsga::new(Survival::References(points), population(text)?))
    }

    fn new(survival: Survival, population: Option<usize>) -> Nsga {
        Nsga { survival, population, told: Vec::new(), survivors: Vec::new() }
    }

    /// Lets each trial that has ended since the last call compete with the survivors.
    fn learn(&mut self, history: &History, population: usize) {
        let told: Vec<Individual> = history.rows.iter().filter_map(|row| Individual::of(row, history)).collect();
        let is_grown = told.len() >= self.told.len() && self.told.iter().zip(&told).all(|(a, b)| a.is_same(b));
        if !is_grown {
            *self = Nsga::new(self.survival.clone(), self.population);
        }
        for individual in &told[self.told.len()..] {
            if !individual.fitness.is_lost() {
                self.survivors.push(individual.clone());
            }
            if self.survivors.len() > population {
                let fitness: Vec<Fitness> = self.survivors.iter().map(|survivor| survivor.fitness.clone()).collect();
                let number = individual.trial.unwrap_or_default();
                let mut rng = generator(history.settings.seed, number, "survival");
                let kept = self.survival.survivors(&fitness, population, &mut rng);
                self.survivors = kept.into_iter().map(|index| self.survivors[index].clone()).collect();
            }
        }
        self.told = told;
    }

    fn child<R: Rng>(&self, history: &History, ranks: &[Rank], rng: &mut R) -> Vec<f64> {
        let mut parent = || {
            let (a, b) = (rng.random_range(0..ranks.len()), rng.random_range(0..ranks.len()));
            if ranks[b].beats(&ranks[a]) { b } else { a }
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

/// A parameter of a child: the value of one parent, or a value between both parents' values.
fn inherit<R: Rng>(mother: f64, father: f64, distribution: &Distribution, rng: &mut R) -> Option<f64> {
    let is_mixed = rng.random::<bool>();
    let either = if rng.random::<bool>() { mother } else { father };
    match (mother.is_nan(), father.is_nan()) {
        (true, true) => None,
        (true, false) => Some(father),
        (false, true) => Some(mother),
        _ if !distribution.has_order() => Some(either),
        _ => Some(if is_mixed { variation::cross(mother, father, rng) } else { either }),
    }
}

fn population(text: &SettingsText<'_>) -> Result<Option<usize>, SettingError> {
    Ok(text.count("population", 2..=100_000)?.map(|count| count as usize))
}

impl Individual {
    fn of(row: &Row, history: &History) -> Option<Individual> {
        let fitness = Fitness::of(&row.outcome, history.settings.objectives.len())?;
        Some(Individual { trial: row.trial, point: row.point.clone(), fitness })
    }

    /// Whether two individuals are equal; parameters that neither trial has asked for are equal, too.
    fn is_same(&self, other: &Individual) -> bool {
        let units = |individual: &Individual| individual.point.iter().map(|unit| unit.to_bits()).collect::<Vec<_>>();
        self.trial == other.trial && self.fitness == other.fitness && units(self) == units(other)
    }
}
