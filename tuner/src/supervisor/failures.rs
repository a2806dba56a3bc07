//! When failures mean that the objective itself is at fault, rather than its parameters. Ends no trial.

use super::SupervisorError;
use super::outcome::{Outcome, never_reported};
use crate::record::{Ending, TrialRecord};
use crate::wire::StudySpec;

/// After so many failures in a row, with no success before them, the objective itself must be wrong.
const HOPELESS: u64 = 3;

/// The failures of a search so far.
#[derive(Debug, Default)]
pub(super) struct Failures {
    in_a_row: u64,
    /// Whether a trial of this search has come to something.
    has_succeeded: bool,
}

impl Failures {
    /// Takes in what a trial has come to; an error ends the search. `reports_were_due` is whether it came so far that a
    /// metric it never reported is missing, rather than still to come.
    pub(super) fn judge(
        &mut self,
        spec: &StudySpec,
        record: &TrialRecord,
        outcome: &Outcome,
        reports_were_due: bool,
    ) -> Result<(), SupervisorError> {
        let failure = match outcome {
            Outcome::Interrupted | Outcome::Postponed { .. } => return Ok(()),
            Outcome::Paused { .. } | Outcome::Executed => None,
            Outcome::Ended { ending, .. } => {
                Some(ending).filter(|ending| !matches!(ending, Ending::Finished | Ending::Pruned))
            }
        };
        if record.number == 0 && failure.is_none() && record.parameters.is_empty() {
            return Err(SupervisorError::EmptySpace);
        }
        if record.number == 0
            && let Some(ending) = failure
            && let Some(reason) = unreported(spec, record, ending, reports_were_due)
        {
            return Err(SupervisorError::NeverReported { reason });
        }
        let Some(ending) = failure.cloned() else {
            (self.in_a_row, self.has_succeeded) = (0, true);
            return Ok(());
        };
        // Memory, time and signals may be chance, or the parameters' fault; errors of the objective are its own.
        let is_its_own = matches!(ending, Ending::Failed { .. } | Ending::Panicked { .. });
        let most = spec.supervision.max_consecutive_failures;
        self.in_a_row += u64::from(is_its_own || most.is_some());
        let count = self.in_a_row;
        match most {
            Some(most) if count >= most => Err(SupervisorError::FailuresInARow { count, ending }),
            None if count == HOPELESS && !self.has_succeeded => Err(SupervisorError::Hopeless { count, ending }),
            _ => Ok(()),
        }
    }
}

/// Why the first trial, which failed so, has no value, if that is because it never reported an objective.
fn unreported(spec: &StudySpec, first: &TrialRecord, ending: &Ending, reports_were_due: bool) -> Option<String> {
    let complaint = |objective| never_reported(first, objective);
    let is_the_reason = |text: &String| matches!(ending, Ending::Failed { reason } if reason == text);
    match spec.objectives.as_slice() {
        [objective] if reports_were_due => complaint(objective),
        objectives => objectives.iter().filter_map(complaint).find(is_the_reason),
    }
}
