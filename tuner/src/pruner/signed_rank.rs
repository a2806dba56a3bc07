//! Wilcoxon's signed-rank test between a trial and the best one, step by step.

use super::Values;
use crate::normal;
use crate::record::{TrialRecord, study_best};
use crate::spec::{Direction, Objective};

/// The test is exact up to this many differences.
const EXACT: usize = 50;

/// A trial with a better mean continues, even if the test says that it is worse.
pub(super) fn prunes(p: f64, startup: u64, values: &Values, trials: &[TrialRecord], objective: &Objective) -> bool {
    let Some(best) = study_best(trials, objective.direction).map(|best| Values::of(best, objective)) else {
        return false;
    };
    if !values.are_finite() || !best.are_finite() {
        return false;
    }
    let sign = if objective.direction == Direction::Min { 1.0 } else { -1.0 };
    let theirs = |step: u64| best.0.binary_search_by_key(&step, |(step, _)| *step).map(|index| best.0[index].1);
    let worse_by: Vec<f64> =
        values.0.iter().filter_map(|(step, value)| Some(sign * (value - theirs(*step).ok()?))).collect();
    let enough = worse_by.len() as u64 >= startup.max(2);
    enough && probability_of_positive(&worse_by) < p && sign * values.mean() > sign * best.mean()
}

/// Probability of such a large rank sum of the positive differences, if all signs were random.
///
/// Wilcoxon (1945), Biometrics Bulletin 1(6). Zeros count half as positive. Up to 50 differences the distribution is
/// exact, with ties too; for more differences it is approximated by a normal distribution.
fn probability_of_positive(differences: &[f64]) -> f64 {
    let count = differences.len();
    let doubled_ranks = doubled_ranks(differences);
    let sum: u64 = differences
        .iter()
        .zip(&doubled_ranks)
        .map(|(difference, rank)| match difference.total_cmp(&0.0) {
            _ if *difference == 0.0 => *rank,
            std::cmp::Ordering::Greater => 2 * rank,
            _ => 0,
        })
        .sum();
    if count > EXACT {
        let n = count as f64;
        let ties: f64 = tie_lengths(&doubled_ranks).map(|length| length.powi(3) - length).sum();
        let deviation = ((n * (n + 1.0) * (2.0 * n + 1.0) - ties / 2.0) / 24.0).sqrt();
        return normal::cumulative(-(sum as f64 / 4.0 - n * (n + 1.0) / 4.0) / deviation);
    }
    // Doubles the doubled ranks, so that half the rank of a zero is a whole number.
    let most = doubled_ranks.iter().sum::<u64>() as usize * 2;
    let mut shares = vec![0.0; most + 1];
    shares[0] = 1.0;
    for (difference, rank) in differences.iter().zip(&doubled_ranks) {
        let rank = *rank as usize;
        for total in (0..=most).rev() {
            let shifted = |by: usize, shares: &[f64]| total.checked_sub(by).map_or(0.0, |index| shares[index]);
            shares[total] = match *difference == 0.0 {
                true => shifted(rank, &shares),
                false => 0.5 * shares[total] + 0.5 * shifted(2 * rank, &shares),
            };
        }
    }
    shares[sum as usize..].iter().sum()
}

/// Twice the rank of each difference by size; equal ones share the mean of theirs.
fn doubled_ranks(differences: &[f64]) -> Vec<u64> {
    let size = |index: &usize| differences[*index].abs();
    let mut order: Vec<usize> = (0..differences.len()).collect();
    order.sort_by(|a, b| size(a).total_cmp(&size(b)));
    let mut ranks = vec![0; differences.len()];
    let mut below = 0;
    for equal in order.chunk_by(|a, b| size(a) == size(b)) {
        let rank = 2 * below + equal.len() as u64 + 1;
        equal.iter().for_each(|index| ranks[*index] = rank);
        below += equal.len() as u64;
    }
    ranks
}

fn tie_lengths(ranks: &[u64]) -> impl Iterator<Item = f64> {
    let mut sorted = ranks.to_vec();
    sorted.sort_unstable();
    sorted.chunk_by(|a, b| a == b).map(|equal| equal.len() as f64).collect::<Vec<_>>().into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Golden numbers: `tests/golden/wilcoxon.py`.
    #[test]
    fn probabilities_are_those_of_scipy() {
        let forty: Vec<f64> =
            (0..40_i32).map(|k| f64::from((k * 37) % 41 - 17) / 10.0 + f64::from(k) / 1000.0).collect();
        let eighty: Vec<f64> = (0..80_i32).map(|k| f64::from((k * 37) % 23 - 9) / 10.0).collect();
        let samples: [(&[f64], f64); 4] = [
            (&[0.3, -0.1, 0.7, 0.2, 0.9, -0.4], 0.156_25),
            (&[1.0, 0.0, 2.0, -1.0, 2.0, 0.0, 3.0, 1.0], 0.0625),
            (&forty, 0.036_253_166_059_395_88),
            (&eighty, 0.014_481_329_450_129_683),
        ];
        for (sample, golden) in samples {
            let ours = probability_of_positive(sample);
            assert!((ours - golden).abs() < 1e-12, "{ours} for {golden}");
        }
    }

    #[test]
    fn no_difference_at_all_is_no_evidence() {
        assert_eq!(probability_of_positive(&[0.0; 6]), 1.0);
    }
}
