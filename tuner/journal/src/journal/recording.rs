//! The facts that a search records about its trials, each as one or more lines. Refuses facts of trials that the journal
//! does not have.

use super::encode::internal_value;
use super::fact::{Checkpoint, Fact, Inheritance, NewTrial, TrialFact};
use super::format::{OURS, TrialState};
use super::state::Times;
use super::{Journal, JournalError};
use chrono::{DateTime, SubsecRound as _, Utc};
use ferrotune_space::given::Values;
use ferrotune_space::objective::Constraint;
use ferrotune_space::record::{DeviceUse, Ending, MemoryCheck, TrialRecord};
use ferrotune_space::spec::StudySpec;
use ferrotune_space::{Parameter, Value};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// The resources that a trial's workers have used, and the epoch at which the trial waits.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Usage {
    /// The largest observed memory, in bytes.
    pub peak_bytes: u64,
    /// The seconds that the workers ran, added together.
    pub seconds: f64,
    /// The epoch (exclusive) at which the trial waits for more epochs.
    pub paused_at: Option<u64>,
    /// The number of workers in a row whose end no supervisor has seen.
    pub unended_workers: u64,
    /// The memory of the machine before and after the last worker; `None` keeps the earlier check.
    pub memory: Option<MemoryCheck>,
    /// The endings after which the trial was tried again; an empty list keeps the earlier ones.
    pub retried: Vec<Ending>,
}

impl Usage {
    /// The usage in the trial's record.
    pub fn of(record: &TrialRecord) -> Usage {
        Usage {
            peak_bytes: record.peak_bytes,
            seconds: record.seconds,
            paused_at: record.waited_at(),
            unended_workers: record.unended_workers,
            memory: record.memory.clone(),
            retried: record.retried.clone(),
        }
    }

    fn facts(self) -> Vec<TrialFact<'static>> {
        let mut facts = vec![
            TrialFact::PeakBytes(self.peak_bytes),
            TrialFact::Seconds(self.seconds),
            TrialFact::PausedAt(self.paused_at),
            TrialFact::UnendedWorkers(self.unended_workers),
        ];
        facts.extend(self.memory.map(TrialFact::Memory));
        if !self.retried.is_empty() {
            facts.push(TrialFact::Retried(self.retried));
        }
        facts
    }
}

/// The end of a trial.
#[derive(Clone, Debug, PartialEq)]
pub struct End {
    /// The ending of the trial.
    pub ending: Ending,
    /// A value for each objective, or none. If some are missing or not finite, Optuna sees a failed trial.
    pub values: Vec<f64>,
    /// The values of all executions, if the trial runs several times.
    pub executions: Vec<Vec<f64>>,
}

impl End {
    /// An end without a value; the executions so far are kept.
    pub fn without_value(ending: Ending, record: &TrialRecord) -> End {
        End { ending, values: Vec::new(), executions: record.executions.clone() }
    }

    /// The facts of this end. The state comes last, because Optuna ignores later lines of an ended trial.
    fn facts(self, record: &TrialRecord, spec: &StudySpec) -> Vec<TrialFact<'static>> {
        let End { ending, values, executions } = self;
        let is_whole = values.len() == spec.objectives.len() && values.iter().all(|value| value.is_finite());
        let values = if is_whole { values } else { Vec::new() };
        let (state, values) = match ending {
            Ending::Finished if is_whole => (TrialState::Complete, values),
            Ending::Pruned => (TrialState::Pruned, values),
            // Optuna's best trial would fail on a complete trial without a value.
            _ => (TrialState::Fail, Vec::new()),
        };
        let mut facts = vec![TrialFact::Ending(ending)];
        if !executions.is_empty() {
            facts.push(TrialFact::Executions(executions));
        }
        if state != TrialState::Fail && !spec.constraints.is_empty() {
            let excess = |constraint: &Constraint| {
                let excess = constraint.excess_of(record, &values, &spec.objectives);
                // JSON has no infinity, which is the excess of a metric that was never reported.
                excess.clamp(f64::MIN, f64::MAX)
            };
            facts.push(TrialFact::ConstraintExcesses(spec.constraints.iter().map(excess).collect()));
        }
        facts.push(TrialFact::State { state, values, times: Times { ended: Some(now()), ..Times::default() } });
        facts
    }
}

impl Journal {
    /// Begins a new trial after those of other programs; returns its number.
    pub fn begin_trial(&mut self) -> Result<u64, JournalError> {
        self.create(NewTrial { times: Times { started: Some(now()), ..Times::default() }, ..NewTrial::default() })
    }

    /// Begins a new trial and returns its number; none if the study has `most` trials, because other searches have begun
    /// some.
    pub fn begin_trial_within(&mut self, most: u64) -> Result<Option<u64>, JournalError> {
        let times = Times { started: Some(now()), ..Times::default() };
        self.create_within(NewTrial { times, ..NewTrial::default() }, Some(most))
    }

    /// Adds a waiting trial with these values, and returns its number. Optuna has such trials, too, and may begin this one.
    pub fn enqueue_trial(&mut self, preset: &Values) -> Result<u64, JournalError> {
        let (state, preset) = (Some(TrialState::Waiting), preset.clone());
        self.create(NewTrial { state, preset, ..NewTrial::default() })
    }

    fn create(&mut self, trial: NewTrial) -> Result<u64, JournalError> {
        let number = self.create_within(trial, None)?;
        Ok(number.expect("without a limit there is a trial"))
    }

    /// Adds a trial; none if the study has `most` trials, because other searches have begun some.
    fn create_within(&mut self, trial: NewTrial, most: Option<u64>) -> Result<Option<u64>, JournalError> {
        self.storage.create(&mut self.known, trial, most)
    }

    /// Begins a waiting trial, unless another program has begun it first. Returns whether this search owns the trial.
    pub fn begin_enqueued_trial(&mut self, number: u64) -> Result<bool, JournalError> {
        self.check_trial(number)?;
        let times = Times { started: Some(now()), ..Times::default() };
        self.storage.begin(&mut self.known, number, times)
    }

    /// Records that a trial begins as a copy of `parent`, and has the parent's checkpoint `file`, if there is one.
    pub fn inherited(&mut self, number: u64, parent: u64, file: Option<&str>) -> Result<(), JournalError> {
        let inheritance = Inheritance { parent, file: file.map(str::to_owned) };
        self.record_of(number, vec![TrialFact::Inherited(inheritance)])
    }

    /// Records that an execution of a trial is over, with these values, and that another execution follows. The trial's
    /// reports and its checkpoint are discarded.
    pub fn executed(&mut self, number: u64, values: Vec<f64>) -> Result<(), JournalError> {
        self.record_of(number, vec![TrialFact::Executed(values)])
    }

    /// Records the chosen value of a parameter.
    pub fn parameter(&mut self, number: u64, name: &str, parameter: Parameter) -> Result<(), JournalError> {
        if internal_value(&parameter).is_none() {
            let (name, value) = (name.to_owned(), parameter.value.to_string());
            return Err(JournalError::OutsideRange { number, name, value });
        }
        self.record_of(number, vec![TrialFact::Parameter { name: Cow::Borrowed(name), parameter }])
    }

    /// Records that the objective asks for a parameter at `place` in its source. Writes nothing if that is known.
    pub fn asked_at(&mut self, name: &str, place: &str) -> Result<(), JournalError> {
        if place.is_empty() || self.place_of(name) == Some(place) {
            return Ok(());
        }
        self.record(vec![Fact::Place { parameter: Cow::Borrowed(name), place: place.to_owned() }])
    }

    /// Records the default that the objective gives a parameter. Writes nothing if that is known.
    pub fn defaults_to(&mut self, name: &str, default: &Value) -> Result<(), JournalError> {
        if self.known.replay.study.defaults.get(name) == Some(default) {
            return Ok(());
        }
        self.record(vec![Fact::Default { parameter: Cow::Borrowed(name), default: default.clone() }])
    }

    /// The position in the objective's source that last asked for a parameter.
    pub fn place_of(&self, name: &str) -> Option<&str> {
        self.known.replay.study.places.get(name).map(String::as_str)
    }

    /// Records the number of epochs of a whole training.
    pub fn epochs(&mut self, number: u64, total: u64) -> Result<(), JournalError> {
        self.record_of(number, vec![TrialFact::Epochs(Some(total))])
    }

    /// Records the metrics of a step. The value of a sole objective becomes Optuna's intermediate value, and other metrics
    /// an attribute. A value that is not finite has no JSON number, and is null in the attribute. Optuna has no
    /// intermediate values for several objectives.
    pub fn report(
        &mut self,
        number: u64,
        step: u64,
        metrics: &BTreeMap<String, Option<f64>>,
    ) -> Result<(), JournalError> {
        let finite = |value: &Option<f64>| value.filter(|value| value.is_finite());
        let objective = match self.spec.objectives.as_slice() {
            [objective] => Some(objective.metric.as_str()),
            _ => None,
        };
        let value = objective.and_then(|objective| finite(metrics.get(objective)?));
        let others = metrics.iter().filter(|(name, _)| Some(name.as_str()) != objective || value.is_none());
        let others: BTreeMap<String, Option<f64>> = others.map(|(name, value)| (name.clone(), finite(value))).collect();
        let mut facts = Vec::new();
        if value.is_some() {
            facts.push(TrialFact::Intermediate { step, value });
        }
        if !others.is_empty() || value.is_none() {
            facts.push(TrialFact::Metrics { step, metrics: others });
        }
        self.record_of(number, facts)
    }

    /// Records a checkpoint that is on disk; `file` is its name in the trial's folder, `step` the last step that it covers.
    pub fn checkpoint(&mut self, number: u64, step: u64, file: &str) -> Result<(), JournalError> {
        self.record_of(number, vec![TrialFact::Checkpoint(Some(Checkpoint { step, file: file.to_owned() }))])
    }

    /// Records the device that a trial's worker uses. Writes nothing if that is known.
    pub fn device(&mut self, number: u64, device: &DeviceUse) -> Result<(), JournalError> {
        self.check_trial(number)?;
        if self.trials()[number as usize].device.as_ref() == Some(device) {
            return Ok(());
        }
        self.record_of(number, vec![TrialFact::Device(device.clone())])
    }

    /// Records a user attribute of a trial. Fails for a name with the prefix of our own attributes, and for a number that
    /// JSON lacks.
    pub fn user_attribute(&mut self, number: u64, name: &str, value: &Value) -> Result<(), JournalError> {
        let is_ours = name.starts_with(OURS);
        if is_ours || matches!(value, Value::Float(value) if !value.is_finite()) {
            return Err(JournalError::UserAttribute { name: name.to_owned(), value: value.to_string() });
        }
        let value = match value {
            Value::Bool(value) => (*value).into(),
            Value::Int(value) => (*value).into(),
            Value::Float(value) => (*value).into(),
            Value::Text(text) => text.as_str().into(),
        };
        self.record_of(number, vec![TrialFact::UserAttribute { name: name.into(), value }])
    }

    /// Records that the trial's checkpoint has been removed, because the trial cannot be among the best any more.
    pub fn checkpoint_removed(&mut self, number: u64) -> Result<(), JournalError> {
        self.record_of(number, vec![TrialFact::Checkpoint(None)])
    }

    /// Records the start of a trial's worker. The trial no longer waits. It counts as interrupted until its next pause or
    /// end is recorded.
    pub fn worker_started(&mut self, number: u64) -> Result<(), JournalError> {
        self.check_trial(number)?;
        let unended = self.trials()[number as usize].unended_workers + 1;
        self.record_of(number, vec![TrialFact::PausedAt(None), TrialFact::UnendedWorkers(unended)])
    }

    /// Records that a trial waits, or that its last worker has exited. After the trial's end Optuna ignores this fact.
    pub fn trial_paused(&mut self, number: u64, usage: Usage) -> Result<(), JournalError> {
        self.record_of(number, usage.facts())
    }

    /// Records the end of a trial. If another program has already ended the trial, that end is final.
    pub fn trial_ended(&mut self, number: u64, usage: Usage, end: End) -> Result<(), JournalError> {
        self.check_trial(number)?;
        let mut facts = usage.facts();
        facts.extend(end.facts(&self.trials()[number as usize], &self.spec));
        self.record_of(number, facts)
    }

    fn record_of(&mut self, number: u64, facts: Vec<TrialFact<'_>>) -> Result<(), JournalError> {
        self.check_trial(number)?;
        self.record(facts.into_iter().map(|fact| Fact::Trial { number, fact }).collect())
    }

    fn check_trial(&self, number: u64) -> Result<(), JournalError> {
        let trials = self.trials().len() as u64;
        if number < trials { Ok(()) } else { Err(JournalError::UnknownTrial { number, trials }) }
    }
}

/// The present time with the journal's precision, so that a record equals the record that is read back.
fn now() -> DateTime<Utc> {
    Utc::now().trunc_subsecs(6)
}
