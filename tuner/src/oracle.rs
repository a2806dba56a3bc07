//! What to try next: the oracles. They see trial records only, never storage or processes.

mod asha;
mod auto;
mod bohb;
mod cmaes;
mod combinations;
mod gp;
mod grid;
mod history;
mod hyperband;
mod nsga2;
mod pbt;
mod qmc;
mod random;
mod sampler;
mod settings;
mod stopping;
mod survival;
mod tpe;
mod variation;
mod whole;

pub use settings::Settings;

use crate::pruner::PrunerError;
use crate::record::TrialRecord;
use crate::space::{Distribution, Value};
use crate::spec::StudySpec;
use crate::terminator::TerminatorError;
use asha::Asha;
use auto::Auto;
use bohb::Bohb;
use cmaes::CmaEs;
use gp::Gp;
use grid::Grid;
use hyperband::Hyperband;
use nsga2::Nsga2;
use pbt::Pbt;
use qmc::Qmc;
use random::Random;
use sampler::Sampler;
use tpe::Tpe;
use whole::WholeTrials;

/// Decides what a search tries next.
///
/// Every answer is a function of the records, the study's settings and its seed, so that a resumed search goes on as
/// an uninterrupted one would have.
pub trait Oracle {
    /// What to do next, given all records so far (by number) and the numbers of the trials that this search runs.
    ///
    /// Any other trial without an ending waits, unless another program runs it: nobody knows whether that program still
    /// lives, so that no decision waits for its trials. The answer names no trial that runs here or there; where there is
    /// nothing to do beside those that run here, it is [`Next::Wait`].
    fn next(&mut self, trials: &[TrialRecord], running: &[u64]) -> Next;

    /// Value for a parameter that `trial` asks for the first time; the distribution must be valid.
    ///
    /// `trials` may hold the trial's own record, with the parameters that it has so far: only then is it certain that no
    /// combination of few is tried twice. Trials that run beside it are those without an ending.
    fn suggest(&mut self, trial: u64, name: &str, distribution: &Distribution, trials: &[TrialRecord]) -> Value;

    /// How far `trial` may train now (exclusive), of a whole training of `total` epochs. A trial whose records show
    /// that many epochs already has nothing to do until [`Oracle::next`] names it.
    fn epochs(&mut self, trial: u64, total: u64, trials: &[TrialRecord]) -> u64;

    /// The trial with whose last checkpoint a new one begins, which is then past that one's epochs; `None` for a trial
    /// that begins afresh. `trials` may hold the new trial's own record.
    ///
    /// Asked before the first worker of `trial` starts, and thus before the other trial is named to go on.
    fn parent(&mut self, _trial: u64, _trials: &[TrialRecord]) -> Option<u64> {
        None
    }

    /// Whether `trial`, which is in `trials` with its last report, is to be ended as it stands.
    fn prunes(&mut self, _trial: u64, _trials: &[TrialRecord]) -> bool {
        false
    }

    /// Whether trials may be stopped short of a whole training, and their progress read from their reports: steps
    /// must then be epochs counted from 0.
    fn pauses(&self) -> bool {
        false
    }
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Start the trial whose number is the count of records.
    New,
    /// Run a waiting trial on, with more epochs, or to the epoch it did not reach when it was interrupted.
    Continue {
        /// Its number.
        trial: u64,
    },
    /// End a waiting trial: it will not go on.
    Prune {
        /// Its number.
        trial: u64,
    },
    /// Nothing, until one of the trials that run has ended.
    Wait,
    /// There is nothing more to try.
    Exhausted,
}

/// Why a search cannot begin.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum OracleError {
    /// No oracle of this name.
    #[error("there is no oracle `{name}`{}; choose one of {}", suggestion(.nearest), names().collect::<Vec<_>>().join(", "))]
    Unknown {
        /// The name that was asked for.
        name: String,
        /// The known name next to it, if one is near.
        nearest: Option<&'static str>,
    },
    /// The pruner's text names none.
    #[error(transparent)]
    Pruner(#[from] PrunerError),
    /// The terminator's text names none.
    #[error(transparent)]
    Terminator(#[from] TerminatorError),
    /// A search for nothing.
    #[error("the search has no objective; name a metric and its direction with --objective, as in val_accuracy:max")]
    NoObjective,
    /// A metric that is to be optimised twice.
    #[error("--objective names {metric} twice; keep one")]
    RepeatedObjective {
        /// The metric.
        metric: String,
    },
    /// What compares trials by a single objective, for a search with several.
    #[error("{what} compares trials by one objective, but --objective names {objectives}; {cure}")]
    SeveralObjectives {
        /// The option and its value.
        what: String,
        /// The objectives.
        objectives: String,
        /// What to do.
        cure: &'static str,
    },
    /// Whole trainings, several for each trial, by an oracle that stops trainings on their way.
    #[error(
        "--executions {executions} runs whole trainings, but --oracle {oracle} stops them on their way to compare them; use auto, gp, tpe or random, or leave --executions out"
    )]
    SeveralExecutions {
        /// How often each trial is to run.
        executions: u64,
        /// The oracle.
        oracle: String,
    },
    /// A number that JSON has no form for.
    #[error("{what} is not a finite number; give one that is")]
    NotFinite {
        /// What it is for.
        what: String,
    },
    /// A search of no trials.
    #[error("--max-trials is 0; give at least 1")]
    NoTrials,
    /// A time limit that is over before it begins.
    #[error("{option} is {seconds}; give more than 0 seconds")]
    Timeout {
        /// The option.
        option: &'static str,
        /// Its value.
        seconds: f64,
    },
}

/// An oracle, from the settings of its search.
type Make = fn(Settings) -> Box<dyn Oracle>;

/// The oracles by their names.
const ORACLES: &[(&str, Make)] = &[
    ("auto", |settings| whole(settings, Auto::default())),
    ("random", |settings| whole(settings, Random)),
    ("grid", |settings| whole(settings, Grid)),
    ("qmc", |settings| whole(settings, Qmc)),
    ("tpe", |settings| whole(settings, Tpe)),
    ("gp", |settings| whole(settings, Gp)),
    ("cmaes", |settings| whole(settings, CmaEs::default())),
    ("nsga2", |settings| whole(settings, Nsga2::default())),
    ("hyperband", |settings| Box::new(Hyperband::new(settings, Box::new(Random)))),
    ("bohb", |settings| Box::new(Bohb::new(settings, Tpe))),
    ("successive_halving", |settings| Box::new(Hyperband::most_exploratory(settings, Box::new(Random)))),
    ("asha", |settings| Box::new(Asha::new(settings, Box::new(Random)))),
    ("pbt", |settings| Box::new(Pbt::new(settings))),
];

/// Names of the oracles.
pub fn names() -> impl Iterator<Item = &'static str> {
    ORACLES.iter().map(|(name, _)| *name)
}

/// The oracle that `spec` names, after a check of the limits that it sets.
///
/// Without a seed in `spec` one is drawn from the operating system.
pub fn create(spec: &StudySpec) -> Result<Box<dyn Oracle>, OracleError> {
    let settings = Settings::new(spec)?;
    let Some((_, make)) = ORACLES.iter().find(|(name, _)| *name == spec.oracle) else {
        return Err(OracleError::Unknown { name: spec.oracle.clone(), nearest: nearest(&spec.oracle) });
    };
    let oracle = make(settings.clone());
    if spec.executions > 1 && oracle.pauses() {
        return Err(OracleError::SeveralExecutions { executions: spec.executions, oracle: spec.oracle.clone() });
    }
    if let [_, _, ..] = spec.objectives.as_slice() {
        refuse_comparisons(spec, oracle.pauses())?;
    }
    stopping::with_rules(oracle, settings, spec)
}

/// Refuses what compares trials while they run, or a search with itself, where there is no one value to compare.
fn refuse_comparisons(spec: &StudySpec, oracle_pauses: bool) -> Result<(), OracleError> {
    let oracle = oracle_pauses.then(|| (format!("--oracle {}", spec.oracle), "use nsga2, auto, gp, tpe or random"));
    let rule = |option, rule: &Option<String>| rule.as_ref().map(|rule| (format!("{option} {rule}"), "leave it out"));
    let offender = oracle.or_else(|| rule("--pruner", &spec.pruner)).or_else(|| rule("--terminator", &spec.terminator));
    let Some((what, cure)) = offender else { return Ok(()) };
    let objectives: Vec<String> = spec.objectives.iter().map(ToString::to_string).collect();
    Err(OracleError::SeveralObjectives { what, objectives: objectives.join(", "), cure })
}

fn whole(settings: Settings, sampler: impl Sampler + 'static) -> Box<dyn Oracle> {
    Box::new(WholeTrials::new(settings, Box::new(sampler)))
}

fn suggestion(nearest: &Option<&'static str>) -> String {
    nearest.map_or_else(String::new, |name| format!(", did you mean `{name}`?"))
}

/// The known name that is most like `name`, if one is.
fn nearest(name: &str) -> Option<&'static str> {
    let name = name.to_lowercase();
    let similar = names().map(|known| (strsim::sorensen_dice(&name, known), known));
    similar.filter(|(likeness, _)| *likeness >= 0.5).max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, known)| known)
}

/// Trials without an ending that nobody runs.
fn idle<'a>(trials: &'a [TrialRecord], running: &'a [u64]) -> impl Iterator<Item = &'a TrialRecord> {
    trials.iter().filter(|trial| is_idle(trial, running))
}

fn is_idle(trial: &TrialRecord, running: &[u64]) -> bool {
    trial.ending.is_none() && !trial.runs_elsewhere() && !running.contains(&trial.number)
}

/// What is left to do once no trial begins any more: the first one that was interrupted goes on.
fn wind_up(trials: &[TrialRecord], running: &[u64]) -> Next {
    idle(trials, running).next().map_or_else(|| nothing_beside(running), |trial| Next::Continue { trial: trial.number })
}

/// There is nothing to do but what runs already.
fn nothing_beside(running: &[u64]) -> Next {
    if running.is_empty() { Next::Exhausted } else { Next::Wait }
}
