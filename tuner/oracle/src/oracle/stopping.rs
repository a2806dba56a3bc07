//! An oracle that ends trials early with a pruner, and ends the search with a terminator. Chooses no values of parameters.

use super::gp;
use super::history::{History, Proposed};
use super::settings::Settings;
use super::{Next, Oracle, OracleError, idle, wind_up};
use crate::pruner::{EarlyEnd, Pruner};
use crate::terminator::{FEWEST_TRIALS, Terminator, USUAL_SHARE, threshold};
use ferrotune_space::record::TrialRecord;
use ferrotune_space::spec::StudySpec;
use ferrotune_space::{Distribution, Value};

/// The number of further finished trials after which the terminator judges the search again.
const INTERVAL: usize = 5;

/// An oracle with a pruner and a terminator.
pub(super) struct Stopping {
    oracle: Box<dyn Oracle>,
    settings: Settings,
    pruner: Option<Pruner>,
    terminator: Option<Terminator>,
    /// The terminator's last answer, with the numbers of trials and of finished trials. A cache of the records.
    verdict: Option<((usize, usize), bool)>,
}

/// `oracle` with the pruner and the terminator that `spec` names. Fails if a text does not name one.
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
    /// Whether the terminator ends the search. The terminator judges after every fifth finished trial.
    fn is_over(&mut self, trials: &[TrialRecord]) -> bool {
        let Some(terminator) = self.terminator else { return false };
        let mut finished = finished(&self.settings, trials);
        finished.truncate(finished.len() / INTERVAL * INTERVAL);
        let judged = (finished.last().map_or(0, |(end, _)| *end), finished.len());
        if let Some((_, verdict)) = self.verdict.filter(|(known, _)| *known == judged) {
            return verdict;
        }
        let losses: Vec<f64> = finished.into_iter().map(|(_, loss)| loss).collect();
        let verdict = terminator.ends(&losses, || regret(&self.settings, &trials[..judged.0]));
        self.verdict = Some((judged, verdict));
        verdict
    }
}

/// The losses of finished trials that keep the constraints, each with the number of trials up to it.
fn finished(settings: &Settings, trials: &[TrialRecord]) -> Vec<(usize, f64)> {
    let loss = |(index, trial)| Some((index + 1, settings.final_loss(trial)?));
    trials.iter().enumerate().filter_map(loss).collect()
}

/// A bound on the improvement that is still possible after these trials.
fn regret(settings: &Settings, trials: &[TrialRecord]) -> Option<f64> {
    let mut history = History::new(settings.without_source());
    history.update(trials, trials.len() as u64, &Proposed::new());
    gp::regret::bound(&history)
}

/// The two numbers that the terminator `regret` compares after a trial, both in the unit of the objective.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Judgement {
    /// The number of the last trial that is included.
    pub trial: u64,
    /// The bound on the improvement that is still possible.
    pub bound: f64,
    /// The threshold; the search ends when the bound is at most as large.
    pub threshold: f64,
}

/// The judgements of the terminator `regret` in the course of a search with these trials: after every fifth finished trial, from
/// the twentieth on, but at most `most` judgements, including the last one. The share is that of the search, if its terminator
/// is `regret`.
///
/// Fails if the search's description is invalid.
pub fn judgements(spec: &StudySpec, trials: &[TrialRecord], most: usize) -> Result<Vec<Judgement>, OracleError> {
    let settings = Settings::new(spec)?;
    let terminator = spec.terminator.as_deref().map(str::parse).transpose()?;
    let share = match terminator {
        Some(Terminator::Regret { share }) => share,
        Some(Terminator::Stagnation { .. }) | None => USUAL_SHARE,
    };
    let finished = finished(&settings, trials);
    let counts: Vec<usize> = (FEWEST_TRIALS..=finished.len()).filter(|count| count.is_multiple_of(INTERVAL)).collect();
    let stride = counts.len().div_ceil(most.max(1)).max(1);
    let judgement = |count: &usize| {
        let losses: Vec<f64> = finished[..*count].iter().map(|(_, loss)| *loss).collect();
        let end = finished[count - 1].0;
        let bound = regret(&settings, &trials[..end])?;
        Some(Judgement { trial: end as u64 - 1, bound, threshold: threshold(share, &losses) })
    };
    let mut judgements: Vec<Judgement> = counts.iter().rev().step_by(stride).filter_map(judgement).collect();
    judgements.reverse();
    Ok(judgements)
}

impl Oracle for Stopping {
    fn next(&mut self, trials: &[TrialRecord], running: &[u64]) -> Next {
        match self.oracle.next(trials, running) {
            Next::New if self.is_over(trials) => {
                // Trials that wait for new trials would wait permanently; all others continue to their end.
                let waiting = idle(trials, running).find(|trial| trial.paused_at.is_some());
                waiting.map_or_else(|| wind_up(trials, running), |trial| Next::Prune { trial: trial.number })
            }
            next => next,
        }
    }

    fn suggest(&mut self, trial: u64, name: &str, distribution: &Distribution, trials: &[TrialRecord]) -> Value {
        self.oracle.suggest(trial, name, distribution, trials)
    }

    fn objection(&self, name: &str, distribution: &Distribution) -> Option<String> {
        self.oracle.objection(name, distribution)
    }

    fn epochs(&mut self, trial: u64, total: u64, trials: &[TrialRecord]) -> u64 {
        self.oracle.epochs(trial, total, trials)
    }

    fn parent(&mut self, trial: u64, trials: &[TrialRecord]) -> Option<u64> {
        self.oracle.parent(trial, trials)
    }

    fn ends(&mut self, trial: u64, trials: &[TrialRecord]) -> Option<EarlyEnd> {
        let rule = trials.get(trial as usize).zip(self.pruner.as_ref());
        rule.and_then(|(record, pruner)| pruner.ends(record, trials, &self.settings))
            .or_else(|| self.oracle.ends(trial, trials))
    }

    fn planned_epochs(&self, trials: &[TrialRecord], max_trials: u64) -> Option<u64> {
        self.oracle.planned_epochs(trials, max_trials)
    }

    fn pauses(&self) -> bool {
        self.oracle.pauses()
    }
}
