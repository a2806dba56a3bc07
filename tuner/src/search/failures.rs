//! Decides when failures show that the objective itself is wrong, rather than its parameters. Ends no trial.

use super::SearchError;
use super::outcome::{Outcome, never_reported};
use ferrotune_oracle::Source;
use ferrotune_space::record::{Ending, Runner, TrialRecord};
use ferrotune_space::spec::StudySpec;

/// The number of failures in a row, without an earlier success, after which the objective itself is assumed to be wrong.
const HOPELESS: u64 = 3;

/// The failures of a search so far.
#[derive(Debug)]
pub(super) struct Failures {
    in_a_row: u64,
    /// Whether a trial of this search has finished, paused, or been pruned.
    has_succeeded: bool,
}

impl Failures {
    /// The failures of a search that continues after `trials`. Failures before this start do not count, because their cause
    /// may be fixed by now. Earlier successes still show that the objective works. Another program's trials do not count,
    /// because they ran that program's own objective.
    pub(super) fn after(trials: &[TrialRecord]) -> Failures {
        let has_succeeded = |trial: &TrialRecord| {
            let has_ended_well = matches!(trial.ending, Some(Ending::Finished | Ending::Pruned));
            let has_come_far = has_ended_well || trial.paused_at.is_some() || !trial.executions.is_empty();
            trial.runner == Runner::Search && has_come_far
        };
        Failures { in_a_row: 0, has_succeeded: trials.iter().any(has_succeeded) }
    }

    /// Counts the outcome of a trial; an error ends the search. `reports_were_due` says whether the trial got so far that a
    /// metric it never reported is missing, rather than still to come.
    pub(super) fn judge(
        &mut self,
        spec: &StudySpec,
        record: &TrialRecord,
        outcome: &Outcome,
        reports_were_due: bool,
    ) -> Result<(), SearchError> {
        let failure = match outcome {
            Outcome::Interrupted | Outcome::Postponed(_) => return Ok(()),
            Outcome::Paused { .. } | Outcome::Executed => None,
            Outcome::Ended { ending, .. } => {
                Some(ending).filter(|ending| !matches!(ending, Ending::Finished | Ending::Pruned))
            }
        };
        if record.number == 0 && failure.is_none() && record.parameters.is_empty() {
            return Err(SearchError::EmptySpace);
        }
        if record.number == 0
            && let Some(ending) = failure
            && let Some(reason) = unreported(spec, record, ending, reports_were_due)
        {
            return Err(SearchError::NeverReported { reason });
        }
        if record.number == 0
            && failure.is_none()
            && let Some(study) = Source::of(spec).unfitting(std::iter::once(record), &spec.given).first()
        {
            return Err(SearchError::NoTrialFits { study: spec.warm_starts[*study].study.clone() });
        }
        let Some(ending) = failure.cloned() else {
            (self.in_a_row, self.has_succeeded) = (0, true);
            return Ok(());
        };
        // Memory, time and signals may be due to chance or to the parameters; an error of the objective is due to the
        // objective.
        let is_its_own = matches!(ending, Ending::Failed { .. } | Ending::Panicked { .. });
        let most = spec.supervision.max_consecutive_failures;
        self.in_a_row += u64::from(is_its_own || most.is_some());
        let count = self.in_a_row;
        match most {
            Some(most) if count >= most => Err(SearchError::FailuresInARow { count, ending }),
            None if count == HOPELESS && !self.has_succeeded => Err(SearchError::Hopeless { count, ending }),
            _ => Ok(()),
        }
    }
}

/// The reason why the first trial, which failed with `ending`, has no value, if the trial never reported an objective.
fn unreported(spec: &StudySpec, first: &TrialRecord, ending: &Ending, reports_were_due: bool) -> Option<String> {
    let complaint = |objective| never_reported(first, objective);
    let is_the_reason = |text: &String| matches!(ending, Ending::Failed { reason } if reason == text);
    match spec.objectives.as_slice() {
        [objective] if reports_were_due => complaint(objective),
        objectives => objectives.iter().filter_map(complaint).find(is_the_reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrotune_space::objective::{Direction, Objective};

    fn record(number: u64, ending: Option<Ending>) -> TrialRecord {
        TrialRecord { ending, ..TrialRecord::new(number) }
    }

    /// The number of failures after `trials` that ends the search, among at most ten.
    fn failures_that_end(trials: &[TrialRecord]) -> Option<u64> {
        let spec = StudySpec::new("digits", vec![Objective::new("accuracy", Direction::Max)]);
        let mut failures = Failures::after(trials);
        let ending = Ending::Panicked { message: "x".to_owned() };
        let outcome = Outcome::Ended { ending: ending.clone(), values: Vec::new() };
        (1..=10).find(|count| {
            let record = record(trials.len() as u64 + count, Some(ending.clone()));
            failures.judge(&spec, &record, &outcome, false).is_err()
        })
    }

    #[test]
    fn successes_before_a_resumption_show_that_the_objective_works() {
        assert_eq!(failures_that_end(&[]), Some(HOPELESS));
        let finished: Vec<TrialRecord> = (0..20).map(|number| record(number, Some(Ending::Finished))).collect();
        assert_eq!(failures_that_end(&finished), None);
        let theirs = TrialRecord { runner: Runner::Other, ..finished[0].clone() };
        assert_eq!(failures_that_end(&[theirs]), Some(HOPELESS));
        let paused = TrialRecord { paused_at: Some(3), ..record(0, None) };
        assert_eq!(failures_that_end(&[paused]), None);
        let failed = record(0, Some(Ending::Failed { reason: "x".to_owned() }));
        assert_eq!(failures_that_end(&[failed, record(1, None)]), Some(HOPELESS));
    }
}
