//! Analysis of a search: Pareto fronts, the volume that they dominate, and distributions of values. Draws no plots.
//!
//! All functions take losses, of which small ones are good. The loss of a maximised objective is its negative.

pub mod hypervolume;
pub mod pareto;
pub mod ranking;

/// The empirical distribution function: for each of `at`, the share of `values` that are at most as large.
///
/// `None` without a finite value; values that are not finite are treated as infinite.
///
/// ```
/// use ferrotune_oracle::analysis::empirical_distribution;
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
