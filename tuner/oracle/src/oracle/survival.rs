//! Ranks trials with several losses by non-dominated fronts and crowding, and selects survivors. Pure mathematics.
//!
//! Deb et al. (2002), A Fast and Elitist Multiobjective Genetic Algorithm: NSGA-II, IEEE TEC 6(2).

use super::settings::Outcome;
use crate::analysis::pareto;

/// The losses of an individual, in the form that survival needs.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Fitness {
    /// The losses, one for each objective, where small is good; infinite for a trial that failed.
    pub(super) losses: Vec<f64>,
    /// Sum of the constraints' violations: 0 if the trial is feasible, infinite if it failed.
    pub(super) violation: f64,
}

/// The rank of an individual: its front, counted from 0, and its crowding distance there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rank {
    /// Number of the individual's front.
    pub(super) front: usize,
    /// The individual's crowding distance: infinite at the ends of the front.
    pub(super) distance: f64,
}

impl Rank {
    /// Whether the individual wins a tournament: by front, then by crowding distance.
    pub(super) fn beats(&self, other: &Rank) -> bool {
        self.front < other.front || (self.front == other.front && self.distance > other.distance)
    }
}

impl Fitness {
    /// The individual for a trial's outcome in a search with this number of objectives; `None` if the trial is open.
    ///
    /// A pruned trial has its best value until then; with several objectives only one value is known.
    pub(super) fn of(outcome: &Outcome, objectives: usize) -> Option<Fitness> {
        let (losses, violation) = match outcome {
            Outcome::Open => return None,
            Outcome::Finished { losses, violation, .. } => (losses.clone(), *violation),
            Outcome::Pruned { loss: Some(loss), .. } if objectives == 1 => (vec![*loss], 0.0),
            Outcome::Pruned { .. } | Outcome::Failed | Outcome::OutOfMemory => {
                (vec![f64::INFINITY; objectives], f64::INFINITY)
            }
        };
        Some(Fitness { losses, violation })
    }

    /// Whether the trial failed.
    pub(super) fn is_lost(&self) -> bool {
        !self.losses.iter().all(|loss| loss.is_finite())
    }

    /// Whether the individual dominates another under constraints: feasible before infeasible, less violation before more, then by losses.
    fn dominates(&self, other: &Fitness) -> bool {
        match (self.violation > 0.0, other.violation > 0.0) {
            (false, false) => pareto::dominates(&self.losses, &other.losses),
            (own, _) => !own || self.violation < other.violation && other.violation > 0.0,
        }
    }
}

/// Front and crowding distance of every individual.
pub(super) fn ranks(population: &[Fitness]) -> Vec<Rank> {
    let fronts = fronts(population);
    let mut ranks = vec![Rank { front: 0, distance: 0.0 }; population.len()];
    for (front, members) in fronts.iter().enumerate() {
        let losses: Vec<&[f64]> = members.iter().map(|member| population[*member].losses.as_slice()).collect();
        for (member, distance) in members.iter().zip(pareto::crowding(&losses)) {
            ranks[*member] = Rank { front, distance };
        }
    }
    ranks
}

/// Indices of the `count` individuals that survive, best first; of equal individuals, the earlier one.
pub(super) fn survivors(population: &[Fitness], count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..population.len()).collect();
    if population.iter().all(|fitness| fitness.losses.len() == 1) {
        // With one loss each front has a single value, so sorting is enough.
        let key = |index: &usize| (population[*index].violation, population[*index].losses[0]);
        order.sort_by(|a, b| key(a).0.total_cmp(&key(b).0).then(key(a).1.total_cmp(&key(b).1)));
        order.truncate(count);
        return order;
    }
    let ranks = ranks(population);
    let key = |index: &usize| (ranks[*index].front, -ranks[*index].distance);
    order.sort_by(|a, b| key(a).0.cmp(&key(b).0).then(key(a).1.total_cmp(&key(b).1)));
    order.truncate(count);
    order
}

/// The fronts in order, each with its members' indices.
pub(super) fn fronts(population: &[Fitness]) -> Vec<Vec<usize>> {
    let mut dominated: Vec<Vec<usize>> = vec![Vec::new(); population.len()];
    let mut dominators = vec![0_usize; population.len()];
    for a in 0..population.len() {
        for b in 0..population.len() {
            if population[a].dominates(&population[b]) {
                dominated[a].push(b);
                dominators[b] += 1;
            }
        }
    }
    let mut fronts = Vec::new();
    let mut front: Vec<usize> = (0..population.len()).filter(|index| dominators[*index] == 0).collect();
    while !front.is_empty() {
        let mut next = Vec::new();
        for other in front.iter().flat_map(|member| &dominated[*member]) {
            dominators[*other] -= 1;
            if dominators[*other] == 0 {
                next.push(*other);
            }
        }
        next.sort_unstable();
        fronts.push(std::mem::replace(&mut front, next));
    }
    fronts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feasible(losses: &[[f64; 2]]) -> Vec<Fitness> {
        losses.iter().map(|losses| Fitness { losses: losses.to_vec(), violation: 0.0 }).collect()
    }

    #[test]
    fn fronts_are_peeled_off_one_after_the_other() {
        let population = feasible(&[[3.0, 3.0], [1.0, 4.0], [2.0, 2.0], [4.0, 1.0], [5.0, 5.0], [2.0, 5.0]]);
        assert_eq!(fronts(&population), [vec![1, 2, 3], vec![0, 5], vec![4]]);
    }

    #[test]
    fn survivors_are_the_best_fronts_and_then_the_lonely() {
        let population = feasible(&[[0.0, 10.0], [4.9, 5.1], [5.0, 5.0], [5.1, 4.9], [10.0, 0.0], [9.0, 9.0]]);
        assert_eq!(survivors(&population, 2), [0, 4]);
        let three = survivors(&population, 4);
        assert!(three.contains(&1) && three.contains(&3) && !three.contains(&2), "{three:?}");
        assert_eq!(survivors(&population, 6).last(), Some(&5));
    }

    #[test]
    fn feasible_comes_before_infeasible_and_little_before_much_violation() {
        let with = |loss: f64, violation| Fitness { losses: vec![loss], violation };
        let population = [with(0.0, 2.0), with(9.0, 0.0), with(5.0, 1.0), with(3.0, 0.0)];
        assert_eq!(survivors(&population, 4), [3, 1, 2, 0]);
    }

    #[test]
    fn failed_trials_come_last_and_make_no_distance_undefined() {
        for objectives in [1, 2] {
            let of = |outcome: Outcome| Fitness::of(&outcome, objectives).expect("over");
            let finished = |loss: f64, violation| {
                of(Outcome::Finished { losses: vec![loss; objectives], violation, excesses: vec![violation] })
            };
            let lost = [of(Outcome::Failed), of(Outcome::OutOfMemory)];
            let population = [lost[0].clone(), finished(2.0, 0.0), lost[1].clone(), finished(1.0, 3.0)];
            assert_eq!(survivors(&population, 4), [1, 3, 0, 2]);
            assert!(ranks(&population).iter().all(|rank| !rank.distance.is_nan()));
        }
        assert_eq!(Fitness::of(&Outcome::Open, 1), None);
    }

    #[test]
    fn front_with_equal_members_keeps_its_ends() {
        let population = feasible(&[[1.0, 1.0], [1.0, 1.0], [1.0, 1.0]]);
        assert!(ranks(&population).iter().all(|rank| rank.front == 0 && rank.distance == 0.0));
    }
}
