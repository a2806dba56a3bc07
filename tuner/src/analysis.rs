//! What a finished search tells: trade-offs, the space that they dominate, and how values are spread. Draws no plots.
//!
//! All of it is over losses: numbers of which small ones are good. A maximised objective's loss is its negative.

pub mod hypervolume;
pub mod pareto;
pub mod ranking;

/// Shares of `values` that are at most as large as each of `at`: the empirical distribution function.
///
/// `None` without a finite value; values that are not finite count as larger than everything.
///
/// ```
/// use ferrotune_tuner::analysis::empirical_distribution;
/// assert_eq!(empirical_distribution(&[3.0, 1.0, 2.0, f64::INFINITY], &[0.5, 1.0, 2.5]), Some(vec![0.0, 0.25, 0.5]));
/// ```
pub fn empirical_distribution(values: &[f64], at: &[f64]) -> Option<Vec<f64>> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    if sorted.is_empty() {
        return None;
    }
    sorted.sort_by(f64::total_cmp);
    let share = |limit: &f64| sorted.partition_point(|value| value <= limit) as f64 / values.len() as f64;
    Some(at.iter().map(share).collect())
}
