//! Crossover and mutation of one parameter in the unit interval. Chooses no parents.

use super::history::{History, Row};
use ferrotune_space::Distribution;
use rand::{Rng, RngExt};

/// The nearness of children to their parents: a large index means near (Deb et al. 2002 use 20).
const CROSSOVER_INDEX: f64 = 20.0;
/// The nearness of a mutant to its original value. Deb et al. use 20, for thousands of trials; in a hundred trials such short
/// steps do not reach better regions.
const MUTATION_INDEX: f64 = 5.0;

/// A parameter of a child: the value that the child `inherits`, mutated with the probability 1 / `count`; a random value
/// if the child inherits none.
pub(super) fn pass_on<R: Rng + ?Sized>(
    inherits: Option<f64>,
    distribution: &Distribution,
    count: usize,
    rng: &mut R,
) -> f64 {
    let (is_mutant, anything): (bool, f64) = (rng.random_bool(1.0 / count.max(1) as f64), rng.random());
    match (inherits, distribution) {
        (None, _) => anything,
        (Some(unit), _) if !is_mutant => unit,
        (Some(_), distribution) if !distribution.has_order() => anything,
        (Some(unit), _) => mutate(unit, rng),
    }
}

/// Whether a trial of the history has the values at `point`. Ignores trials that have not asked for all of these
/// parameters.
pub(super) fn is_repeated(history: &History, point: &[f64]) -> bool {
    let space = &history.space;
    let needed: Vec<usize> = (0..point.len()).filter(|index| space.is_active(*index, point)).collect();
    let is_same = |row: &Row| {
        let is_same = |index: &usize| is_same(&space.dimensions[*index].distribution, row.point[*index], point[*index]);
        needed.iter().all(is_same)
    };
    history.rows.iter().any(is_same)
}

/// Whether two coordinates mean the same value; in continuous ranges, up to rounding.
pub(super) fn is_same(distribution: &Distribution, a: f64, b: f64) -> bool {
    match distribution {
        Distribution::Float { step: None, .. } => (a - b).abs() < 1e-9,
        _ => !a.is_nan() && distribution.from_unit(a) == distribution.from_unit(b),
    }
}

/// One child of two parents by simulated binary crossover on [0, 1].
///
/// Deb and Agrawal (1995), Complex Systems 9, in the bounded form: the spread is limited to the interval, equally on
/// both sides, so that the child has the parents' mean.
pub(super) fn cross<R: Rng + ?Sized>(a: f64, b: f64, rng: &mut R) -> f64 {
    let (low, high) = (a.min(b), a.max(b));
    let distance = high - low;
    if distance < 1e-14 {
        return a;
    }
    let beta = 1.0 + 2.0 * low.min(1.0 - high) / distance;
    let alpha = 2.0 - beta.powf(-(CROSSOVER_INDEX + 1.0));
    let uniform: f64 = rng.random();
    let power = 1.0 / (CROSSOVER_INDEX + 1.0);
    let spread = if uniform <= 1.0 / alpha {
        (uniform * alpha).powf(power)
    } else {
        (1.0 / (2.0 - uniform * alpha)).powf(power)
    };
    let side = if rng.random::<bool>() { -1.0 } else { 1.0 };
    (0.5 * (low + high + side * spread * distance)).clamp(0.0, 1.0)
}

/// A mutant by polynomial mutation on [0, 1] (Deb and Deb 2014, IJAISC 4).
fn mutate<R: Rng + ?Sized>(gene: f64, rng: &mut R) -> f64 {
    let uniform: f64 = rng.random();
    let power = 1.0 / (MUTATION_INDEX + 1.0);
    let step = if uniform < 0.5 {
        let floor = (1.0 - gene).powf(MUTATION_INDEX + 1.0);
        (2.0 * uniform + (1.0 - 2.0 * uniform) * floor).powf(power) - 1.0
    } else {
        let floor = gene.powf(MUTATION_INDEX + 1.0);
        1.0 - (2.0 * (1.0 - uniform) + (2.0 * uniform - 1.0) * floor).powf(power)
    };
    (gene + step).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_pcg::Pcg64;

    fn draws(draw: impl Fn(&mut Pcg64) -> f64) -> Vec<f64> {
        let mut rng = Pcg64::seed_from_u64(3);
        (0..20_000).map(|_| draw(&mut rng)).collect()
    }

    fn mean(values: &[f64]) -> f64 {
        values.iter().sum::<f64>() / values.len() as f64
    }

    #[test]
    fn children_spread_around_their_parents_and_keep_their_mean() {
        let children = draws(|rng| cross(0.3, 0.5, rng));
        assert!((mean(&children) - 0.4).abs() < 0.003);
        let near = children.iter().filter(|child| (**child - 0.3).abs() < 0.05 || (**child - 0.5).abs() < 0.05).count();
        assert!(near > 19_000, "{near}");
        assert!(children.iter().any(|child| *child < 0.29) && children.iter().any(|child| *child > 0.51));
        assert!(draws(|rng| cross(0.0, 1.0, rng)).iter().all(|child| (0.0..=1.0).contains(child)));
        assert_eq!(cross(0.7, 0.7, &mut Pcg64::seed_from_u64(1)), 0.7);
    }

    #[test]
    fn mutants_stay_in_the_interval_and_mostly_near() {
        for gene in [0.0, 0.01, 0.5, 1.0] {
            let mutants = draws(|rng| mutate(gene, rng));
            assert!(mutants.iter().all(|mutant| (0.0..=1.0).contains(mutant)));
            let near = mutants.iter().filter(|mutant| (**mutant - gene).abs() < 0.3).count();
            assert!((15_000..20_000).contains(&near), "{gene}: {near}");
        }
        assert!((mean(&draws(|rng| mutate(0.5, rng))) - 0.5).abs() < 0.003);
    }
}
