//! The check whether a trial still improves. Uses no other trial.

use super::Values;
use ferrotune_space::objective::Direction;

/// Whether the best of the last `steps + 1` reports is worse by more than `delta` than the best report before them.
pub(super) fn has_stalled(steps: u64, delta: f64, values: &Values, direction: Direction) -> bool {
    let recent = usize::try_from(steps).unwrap_or(usize::MAX).saturating_add(1);
    let Some(earlier) = values.0.len().checked_sub(recent).filter(|count| *count > 0) else {
        return false;
    };
    let best = |values: &[(u64, f64)]| {
        values.iter().map(|(_, value)| direction.loss(*value)).filter(|loss| !loss.is_nan()).reduce(f64::min)
    };
    match (best(&values.0[..earlier]), best(&values.0[earlier..])) {
        (Some(before), Some(after)) => before + delta < after,
        (Some(_), None) => true,
        (None, _) => false,
    }
}
