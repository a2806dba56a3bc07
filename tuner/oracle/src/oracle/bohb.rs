//! BOHB (Falkner et al. 2018, ICML): Hyperband's brackets, with values from a model of the largest rung that enough trials have
//! reached. Hyperband decides on brackets and promotions.

use super::history::History;
use super::hyperband::{self, Hyperband};
use super::random;
use super::sampler::Sampler;
use super::settings::Settings;
use super::text::{SettingError, SettingsText};
use super::{Next, Oracle};
use ferrotune_space::record::{Ending, TrialRecord};
use ferrotune_space::{Distribution, Value};
use std::collections::BTreeMap;

/// The interval at which a trial is drawn at random, without the model.
const RANDOM_SHARE: u64 = 3;

/// Hyperband with a model that chooses the values.
#[derive(Debug)]
pub(super) struct Bohb {
    settings: Settings,
    hyperband: Hyperband,
}

impl Bohb {
    /// Hyperband whose values come from `model`, a sampler for finished trials.
    pub(super) fn new(settings: Settings, model: impl Sampler + 'static) -> Bohb {
        let hyperband = Hyperband::new(settings.clone(), Box::new(Mixed { model }));
        Bohb { settings, hyperband }
    }

    /// This oracle with the settings in `text`, which are those of [`Hyperband::with`].
    pub(super) fn with(self, text: &SettingsText<'_>) -> Result<Bohb, SettingError> {
        Ok(Bohb { hyperband: self.hyperband.with(text)?, ..self })
    }

    /// The records as if every training ended at the largest rung that enough trials have reached.
    ///
    /// Trials that were pruned before this rung stay pruned, because they lost against others. Trials that wait at a
    /// lower rung are left out, because nothing is known about them.
    fn at_one_rung(&self, trials: &[TrialRecord]) -> Vec<TrialRecord> {
        let is_tuned = |name: &&String| self.settings.given.leaves_open(name);
        let tuned = |trial: &TrialRecord| trial.parameters.keys().filter(is_tuned).count();
        let parameters = trials.iter().map(tuned).max().unwrap_or_default();
        let has_come = |trial: &TrialRecord, stop: u64| {
            trial.epochs_done() >= stop && trial.summary_before(self.settings.objective(), stop).is_some()
        };
        // A model needs more points than parameters, both among its good and its bad points (Falkner et al., section 3.2).
        let is_enough = |stop: &u64| trials.iter().filter(|trial| has_come(trial, *stop)).count() > parameters + 2;
        let halving = self.hyperband.halving;
        let rungs = hyperband::resource(trials, None)
            .map(|resource| hyperband::rungs(resource, hyperband::most_exploratory(resource, halving), halving))
            .unwrap_or_default();
        let Some(stop) = rungs.iter().rev().map(|(_, stop)| *stop).find(is_enough) else {
            return trials.iter().map(|trial| self.short_of_it(trial)).collect();
        };
        let view = |trial: &TrialRecord| {
            if !has_come(trial, stop) {
                return self.short_of_it(trial);
            }
            let values = trial.summary_before(self.settings.objective(), stop).into_iter().collect();
            TrialRecord { values, ending: Some(Ending::Finished), ..self.condensed(trial, stop) }
        };
        trials.iter().map(view).collect()
    }

    /// The record of a trial that has not reached the rung.
    fn short_of_it(&self, trial: &TrialRecord) -> TrialRecord {
        let waits = trial.ending.is_none() && trial.waited_at().is_some();
        let ending = if waits { Some(Ending::Cancelled) } else { trial.ending.clone() };
        TrialRecord { ending, ..self.condensed(trial, u64::MAX) }
    }

    /// The record with one report in place of the reports before `stop`: the best value of each objective, the last value of each
    /// constraint.
    fn condensed(&self, trial: &TrialRecord, stop: u64) -> TrialRecord {
        let best = |objective: &ferrotune_space::objective::Objective| {
            (objective.metric.clone(), trial.summary_before(objective, stop))
        };
        let last = |metric: &String| {
            let mut reports = trial.metrics.range(..stop).rev();
            (metric.clone(), reports.find_map(|(_, metrics)| *metrics.get(metric)?))
        };
        let constraints = self.settings.constraints.iter().map(|constraint| last(&constraint.metric));
        let report: BTreeMap<_, _> = constraints.chain(self.settings.objectives.iter().map(best)).collect();
        let step = trial.metrics.range(..stop).next_back().map(|(step, _)| *step);
        TrialRecord {
            parameters: trial.parameters.clone(),
            metrics: step.map(|step| (step, report)).into_iter().collect(),
            values: trial.values.clone(),
            ending: trial.ending.clone(),
            epochs: trial.epochs,
            paused_at: trial.waited_at().map(|at| at.min(stop)),
            runner: trial.runner,
            ..TrialRecord::new(trial.number)
        }
    }
}

impl Oracle for Bohb {
    fn next(&mut self, trials: &[TrialRecord], running: &[u64]) -> Next {
        self.hyperband.next(trials, running)
    }

    fn suggest(&mut self, trial: u64, name: &str, distribution: &Distribution, trials: &[TrialRecord]) -> Value {
        if !self.hyperband.suggestions.has_proposed(trial) {
            let view = self.at_one_rung(trials);
            self.hyperband.suggestions.propose(trial, &view);
        }
        self.hyperband.suggest(trial, name, distribution, trials)
    }

    fn epochs(&mut self, trial: u64, total: u64, trials: &[TrialRecord]) -> u64 {
        self.hyperband.epochs(trial, total, trials)
    }

    fn planned_epochs(&self, trials: &[TrialRecord], max_trials: u64) -> Option<u64> {
        self.hyperband.planned_epochs(trials, max_trials)
    }

    fn pauses(&self) -> bool {
        true
    }
}

/// A model that draws some trials at random, so that a wrong model cannot mislead Hyperband permanently.
#[derive(Debug)]
struct Mixed<S> {
    model: S,
}

impl<S: Sampler> Sampler for Mixed<S> {
    fn propose(&mut self, history: &History, trial: u64) -> Option<Vec<f64>> {
        let draw = random::hash(&[&history.settings.seed.to_le_bytes(), &trial.to_le_bytes(), b"bohb"]);
        if draw.is_multiple_of(RANDOM_SHARE) { None } else { self.model.propose(history, trial) }
    }
}
