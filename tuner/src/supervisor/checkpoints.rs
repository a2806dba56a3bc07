//! Keeps the checkpoints of the best trials, and removes checkpoints that nobody will read.

use super::{Supervisor, SupervisorError};
use ferrotune_journal::study_folder::{self, file_error, remove_checkpoints};
use ferrotune_oracle::analysis::ranking;
use ferrotune_space::record::TrialRecord;
use ferrotune_space::spec::StudySpec;

impl Supervisor<'_> {
    /// Removes the checkpoints of trials that have ended and are not among the best.
    pub(super) fn remove_losers(&mut self) -> Result<(), SupervisorError> {
        for number in losers(self.search.trials(), &self.search.spec) {
            let folder = study_folder::of_trial(&self.search.folder, number);
            remove_checkpoints(&folder).map_err(file_error("remove checkpoints in", &folder))?;
            self.search.journal.checkpoint_removed(number)?;
            if let Some(mirror) = &self.mirror {
                mirror.forget(number);
            }
        }
        Ok(())
    }
}

/// The numbers of trials whose checkpoints can be removed: these trials have ended, and are not among the best trials.
fn losers(trials: &[TrialRecord], spec: &StudySpec) -> Vec<u64> {
    let ended = trials.iter().filter(|trial| trial.ending.is_some() && trial.checkpoint.is_some());
    let ended: Vec<u64> = ended.map(|trial| trial.number).collect();
    if ended.is_empty() {
        return ended;
    }
    let keep = usize::try_from(spec.supervision.keep_best).unwrap_or(usize::MAX);
    let kept: Vec<u64> = ranking::ranked(trials, spec, keep).into_iter().map(|trial| trial.number).collect();
    ended.into_iter().filter(|number| !kept.contains(number)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrotune_space::objective::{Direction, Objective};
    use ferrotune_space::record::Ending;
    use ferrotune_space::spec::Supervision;

    #[test]
    fn only_the_best_and_those_that_may_go_on_keep_their_checkpoints() {
        let trial = |number: u64, ending: Option<Ending>, value: Option<f64>| {
            let checkpoint = Some("checkpoint-000000.safetensors".to_owned());
            TrialRecord { ending, values: value.into_iter().collect(), checkpoint, ..TrialRecord::new(number) }
        };
        let losers = |trials: &[TrialRecord], direction, keep_best| {
            let supervision = Supervision { keep_best, ..Supervision::default() };
            let objectives = vec![Objective::new("accuracy", direction)];
            losers(trials, &StudySpec { supervision, ..StudySpec::new("digits", objectives) })
        };
        let finished = |number, value| trial(number, Some(Ending::Finished), Some(value));
        let mut trials = vec![
            finished(0, 0.3),
            finished(1, 0.5),
            trial(2, None, None),
            finished(3, 0.1),
            trial(4, Some(Ending::Pruned), Some(0.9)),
            finished(5, 0.5),
        ];
        assert_eq!(losers(&trials, Direction::Max, 2), [0, 3, 4]);
        assert_eq!(losers(&trials, Direction::Min, 1), [0, 1, 4, 5]);
        trials[0].checkpoint = None;
        assert_eq!(losers(&trials, Direction::Max, 2), [3, 4]);
    }
}
