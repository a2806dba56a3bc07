//! The facts of a journal, one per line, and their effects on the study: [`Fact::apply`] is the only code that changes a
//! trial's record. It runs after each append, and for each line when a study is opened. No IO and no JSON.

use super::VERSION;
use super::format::TrialState;
use super::state::{StudyState, Times};
use ferrotune_space::given::Values;
use ferrotune_space::objective::Direction;
use ferrotune_space::record::{DeviceUse, Ending, MemoryCheck, Runner, TrialRecord};
use ferrotune_space::spec::StudySpec;
use ferrotune_space::{Parameter, Value};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// The fact in one line of the journal.
#[derive(Debug)]
pub(super) enum Fact<'a> {
    StudyCreated {
        name: Cow<'a, str>,
        directions: Vec<Direction>,
    },
    /// The version of our own facts.
    Version(u64),
    /// The spec of the search at its present start.
    Spec(Box<StudySpec>),
    /// The names of several objectives, for Optuna's tables and plots.
    MetricNames(Vec<String>),
    /// The position in the objective's source that asks for a parameter.
    Place {
        parameter: Cow<'a, str>,
        place: String,
    },
    /// The default that the objective gives a parameter.
    Default {
        parameter: Cow<'a, str>,
        default: Value,
    },
    /// A new trial. Its number is the count of such lines before it, whichever program wrote them.
    TrialCreated(NewTrial),
    /// A trial as a database has it now, which replaces the known record of it; its facts follow. The trial may be new.
    TrialTold {
        number: u64,
        trial: NewTrial,
    },
    Trial {
        number: u64,
        fact: TrialFact<'a>,
    },
    /// A line that changes no record, such as a system attribute of Optuna.
    Ignored,
}

/// A trial, as its first line describes it. Optuna's `add_trial` writes a whole trial in one line.
#[derive(Debug, Default)]
pub(super) struct NewTrial {
    pub(super) times: Times,
    pub(super) state: Option<TrialState>,
    pub(super) preset: Values,
    pub(super) parameters: BTreeMap<String, Parameter>,
    /// Values of the first objective, by step.
    pub(super) intermediate: Vec<(u64, Option<f64>)>,
    pub(super) values: Vec<f64>,
}

/// A fact about a trial that exists.
#[derive(Debug)]
pub(super) enum TrialFact<'a> {
    Parameter {
        name: Cow<'a, str>,
        parameter: Parameter,
    },
    /// A step's value of the first objective.
    Intermediate {
        step: u64,
        value: Option<f64>,
    },
    /// Any other metrics of a step.
    Metrics {
        step: u64,
        metrics: BTreeMap<String, Option<f64>>,
    },
    State {
        state: TrialState,
        values: Vec<f64>,
        times: Times,
    },
    Epochs(Option<u64>),
    /// The last checkpoint; `None` once it is removed.
    Checkpoint(Option<Checkpoint>),
    Inherited(Inheritance),
    /// An execution is over, with these values, and another execution follows.
    Executed(Vec<f64>),
    /// The values of all executions. They become valid with the trial's end.
    Executions(Vec<Vec<f64>>),
    /// The ending of the trial. The ending becomes valid with the line that sets the trial's final state.
    Ending(Ending),
    PausedAt(Option<u64>),
    PeakBytes(u64),
    Seconds(f64),
    UnendedWorkers(u64),
    Retried(Vec<Ending>),
    Memory(MemoryCheck),
    Device(DeviceUse),
    /// A user attribute, set by the objective or by Optuna.
    UserAttribute {
        name: Cow<'a, str>,
        value: serde_json::Value,
    },
    /// The trial's excess over each constraint, for Optuna.
    ConstraintExcesses(Vec<f64>),
}

/// A checkpoint that is on disk.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Checkpoint {
    /// The last step that the checkpoint covers.
    pub(super) step: u64,
    /// The checkpoint's file name in the trial's folder.
    pub(super) file: String,
}

/// The inheritance of another trial's checkpoint by a new trial.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Inheritance {
    /// The number of the other trial.
    pub(super) parent: u64,
    /// The checkpoint's file name in the new trial's folder, if the other trial had a checkpoint.
    pub(super) file: Option<String>,
}

/// The reason why a line cannot be a line of this journal.
#[derive(Debug)]
pub(super) enum Refusal {
    /// A newer version, with this number, wrote the line.
    Newer(u64),
    Damaged(String),
}

impl From<String> for Refusal {
    fn from(reason: String) -> Refusal {
        Refusal::Damaged(reason)
    }
}

impl Fact<'_> {
    /// Applies this fact, which a program of the kind `writer` has written, to the study's state. Fails, and changes
    /// nothing, if the fact contradicts the lines before it.
    pub(super) fn apply(self, writer: Runner, study: &mut StudyState) -> Result<(), Refusal> {
        match self {
            Fact::StudyCreated { name, directions } => {
                if study.name.as_ref().is_some_and(|known| *known != name) {
                    return Err(Refusal::Damaged(format!("it begins a second study, {name}")));
                }
                (study.name, study.directions) = (Some(name.into_owned()), directions);
            }
            Fact::Version(version) if version > VERSION => return Err(Refusal::Newer(version)),
            Fact::Version(version) => study.version = Some(version),
            Fact::Spec(spec) => study.set_spec(*spec),
            Fact::Place { parameter, place } => drop(study.places.insert(parameter.into_owned(), place)),
            Fact::Default { parameter, default } => drop(study.defaults.insert(parameter.into_owned(), default)),
            Fact::TrialCreated(trial) => trial.apply(writer, study),
            Fact::TrialTold { number, .. } if number > study.trials.len() as u64 => {
                return Err(Refusal::Damaged(format!("trial {number} follows trial {}", study.trials.len())));
            }
            Fact::TrialTold { number, trial } => trial.apply_at(number, writer, study),
            Fact::Trial { number, fact } => {
                if number >= study.trials.len() as u64 {
                    return Err(Refusal::Damaged(format!("it speaks of trial {number}, which was never created")));
                }
                fact.apply(number, writer, study);
            }
            Fact::MetricNames(_) | Fact::Ignored => {}
        }
        Ok(())
    }
}

impl NewTrial {
    fn apply(self, writer: Runner, study: &mut StudyState) {
        self.apply_at(study.trials.len() as u64, writer, study);
    }

    /// Replaces the trial `number`, or adds it as the next one.
    fn apply_at(self, number: u64, writer: Runner, study: &mut StudyState) {
        let runner = if self.state == Some(TrialState::Waiting) { Runner::Nobody } else { writer };
        let (parameters, preset) = (self.parameters, self.preset);
        let record = TrialRecord { runner, parameters, preset, ..TrialRecord::new(number) };
        study.put(record, self.times);
        self.intermediate.into_iter().for_each(|(step, value)| study.report_objective(number, step, value));
        if let Some(state) = self.state {
            study.set_state(number, state, self.values);
        }
    }
}

impl TrialFact<'_> {
    /// Applies this fact to a trial's record. As in Optuna, a parameter, an intermediate value or a state after the trial's
    /// end is ignored, so the first end is final.
    fn apply(self, number: u64, writer: Runner, study: &mut StudyState) {
        let record = &mut study.trials[number as usize];
        let is_open = record.ending.is_none();
        match self {
            TrialFact::Parameter { name, parameter } if is_open => {
                record.parameters.insert(name.into_owned(), parameter);
            }
            TrialFact::Intermediate { step, value } if is_open => study.report_objective(number, step, value),
            TrialFact::State { state, values, times } if is_open => {
                study.change_state(number, state, values, (times, writer))
            }
            TrialFact::Parameter { .. } | TrialFact::Intermediate { .. } | TrialFact::State { .. } => {}
            TrialFact::Metrics { step, metrics } => record.metrics.entry(step).or_default().extend(metrics),
            TrialFact::Epochs(total) => record.epochs = total,
            TrialFact::Checkpoint(checkpoint) => {
                record.checkpoint = checkpoint.map(|checkpoint| checkpoint.file);
                record.unended_workers = record.unended_workers.min(1);
            }
            TrialFact::Inherited(Inheritance { parent, file }) => {
                (record.parent, record.checkpoint) = (Some(parent), file);
            }
            TrialFact::Executed(values) => {
                record.executions.push(values);
                record.metrics.clear();
                record.checkpoint = None;
            }
            TrialFact::Executions(executions) => drop(study.pending_executions.insert(number, executions)),
            TrialFact::Ending(ending) => drop(study.pending_endings.insert(number, ending)),
            TrialFact::PausedAt(at) => {
                record.continued_from = record.paused_at.filter(|_| at.is_none());
                record.paused_at = at;
            }
            TrialFact::PeakBytes(bytes) => record.peak_bytes = bytes,
            TrialFact::Seconds(seconds) => record.seconds = seconds,
            TrialFact::UnendedWorkers(count) => record.unended_workers = count,
            TrialFact::Retried(endings) => record.retried = endings,
            TrialFact::Memory(check) => record.memory = Some(check),
            TrialFact::Device(device) => record.device = Some(device),
            TrialFact::UserAttribute { name, value } => {
                drop(record.user_attributes.insert(name.into_owned(), value));
            }
            TrialFact::ConstraintExcesses(_) => {}
        }
    }
}
