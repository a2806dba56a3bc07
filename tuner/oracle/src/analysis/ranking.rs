//! Ranks the trials of a study: trials that keep the constraints first, then by value or by Pareto front. Reads only
//! records.

use super::pareto;
use ferrotune_space::record::{State, TrialRecord};
use ferrotune_space::spec::StudySpec;

/// The best finished trials that keep the constraints: with one objective the trial with the best value, the earliest
/// among equals; with several objectives all trials that no other trial dominates, in the order of their numbers. If no trial
/// has finished, the best pruned trials, by the values of their reports.
pub fn best<'a>(trials: &'a [TrialRecord], spec: &StudySpec) -> Vec<&'a TrialRecord> {
    let kept = candidates(trials, spec).filter(|candidate| candidate.violation <= 0.0).collect();
    if spec.objectives.len() == 1 {
        return by_rank(kept, 1).into_iter().map(|candidate| candidate.trial).collect();
    }
    let (front, _) = first_front(kept);
    front.into_iter().map(|candidate| candidate.trial).collect()
}

/// Up to `count` finished trials, or pruned trials if no trial has finished, best first: trials that keep the constraints, then the
/// others by increasing violation. With several objectives the trials are ordered by Pareto front, and within a front trials with
/// distant neighbours come first.
pub fn ranked<'a>(trials: &'a [TrialRecord], spec: &StudySpec, count: usize) -> Vec<&'a TrialRecord> {
    let (mut kept, mut broken): (Vec<_>, Vec<_>) =
        candidates(trials, spec).partition(|candidate| candidate.violation <= 0.0);
    let mut ranked = Vec::new();
    while spec.objectives.len() > 1 && ranked.len() < count && !kept.is_empty() {
        let (front, rest) = first_front(kept);
        ranked.extend(by_loneliness(front));
        kept = rest;
    }
    ranked.extend(by_rank(kept, count));
    broken.sort_by(|a, b| a.violation.total_cmp(&b.violation));
    ranked.extend(broken);
    ranked.truncate(count);
    ranked.into_iter().map(|candidate| candidate.trial).collect()
}

/// The number of finished trials, or of pruned trials if no trial has finished, that break a constraint.
pub fn infeasible(trials: &[TrialRecord], spec: &StudySpec) -> usize {
    candidates(trials, spec).filter(|candidate| candidate.violation > 0.0).count()
}

/// A trial with a value for every objective.
struct Candidate<'a> {
    trial: &'a TrialRecord,
    losses: Vec<f64>,
    violation: f64,
}

fn candidates<'a>(trials: &'a [TrialRecord], spec: &StudySpec) -> impl Iterator<Item = Candidate<'a>> {
    let has_finished = trials.iter().any(|trial| trial.state() == State::Finished);
    let state = if has_finished { State::Finished } else { State::Pruned };
    trials.iter().filter(move |trial| trial.state() == state).filter_map(|trial| {
        let losses = spec.objectives.iter().zip(&trial.values);
        let losses: Vec<f64> = losses.map(|(objective, value)| objective.direction.loss(*value)).collect();
        let is_whole = losses.len() == spec.objectives.len() && losses.iter().all(|loss| loss.is_finite());
        let violation = trial.violation(&spec.objectives, &spec.constraints);
        is_whole.then_some(Candidate { trial, losses, violation })
    })
}

fn by_rank(mut candidates: Vec<Candidate<'_>>, count: usize) -> Vec<Candidate<'_>> {
    // A stable sort keeps the earlier of equal trials first.
    candidates.sort_by(|a, b| a.losses[0].total_cmp(&b.losses[0]));
    candidates.truncate(count);
    candidates
}

/// The candidates that no other candidate dominates, and the others.
fn first_front(candidates: Vec<Candidate<'_>>) -> (Vec<Candidate<'_>>, Vec<Candidate<'_>>) {
    let losses: Vec<Vec<f64>> = candidates.iter().map(|candidate| candidate.losses.clone()).collect();
    let mut members = pareto::front(&losses).into_iter().peekable();
    let (mut front, mut rest) = (Vec::new(), Vec::new());
    for (index, candidate) in candidates.into_iter().enumerate() {
        let side = if members.next_if_eq(&index).is_some() { &mut front } else { &mut rest };
        side.push(candidate);
    }
    (front, rest)
}

fn by_loneliness(front: Vec<Candidate<'_>>) -> Vec<Candidate<'_>> {
    let losses: Vec<&[f64]> = front.iter().map(|candidate| candidate.losses.as_slice()).collect();
    let distances = pareto::crowding(&losses);
    let mut ranked: Vec<(f64, Candidate<'_>)> = distances.into_iter().zip(front).collect();
    ranked.sort_by(|a, b| b.0.total_cmp(&a.0));
    ranked.into_iter().map(|(_, candidate)| candidate).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrotune_space::objective::{Constraint, Direction, Objective};
    use ferrotune_space::record::Ending;

    fn study(values: &[&[f64]]) -> Vec<TrialRecord> {
        let ended = |(number, values): (usize, &&[f64])| TrialRecord {
            values: values.to_vec(),
            ending: Some(Ending::Finished),
            ..TrialRecord::new(number as u64)
        };
        values.iter().enumerate().map(ended).collect()
    }

    fn numbers(trials: Vec<&TrialRecord>) -> Vec<u64> {
        trials.into_iter().map(|trial| trial.number).collect()
    }

    fn spec(objectives: &[&str], constraint: Option<f64>) -> StudySpec {
        let objectives = objectives.iter().map(|metric| Objective::new(*metric, Direction::Min)).collect();
        let at_most = |bound| Constraint { metric: "size".to_owned(), direction: Direction::Min, bound };
        StudySpec { constraints: constraint.map(at_most).into_iter().collect(), ..StudySpec::new("digits", objectives) }
    }

    #[test]
    fn one_objective_is_ranked_by_value_and_constraints_come_first() {
        let mut trials = study(&[&[3.0], &[1.0], &[2.0], &[1.0], &[f64::NAN], &[]]);
        trials.push(TrialRecord { values: vec![0.0], ending: Some(Ending::Pruned), ..TrialRecord::new(6) });
        let free = spec(&["loss"], None);
        assert_eq!(numbers(best(&trials, &free)), [1]);
        assert_eq!(numbers(best(&trials[6..], &free)), [6]);
        assert_eq!(numbers(ranked(&trials, &free, 9)), [1, 3, 2, 0]);
        for (trial, size) in trials.iter_mut().zip([1.0, 9.0, 2.0, 7.0]) {
            trial.metrics.entry(0).or_default().insert("size".to_owned(), Some(size));
        }
        let bounded = spec(&["loss"], Some(5.0));
        assert_eq!(numbers(best(&trials, &bounded)), [2]);
        assert_eq!(numbers(ranked(&trials, &bounded, 3)), [2, 0, 3]);
        assert_eq!(infeasible(&trials, &bounded), 2);
        assert!(best(&trials, &spec(&["loss"], Some(0.5))).is_empty());
    }

    #[test]
    fn several_objectives_are_ranked_front_after_front() {
        let trials = study(&[&[5.0, 5.0], &[0.0, 10.0], &[4.9, 5.1], &[10.0, 0.0], &[6.0, 6.0], &[9.0, 9.0], &[7.0]]);
        let spec = spec(&["loss", "size"], None);
        assert_eq!(numbers(best(&trials, &spec)), [0, 1, 2, 3]);
        let order = numbers(ranked(&trials, &spec, 6));
        assert!(order[..2] == [1, 3] && order[4..] == [4, 5], "{order:?}");
        assert_eq!(numbers(ranked(&trials, &spec, 2)), [1, 3]);
    }

    #[test]
    fn constraint_on_an_objective_that_was_only_returned_counts() {
        let trials = study(&[&[1.0, 8.0], &[2.0, 2.0]]);
        assert_eq!(numbers(best(&trials, &spec(&["loss", "size"], Some(5.0)))), [1]);
    }
}
