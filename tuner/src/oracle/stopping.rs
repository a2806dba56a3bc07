//! An oracle whose trials, or whose search as a whole, end early: by a pruner's and a terminator's rules. Decides on no
//! value of any parameter.

use super::history::Outcome;
use super::settings::Settings;
use super::{Next, Oracle, OracleError, first_unfinished};
use crate::pruner::Pruner;
use crate::record::TrialRecord;
use crate::space::{Distribution, Value};
use crate::terminator::Terminator;
use crate::wire::StudySpec;

/// An oracle with rules for stopping.
pub(super) struct Stopping {
    oracle: Box<dyn Oracle>,
    settings: Settings,
    pruner: Option<Pruner>,
    terminator: Option<Terminator>,
}

/// `oracle` with the rules that `spec` names. Fails for a text that names no rule.
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
    Ok(Box::new(Stopping { oracle, settings, pruner, terminator }))
}

impl Stopping {
    /// Whether the terminator would have no more trials.
    fn is_over(&self, trials: &[TrialRecord]) -> bool {
        let Some(terminator) = self.terminator else { return false };
        let loss = |trial: &TrialRecord| match self.settings.outcome(trial) {
            Outcome::Finished { losses, violation: 0.0 } => losses.first().copied(),
            _ => None,
        };
        let losses: Vec<f64> = trials.iter().filter_map(loss).collect();
        terminator.ends(&losses, || None)
    }
}

impl Oracle for Stopping {
    fn next(&mut self, trials: &[TrialRecord]) -> Next {
        match self.oracle.next(trials) {
            Next::New if self.is_over(trials) => {
                // Those that wait for others to begin wait in vain; any other is to be finished.
                let waiting = trials.iter().find(|trial| trial.ending.is_none() && trial.paused_at.is_some());
                let unfinished = || first_unfinished(trials).map(|trial| Next::Continue { trial });
                let prune = waiting.map(|trial| Next::Prune { trial: trial.number });
                prune.or_else(unfinished).unwrap_or(Next::Exhausted)
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

    fn pauses(&self) -> bool {
        self.oracle.pauses()
    }
}
