//! An estimate of a search's remaining time, from its records. Pure.
//!
//! Trials that a pruner or Hyperband ends early are short, and they end first. Their mean duration says nothing about the
//! trials that continue, so whole trainings and shortened trainings are counted separately.

use super::study_progress;
use ferrotune_space::record::{State, TrialRecord};
use ferrotune_space::spec::StudySpec;

/// The number of recent trials that count: later trials may cost more, or less, than the first ones.
const RECENT: usize = 20;

/// Facts about the running search that the records lack.
pub(super) struct Course<'a> {
    /// Seconds since this search began.
    pub(super) elapsed_s: f64,
    /// Seconds that the study's trials had taken before this search.
    pub(super) earlier_s: f64,
    /// The running trials: their numbers, and the seconds of their present workers.
    pub(super) running: &'a [(u64, f64)],
    /// The number of epochs that all trials train together, if the oracle has a plan.
    pub(super) planned_epochs: Option<u64>,
}

impl Course<'_> {
    /// Seconds of the trial's present worker.
    fn running_s(&self, trial: u64) -> f64 {
        let running = self.running.iter().find(|(number, _)| *number == trial);
        running.map_or(0.0, |(_, seconds)| *seconds)
    }

    fn is_running(&self, trial: u64) -> bool {
        self.running.iter().any(|(number, _)| *number == trial)
    }

    /// Seconds that all trials of the study have taken so far, added together.
    fn trials_s(&self, trials: &[TrialRecord]) -> f64 {
        study_progress::seconds(trials) + self.running.iter().map(|(_, seconds)| seconds).sum::<f64>()
    }
}

/// Seconds until the search ends, by its number of trials or by its time limit. None until the length of a trial can be
/// estimated.
pub(super) fn seconds(trials: &[TrialRecord], spec: &StudySpec, course: &Course<'_>) -> Option<f64> {
    let work = match course.planned_epochs {
        Some(planned) => planned_work(planned, trials, course),
        None => work(trials, spec, course),
    };
    let seconds = work?.all_s / side_by_side(trials, spec, course);
    let left = spec.timeout_s.map_or(f64::INFINITY, |limit| (limit - course.elapsed_s).max(0.0));
    Some(seconds.max(work?.longest_s).min(left))
}

/// The work that is left in a search.
#[derive(Clone, Copy)]
struct Work {
    /// Seconds of all trials, added together.
    all_s: f64,
    /// Seconds of the longest trial that has begun.
    longest_s: f64,
}

/// The work that is left in an oracle's plan.
fn planned_work(planned: u64, trials: &[TrialRecord], course: &Course<'_>) -> Option<Work> {
    let trained: u64 = trials.iter().map(TrialRecord::epochs_done).sum();
    let all_s = planned.saturating_sub(trained) as f64 * course.trials_s(trials) / trained as f64;
    (trained > 0).then_some(Work { all_s, longest_s: 0.0 })
}

/// The work that is left if each trial is as long as the others.
fn work(trials: &[TrialRecord], spec: &StudySpec, course: &Course<'_>) -> Option<Work> {
    let lengths = Lengths::of(trials, spec)?;
    let to_begin = spec.max_trials.saturating_sub(trials.iter().filter(|trial| !trial.is_enqueued()).count() as u64);
    let all_s = to_begin as f64 * lengths.to_go(0.0, None);
    let is_ours = |trial: &&TrialRecord| !trial.runs_elsewhere() || course.is_running(trial.number);
    let open = trials.iter().filter(|trial| trial.ending.is_none() && !trial.is_enqueued()).filter(is_ours);
    let open = open.map(|trial| {
        let spent_s = trial.seconds + course.running_s(trial.number);
        lengths.to_go(spent_s, share_done(trial, spec).map(|share| spent_s / share))
    });
    Some(open.fold(Work { all_s, longest_s: 0.0 }, |work, seconds| Work {
        all_s: work.all_s + seconds,
        longest_s: work.longest_s.max(seconds),
    }))
}

/// The least assumed share of a search's time in which its trials run. A search that has waited for its device will not
/// wait again.
const LEAST_SHARE: f64 = 0.25;

/// The seconds of trials that pass in one second of this search. This number is less than the concurrency, because time
/// also passes between trials.
fn side_by_side(trials: &[TrialRecord], spec: &StudySpec, course: &Course<'_>) -> f64 {
    let concurrency = spec.supervision.concurrency.max(1) as f64;
    let here_s = course.trials_s(trials) - course.earlier_s;
    if here_s <= 0.0 || course.elapsed_s <= 0.0 {
        return concurrency;
    }
    (here_s / course.elapsed_s).clamp(LEAST_SHARE * concurrency, concurrency)
}

/// The lengths of the last trials that have ended.
struct Lengths {
    /// The seconds of a whole training.
    whole_s: f64,
    /// The number of trials that were trained to their end.
    whole: usize,
    /// The seconds of each trial that ended early: pruned or failed.
    short_s: Vec<f64>,
}

impl Lengths {
    fn of(trials: &[TrialRecord], spec: &StudySpec) -> Option<Lengths> {
        let measured = |trial: &&TrialRecord| trial.ending.is_some() && trial.seconds > 0.0;
        let recent: Vec<&TrialRecord> = trials.iter().rev().filter(measured).take(RECENT).collect();
        let (whole, short): (Vec<_>, Vec<_>) = recent.into_iter().partition(|trial| trial.state() == State::Finished);
        let short_s: Vec<f64> = short.iter().map(|trial| trial.seconds).collect();
        // Before the first whole training, its length follows from the shares that shortened trainings have completed.
        let scaled = short.iter().filter_map(|trial| Some(trial.seconds / share_done(trial, spec)?));
        let whole_s = mean(whole.iter().map(|trial| trial.seconds)).or_else(|| mean(scaled));
        Some(Lengths { whole_s: whole_s.or_else(|| mean(short_s.iter().copied()))?, whole: whole.len(), short_s })
    }

    /// The remaining seconds of a trial that has taken `spent_s`, and whose whole training is expected to take `whole_s`.
    /// The trial may end early, like the short trials that took longer than `spent_s`.
    fn to_go(&self, spent_s: f64, whole_s: Option<f64>) -> f64 {
        let longer: Vec<f64> =
            self.short_s.iter().filter(|seconds| **seconds > spent_s).map(|it| it - spent_s).collect();
        let whole_left_s = (whole_s.unwrap_or(self.whole_s) - spent_s).max(0.0);
        // One more whole training is assumed than seen, because the trials that end first are those that end early.
        let whole = self.whole as f64 + 1.0;
        (whole * whole_left_s + longer.iter().sum::<f64>()) / (whole + longer.len() as f64)
    }
}

/// The completed share of a trial's whole training, over all its executions, as its reports show; none if they show
/// nothing.
fn share_done(trial: &TrialRecord, spec: &StudySpec) -> Option<f64> {
    let execution = trial.epochs.filter(|epochs| *epochs > 0).map(|epochs| trial.epochs_done() as f64 / epochs as f64);
    let executions = spec.executions.max(1) as f64;
    let share = (trial.executions.len() as f64 + execution?.min(1.0)) / executions;
    (share > 0.0).then_some(share.min(1.0))
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0_u64), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / count as f64)
}

#[cfg(test)]
mod tests;
