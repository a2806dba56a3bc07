//! What a worker's end means for its trial. Pure: decides from facts, writes and kills nothing.

use crate::process::Exit;
use crate::record::{Ending, TrialRecord};
use crate::spec::{Objective, StudySpec, Summary};
use std::collections::BTreeSet;

/// What is true of a trial after one of its workers.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Outcome {
    /// It is over.
    Ended { ending: Ending, values: Vec<f64> },
    /// It came to the epoch up to which the oracle let it train.
    Paused {
        /// That epoch, exclusive.
        at: u64,
    },
    /// It has a value, and runs once more.
    Executed,
    /// The search was stopped; the trial goes on another time.
    Interrupted,
    /// Something that it needs cannot be read now; it goes on another time.
    Postponed {
        /// What cannot be read, and why.
        reason: String,
    },
}

/// What the objective told last.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Answer {
    /// It returned, with a value for each objective, some of which it may leave to its reports, or with none.
    Returned(Vec<Option<f64>>),
    /// It returned an error or panicked.
    Broke(Ending),
    /// Something that it needs cannot be read now.
    Postponed(String),
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
    spec: &StudySpec,
) -> Outcome {
    let incomplete =
        epochs.is_some_and(|(stop, _)| record.last_step().is_none_or(|step| step.saturating_add(1) < stop));
    match answer {
        Answer::Returned(values) if told_to_stop && (values.iter().all(Option::is_none) || incomplete) => {
            Outcome::Interrupted
        }
        Answer::Broke(_) | Answer::Postponed(_) if told_to_stop => Outcome::Interrupted,
        Answer::Postponed(reason) => Outcome::Postponed { reason },
        Answer::Returned(values) => returned(&values, epochs, record, spec),
        Answer::Broke(ending) => Outcome::Ended { ending, values: Vec::new() },
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
    Outcome::Ended { ending, values: Vec::new() }
}

/// The values of a trial that was given up: what its reports have come to.
pub(super) fn pruned_values(record: &TrialRecord, spec: &StudySpec) -> Vec<f64> {
    spec.objectives.iter().map(|objective| record.summary(objective)).collect::<Option<_>>().unwrap_or_default()
}

fn returned(returned: &[Option<f64>], epochs: Option<(u64, u64)>, record: &TrialRecord, spec: &StudySpec) -> Outcome {
    let is_reported = record.summary(spec.objective()).is_some();
    match (epochs, values(returned, record, spec)) {
        // The oracle compares trials by what they report: a value that only the return tells comes too late.
        (Some((stop, total)), Ok(_)) if stop < total && is_reported => Outcome::Paused { at: stop },
        (_, Ok(values)) => Outcome::Ended { ending: Ending::Finished, values },
        (_, Err(reason)) => Outcome::Ended { ending: Ending::Failed { reason }, values: Vec::new() },
    }
}

/// A value for each objective: the one that was returned, or else what was reported. The error says which is missing.
fn values(returned: &[Option<f64>], record: &TrialRecord, spec: &StudySpec) -> Result<Vec<f64>, String> {
    let (given, wanted) = (returned.len(), spec.objectives.len());
    if given != 0 && given != wanted {
        let objectives: Vec<String> = spec.objectives.iter().map(ToString::to_string).collect();
        return Err(format!(
            "the objective returned {given} of {wanted} values; return one for each of {} in this order, as in Ok((a, b)), or report them and return Ok(())",
            objectives.join(", ")
        ));
    }
    let returned = returned.iter().copied().chain(std::iter::repeat(None));
    let values = spec.objectives.iter().zip(returned).map(|(objective, value)| {
        value.or_else(|| record.summary(objective)).ok_or_else(|| missing(record, objective))
    });
    let values: Vec<f64> = values.collect::<Result<_, _>>()?;
    let has_value = |metric: &str| {
        record.last_reported(metric).is_some() || spec.objectives.iter().any(|objective| objective.metric == metric)
    };
    match spec.constraints.iter().find(|constraint| !has_value(&constraint.metric)) {
        Some(constraint) => {
            let metric = &constraint.metric;
            Err(format!("the constraint {constraint} has no value; give trial.report the metric '{metric}'"))
        }
        None => Ok(values),
    }
}

fn missing(record: &TrialRecord, objective: &Objective) -> String {
    never_reported(record, objective).unwrap_or_else(|| {
        let when = if objective.summary == Summary::Best { "at any step" } else { "where it counts" };
        format!("the objective '{}' was not finite {when}", objective.metric)
    })
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
    use crate::spec::{Constraint, Direction};

    fn spec() -> StudySpec {
        StudySpec::new("digits", vec![Objective::new("val_accuracy", Direction::Max)])
    }

    fn record(reports: &[(u64, &str, f64)]) -> TrialRecord {
        let mut record = TrialRecord::new(0);
        for (step, name, value) in reports {
            record.metrics.entry(*step).or_default().insert((*name).to_owned(), Some(*value));
        }
        record
    }

    fn failed(reason: &str) -> Outcome {
        Outcome::Ended { ending: Ending::Failed { reason: reason.to_owned() }, values: Vec::new() }
    }

    fn finished(value: f64) -> Outcome {
        Outcome::Ended { ending: Ending::Finished, values: vec![value] }
    }

    #[test]
    fn exit_without_a_result_is_a_failure_whatever_the_status() {
        let exit = |exit| unanswered(None, exit, (5, 9));
        assert_eq!(exit(Exit::Code(0)), failed("exited with 0 before the objective returned"));
        assert_eq!(exit(Exit::Code(3)), failed("exited with 3 before the objective returned"));
        let aborted = Outcome::Ended { ending: Ending::Signalled { signal: 6 }, values: Vec::new() };
        assert_eq!(exit(Exit::Signal(6)), aborted);
        let starved = Ending::OutOfMemory { peak_bytes: 12, budget_bytes: 9 };
        assert_eq!(exit(Exit::Starved(7)), Outcome::Ended { ending: starved, values: Vec::new() });
    }

    #[test]
    fn reason_of_a_kill_counts_before_the_exit_status() {
        let ending = Ending::TimedOut { after_s: 1 };
        let timed_out = Outcome::Ended { ending: ending.clone(), values: Vec::new() };
        assert_eq!(unanswered(Some(ending), Exit::Signal(9), (0, 0)), timed_out);
    }

    #[test]
    fn best_report_stands_in_for_a_value_that_was_not_returned() {
        let record = record(&[(0, "val_accuracy", 0.7), (1, "val_accuracy", 0.6)]);
        assert_eq!(answered(Answer::Returned(Vec::new()), false, None, &record, &spec()), finished(0.7));
    }

    #[test]
    fn objective_that_was_never_reported_is_named_with_what_was() {
        let record = record(&[(0, "loss", 0.7), (1, "acc", 0.6)]);
        let reason = "the objective 'val_accuracy' was never reported; trial.report gave: acc, loss";
        assert_eq!(answered(Answer::Returned(Vec::new()), false, None, &record, &spec()), failed(reason));
    }

    #[test]
    fn return_at_a_rung_pauses_and_at_the_end_finishes() {
        let record = record(&[(2, "val_accuracy", 0.7)]);
        let at = |stop| answered(Answer::Returned(vec![Some(0.7)]), false, Some((stop, 9)), &record, &spec());
        assert_eq!(at(3), Outcome::Paused { at: 3 });
        assert_eq!(at(9), finished(0.7));
    }

    #[test]
    fn stopped_trial_without_a_value_goes_on_another_time() {
        let record = record(&[(2, "val_accuracy", 0.7)]);
        let stopped = |value, epochs| answered(Answer::Returned(vec![value]), true, epochs, &record, &spec());
        assert_eq!(stopped(None, None), Outcome::Interrupted);
        assert_eq!(stopped(Some(0.7), Some((9, 9))), Outcome::Interrupted);
        assert_eq!(stopped(Some(0.7), Some((3, 9))), Outcome::Paused { at: 3 });
        assert_eq!(stopped(Some(0.7), None), finished(0.7));
        assert_eq!(unanswered(Some(Ending::Cancelled), Exit::Signal(9), (0, 0)), Outcome::Interrupted);
    }

    #[test]
    fn several_values_come_from_the_return_and_from_the_reports() {
        let objectives = vec![Objective::new("val_accuracy", Direction::Max), Objective::new("size", Direction::Min)];
        let spec = StudySpec::new("digits", objectives);
        let mut record = record(&[(0, "val_accuracy", 0.7), (1, "val_accuracy", 0.6)]);
        let ended = |record: &TrialRecord, values: &[Option<f64>]| {
            answered(Answer::Returned(values.to_vec()), false, None, record, &spec)
        };
        let finished = |values: &[f64]| Outcome::Ended { ending: Ending::Finished, values: values.to_vec() };
        assert_eq!(ended(&record, &[Some(0.1), Some(9.0)]), finished(&[0.1, 9.0]));
        assert_eq!(ended(&record, &[None, Some(9.0)]), finished(&[0.7, 9.0]));
        let reason = "the objective 'size' was never reported; trial.report gave: val_accuracy";
        assert_eq!(ended(&record, &[]), failed(reason));
        let reason = "the objective returned 1 of 2 values; return one for each of val_accuracy:max, size:min in this order, as in Ok((a, b)), or report them and return Ok(())";
        assert_eq!(ended(&record, &[Some(0.7)]), failed(reason));
        record.metrics.entry(1).or_default().insert("size".to_owned(), Some(4.0));
        assert_eq!(ended(&record, &[]), finished(&[0.7, 4.0]));
    }

    #[test]
    fn last_and_mean_of_the_reports_count_where_the_objective_says_so() {
        let mut record = record(&[(0, "val_accuracy", 0.9), (1, "val_accuracy", 0.6)]);
        let of = |record: &TrialRecord, summary| {
            let objective = Objective { summary, ..Objective::new("val_accuracy", Direction::Max) };
            answered(Answer::Returned(Vec::new()), false, None, record, &StudySpec::new("digits", vec![objective]))
        };
        assert_eq!(of(&record, Summary::Last), finished(0.6));
        assert_eq!(of(&record, Summary::Mean), finished(0.75));
        record.metrics.entry(2).or_default().insert("val_accuracy".to_owned(), None);
        assert_eq!(of(&record, Summary::Best), finished(0.9));
        assert_eq!(of(&record, Summary::Last), failed("the objective 'val_accuracy' was not finite where it counts"));
        assert_eq!(of(&record, Summary::Mean), failed("the objective 'val_accuracy' was not finite where it counts"));
    }

    #[test]
    fn constraint_whose_metric_was_never_reported_fails_the_trial() {
        let bound = |metric: &str| Constraint { metric: metric.to_owned(), direction: Direction::Min, bound: 1.0 };
        let record = record(&[(0, "val_accuracy", 0.7)]);
        let of = |constraint| {
            let spec = StudySpec { constraints: vec![constraint], ..spec() };
            answered(Answer::Returned(Vec::new()), false, None, &record, &spec)
        };
        assert_eq!(of(bound("val_accuracy")), finished(0.7));
        let reason = "the constraint size<=1 has no value; give trial.report the metric 'size'";
        assert_eq!(of(bound("size")), failed(reason));
    }
}
