//! What a worker's end means for its trial. Pure: decides from facts, writes and kills nothing.

use crate::process::Exit;
use crate::record::{Ending, TrialRecord};
use crate::wire::Objective;
use std::collections::BTreeSet;

/// What is true of a trial after one of its workers.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Outcome {
    /// It is over.
    Ended { ending: Ending, value: Option<f64> },
    /// It came to the epoch up to which the oracle let it train.
    Paused {
        /// That epoch, exclusive.
        at: u64,
    },
    /// The search was stopped; the trial goes on another time.
    Interrupted,
}

impl Outcome {
    /// How the trial ended, if it did.
    pub(super) fn ending(&self) -> Option<&Ending> {
        match self {
            Outcome::Ended { ending, .. } => Some(ending),
            Outcome::Paused { .. } | Outcome::Interrupted => None,
        }
    }
}

/// What the objective told last.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Answer {
    /// It returned, perhaps with a value.
    Returned(Option<f64>),
    /// It returned an error or panicked.
    Broke(Ending),
}

/// The meaning of the objective's own word, which counts before a kill and an exit status.
///
/// `told_to_stop` is whether the search had told it so; `epochs` are the epoch (exclusive) up to which it was to
/// train, and those of a whole training.
pub(super) fn answered(
    answer: Answer,
    told_to_stop: bool,
    epochs: Option<(u64, u64)>,
    record: &TrialRecord,
    objective: &Objective,
) -> Outcome {
    let incomplete =
        epochs.is_some_and(|(stop, _)| record.last_step().is_none_or(|step| step.saturating_add(1) < stop));
    match answer {
        Answer::Returned(value) if told_to_stop && (value.is_none() || incomplete) => Outcome::Interrupted,
        Answer::Broke(_) if told_to_stop => Outcome::Interrupted,
        Answer::Returned(value) => returned(value, epochs, record, objective),
        Answer::Broke(ending) => Outcome::Ended { ending, value: None },
    }
}

/// The meaning of the end of a worker whose objective said nothing: why the supervisor killed it comes before how its
/// process ended. `memory` are the most that it held and its budget, in bytes.
pub(super) fn unanswered(killed: Option<Ending>, exit: Exit, memory: (u64, u64)) -> Outcome {
    let (held_bytes, budget_bytes) = memory;
    let ending = match (killed, exit) {
        (Some(Ending::Cancelled), _) => return Outcome::Interrupted,
        (Some(ending), _) => ending,
        (None, Exit::Starved(bytes)) => {
            Ending::OutOfMemory { peak_bytes: held_bytes.saturating_add(bytes), budget_bytes }
        }
        (None, Exit::Signal(signal)) => Ending::Signalled { signal },
        (None, Exit::Code(code)) => {
            Ending::Failed { reason: format!("exited with {code} before the objective returned") }
        }
    };
    Outcome::Ended { ending, value: None }
}

fn returned(value: Option<f64>, epochs: Option<(u64, u64)>, record: &TrialRecord, objective: &Objective) -> Outcome {
    let best = record.best(objective);
    match (epochs, value.or(best)) {
        // The oracle compares trials by what they report: a value that only the return tells comes too late.
        (Some((stop, total)), Some(_)) if stop < total && best.is_some() => Outcome::Paused { at: stop },
        (_, Some(value)) => Outcome::Ended { ending: Ending::Finished, value: Some(value) },
        (_, None) => {
            let metric = &objective.metric;
            let reason = never_reported(record, objective)
                .unwrap_or_else(|| format!("the objective '{metric}' was not finite at any step"));
            Outcome::Ended { ending: Ending::Failed { reason }, value: None }
        }
    }
}

/// The complaint about a trial in which no report names the objective's metric.
pub(super) fn never_reported(record: &TrialRecord, objective: &Objective) -> Option<String> {
    let names: BTreeSet<&str> = record.metrics.values().flat_map(|step| step.keys().map(String::as_str)).collect();
    let metric = objective.metric.as_str();
    if names.contains(metric) {
        return None;
    }
    let instead = match names.is_empty() {
        true => "trial.report was never called and the objective returned no finite value".to_owned(),
        false => format!("trial.report gave: {}", Vec::from_iter(names).join(", ")),
    };
    Some(format!("the objective '{metric}' was never reported; {instead}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Direction;

    fn objective() -> Objective {
        Objective { metric: "val_accuracy".to_owned(), direction: Direction::Max }
    }

    fn record(reports: &[(u64, &str, f64)]) -> TrialRecord {
        let mut record = TrialRecord::new(0);
        for (step, name, value) in reports {
            record.metrics.entry(*step).or_default().insert((*name).to_owned(), Some(*value));
        }
        record
    }

    fn failed(reason: &str) -> Outcome {
        Outcome::Ended { ending: Ending::Failed { reason: reason.to_owned() }, value: None }
    }

    fn finished(value: f64) -> Outcome {
        Outcome::Ended { ending: Ending::Finished, value: Some(value) }
    }

    #[test]
    fn exit_without_a_result_is_a_failure_whatever_the_status() {
        let exit = |exit| unanswered(None, exit, (5, 9));
        assert_eq!(exit(Exit::Code(0)), failed("exited with 0 before the objective returned"));
        assert_eq!(exit(Exit::Code(3)), failed("exited with 3 before the objective returned"));
        let aborted = Outcome::Ended { ending: Ending::Signalled { signal: 6 }, value: None };
        assert_eq!(exit(Exit::Signal(6)), aborted);
        let starved = Ending::OutOfMemory { peak_bytes: 12, budget_bytes: 9 };
        assert_eq!(exit(Exit::Starved(7)), Outcome::Ended { ending: starved, value: None });
    }

    #[test]
    fn reason_of_a_kill_counts_before_the_exit_status() {
        let ending = Ending::TimedOut { after_s: 1 };
        let timed_out = Outcome::Ended { ending: ending.clone(), value: None };
        assert_eq!(unanswered(Some(ending), Exit::Signal(9), (0, 0)), timed_out);
    }

    #[test]
    fn best_report_stands_in_for_a_value_that_was_not_returned() {
        let record = record(&[(0, "val_accuracy", 0.7), (1, "val_accuracy", 0.6)]);
        assert_eq!(answered(Answer::Returned(None), false, None, &record, &objective()), finished(0.7));
    }

    #[test]
    fn objective_that_was_never_reported_is_named_with_what_was() {
        let record = record(&[(0, "loss", 0.7), (1, "acc", 0.6)]);
        let reason = "the objective 'val_accuracy' was never reported; trial.report gave: acc, loss";
        assert_eq!(answered(Answer::Returned(None), false, None, &record, &objective()), failed(reason));
    }

    #[test]
    fn return_at_a_rung_pauses_and_at_the_end_finishes() {
        let record = record(&[(2, "val_accuracy", 0.7)]);
        let at = |stop| answered(Answer::Returned(Some(0.7)), false, Some((stop, 9)), &record, &objective());
        assert_eq!(at(3), Outcome::Paused { at: 3 });
        assert_eq!(at(9), finished(0.7));
    }

    #[test]
    fn stopped_trial_without_a_value_goes_on_another_time() {
        let record = record(&[(2, "val_accuracy", 0.7)]);
        let stopped = |value, epochs| answered(Answer::Returned(value), true, epochs, &record, &objective());
        assert_eq!(stopped(None, None), Outcome::Interrupted);
        assert_eq!(stopped(Some(0.7), Some((9, 9))), Outcome::Interrupted);
        assert_eq!(stopped(Some(0.7), Some((3, 9))), Outcome::Paused { at: 3 });
        assert_eq!(stopped(Some(0.7), None), finished(0.7));
        assert_eq!(unanswered(Some(Ending::Cancelled), Exit::Signal(9), (0, 0)), Outcome::Interrupted);
    }
}
