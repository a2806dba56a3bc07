//! The outcome of a trial, from its objective's result. Pure: decides from records, writes and kills nothing.

use super::SearchError;
use ferrotune_oracle::EarlyEnd;
use ferrotune_space::objective::{Objective, Summary};
use ferrotune_space::record::{Ending, TrialRecord};
use ferrotune_space::spec::StudySpec;
use std::collections::BTreeSet;

/// The outcome of a trial that no longer runs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Outcome {
    /// The trial is over.
    Ended { ending: Ending, values: Vec<f64> },
    /// The trial has reached the epoch up to which the oracle let it train.
    Paused {
        /// The epoch, exclusive, at which the trial paused.
        at: u64,
    },
    /// The trial has a value, and is executed once more.
    Executed,
    /// The search was stopped; the trial continues later.
    Interrupted,
    /// The trial cannot continue now, through no fault of its own; it continues later.
    Postponed(Obstacle),
}

/// The reason why a trial cannot continue now. Each text names the file and the system's reason.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Obstacle {
    /// The file from which the trial continues cannot be read. Another try may help.
    Unreadable { reason: String },
    /// The trial's checkpoint cannot be written, because the disk is full.
    DiskFull { reason: String },
}

impl Obstacle {
    /// The error with which the search ends, because this trial cannot continue.
    pub(crate) fn of_trial(self, number: u64) -> SearchError {
        match self {
            Obstacle::Unreadable { reason } => SearchError::Postponed { number, reason },
            Obstacle::DiskFull { reason } => SearchError::DiskFull { number, reason },
        }
    }
}

/// The result of an objective.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Answer {
    /// The objective returned a value for each objective of the study, or no values. It may omit values that its reports
    /// give.
    Returned(Vec<Option<f64>>),
    /// The objective returned an error, panicked, or needs more memory than its device has.
    Broke(Ending),
    /// The trial cannot continue now.
    Postponed(Obstacle),
}

impl Answer {
    /// The answer for an ending that the objective reports itself. Endings other than errors, panics and a full device are
    /// decided by the search.
    pub(super) fn broke(ending: Ending) -> Answer {
        Answer::Broke(match ending {
            Ending::Failed { .. }
            | Ending::Panicked { .. }
            | Ending::DeviceOutOfMemory { .. }
            | Ending::Refused { device: Some(_), .. } => ending,
            other => Ending::Failed { reason: format!("the worker called itself '{other}'") },
        })
    }
}

/// The outcome of the objective's own result, which takes precedence over a kill and an exit status.
///
/// `told_to_stop` says whether the search had told the trial to stop. `epochs` are the epoch (exclusive) up to which the
/// trial may train, and the number of epochs of a whole training.
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
        Answer::Returned(values)
            if told_to_stop && (!values.iter().flatten().any(|value| value.is_finite()) || incomplete) =>
        {
            Outcome::Interrupted
        }
        Answer::Broke(_) | Answer::Postponed(_) if told_to_stop => Outcome::Interrupted,
        Answer::Postponed(obstacle) => Outcome::Postponed(obstacle),
        Answer::Returned(values) => returned(&values, epochs, record, spec),
        Answer::Broke(ending) => Outcome::Ended { ending, values: Vec::new() },
    }
}

/// The outcome of a result after the search has ended its trial early. A trial that ends as finished has the values that it
/// returned, or else those of its reports; if some are missing, the trial is pruned.
pub(super) fn ended_early(end: EarlyEnd, answer: Answer, record: &TrialRecord, spec: &StudySpec) -> Outcome {
    let given = match answer {
        Answer::Returned(values) => values,
        Answer::Broke(_) | Answer::Postponed(_) => Vec::new(),
    };
    match (end, values(&given, record, spec)) {
        (EarlyEnd::Finished, Ok(values)) => Outcome::Ended { ending: Ending::Finished, values },
        _ => Outcome::Ended { ending: Ending::Pruned, values: pruned_values(record, spec) },
    }
}

/// The values of a pruned trial: the summaries of its reports.
pub(super) fn pruned_values(record: &TrialRecord, spec: &StudySpec) -> Vec<f64> {
    spec.objectives.iter().map(|objective| record.summary(objective)).collect::<Option<_>>().unwrap_or_default()
}

fn returned(returned: &[Option<f64>], epochs: Option<(u64, u64)>, record: &TrialRecord, spec: &StudySpec) -> Outcome {
    let is_reported = record.summary(spec.objective()).is_some();
    match (epochs, values(returned, record, spec)) {
        // The oracle compares paused trials by their reports, so a trial without a reported value does not pause.
        (Some((stop, total)), Ok(_)) if stop < total && is_reported => Outcome::Paused { at: stop },
        (_, Ok(values)) => Outcome::Ended { ending: Ending::Finished, values },
        (_, Err(reason)) => Outcome::Ended { ending: Ending::Failed { reason }, values: Vec::new() },
    }
}

/// A value for each objective: the returned value, or else the reported one. The error names the missing value.
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
    let values = spec.objectives.iter().zip(returned).map(|(objective, value)| match value {
        Some(value) if !value.is_finite() => Err(match spec.objectives.len() {
            1 => format!("returned {value}"),
            _ => format!("returned {value} for the objective '{}'", objective.metric),
        }),
        value => value.or_else(|| record.summary(objective)).ok_or_else(|| missing(record, objective)),
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
        let which = match objective.summary {
            Summary::Best => "every reported value",
            Summary::Last => "the last reported value",
            Summary::Mean => "a reported value",
        };
        format!("{which} of the objective '{}' is NaN or infinite; report finite values", objective.metric)
    })
}

/// The complaint about a trial in which no report contains the objective's metric; none if a report does.
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
    use ferrotune_space::objective::{Constraint, Direction};

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
    fn best_report_stands_in_for_a_value_that_was_not_returned() {
        let record = record(&[(0, "val_accuracy", 0.7), (1, "val_accuracy", 0.6)]);
        assert_eq!(answered(Answer::Returned(Vec::new()), false, None, &record, &spec()), finished(0.7));
    }

    #[test]
    fn a_value_that_is_not_finite_fails_the_trial_and_is_named() {
        let record = record(&[(0, "val_accuracy", 0.7)]);
        let of = |value| answered(Answer::Returned(vec![Some(value)]), false, None, &record, &spec());
        assert_eq!(of(f64::NAN), failed("returned NaN"));
        assert_eq!(of(f64::INFINITY), failed("returned inf"));
        let objectives = vec![Objective::new("val_accuracy", Direction::Max), Objective::new("size", Direction::Min)];
        let returned = Answer::Returned(vec![Some(0.5), Some(f64::NEG_INFINITY)]);
        let outcome = answered(returned, false, None, &record, &StudySpec::new("digits", objectives));
        assert_eq!(outcome, failed("returned -inf for the objective 'size'"));
        // A trial that must stop may divide by the number of epochs that it did not train.
        assert_eq!(
            answered(Answer::Returned(vec![Some(f64::NAN)]), true, None, &record, &spec()),
            Outcome::Interrupted
        );
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
        assert_eq!(
            of(&record, Summary::Last),
            failed("the last reported value of the objective 'val_accuracy' is NaN or infinite; report finite values")
        );
        assert_eq!(
            of(&record, Summary::Mean),
            failed("a reported value of the objective 'val_accuracy' is NaN or infinite; report finite values")
        );
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
