//! Learning curves in the form that a model needs: the losses at a few stages of a complete training.

use super::settings::loss;
use ferrotune_space::objective::Objective;
use ferrotune_space::record::{Ending, TrialRecord};

/// The ratio of the epochs of neighbouring stages; the last stage is the complete training.
const FACTOR: u64 = 3;
/// The largest number of stages before the end.
const STAGES: usize = 4;

/// The stages before the end of a training of `total` epochs: the numbers of epochs after which a loss is used, the largest first.
pub(super) fn stages(total: u64) -> impl Iterator<Item = u64> {
    let earlier = |stage: &u64| Some(stage.div_ceil(FACTOR)).filter(|earlier| earlier < stage);
    std::iter::successors(Some(total), earlier).skip(1).take(STAGES)
}

/// The losses of a trial at the stages that it has reached, where small is good, each with its share of a complete training; and
/// the loss of the epoch at which it was pruned. Empty if the trial did not announce the epochs of a complete training.
pub(super) fn of(trial: &TrialRecord, objective: &Objective) -> Vec<(f64, f64)> {
    let Some(total) = trial.epochs else { return Vec::new() };
    let done = trial.epochs_done();
    let end = (trial.ending == Some(Ending::Pruned) && done < total).then_some(done);
    let mut reached: Vec<u64> = stages(total).filter(|stage| *stage <= done).chain(end).collect();
    reached.sort_unstable();
    reached.dedup();
    let at = |stage: u64| {
        let value = trial.summary_before(objective, stage)?;
        Some((stage as f64 / total as f64, loss(objective, value)))
    };
    reached.into_iter().filter_map(at).collect()
}

/// The coordinate of a share of a complete training on the axis of epochs: 1 for the whole, and equal steps between stages.
pub(super) fn coordinate(share: f64) -> f64 {
    (1.0 + share.ln() / (STAGES as f64 * (FACTOR as f64).ln())).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrotune_space::objective::Direction;
    use std::collections::BTreeMap;

    #[test]
    fn stages_are_thirds_of_thirds() {
        assert_eq!(stages(27).collect::<Vec<_>>(), [9, 3, 1]);
        assert_eq!(stages(100).collect::<Vec<_>>(), [34, 12, 4, 2]);
        assert_eq!([1, 2].map(|total| stages(total).collect::<Vec<_>>()), [vec![], vec![1]]);
        assert!(
            [1.0 / 81.0, 1.0 / 27.0, 1.0]
                .map(coordinate)
                .iter()
                .zip([0.0, 0.25, 1.0])
                .all(|(a, b)| (a - b).abs() < 1e-12)
        );
    }

    #[test]
    fn a_curve_has_the_stages_that_were_reached_and_the_epoch_of_the_pruning() {
        let objective = Objective::new("accuracy", Direction::Max);
        let reports = (0..10).map(|step| (step, BTreeMap::from([("accuracy".to_owned(), Some(step as f64))])));
        let mut trial = TrialRecord { metrics: reports.collect(), ..TrialRecord::new(0) };
        assert_eq!(of(&trial, &objective), []);
        trial.epochs = Some(27);
        let stages = [(1.0 / 27.0, -0.0), (3.0 / 27.0, -2.0), (9.0 / 27.0, -8.0)];
        assert_eq!(of(&trial, &objective), stages);
        trial.ending = Some(Ending::Pruned);
        assert_eq!(of(&trial, &objective)[3], (10.0 / 27.0, -9.0));
    }
}
