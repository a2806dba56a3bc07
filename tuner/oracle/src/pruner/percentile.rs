//! The median rule and its generalisation to any percentile. Uses one step of the finished trials.

use super::Values;
use ferrotune_space::objective::Objective;
use ferrotune_space::record::{State, TrialRecord};

/// The rule of Golovin et al. (2017), Google Vizier, section 3.2.2: compares a trial's best value so far with the others' at its step.
pub(super) fn prunes(
    keep: f64,
    startup: u64,
    least: u64,
    (values, step): (&Values, u64),
    trials: &[TrialRecord],
    objective: &Objective,
) -> bool {
    let finished: Vec<&TrialRecord> = trials.iter().filter(|trial| trial.state() == State::Finished).collect();
    if finished.is_empty() || (finished.len() as u64) < startup {
        return false;
    }
    let loss = |value: f64| objective.direction.loss(value);
    let Some(best) = values.0.iter().map(|(_, value)| loss(*value)).filter(|loss| !loss.is_nan()).reduce(f64::min)
    else {
        return true;
    };
    let at_step = |trial: &&TrialRecord| *trial.metrics.get(&step)?.get(&objective.metric)?;
    let reports = finished
        .iter()
        .filter(|trial| trial.metrics.get(&step).is_some_and(|metrics| metrics.contains_key(&objective.metric)));
    if (reports.count() as u64) < least {
        return false;
    }
    let others: Vec<f64> = finished.iter().filter_map(at_step).map(loss).collect();
    percentile(others, keep).is_some_and(|limit| best > limit)
}

/// The value below which `per_cent` per cent of the values lie, interpolated between two of them; `None` without values.
fn percentile(mut values: Vec<f64>, per_cent: f64) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let position = per_cent / 100.0 * values.len().checked_sub(1)? as f64;
    let (low, high) = (values[position.floor() as usize], values[position.ceil() as usize]);
    Some(low + (high - low) * position.fract())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentile_lies_between_neighbours() {
        let values = || vec![4.0, 1.0, 3.0, 2.0];
        assert_eq!(percentile(values(), 50.0), Some(2.5));
        assert_eq!(percentile(values(), 0.0), Some(1.0));
        assert_eq!(percentile(values(), 100.0), Some(4.0));
        assert_eq!(percentile(values(), 10.0), Some(1.3));
        assert_eq!(percentile(Vec::new(), 50.0), None);
    }
}
