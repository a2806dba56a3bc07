//! The objectives of a study, and the values of its trials.

use crate::ResultsError;
use ferrotune_journal::Study;
use ferrotune_oracle::analysis::ranking;
use ferrotune_space::record::{State, TrialRecord};
use std::collections::BTreeSet;

/// Index of the objective with this metric, or of the first objective.
pub(crate) fn objective_index(study: &Study, metric: Option<&str>) -> Result<usize, ResultsError> {
    let objectives = &study.spec.objectives;
    let Some(metric) = metric else { return Ok(0) };
    let unknown = || ResultsError::UnknownObjective {
        study: study.spec.project.clone(),
        name: metric.to_owned(),
        objectives: objectives.iter().map(|objective| objective.metric.as_str()).collect::<Vec<_>>().join(", "),
    };
    objectives.iter().position(|objective| objective.metric == metric).ok_or_else(unknown)
}

/// The value of a trial that has finished, if it is finite.
pub(crate) fn finished_value(trial: &TrialRecord, objective: usize) -> Option<f64> {
    let value = trial.values.get(objective).copied().filter(|value| value.is_finite())?;
    (trial.state() == State::Finished).then_some(value)
}

/// Trials that have finished with a finite value, each with this value.
pub(crate) fn finished(study: &Study, objective: usize) -> Result<Vec<(&TrialRecord, f64)>, ResultsError> {
    let valued = study.trials.iter().filter_map(|trial| Some((trial, finished_value(trial, objective)?)));
    let valued: Vec<_> = valued.collect();
    if valued.is_empty() {
        return Err(ResultsError::NothingFinished { study: study.spec.project.clone() });
    }
    Ok(valued)
}

/// The best trials: the trial with the best value, or with several objectives all trials that no other trial dominates. If no
/// trial keeps the constraints, the trial with the smallest violation. Empty if no trial has finished.
pub(crate) fn winners(study: &Study) -> Vec<&TrialRecord> {
    let best = ranking::best(&study.trials, &study.spec);
    if best.is_empty() { ranking::ranked(&study.trials, &study.spec, 1) } else { best }
}

/// Names of all parameters, in order.
pub(crate) fn parameter_names<'a>(trials: impl IntoIterator<Item = &'a TrialRecord>) -> BTreeSet<&'a str> {
    trials.into_iter().flat_map(|trial| trial.parameters.keys()).map(String::as_str).collect()
}

/// Names of all reported metrics, in order.
pub(crate) fn metric_names(study: &Study) -> BTreeSet<&str> {
    let steps = study.trials.iter().flat_map(|trial| trial.metrics.values());
    steps.flat_map(|metrics| metrics.keys()).map(String::as_str).collect()
}

/// The state of a trial as a word.
pub(crate) fn state_name(state: State) -> &'static str {
    match state {
        State::Running => "running",
        State::Finished => "finished",
        State::Pruned => "pruned",
        State::Failed => "failed",
    }
}

/// The ending of a trial in words.
pub(crate) fn ending(trial: &TrialRecord) -> String {
    trial.ending.as_ref().map_or_else(|| "unfinished".to_owned(), ToString::to_string)
}

/// Whether the trial keeps all constraints of the study.
pub(crate) fn keeps_constraints(study: &Study, trial: &TrialRecord) -> bool {
    trial.violation(&study.spec.objectives, &study.spec.constraints) <= 0.0
}
