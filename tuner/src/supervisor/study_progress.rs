//! The state of a study, as the progress of a search: from the study's records alone, whether a search runs or not.

use ferrotune_oracle::analysis::ranking;
use ferrotune_oracle::inferred::has_asked_all;
use ferrotune_oracle::parameters_in;
use ferrotune_space::event::{Front, Progress};
use ferrotune_space::objective::Objective;
use ferrotune_space::record::{State, TrialRecord};
use ferrotune_space::spec::StudySpec;
use std::collections::BTreeSet;

/// The progress of a study while no search of it runs. It does not include the time that the last search took.
pub fn study_progress(trials: &[TrialRecord], spec: &StudySpec) -> Progress {
    let count = |wanted: State| trials.iter().filter(|trial| trial.state() == wanted).count() as u64;
    let (finished, pruned, failed) = (count(State::Finished), count(State::Pruned), count(State::Failed));
    let done = finished + pruned + failed;
    let several = spec.objectives.len() > 1;
    let best = ranking::best(trials, spec);
    Progress {
        done,
        earlier: done,
        failed,
        pruned,
        max_trials: spec.max_trials,
        best: if several { None } else { best.first().map(|trial| trial.without_reports()) },
        front: several.then(|| front(&best, spec)),
        unasked: unasked(trials, spec),
        infeasible: ranking::infeasible(trials, spec) as u64,
        trials_s: seconds(trials),
        ..Progress::default()
    }
}

/// The seconds that the workers of all trials ran, added together.
pub(super) fn seconds(trials: &[TrialRecord]) -> f64 {
    trials.iter().map(|trial| trial.seconds).sum()
}

/// Parameters about which the user has decided something and for which no trial has asked: their names may be misspelt.
/// Enqueued trials count once they have run; the best trial of another study does not count. Empty as long as all trials
/// have failed before they could ask for all parameters, for example because a value is outside a parameter's range.
fn unasked(trials: &[TrialRecord], spec: &StudySpec) -> Vec<String> {
    if !trials.iter().any(has_asked_all) {
        return Vec::new();
    }
    let is_asked = |name: &&str| trials.iter().any(|trial| trial.parameters.contains_key(*name));
    let is_of_source = |trial: &TrialRecord| spec.warm_starts.iter().any(|warm_start| warm_start.best == trial.preset);
    let enqueued = trials.iter().filter(|trial| trial.ending.is_some() && !is_of_source(trial));
    let enqueued = enqueued.flat_map(|trial| trial.preset.keys());
    let of_oracle = parameters_in(&spec.oracle);
    let given = spec.given.names().chain(of_oracle).chain(enqueued.map(String::as_str));
    let unasked: BTreeSet<&str> = given.filter(|name| !is_asked(name)).collect();
    unasked.into_iter().map(str::to_owned).collect()
}

/// The size of the Pareto front, and its range in each objective.
fn front(members: &[&TrialRecord], spec: &StudySpec) -> Front {
    let range = |(index, objective): (usize, &Objective)| {
        let mut values: Vec<f64> = members.iter().map(|trial| trial.values[index]).collect();
        values.sort_by(|a, b| objective.direction.loss(*a).total_cmp(&objective.direction.loss(*b)));
        Some((*values.first()?, *values.last()?))
    };
    let ranges = spec.objectives.iter().enumerate().filter_map(range).collect();
    Front { trials: members.len() as u64, ranges }
}
