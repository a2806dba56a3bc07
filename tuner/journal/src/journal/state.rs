//! The state of a study up to some line of its journal. Only facts change it: see `fact`.

use super::format::TrialState;
use chrono::{DateTime, Utc};
use ferrotune_space::Value;
use ferrotune_space::objective::{Direction, Objective};
use ferrotune_space::record::{Ending, Runner, TrialRecord};
use ferrotune_space::spec::StudySpec;
use std::collections::BTreeMap;
use std::iter::repeat;

/// A study as it is on disk.
#[derive(Clone, Debug, PartialEq)]
pub struct Study {
    /// The spec of the search at its last start.
    pub spec: StudySpec,
    /// The study's trials, by number.
    pub trials: Vec<TrialRecord>,
    /// The times at which the trials ran, by number.
    pub times: Vec<Times>,
    /// The defaults that the objective gives its parameters, by name.
    pub defaults: BTreeMap<String, Value>,
}

/// The times at which a trial ran, by the clock of the machine that wrote the journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// The time at which the trial's first worker began.
    pub started: Option<DateTime<Utc>>,
    /// The time at which the trial's end was recorded.
    pub ended: Option<DateTime<Utc>>,
}

/// The state of a study, as the lines of its journal describe it.
#[derive(Debug, Default, PartialEq)]
pub(super) struct StudyState {
    /// The study's name; `None` before the study's first line.
    pub(super) name: Option<String>,
    pub(super) directions: Vec<Direction>,
    pub(super) version: Option<u64>,
    pub(super) spec: Option<StudySpec>,
    /// The trials, by number.
    pub(super) trials: Vec<TrialRecord>,
    /// The number of trials with an ending.
    pub(super) ended: u64,
    /// The times of the trials, by number.
    pub(super) times: Vec<Times>,
    /// The position in the objective's source that last asked for each parameter.
    pub(super) places: BTreeMap<String, String>,
    /// The last defaults of the parameters.
    pub(super) defaults: BTreeMap<String, Value>,
    /// The endings and executions of trials whose state line has not been read; a crash may have cut it off.
    pub(super) pending_endings: BTreeMap<u64, Ending>,
    pub(super) pending_executions: BTreeMap<u64, Vec<Vec<f64>>>,
    /// The values of the first objective that came before the study's spec, which names the objective. Optuna writes such
    /// journals.
    unnamed: Vec<(u64, u64, Option<f64>)>,
}

impl StudyState {
    /// The study's objectives as text, if they differ from `wanted`. A study that Optuna began has no names for them.
    pub(super) fn other_objectives(&self, wanted: &[Objective]) -> Option<String> {
        let unnamed = || {
            let named =
                self.directions.iter().zip(wanted.iter().map(|objective| objective.metric.as_str()).chain(repeat("…")));
            named.map(|(direction, name)| Objective::new(name, *direction)).collect()
        };
        let known: Vec<Objective> = match &self.spec {
            Some(spec) if spec.objectives == wanted => return None,
            Some(spec) => spec.objectives.clone(),
            None if self.name.is_none() => return None,
            None if self.directions.iter().eq(wanted.iter().map(|objective| &objective.direction)) => return None,
            None => unnamed(),
        };
        Some(objectives_text(&known))
    }

    /// The last trial with results, if the source of its objective differs from that of `wanted`.
    pub(super) fn last_of_other_source(&self, wanted: &StudySpec) -> Option<u64> {
        let earlier = self.spec.as_ref()?.source_hash.as_ref()?;
        let is_other = wanted.source_hash.as_ref().is_some_and(|hash| hash != earlier);
        let last = self.trials.iter().rfind(|trial| trial.has_results())?;
        (is_other && !wanted.keeps_trials).then_some(last.number)
    }

    /// Adds a trial after the others, or replaces the earlier record of the trial.
    pub(super) fn put(&mut self, record: TrialRecord, times: Times) {
        let number = record.number;
        self.pending_endings.remove(&number);
        self.pending_executions.remove(&number);
        match self.trials.get_mut(number as usize) {
            Some(known) => {
                self.ended -= u64::from(known.ending.is_some());
                *known = record;
                self.times[number as usize] = times;
            }
            None => {
                self.trials.push(record);
                self.times.push(times);
            }
        }
    }

    /// Sets the spec, which names the first objective, and assigns the earlier values to that objective.
    pub(super) fn set_spec(&mut self, spec: StudySpec) {
        for (trial, step, value) in std::mem::take(&mut self.unnamed) {
            let metrics = self.trials[trial as usize].metrics.entry(step).or_default();
            metrics.entry(spec.objective().metric.clone()).or_insert(value);
        }
        self.spec = Some(spec);
    }

    /// Records a step's value of the first objective, for a trial that exists.
    pub(super) fn report_objective(&mut self, trial: u64, step: u64, value: Option<f64>) {
        match &self.spec {
            Some(spec) => {
                let metrics = self.trials[trial as usize].metrics.entry(step).or_default();
                metrics.insert(spec.objective().metric.clone(), value);
            }
            None => self.unnamed.push((trial, step, value)),
        }
    }

    /// Changes the state of a trial that has not ended. Only the first program that begins a trial owns it.
    pub(super) fn change_state(
        &mut self,
        trial: u64,
        state: TrialState,
        values: Vec<f64>,
        (times, writer): (Times, Runner),
    ) {
        let record = &mut self.trials[trial as usize];
        let is_free = record.runner == Runner::Nobody;
        if state == TrialState::Running && !is_free {
            return;
        }
        if is_free && state != TrialState::Waiting {
            record.runner = writer;
        }
        self.set_state(trial, state, values);
        let known = &mut self.times[trial as usize];
        *known = Times { started: times.started.or(known.started), ended: times.ended.or(known.ended) };
    }

    pub(super) fn set_state(&mut self, trial: u64, state: TrialState, values: Vec<f64>) {
        let pending = self.pending_endings.remove(&trial);
        let executions = self.pending_executions.remove(&trial);
        let record = &mut self.trials[trial as usize];
        let ending = match state {
            TrialState::Complete => Some(Ending::Finished),
            TrialState::Pruned => Some(Ending::Pruned),
            TrialState::Fail => {
                Some(Ending::Failed { reason: "failed under Optuna, which keeps no reason".to_owned() })
            }
            TrialState::Running | TrialState::Waiting => None,
        };
        record.ending = ending.map(|ending| pending.unwrap_or(ending));
        record.values = values;
        self.ended += u64::from(record.ending.is_some());
        if let Some(executions) = executions.filter(|_| record.ending.is_some()) {
            record.executions = executions;
        }
    }
}

pub(super) fn objectives_text(objectives: &[Objective]) -> String {
    objectives.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}
