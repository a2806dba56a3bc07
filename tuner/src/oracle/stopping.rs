//! An oracle that ends trials early with a pruner, and the search with a terminator. Chooses no values of parameters.

use super::gp;
use super::history::{History, Outcome, Proposed};
use super::settings::Settings;
use super::{Next, Oracle, OracleError, idle, wind_up};
use crate::pruner::Pruner;
use crate::record::TrialRecord;
use crate::space::{Distribution, Value};
use crate::spec::StudySpec;
use crate::terminator::Terminator;

/// The terminator judges the search each time this many more trials have finished.
const INTERVAL: usize = 5;

/// An oracle with rules for stopping.
pub(super) struct Stopping {
    oracle: Box<dyn Oracle>,
    settings: Settings,
    pruner: Option<Pruner>,
    terminator: Option<Terminator>,
    /// The terminator's last answer, with the numbers of trials and of finished trials. A cache of the records.
    verdict: Option<((usize, usize), bool)>,
}

/// `oracle` with the rules that `spec` names. Fails if a text does not name a rule.
pub(super) fn with_rules(
    oracle: Box<dyn Oracle>,
    settings: Settings,
    spec: &StudySpec,
) -> Result<Box<dyn Oracle>, OracleError> {
    let pruner = spec.pruner.as_deref().map(str::parse).transpose()?;
    let terminator = spec.terminator.as_deref().map(str::parse).transpose()?;
    if pruner.is_none() && terminator.is_none() {
        return Ok(oracle);
    }
    Ok(Box::new(Stopping { oracle, settings, pruner, terminator, verdict: None }))
}

impl Stopping {
    /// Whether the terminator ends the search. It judges after every fifth finished trial.
    fn is_over(&mut self, trials: &[TrialRecord]) -> bool {
        let Some(terminator) = self.terminator else { return false };
        let loss = |(index, trial): (usize, &TrialRecord)| match self.settings.outcome(trial) {
            Outcome::Finished { losses, violation: 0.0 } => losses.first().map(|loss| (index + 1, *loss)),
            _ => None,
        };
        let mut finished: Vec<(usize, f64)> = trials.iter().enumerate().filter_map(loss).collect();
        finished.truncate(finished.len() / INTERVAL * INTERVAL);
        let judged = (finished.last().map_or(0, |(end, _)| *end), finished.len());
        if let Some((_, verdict)) = self.verdict.filter(|(known, _)| *known == judged) {
            return verdict;
        }
        let losses: Vec<f64> = finished.into_iter().map(|(_, loss)| loss).collect();
        let verdict = terminator.ends(&losses, || {
            let mut history = History::new(self.settings.clone());
            history.update(&trials[..judged.0], judged.0 as u64, &Proposed::new());
            gp::regret::bound(&history)
        });
        self.verdict = Some((judged, verdict));
        verdict
    }
}

impl Oracle for Stopping {
    fn next(&mut self, trials: &[TrialRecord], running: &[u64]) -> Next {
        match self.oracle.next(trials, running) {
            Next::New if self.is_over(trials) => {
                // Trials that wait for new trials would wait for ever; all others continue to their end.
                let waiting = idle(trials, running).find(|trial| trial.paused_at.is_some());
                waiting.map_or_else(|| wind_up(trials, running), |trial| Next::Prune { trial: trial.number })
            }
            next => next,
        }
    }

    fn suggest(&mut self, trial: u64, name: &str, distribution: &Distribution, trials: &[TrialRecord]) -> Value {
        self.oracle.suggest(trial, name, distribution, trials)
    }

    fn epochs(&mut self, trial: u64, total: u64, trials: &[TrialRecord]) -> u64 {
        self.oracle.epochs(trial, total, trials)
    }

    fn parent(&mut self, trial: u64, trials: &[TrialRecord]) -> Option<u64> {
        self.oracle.parent(trial, trials)
    }

    fn prunes(&mut self, trial: u64, trials: &[TrialRecord]) -> bool {
        let record = trials.get(trial as usize);
        let is_pruned =
            |pruner: &Pruner| record.is_some_and(|record| pruner.prunes(record, trials, self.settings.objective()));
        self.pruner.as_ref().is_some_and(is_pruned) || self.oracle.prunes(trial, trials)
    }

    fn planned_epochs(&self, trials: &[TrialRecord], max_trials: u64) -> Option<u64> {
        self.oracle.planned_epochs(trials, max_trials)
    }

    fn pauses(&self) -> bool {
        self.oracle.pauses()
    }
}
