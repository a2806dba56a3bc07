//! Wilcoxon's signed-rank test between a trial and the best trial, step by step.

use super::Values;
use crate::normal;
use ferrotune_space::objective::Objective;
use ferrotune_space::record::{TrialRecord, study_best};

/// The largest number of differences for which the test is exact.
const EXACT: usize = 50;

/// The signed-rank test with its settings.
pub(super) struct SignedRank<'a> {
    pub(super) p: f64,
    pub(super) startup: u64,
    pub(super) objective: &'a Objective,
}

impl SignedRank<'_> {
    pub(super) fn prunes(&self, values: &Values, trials: &[TrialRecord]) -> bool {
        let best = study_best(trials, self.objective.direction).map(|best| Values::of(best, self.objective));
        best.is_some_and(|best| values.are_finite() && best.are_finite() && self.is_worse(&values.0, &best))
    }

    /// Whether these values are worse than the best trial's. A trial with a better mean is not worse, even if the test says so.
    fn is_worse(&self, values: &[(u64, f64)], best: &Values) -> bool {
        let direction = self.objective.direction;
        let theirs = |step: u64| best.0.binary_search_by_key(&step, |(step, _)| *step).map(|index| best.0[index].1);
        let worse_by: Vec<f64> =
            values.iter().filter_map(|(step, value)| Some(direction.loss(value - theirs(*step).ok()?))).collect();
        let enough = worse_by.len() >= self.least();
        enough && probability_of_positive(&worse_by) < self.p && direction.prefers(mean(&best.0), mean(values))
    }

    fn least(&self) -> usize {
        self.startup.max(2) as usize
    }
}

fn mean(values: &[(u64, f64)]) -> f64 {
    values.iter().map(|(_, value)| value).sum::<f64>() / values.len() as f64
}

/// The probability of such a large rank sum of the positive differences, if all signs were random.
///
/// Wilcoxon (1945), Biometrics Bulletin 1(6). Half of a zero's rank is positive. Up to 50 differences the distribution is
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
    // The doubled ranks are doubled again, so that half the rank of a zero is a whole number.
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

/// Twice the rank of each difference by absolute size; equal differences share the mean of their ranks.
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

    /// Golden numbers from `tests/golden/wilcoxon.py`.
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
