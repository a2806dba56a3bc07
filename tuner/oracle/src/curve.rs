//! Learning curves in the form that forecasts need: the losses at a few stages of a complete training. Forecasts nothing.

use ferrotune_space::objective::Objective;
use ferrotune_space::record::TrialRecord;

/// The ratio of the epochs of neighbouring stages; the last stage is the complete training.
const FACTOR: u64 = 3;

/// The stages before the end of a training of `total` epochs: the numbers of epochs after which a loss is used, the largest first.
pub(crate) fn stages(total: u64) -> impl Iterator<Item = u64> {
    let earlier = |stage: &u64| Some(stage.div_ceil(FACTOR)).filter(|earlier| earlier < stage);
    std::iter::successors(Some(total), earlier).skip(1)
}

/// The loss of a trial at each of its stages, where small is good, the largest stage first. `None` at a stage that the trial has not
/// reached, or where its loss is not finite. Empty if the trial did not announce the epochs of a complete training.
pub(crate) fn of(trial: &TrialRecord, objective: &Objective) -> Vec<Option<f64>> {
    let done = trial.epochs_done();
    let at = |stage| {
        let value = trial.summary_before(objective, stage).filter(|_| stage <= done)?;
        Some(objective.direction.loss(value))
    };
    trial.epochs.into_iter().flat_map(stages).map(at).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrotune_space::objective::Direction;
    use std::collections::BTreeMap;

    #[test]
    fn stages_are_thirds_of_thirds() {
        assert_eq!(stages(27).collect::<Vec<_>>(), [9, 3, 1]);
        assert_eq!(stages(100).collect::<Vec<_>>(), [34, 12, 4, 2, 1]);
        assert_eq!([1, 2].map(|total| stages(total).collect::<Vec<_>>()), [vec![], vec![1]]);
    }

    #[test]
    fn a_curve_has_the_stages_that_were_reached() {
        let objective = Objective::new("accuracy", Direction::Max);
        let reports = (0..4).map(|step| (step, BTreeMap::from([("accuracy".to_owned(), Some(step as f64))])));
        let mut trial = TrialRecord { metrics: reports.collect(), ..TrialRecord::new(0) };
        assert_eq!(of(&trial, &objective), []);
        trial.epochs = Some(27);
        assert_eq!(of(&trial, &objective), [None, Some(-2.0), Some(-0.0)]);
    }
}
