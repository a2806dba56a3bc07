//! Reads a journal back into records. Accepts lines of Optuna's own; stops at what it does not understand.

use super::facts::{self, Checkpoint};
use super::line::{self, Line, Text};
use super::{JournalError, Times, VERSION};
use crate::record::{Ending, Parameter, Runner, TrialRecord};
use crate::space::{Distribution, Value as Setting};
use crate::spec::{Direction, Objective, StudySpec};
use chrono::{DateTime, Local, NaiveDateTime, Utc};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::iter::repeat;
use std::path::Path;

/// What a journal says, up to its last whole line.
#[derive(Debug, Default)]
pub(super) struct Replay {
    /// Whether the study's first line is there.
    pub(super) created: bool,
    name: String,
    directions: Vec<Direction>,
    pub(super) version: Option<u64>,
    pub(super) spec: Option<StudySpec>,
    pub(super) trials: Vec<TrialRecord>,
    /// Where each parameter was asked for last.
    pub(super) places: BTreeMap<String, String>,
    /// The defaults of parameters, as they were given last.
    pub(super) defaults: BTreeMap<String, Setting>,
    /// By number, as the trials.
    pub(super) times: Vec<Times>,
    /// Distributions, by Optuna's text of them.
    distributions: HashMap<String, Distribution>,
    /// Endings told, by trial, whose state line has not come.
    endings: BTreeMap<u64, Ending>,
    /// Values of the executions of trials whose state line has not come.
    executions: BTreeMap<u64, Vec<Vec<f64>>>,
    /// Objective's values that came before the study's spec, which names the metric. Optuna writes such journals.
    unnamed: Vec<(u64, u64, Option<f64>)>,
    /// Bytes of whole lines.
    pub(super) length: u64,
}

/// What the last line of a file can be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// A line that a crash has cut short or damaged.
    MayBeTorn,
    IsWhole,
}

/// Why a line cannot be taken.
enum Refusal {
    Newer(u64),
    Damaged(String),
}

impl From<String> for Refusal {
    fn from(reason: String) -> Refusal {
        Refusal::Damaged(reason)
    }
}

impl Replay {
    /// Reads the journal at `path`. A last line that has no end, or is damaged, was torn by a crash: it does not
    /// count. Fails on a damaged line before that.
    pub(super) fn of(path: &Path, study: &str) -> Result<Replay, JournalError> {
        let failed = |source| JournalError::Io { path: path.to_owned(), source };
        let mut replay = Replay::default();
        replay.read(
            &mut BufReader::with_capacity(1 << 20, File::open(path).map_err(failed)?),
            path,
            study,
            End::MayBeTorn,
        )?;
        Ok(replay)
    }

    /// Applies the next lines of the journal at `path`, all of which are whole. Their numbers count from the first of them.
    pub(super) fn go_on(&mut self, mut lines: &[u8], path: &Path, study: &str) -> Result<(), JournalError> {
        self.read(&mut lines, path, study, End::IsWhole)
    }

    /// What is wrong with the journal at `path`, its last line included; none where nothing is.
    pub(super) fn damage(path: &Path, study: &str) -> Option<JournalError> {
        let bytes = std::fs::read(path).map_err(|source| JournalError::Io { path: path.to_owned(), source });
        bytes.and_then(|bytes| Replay::default().go_on(&bytes, path, study)).err()
    }

    fn read(&mut self, lines: &mut impl BufRead, path: &Path, study: &str, end: End) -> Result<(), JournalError> {
        let failed = |source| JournalError::Io { path: path.to_owned(), source };
        let (mut bytes, mut number) = (Vec::new(), 0);
        loop {
            bytes.clear();
            lines.read_until(b'\n', &mut bytes).map_err(failed)?;
            let Some((b'\n', text)) = bytes.split_last() else { break };
            number += 1;
            let corrupt = |reason| JournalError::Corrupt { path: path.to_owned(), line: number, reason };
            let plain;
            let object = match line::decode(text) {
                Ok(object) => Ok(object),
                Err(reason) => match line::with_nulls(text) {
                    Some(line) => {
                        plain = line;
                        line::decode(&plain)
                    }
                    None => Err(reason),
                },
            };
            let object = match object {
                Ok(object) => object,
                Err(reason) => match end == End::MayBeTorn && lines.fill_buf().map_err(failed)?.is_empty() {
                    true => break,
                    false => return Err(corrupt(reason)),
                },
            };
            self.apply(&object).map_err(|refusal| match refusal {
                Refusal::Newer(found) => JournalError::NewerVersion { study: study.to_owned(), found },
                Refusal::Damaged(reason) => corrupt(reason),
            })?;
            self.length += bytes.len() as u64;
        }
        self.name_values();
        Ok(())
    }

    /// The study's objectives as text, if they are not those `wanted`. A study that Optuna began has no names for them.
    pub(super) fn other_objectives(&self, wanted: &[Objective]) -> Option<String> {
        let unnamed = || {
            let named =
                self.directions.iter().zip(wanted.iter().map(|objective| objective.metric.as_str()).chain(repeat("…")));
            named.map(|(direction, name)| Objective::new(name, *direction)).collect()
        };
        let known: Vec<Objective> = match &self.spec {
            Some(spec) if spec.objectives == wanted => return None,
            Some(spec) => spec.objectives.clone(),
            None if !self.created => return None,
            None if self.directions.iter().eq(wanted.iter().map(|objective| &objective.direction)) => return None,
            None => unnamed(),
        };
        Some(super::objectives_text(&known))
    }

    fn apply(&mut self, line: &Line<'_>) -> Result<(), Refusal> {
        match number(line.op_code, "op_code")? {
            facts::CREATE_STUDY => self.create_study(line),
            facts::STUDY_USER_ATTRIBUTE => self.study_attribute(line),
            facts::STUDY_SYSTEM_ATTRIBUTE | facts::TRIAL_SYSTEM_ATTRIBUTE => Ok(()),
            facts::CREATE_TRIAL => self.create_trial(line),
            facts::TRIAL_PARAMETER | facts::TRIAL_STATE | facts::TRIAL_INTERMEDIATE | facts::TRIAL_USER_ATTRIBUTE
                if self.is_of_lost_trial(line) =>
            {
                Ok(())
            }
            facts::TRIAL_PARAMETER => self.parameter(line),
            facts::TRIAL_STATE => self.state(line),
            facts::TRIAL_INTERMEDIATE => self.intermediate(line),
            facts::TRIAL_USER_ATTRIBUTE => self.trial_attribute(line),
            other => Err(Refusal::Damaged(format!("op code {other} is unknown here"))),
        }
    }

    /// Whether another program writes of a trial that the journal does not have: its trial was in the study that
    /// `overwrite` has deleted. Optuna, too, takes no notice of such a line.
    fn is_of_lost_trial(&self, line: &Line<'_>) -> bool {
        let is_unknown = line.trial_id.is_some_and(|trial| trial >= self.trials.len() as u64);
        is_unknown && line.writer() == Runner::Other
    }

    fn create_study(&mut self, line: &Line<'_>) -> Result<(), Refusal> {
        let name = text(&line.study_name, "study_name")?;
        if self.created && self.name != name {
            return Err(Refusal::Damaged(format!("it begins a second study, {name}")));
        }
        let known = [Direction::Min, Direction::Max];
        let direction =
            |code: &Value| known.into_iter().find(|known| code.as_u64() == Some(facts::direction_code(*known)));
        let directions = line.directions.as_ref().map(|codes| codes.iter().map(direction).collect());
        let directions: Option<Option<Vec<Direction>>> = directions;
        let directions = directions.flatten().filter(|directions| !directions.is_empty());
        self.directions = directions.ok_or_else(|| "its study has no directions, min or max".to_owned())?;
        self.created = true;
        self.name = name.to_owned();
        Ok(())
    }

    fn study_attribute(&mut self, line: &Line<'_>) -> Result<(), Refusal> {
        let (name, value) = attribute(line)?;
        match name {
            facts::VERSION => {
                let version = value.as_u64().ok_or_else(|| "its version is no number".to_owned())?;
                if version > VERSION {
                    return Err(Refusal::Newer(version));
                }
                self.version = Some(version);
            }
            facts::SPEC => self.spec = Some(decoded(value)?),
            _ => {
                if let Some(parameter) = name.strip_prefix(facts::PLACE) {
                    self.places.insert(parameter.to_owned(), decoded(value)?);
                } else if let Some(parameter) = name.strip_prefix(facts::DEFAULT) {
                    self.defaults.insert(parameter.to_owned(), decoded(value)?);
                }
            }
        }
        Ok(())
    }

    fn create_trial(&mut self, line: &Line<'_>) -> Result<(), Refusal> {
        let trial_number = self.trials.len() as u64;
        let runner = if line.state == Some(facts::WAITING) { Runner::Nobody } else { line.writer() };
        self.trials.push(TrialRecord { runner, ..TrialRecord::new(trial_number) });
        self.note_times(trial_number, line);
        // Optuna's `add_trial` writes a whole trial in one line.
        for (name, internal) in line.params.iter().flatten() {
            let distribution = line.distributions.as_ref().and_then(|distributions| distributions.get(name));
            let distribution = distribution.ok_or_else(|| format!("its parameter {name} has no distribution"))?;
            self.set_parameter(trial_number, name, internal, (distribution, line.writer()))?;
        }
        for (step, value) in line.intermediate_values.iter().flatten() {
            let step = step.parse().map_err(|_| format!("its step {step} is no number"))?;
            self.unnamed.push((trial_number, step, value.as_f64()));
        }
        if let Some(Value::Object(preset)) = line.system_attrs.as_ref().and_then(|known| known.get(facts::PRESET)) {
            // A value of a type that no parameter of ours has is left to the oracle.
            let values = preset.iter().filter_map(|(name, value)| Some((name.clone(), plain(value)?)));
            self.trial(trial_number)?.preset = values.collect();
        }
        match line.state {
            Some(state) => {
                let value = line.value.as_ref().and_then(Value::as_f64);
                self.set_state(trial_number, state, value.map_or_else(|| values(line), |value| vec![value]))
            }
            None => Ok(()),
        }
    }

    fn parameter(&mut self, line: &Line<'_>) -> Result<(), Refusal> {
        let trial = number(line.trial_id, "trial_id")?;
        let (name, stored) = (text(&line.param_name, "param_name")?, text(&line.distribution, "distribution")?);
        if self.trial(trial)?.ending.is_some() {
            return Ok(());
        }
        let internal = line.param_value_internal.as_ref().unwrap_or(&Value::Null);
        self.set_parameter(trial, name, internal, (stored, line.writer()))?;
        if let (Some(range), Some(parameter)) = (&line.range, self.trial(trial)?.parameters.get_mut(name)) {
            parameter.distribution = range.clone();
        }
        Ok(())
    }

    /// Leaves out a parameter of another program's that has a range which no search here has, as choices with `None`.
    fn set_parameter(
        &mut self,
        trial: u64,
        name: &str,
        internal: &Value,
        (stored, writer): (&str, Runner),
    ) -> Result<(), Refusal> {
        let distribution = match self.distribution(stored) {
            Err(_) if writer == Runner::Other => return Ok(()),
            known => known?,
        };
        let whole = internal.as_i64().filter(|_| matches!(distribution, Distribution::Int { .. }));
        let value = whole.map(Setting::Int).or_else(|| distribution.from_internal(internal.as_f64()?));
        let value = value.ok_or_else(|| format!("its parameter {name} has no value"))?;
        self.trial(trial)?.parameters.insert(name.to_owned(), Parameter { distribution, value });
        Ok(())
    }

    /// A distribution of which a journal has a few, each in thousands of lines.
    fn distribution(&mut self, stored: &str) -> Result<Distribution, Refusal> {
        if let Some(known) = self.distributions.get(stored) {
            return Ok(known.clone());
        }
        let distribution = Distribution::from_optuna(stored).map_err(|error| error.to_string())?;
        self.distributions.insert(stored.to_owned(), distribution.clone());
        Ok(distribution)
    }

    /// As in Optuna nothing of this kind counts after a trial's end, and only the first program that begins a trial has it.
    fn state(&mut self, line: &Line<'_>) -> Result<(), Refusal> {
        let (trial, state) = (number(line.trial_id, "trial_id")?, number(line.state, "state")?);
        let record = self.trial(trial)?;
        if record.ending.is_some() || state == facts::RUNNING && record.runner != Runner::Nobody {
            return Ok(());
        }
        if record.runner == Runner::Nobody && state != facts::WAITING {
            record.runner = line.writer();
        }
        self.set_state(trial, state, values(line))?;
        self.note_times(trial, line);
        Ok(())
    }

    /// Takes down when a trial that exists began and ended.
    fn note_times(&mut self, trial: u64, line: &Line<'_>) {
        let index = trial as usize;
        self.times.resize(self.times.len().max(index + 1), Times::default());
        self.times[index] = self.times[index].told_by(line);
    }

    fn set_state(&mut self, trial: u64, state: u64, values: Vec<f64>) -> Result<(), Refusal> {
        let told = self.endings.remove(&trial);
        let executions = self.executions.remove(&trial);
        let record = self.trial(trial)?;
        let ending = match state {
            facts::COMPLETE => Some(Ending::Finished),
            facts::PRUNED => Some(Ending::Pruned),
            facts::FAIL => Some(Ending::Failed { reason: "failed under Optuna, which keeps no reason".to_owned() }),
            _ => None,
        };
        record.ending = ending.map(|ending| told.unwrap_or(ending));
        record.values = values;
        if let Some(executions) = executions.filter(|_| record.ending.is_some()) {
            record.executions = executions;
        }
        Ok(())
    }

    fn intermediate(&mut self, line: &Line<'_>) -> Result<(), Refusal> {
        let (trial, step) = (number(line.trial_id, "trial_id")?, number(line.step, "step")?);
        let value = line.intermediate_value.as_ref().and_then(Value::as_f64);
        let metric = self.spec.as_ref().map(|spec| spec.objective().metric.clone());
        let record = self.trial(trial)?;
        if record.ending.is_some() {
            return Ok(());
        }
        match metric {
            Some(metric) => {
                record.metrics.entry(step).or_default().insert(metric, value);
            }
            None => self.unnamed.push((trial, step, value)),
        }
        Ok(())
    }

    fn trial_attribute(&mut self, line: &Line<'_>) -> Result<(), Refusal> {
        let trial = number(line.trial_id, "trial_id")?;
        let (name, value) = attribute(line)?;
        if name == facts::ENDING {
            self.endings.insert(trial, decoded(value)?);
            return Ok(());
        }
        // Written with the end, which may be torn: until that is there the last execution is still to come.
        if name == facts::EXECUTIONS {
            self.executions.insert(trial, decoded(value)?);
            return Ok(());
        }
        let record = self.trial(trial)?;
        match name {
            facts::EPOCHS => record.epochs = decoded(value)?,
            facts::CHECKPOINT => {
                record.checkpoint = decoded::<Option<Checkpoint>>(value)?.map(|checkpoint| checkpoint.file);
                record.unended_workers = record.unended_workers.min(1);
            }
            facts::INHERITANCE => {
                let inheritance: facts::Inheritance = decoded(value)?;
                (record.parent, record.checkpoint) = (Some(inheritance.parent), inheritance.file);
            }
            facts::EXECUTED => {
                record.executions.push(decoded(value)?);
                record.metrics.clear();
                record.checkpoint = None;
            }
            facts::RETRIED => record.retried = decoded(value)?,
            facts::UNENDED_WORKERS => record.unended_workers = decoded(value)?,
            facts::MEMORY => record.memory = Some(decoded(value)?),
            facts::PAUSED_AT => record.paused_at = decoded(value)?,
            facts::PEAK_BYTES => record.peak_bytes = decoded(value)?,
            facts::SECONDS => record.seconds = decoded(value)?,
            _ => {
                if let Some(step) = name.strip_prefix(facts::METRICS) {
                    let step = step.parse().map_err(|_| format!("its step {step} is no number"))?;
                    let metrics: BTreeMap<String, Option<f64>> = decoded(value)?;
                    record.metrics.entry(step).or_default().extend(metrics);
                }
            }
        }
        Ok(())
    }

    fn trial(&mut self, number: u64) -> Result<&mut TrialRecord, Refusal> {
        let record = usize::try_from(number).ok().and_then(|index| self.trials.get_mut(index));
        record.ok_or_else(|| Refusal::Damaged(format!("it speaks of trial {number}, which was never created")))
    }

    /// Gives the values that Optuna wrote without a metric's name that of the objective.
    pub(super) fn name_values(&mut self) {
        let Some(spec) = &self.spec else { return };
        for (trial, step, value) in std::mem::take(&mut self.unnamed) {
            // Only trials that exist were noted.
            let metrics = &mut self.trials[trial as usize].metrics;
            metrics.entry(step).or_default().entry(spec.objective().metric.clone()).or_insert(value);
        }
    }
}

impl Times {
    /// With what a line says of them. Optuna may give the time of day without a zone.
    fn told_by(self, line: &Line<'_>) -> Times {
        let time = |text: &Option<Text<'_>>| {
            let text = text.as_ref()?.0.as_ref();
            let zoned = DateTime::parse_from_rfc3339(text).map(|time| time.with_timezone(&Utc));
            let local = || text.parse::<NaiveDateTime>().ok()?.and_local_timezone(Local).earliest();
            zoned.ok().or_else(|| local().map(|time| time.with_timezone(&Utc)))
        };
        Times {
            started: time(&line.datetime_start).or(self.started),
            ended: time(&line.datetime_complete).or(self.ended),
        }
    }
}

fn number(number: Option<u64>, key: &str) -> Result<u64, Refusal> {
    number.ok_or_else(|| Refusal::Damaged(format!("it has no number `{key}`")))
}

/// A value that Optuna keeps as it is.
fn plain(value: &Value) -> Option<Setting> {
    match value {
        Value::Bool(value) => Some(Setting::Bool(*value)),
        Value::Number(number) => number.as_i64().map(Setting::Int).or_else(|| number.as_f64().map(Setting::Float)),
        Value::String(text) => Some(Setting::Text(text.clone())),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// A trial's values; none where one of them is no number.
fn values(line: &Line<'_>) -> Vec<f64> {
    let values = line.values.as_ref().map(|values| values.iter().map(Value::as_f64).collect());
    let values: Option<Option<Vec<f64>>> = values;
    values.flatten().unwrap_or_default()
}

fn text<'a>(text: &'a Option<Text<'_>>, key: &str) -> Result<&'a str, Refusal> {
    text.as_ref().map(|text| text.0.as_ref()).ok_or_else(|| Refusal::Damaged(format!("it has no text `{key}`")))
}

fn attribute<'a>(line: &'a Line<'_>) -> Result<(&'a str, &'a Value), Refusal> {
    let pair = line.user_attr.as_ref().map(|attribute| (attribute.name.0.as_ref(), &attribute.value));
    pair.ok_or_else(|| Refusal::Damaged("it has no attribute".to_owned()))
}

fn decoded<T: DeserializeOwned>(value: &Value) -> Result<T, Refusal> {
    T::deserialize(value).map_err(|error| Refusal::Damaged(error.to_string()))
}
