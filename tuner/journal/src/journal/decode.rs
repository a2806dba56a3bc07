//! Decodes a line of the journal, of this program or of Optuna, into a fact. Fails on a line that it does not understand.

use super::fact::{Fact, NewTrial, Refusal, TrialFact};
use super::format::{self, TrialState, direction_code};
use super::line::{Line, Text};
use super::state::Times;
use chrono::{DateTime, Local, NaiveDateTime, Utc};
use ferrotune_space::given::Values;
use ferrotune_space::objective::Direction;
use ferrotune_space::record::Runner;
use ferrotune_space::{Distribution, Parameter, Value as Setting};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

/// A decoder of lines that caches distributions: a journal has few different ones, each in thousands of lines.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    /// The distributions, by Optuna's text of each.
    distributions: HashMap<String, Distribution>,
}

impl Decoder {
    pub(super) fn decode<'a>(&mut self, line: &'a Line<'_>) -> Result<Fact<'a>, Refusal> {
        match number(line.op_code, "op_code")? {
            format::CREATE_STUDY => create_study(line),
            format::STUDY_USER_ATTRIBUTE => study_attribute(line),
            format::STUDY_SYSTEM_ATTRIBUTE | format::TRIAL_SYSTEM_ATTRIBUTE => Ok(Fact::Ignored),
            format::CREATE_TRIAL => self.create_trial(line),
            format::TRIAL_PARAMETER => self.parameter(line),
            format::TRIAL_STATE => state(line),
            format::TRIAL_INTERMEDIATE => {
                let step = number(line.step, "step")?;
                let value = line.intermediate_value.as_ref().and_then(Value::as_f64);
                of_trial(line, TrialFact::Intermediate { step, value })
            }
            format::TRIAL_USER_ATTRIBUTE => trial_attribute(line),
            other => Err(Refusal::Damaged(format!("op code {other} is unknown here"))),
        }
    }

    fn create_trial<'a>(&mut self, line: &'a Line<'_>) -> Result<Fact<'a>, Refusal> {
        let mut parameters = BTreeMap::new();
        for (name, internal) in line.params.iter().flatten() {
            let distribution = line.distributions.as_ref().and_then(|distributions| distributions.get(name));
            let distribution = distribution.ok_or_else(|| format!("its parameter {name} has no distribution"))?;
            let parameter = self.known_parameter(name, internal, (distribution, line.writer()))?;
            parameters.extend(parameter.map(|parameter| (name.clone(), parameter)));
        }
        let step = |(step, value): (&String, &Value)| Ok::<_, String>((step_of(step)?, value.as_f64()));
        let intermediate = line.intermediate_values.iter().flatten().map(step).collect::<Result<_, _>>()?;
        let preset = line.system_attrs.as_ref().and_then(|known| known.get(format::PRESET));
        let preset = preset.map(preset_of).unwrap_or_default();
        let value = line.value.as_ref().and_then(Value::as_f64);
        Ok(Fact::TrialCreated(NewTrial {
            times: times(line),
            state: line.state.map(state_of).transpose()?,
            preset,
            parameters,
            intermediate,
            values: value.map_or_else(|| values(line), |value| vec![value]),
        }))
    }

    fn parameter<'a>(&mut self, line: &'a Line<'_>) -> Result<Fact<'a>, Refusal> {
        let (name, stored) = (text(&line.param_name, "param_name")?, text(&line.distribution, "distribution")?);
        let internal = line.param_value_internal.as_ref().unwrap_or(&Value::Null);
        let Some(mut parameter) = self.known_parameter(name, internal, (stored, line.writer()))? else {
            return Ok(Fact::Ignored);
        };
        if let Some(range) = &line.range {
            parameter.distribution = range.clone();
        }
        of_trial(line, TrialFact::Parameter { name: Cow::Borrowed(name), parameter })
    }

    /// The decoded parameter; none if another program's parameter has a range that no search here supports, such as choices
    /// with `None`.
    pub(super) fn known_parameter(
        &mut self,
        name: &str,
        internal: &Value,
        (stored, writer): (&str, Runner),
    ) -> Result<Option<Parameter>, Refusal> {
        let distribution = match self.distribution(stored) {
            Err(_) if writer == Runner::Other => return Ok(None),
            known => known?,
        };
        let whole = internal.as_i64().filter(|_| matches!(distribution, Distribution::Int { .. }));
        let value = whole.map(Setting::Int).or_else(|| distribution.from_internal(internal.as_f64()?));
        let value = value.ok_or_else(|| format!("its parameter {name} has no value"))?;
        Ok(Some(Parameter { distribution, value }))
    }

    fn distribution(&mut self, stored: &str) -> Result<Distribution, Refusal> {
        if let Some(known) = self.distributions.get(stored) {
            return Ok(known.clone());
        }
        let distribution = Distribution::from_optuna(stored).map_err(|error| error.to_string())?;
        self.distributions.insert(stored.to_owned(), distribution.clone());
        Ok(distribution)
    }
}

fn create_study<'a>(line: &'a Line<'_>) -> Result<Fact<'a>, Refusal> {
    let name = text(&line.study_name, "study_name")?;
    let known = [Direction::Min, Direction::Max];
    let direction = |code: &Value| known.into_iter().find(|known| code.as_u64() == Some(direction_code(*known)));
    let codes = line.directions.iter().flatten();
    let directions: Option<Vec<Direction>> = codes.map(direction).collect();
    let directions = directions.filter(|directions| !directions.is_empty());
    let directions = directions.ok_or_else(|| "its study has no directions, min or max".to_owned())?;
    Ok(Fact::StudyCreated { name: Cow::Borrowed(name), directions })
}

fn study_attribute<'a>(line: &'a Line<'_>) -> Result<Fact<'a>, Refusal> {
    let (name, value) = attribute(line)?;
    study_attribute_fact(name, value)
}

/// The fact of a study's attribute.
pub(super) fn study_attribute_fact<'a>(name: &'a str, value: &Value) -> Result<Fact<'a>, Refusal> {
    Ok(match name {
        format::VERSION => Fact::Version(value.as_u64().ok_or_else(|| "its version is no number".to_owned())?),
        format::SPEC => Fact::Spec(decoded(value)?),
        _ => {
            if let Some(parameter) = name.strip_prefix(format::PLACE) {
                Fact::Place { parameter: Cow::Borrowed(parameter), place: decoded(value)? }
            } else if let Some(parameter) = name.strip_prefix(format::DEFAULT) {
                Fact::Default { parameter: Cow::Borrowed(parameter), default: decoded(value)? }
            } else {
                Fact::Ignored
            }
        }
    })
}

fn state<'a>(line: &'a Line<'_>) -> Result<Fact<'a>, Refusal> {
    let state = state_of(number(line.state, "state")?)?;
    of_trial(line, TrialFact::State { state, values: values(line), times: times(line) })
}

fn state_of(code: u64) -> Result<TrialState, Refusal> {
    TrialState::of_code(code).ok_or_else(|| Refusal::Damaged(format!("state {code} is unknown here")))
}

fn trial_attribute<'a>(line: &'a Line<'_>) -> Result<Fact<'a>, Refusal> {
    let (name, value) = attribute(line)?;
    attribute_fact(name, value)?.map_or(Ok(Fact::Ignored), |fact| of_trial(line, fact))
}

/// The fact of a trial's attribute; none for an unknown attribute of ours.
pub(super) fn attribute_fact(name: &str, value: &Value) -> Result<Option<TrialFact<'static>>, Refusal> {
    Ok(Some(match name {
        format::EPOCHS => TrialFact::Epochs(decoded(value)?),
        format::CHECKPOINT => TrialFact::Checkpoint(decoded(value)?),
        format::INHERITANCE => TrialFact::Inherited(decoded(value)?),
        format::EXECUTED => TrialFact::Executed(decoded(value)?),
        format::EXECUTIONS => TrialFact::Executions(decoded(value)?),
        format::ENDING => TrialFact::Ending(decoded(value)?),
        format::PAUSED_AT => TrialFact::PausedAt(decoded(value)?),
        format::PEAK_BYTES => TrialFact::PeakBytes(decoded(value)?),
        format::SECONDS => TrialFact::Seconds(decoded(value)?),
        format::UNENDED_WORKERS => TrialFact::UnendedWorkers(decoded(value)?),
        format::RETRIED => TrialFact::Retried(decoded(value)?),
        format::MEMORY => TrialFact::Memory(decoded(value)?),
        format::DEVICE => TrialFact::Device(decoded(value)?),
        _ => {
            if let Some(step) = name.strip_prefix(format::METRICS) {
                TrialFact::Metrics { step: step_of(step)?, metrics: decoded(value)? }
            } else if let Some(step) = name.strip_prefix(format::INTERMEDIATE) {
                TrialFact::Intermediate { step: step_of(step)?, value: decoded(value)? }
            } else {
                // An attribute of ours that a later version writes is ignored.
                let is_ours = name.starts_with(format::OURS);
                let attribute = || TrialFact::UserAttribute { name: Cow::Owned(name.to_owned()), value: value.clone() };
                return Ok((!is_ours).then(attribute));
            }
        }
    }))
}

fn step_of(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("its step {text} is no number"))
}

/// The values of an enqueued trial. A value of a type that no parameter of ours has is left to the oracle.
pub(super) fn preset_of(value: &Value) -> Values {
    let preset = value.as_object().into_iter().flatten();
    preset.filter_map(|(name, value)| Some((name.clone(), plain(value)?))).collect()
}

fn of_trial<'a>(line: &Line<'_>, fact: TrialFact<'a>) -> Result<Fact<'a>, Refusal> {
    Ok(Fact::Trial { number: number(line.trial_id, "trial_id")?, fact })
}

/// The times at which a trial began and ended, if the line has them. Optuna may write a local time without a zone.
fn times(line: &Line<'_>) -> Times {
    let time = |text: &Option<Text<'_>>| {
        let text = text.as_ref()?.0.as_ref();
        let zoned = DateTime::parse_from_rfc3339(text).map(|time| time.with_timezone(&Utc));
        let local = || text.parse::<NaiveDateTime>().ok()?.and_local_timezone(Local).earliest();
        zoned.ok().or_else(|| local().map(|time| time.with_timezone(&Utc)))
    };
    Times { started: time(&line.datetime_start), ended: time(&line.datetime_complete) }
}

fn number(number: Option<u64>, key: &str) -> Result<u64, Refusal> {
    number.ok_or_else(|| Refusal::Damaged(format!("it has no number `{key}`")))
}

/// A parameter's value that Optuna stores without conversion.
fn plain(value: &Value) -> Option<Setting> {
    match value {
        Value::Bool(value) => Some(Setting::Bool(*value)),
        Value::Number(number) => number.as_i64().map(Setting::Int).or_else(|| number.as_f64().map(Setting::Float)),
        Value::String(text) => Some(Setting::Text(text.clone())),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// A trial's values; empty if one of them is not a number.
fn values(line: &Line<'_>) -> Vec<f64> {
    let values: Option<Vec<f64>> = line.values.iter().flatten().map(Value::as_f64).collect();
    values.unwrap_or_default()
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
