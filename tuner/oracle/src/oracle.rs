//! The oracles, which decide the next trial and the next values of a search. Oracles see only trial records, never storage or processes.

mod asha;
mod auto;
mod belief;
mod bohb;
mod cmaes;
mod combinations;
mod gp;
mod grid;
mod history;
mod hyperband;
mod nsga;
mod pbt;
mod qmc;
mod random;
mod references;
mod sampler;
mod settings;
mod source;
mod stopping;
mod survival;
mod text;
mod tpe;
mod variation;
mod whole;

pub use belief::{Belief, belief};
pub use gp::slices::{Expected, Slice};
pub use settings::Settings;
pub use source::Source;
pub use stopping::{Judgement, judgements};
pub use text::SettingError;

use crate::pruner::{EarlyEnd, PrunerError};
use crate::terminator::TerminatorError;
use asha::Asha;
use auto::Auto;
use bohb::Bohb;
use cmaes::CmaEs;
use ferrotune_space::record::TrialRecord;
use ferrotune_space::spec::StudySpec;
use ferrotune_space::{Distribution, Value};
use gp::Gp;
use grid::Grid;
use hyperband::Hyperband;
use nsga::Nsga;
use pbt::Pbt;
use qmc::Qmc;
use sampler::{Random, Sampler};
use text::SettingsText;
use tpe::Tpe;
use whole::WholeTrials;

/// An oracle: decides the next trial of a search, and the values of its parameters.
///
/// Every answer is a function of the records, the study's settings and its seed, so a resumed search continues exactly
/// like one that was never interrupted.
pub trait Oracle {
    /// The next step, given all records so far (by number) and the numbers of the trials that this search runs.
    ///
    /// Any other trial without an ending waits, unless another program runs it. That program may be dead, so no
    /// decision depends on its trials. The answer never names a trial that runs, here or in another program. If only
    /// trials of this search can continue, and all of them run, the answer is [`Next::Wait`].
    fn next(&mut self, trials: &[TrialRecord], running: &[u64]) -> Next;

    /// The value of a parameter for which `trial` asks for the first time; the distribution must be valid.
    ///
    /// `trials` may contain the trial's own record with its parameters so far; without it, a combination of a small
    /// space may be tried twice. Trials without an ending run at the same time.
    fn suggest(&mut self, trial: u64, name: &str, distribution: &Distribution, trials: &[TrialRecord]) -> Value;

    /// The reason why the search cannot have a parameter with this range, as the error of the objective's call; `None` if it can.
    fn objection(&self, _name: &str, _distribution: &Distribution) -> Option<String> {
        None
    }

    /// The epoch (exclusive) up to which `trial` may train now; a complete training has `total` epochs. A trial that has
    /// already reported so many epochs waits until [`Oracle::next`] names it.
    fn epochs(&mut self, trial: u64, total: u64, trials: &[TrialRecord]) -> u64;

    /// The trial whose last checkpoint a new trial starts from, after that checkpoint's epoch; `None` for a trial that
    /// starts from the first epoch. `trials` may contain the new trial's own record.
    ///
    /// Called before the first worker of `trial` starts, and so before the other trial continues.
    fn parent(&mut self, _trial: u64, _trials: &[TrialRecord]) -> Option<u64> {
        None
    }

    /// The way in which `trial`, whose last report is in `trials`, has to end now; `None` if it continues.
    fn ends(&mut self, _trial: u64, _trials: &[TrialRecord]) -> Option<EarlyEnd> {
        None
    }

    /// The number of epochs that all trials of a search of `max_trials` train together, if the oracle has a plan; `None` without
    /// a plan, or before a trial has announced the epochs of a complete training.
    fn planned_epochs(&self, _trials: &[TrialRecord], _max_trials: u64) -> Option<u64> {
        None
    }

    /// Whether trials may pause before the end of a complete training. Their reports then show their progress, so steps must be
    /// epochs counted from 0.
    fn pauses(&self) -> bool {
        false
    }
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Start the trial whose number is the count of records.
    New,
    /// Continue a waiting trial, with more epochs, or up to the epoch that it did not reach when it was interrupted.
    Continue {
        /// The trial's number.
        trial: u64,
    },
    /// End a waiting trial, which will not continue.
    Prune {
        /// The trial's number.
        trial: u64,
    },
    /// Do nothing until a running trial ends.
    Wait,
    /// The oracle has no further trial.
    Exhausted,
}

/// The reason why a search cannot begin.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum OracleError {
    /// No oracle has this name.
    #[error("there is no oracle `{name}`{}; choose one of {}", suggestion(.nearest), names().collect::<Vec<_>>().join(", "))]
    Unknown {
        /// The requested name.
        name: String,
        /// The most similar known name, if there is one.
        nearest: Option<&'static str>,
    },
    /// The settings that are given with the oracle's name are invalid.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// The text does not name a pruner.
    #[error(transparent)]
    Pruner(#[from] PrunerError),
    /// The text does not name a terminator.
    #[error(transparent)]
    Terminator(#[from] TerminatorError),
    /// The search has no objective.
    #[error("the search has no objective; name a metric and its direction with --objective, as in val_accuracy:max")]
    NoObjective,
    /// Two objectives have the same metric.
    #[error("--objective names {metric} twice; keep one")]
    RepeatedObjective {
        /// The metric.
        metric: String,
    },
    /// An option compares trials by a single objective, but the search has several.
    #[error("{what} compares trials by one objective, but --objective names {objectives}; {cure}")]
    SeveralObjectives {
        /// The option and its value.
        what: String,
        /// The objectives.
        objectives: String,
        /// The cure: what the user can do.
        cure: &'static str,
    },
    /// The search runs several complete trainings for each trial, but its oracle stops trainings early.
    #[error(
        "--executions {executions} runs whole trainings, but --oracle {oracle} stops them on their way to compare them; use auto, gp, tpe or random, or leave --executions out"
    )]
    SeveralExecutions {
        /// The number of executions of each trial.
        executions: u64,
        /// The oracle.
        oracle: String,
    },
    /// The oracle decides how long each trial trains, but the program that runs the trials decides that itself.
    #[error(
        "{oracle} decides how long each trial trains, which the program that runs the trials does here; use auto, gp, tpe or random with a pruner"
    )]
    DecidesEpochs {
        /// The oracle.
        oracle: String,
    },
    /// A record is not at the place of its number.
    #[error("record {place} is that of trial {number}; give the records of all trials in the order of their numbers")]
    MisplacedRecord {
        /// The record's place.
        place: u64,
        /// The trial's number.
        number: u64,
    },
    /// A number is infinite or NaN, which JSON cannot express.
    #[error("{what} is not a finite number; give one that is")]
    NotFinite {
        /// The meaning of the number.
        what: String,
    },
    /// The search may start no trial.
    #[error("--max-trials is 0; give at least 1")]
    NoTrials,
    /// A time limit of the search or of a trial is not positive.
    #[error("{option} is {seconds}; give more than 0 seconds")]
    Timeout {
        /// The option.
        option: &'static str,
        /// The option's value.
        seconds: f64,
    },
}

/// A function that makes an oracle from the settings of its search, and from the settings in its text.
type Make = fn(Settings, &SettingsText<'_>) -> Result<Box<dyn Oracle>, SettingError>;

/// The oracles, each with its name.
const ORACLES: &[(&str, Make)] = &[
    ("auto", |settings, _| whole(settings, Auto::default())),
    ("random", |settings, _| whole(settings, Random)),
    ("grid", |settings, text| whole(settings, Grid::with(text)?)),
    ("qmc", |settings, _| whole(settings, Qmc)),
    ("tpe", |settings, text| whole(settings, Tpe::with(text)?)),
    ("gp", |settings, text| whole(settings, Gp::with(text)?)),
    ("cmaes", |settings, text| whole(settings, CmaEs::with(text)?)),
    ("nsga2", |settings, text| whole(settings, Nsga::second(text)?)),
    ("nsga3", |settings, text| {
        let sampler = Nsga::third(text, settings.objectives.len())?;
        whole(settings, sampler)
    }),
    ("hyperband", |settings, text| Ok(Box::new(Hyperband::new(settings, Box::new(Random)).with(text)?))),
    ("bohb", |settings, text| Ok(Box::new(Bohb::new(settings, Tpe::default()).with(text)?))),
    ("successive_halving", |settings, text| {
        Ok(Box::new(Hyperband::most_exploratory(settings, Box::new(Random)).with(text)?))
    }),
    ("asha", |settings, text| Ok(Box::new(Asha::new(settings, Box::new(Random)).with(text)?))),
    ("pbt", |settings, text| Ok(Box::new(Pbt::new(settings).with(text)?))),
    ("pb2", |settings, text| Ok(Box::new(Pbt::new(settings).with_bandit(text)?))),
];

/// The names of the oracles.
pub fn names() -> impl Iterator<Item = &'static str> {
    ORACLES.iter().map(|(name, _)| *name)
}

/// Checks the limits in `spec` and makes the oracle that it names.
///
/// If `spec` has no seed, the operating system gives one.
pub fn create(spec: &StudySpec) -> Result<Box<dyn Oracle>, OracleError> {
    let settings = Settings::new(spec)?;
    let (name, text) = spec.oracle.split_once(':').unwrap_or((&spec.oracle, ""));
    let Some((name, make)) = ORACLES.iter().find(|(known, _)| *known == name) else {
        return Err(OracleError::Unknown { name: name.to_owned(), nearest: nearest(name) });
    };
    let text = SettingsText::read(name, text)?;
    let oracle = make(settings.clone(), &text)?;
    text.finish()?;
    if spec.executions > 1 && oracle.pauses() {
        return Err(OracleError::SeveralExecutions { executions: spec.executions, oracle: spec.oracle.clone() });
    }
    if let [_, _, ..] = spec.objectives.as_slice() {
        refuse_comparisons(spec, oracle.pauses())?;
    }
    stopping::with_rules(oracle, settings, spec)
}

/// Refuses oracles, pruners and terminators that compare single values, if the search has several objectives.
fn refuse_comparisons(spec: &StudySpec, oracle_pauses: bool) -> Result<(), OracleError> {
    let oracle =
        oracle_pauses.then(|| (format!("--oracle {}", spec.oracle), "use nsga2, nsga3, auto, gp, tpe or random"));
    let rule = |option, rule: &Option<String>| rule.as_ref().map(|rule| (format!("{option} {rule}"), "leave it out"));
    let offender = oracle.or_else(|| rule("--pruner", &spec.pruner)).or_else(|| rule("--terminator", &spec.terminator));
    let Some((what, cure)) = offender else { return Ok(()) };
    let objectives: Vec<String> = spec.objectives.iter().map(ToString::to_string).collect();
    Err(OracleError::SeveralObjectives { what, objectives: objectives.join(", "), cure })
}

/// The parameters for which the text of an oracle gives values, such as those of `grid:lr=0.001|0.01`.
pub fn parameters_in(oracle: &str) -> impl Iterator<Item = &str> {
    let settings = oracle.strip_prefix("grid:").unwrap_or_default();
    settings.split(',').filter_map(|pair| pair.split_once('=')).map(|(name, _)| name.trim())
}

fn whole(settings: Settings, sampler: impl Sampler + 'static) -> Result<Box<dyn Oracle>, SettingError> {
    Ok(Box::new(WholeTrials::new(settings, Box::new(sampler))))
}

fn suggestion(nearest: &Option<&'static str>) -> String {
    nearest.map_or_else(String::new, |name| format!(", did you mean `{name}`?"))
}

/// The known name that is most similar to `name`, unless none is similar.
fn nearest(name: &str) -> Option<&'static str> {
    let name = name.to_lowercase();
    let similar = names().map(|known| (strsim::sorensen_dice(&name, known), known));
    similar.filter(|(likeness, _)| *likeness >= 0.5).max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, known)| known)
}

/// The trials without an ending that no program runs.
fn idle<'a>(trials: &'a [TrialRecord], running: &'a [u64]) -> impl Iterator<Item = &'a TrialRecord> {
    trials.iter().filter(|trial| is_idle(trial, running))
}

fn is_idle(trial: &TrialRecord, running: &[u64]) -> bool {
    trial.ending.is_none() && !trial.runs_elsewhere() && !running.contains(&trial.number)
}

/// The next step when no new trial may begin: the first interrupted trial continues.
fn wind_up(trials: &[TrialRecord], running: &[u64]) -> Next {
    idle(trials, running).next().map_or_else(|| nothing_beside(running), |trial| Next::Continue { trial: trial.number })
}

/// The next step when only running trials are left.
fn nothing_beside(running: &[u64]) -> Next {
    if running.is_empty() { Next::Exhausted } else { Next::Wait }
}
