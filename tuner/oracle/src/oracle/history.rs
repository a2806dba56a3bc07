//! The records in the form that samplers need: points of the unit cube and their outcomes. Only a cache of the records,
//! so a resumed search sees the same history.

use super::settings::{Outcome, Settings};
use crate::curve;
use crate::inferred::{Space, has_asked_all};
use ferrotune_space::Value;
use ferrotune_space::given::Given;
use ferrotune_space::record::{Ending, TrialRecord};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Proposed values, by trial and name, of trials that have not asked for all of these values yet.
pub(super) type Proposed = BTreeMap<u64, BTreeMap<String, Value>>;

/// All trials except the one for which values are to be proposed.
#[derive(Clone, Debug)]
pub(crate) struct History {
    /// The settings of the search.
    pub(crate) settings: Settings,
    /// The parameters and their conditions, as inferred from the trials.
    pub(crate) space: Space,
    /// Trials that have asked for parameters: fitting trials of each other study, and then those of the search, each group in the
    /// order of its numbers. Leaves out cancelled trials, and those in which a fixed parameter has another value.
    pub(crate) rows: Vec<Row>,
    /// Fingerprints of the records of ended trials, from which rows were made, by trial number.
    seen: Vec<Option<Fingerprint>>,
    /// Whether each trial of the other studies fits.
    fitting: Vec<bool>,
    /// The trial for which the last proposal was made.
    asked: u64,
}

/// A trial in the form that samplers need.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    /// The trial's number; `None` for a trial of another study.
    pub(crate) trial: Option<u64>,
    /// The place of the other study among the studies from which the search learns; `None` for a trial of the search.
    study: Option<usize>,
    /// The trial's parameters in the order of the space's dimensions; NaN for a parameter that the trial did not ask for.
    pub(crate) point: Vec<f64>,
    /// The trial's outcome.
    pub(crate) outcome: Outcome,
    /// The trial's losses during training, from [`curve::of`].
    pub(super) curve: Vec<Option<f64>>,
    /// Whether the trial has asked for all its parameters.
    is_whole: bool,
}

/// The part of an ended trial's record that may change: by a retry, or because the records are those of another study.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Fingerprint {
    ending: std::mem::Discriminant<Ending>,
    value: Option<u64>,
    parameters: usize,
    reports: usize,
}

impl Fingerprint {
    fn of(trial: &TrialRecord) -> Option<Fingerprint> {
        let ending = trial.ending.as_ref()?;
        Some(Fingerprint {
            ending: std::mem::discriminant(ending),
            value: trial.value().map(f64::to_bits),
            parameters: trial.parameters.len(),
            reports: trial.metrics.len(),
        })
    }
}

impl History {
    /// A history without trials.
    pub(super) fn new(settings: Settings) -> History {
        History { settings, space: Space::default(), rows: Vec::new(), seen: Vec::new(), fitting: Vec::new(), asked: 0 }
    }

    /// Updates the rows before a proposal for the trial `asking`.
    ///
    /// Trials without an ending are included only if they began before `asking`, or have asked before it does. For parameters
    /// that they have not asked for yet they have the values in `proposed`, so concurrent trials take each other into account.
    pub(super) fn update(&mut self, trials: &[TrialRecord], asking: u64, proposed: &Proposed) {
        if self.is_of_other_trials(trials, asking) {
            *self = History::new(self.settings.clone());
        }
        let is_refitted = self.fit_source(trials, asking, proposed);
        self.asked = asking;
        self.seen.resize(trials.len(), None);
        let known = self.rows.len();
        self.rows.retain(|row| row.outcome != Outcome::Open);
        let had_open = self.rows.len() < known;
        let (mut fresh, mut is_changed) = (Vec::new(), false);
        for (trial, seen) in trials.iter().zip(&mut self.seen) {
            if seen.is_some() || !counts(trial, asking, &self.settings.given, proposed) {
                continue;
            }
            *seen = Fingerprint::of(trial);
            let given = &self.settings.given;
            is_changed |= self.space.include(trial.number as i64, trial, |name| given.leaves_open(name));
            fresh.push(trial);
        }
        if fresh.is_empty() && !had_open && !is_refitted {
            return;
        }
        if is_changed || is_refitted {
            self.rows.retain(|row| row.trial.is_some());
            for row in &mut self.rows {
                if let Some(number) = row.trial {
                    row.point = self.space.encode(&trials[number as usize].parameters);
                }
            }
            let row = |(study, trial)| Some(Row { trial: None, study: Some(study), ..self.row(trial, None)? });
            let source: Vec<Row> = self.source().filter_map(row).collect();
            self.rows.splice(..0, source);
        }
        for trial in fresh {
            let row = self.row(trial, proposed.get(&trial.number));
            self.rows.extend(row);
        }
        self.rows.sort_by_key(|row| row.trial);
        // A parameter for which a study never asked has no condition in that study.
        let dimensions = self.space.dimensions.len();
        let is_known = |rows: &[Row], index: usize| rows.iter().any(|row| !row.point[index].is_nan());
        let knowing = self.earlier().filter(|rows| (0..dimensions).all(|index| is_known(rows, index)));
        let knowing: Vec<Option<usize>> = knowing.map(|rows| rows[0].study).collect();
        let whole =
            self.rows.iter().filter(|row| row.is_whole && (row.trial.is_some() || knowing.contains(&row.study)));
        self.space.infer_conditions(whole.map(|row| row.point.as_slice()));
        self.forget_unneeded(proposed);
    }

    /// This history without the trials of other studies.
    pub(super) fn without_earlier(&self) -> History {
        History { rows: self.own().to_vec(), ..self.clone() }
    }

    /// The trials of the search.
    pub(super) fn own(&self) -> &[Row] {
        let first = self.rows.partition_point(|row| row.trial.is_none());
        &self.rows[first..]
    }

    /// The fitting trials of each other study that has some.
    pub(super) fn earlier(&self) -> impl Iterator<Item = &[Row]> {
        let count = self.rows.partition_point(|row| row.trial.is_none());
        self.rows[..count].chunk_by(|a, b| a.study == b.study)
    }

    /// Replaces the history by a new one if other trials of the other studies fit now; returns whether that was necessary.
    fn fit_source(&mut self, trials: &[TrialRecord], asking: u64, proposed: &Proposed) -> bool {
        let given = &self.settings.given;
        let own = trials.iter().filter(|trial| counts(trial, asking, given, proposed));
        let fitting = self.settings.source.fitting(own, given);
        if fitting == self.fitting {
            return false;
        }
        *self = History { fitting, ..History::new(self.settings.clone()) };
        let source = Arc::clone(&self.settings.source);
        let first = -(source.trials.len() as i64);
        for ((number, trial), _) in (first..).zip(&source.trials).zip(&self.fitting).filter(|(_, fits)| **fits) {
            self.space.include(number, trial, |_| true);
        }
        true
    }

    /// The fitting trials of the other studies, each with the place of its study.
    fn source(&self) -> impl Iterator<Item = (usize, &TrialRecord)> {
        let trials = self.settings.source.studies.iter().copied().zip(&self.settings.source.trials);
        trials.zip(&self.fitting).filter(|(_, fits)| **fits).map(|(trial, _)| trial)
    }

    /// Whether a known trial has changed or is missing, or the proposal is for an earlier trial than the last proposal.
    fn is_of_other_trials(&self, trials: &[TrialRecord], asking: u64) -> bool {
        let is_other = |(trial, seen): (&TrialRecord, &Option<Fingerprint>)| {
            seen.is_some() && (trial.number == asking || *seen != Fingerprint::of(trial))
        };
        asking < self.asked || trials.len() < self.seen.len() || trials.iter().zip(&self.seen).any(is_other)
    }

    fn row(&self, trial: &TrialRecord, proposed: Option<&BTreeMap<String, Value>>) -> Option<Row> {
        let mut point = self.space.encode(&trial.parameters);
        if let Some(proposed) = proposed.filter(|_| trial.ending.is_none()) {
            for (unit, dimension) in point.iter_mut().zip(&self.space.dimensions).filter(|(unit, _)| unit.is_nan()) {
                let proposed = proposed.get(&dimension.name).and_then(|value| dimension.distribution.to_unit(value));
                *unit = proposed.unwrap_or(f64::NAN);
            }
        }
        let is_whole = has_asked_all(trial);
        let outcome = self.settings.outcome(trial);
        let curve = curve::of(trial, self.settings.objective());
        let is_known = point.iter().any(|unit| !unit.is_nan());
        is_known.then_some(Row { trial: Some(trial.number), study: None, point, outcome, curve, is_whole })
    }

    /// Removes from the rows of open trials the values of parameters that these trials are not expected to ask for.
    fn forget_unneeded(&mut self, proposed: &Proposed) {
        let is_proposed = |row: &&mut Row| row.trial.is_some_and(|number| proposed.contains_key(&number));
        for row in self.rows.iter_mut().filter(|row| row.outcome == Outcome::Open).filter(is_proposed) {
            let needed: Vec<bool> = (0..row.point.len()).map(|index| self.space.is_active(index, &row.point)).collect();
            for (unit, _) in row.point.iter_mut().zip(needed).filter(|(_, needed)| !needed) {
                *unit = f64::NAN;
            }
        }
    }
}

/// Whether the history for a proposal to the trial `asking` includes a trial. Of the trials that began later, those have asked
/// before it that have a proposal, or whose values another program chooses.
fn counts(trial: &TrialRecord, asking: u64, given: &Given, proposed: &Proposed) -> bool {
    let has_asked = trial.runs_elsewhere() || proposed.contains_key(&trial.number);
    let is_early = trial.ending.is_some() || trial.number < asking || has_asked;
    let is_other = trial.number != asking && trial.ending != Some(Ending::Cancelled);
    is_early && is_other && given.agrees_with(&trial.parameters)
}
