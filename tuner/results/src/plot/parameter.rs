//! A parameter as an axis: numbers on their scale, choices as names.

use super::{MOST_PARAMETERS, importances};
use crate::ResultsError;
use crate::chart::{Axis, Scale};
use crate::columns::numeric;
use crate::values::parameter_names;
use ferrotune_journal::Study;
use ferrotune_space::record::TrialRecord;
use ferrotune_space::{Distribution, Value};

/// The axis of a parameter.
pub(super) struct ParameterAxis {
    pub(super) name: String,
    pub(super) axis: Axis,
    /// The values with names on the axis; empty if the axis has numbers.
    choices: Vec<Value>,
}

impl ParameterAxis {
    /// The axis that contains the values of all these trials.
    pub(super) fn of(name: &str, trials: &[(&TrialRecord, f64)]) -> ParameterAxis {
        let parameters = trials.iter().filter_map(|(trial, _)| trial.parameters.get(name));
        ParameterAxis::over(name, parameters.map(|known| (&known.distribution, &known.value)).collect())
    }

    /// The axis that contains these values, each with the range that it comes from.
    pub(super) fn over(name: &str, values: Vec<(&Distribution, &Value)>) -> ParameterAxis {
        let numbers: Option<Vec<f64>> = values.iter().map(|(_, value)| numeric(value)).collect();
        let mut choices: Vec<Value> = Vec::new();
        let scale = match numbers {
            Some(numbers) => {
                let is_log = |distribution: &Distribution| match distribution {
                    Distribution::Int { scale, .. } | Distribution::Float { scale, .. } => {
                        *scale == ferrotune_space::Scale::Log
                    }
                    Distribution::Choice { .. } => false,
                };
                let log = values.iter().any(|(distribution, _)| is_log(distribution));
                let whole = values.iter().all(|(_, value)| matches!(value, Value::Int(_)));
                match (log, whole) {
                    (true, _) => Scale::around_log(numbers),
                    (false, true) => Scale::around_whole(numbers),
                    (false, false) => Scale::around(numbers),
                }
            }
            None => {
                for (distribution, value) in &values {
                    let listed = match distribution {
                        Distribution::Choice { values, .. } => values.as_slice(),
                        _ => &[],
                    };
                    for value in listed.iter().chain([*value]) {
                        if !choices.contains(value) {
                            choices.push(value.clone());
                        }
                    }
                }
                Scale::Names(choices.iter().map(ToString::to_string).collect())
            }
        };
        ParameterAxis { name: name.to_owned(), axis: Axis::new(name, scale), choices }
    }

    /// Whether the axis has names in place of numbers.
    pub(super) fn has_names(&self) -> bool {
        !self.choices.is_empty()
    }

    /// The position of a trial on the axis; `None` if the trial did not ask for the parameter.
    pub(super) fn coordinate(&self, trial: &TrialRecord) -> Option<f64> {
        self.position(&trial.parameters.get(&self.name)?.value)
    }

    /// The position of a value on the axis; `None` for a value of another kind than those of the axis.
    pub(super) fn position(&self, value: &Value) -> Option<f64> {
        let position = || self.choices.iter().position(|choice| choice == value).map(|index| index as f64);
        if self.has_names() { position() } else { numeric(value) }
    }
}

/// The parameters to show: the named ones, or else the most important ones. Fails if a name is unknown, or if there are
/// fewer than `fewest`.
pub(super) fn chosen(
    study: &Study,
    objective: usize,
    named: Option<&str>,
    (fewest, most): (usize, usize),
) -> Result<Vec<String>, ResultsError> {
    let known = parameter_names(&study.trials);
    let project = || study.spec.project.clone();
    let names: Vec<String> = match named {
        Some(named) => named.split(',').map(|name| name.trim().to_owned()).collect(),
        None => importances(study, objective).into_iter().map(|one| one.name).take(most.min(MOST_PARAMETERS)).collect(),
    };
    if let Some(name) = names.iter().find(|name| !known.contains(name.as_str())) {
        let parameters = known.into_iter().collect::<Vec<_>>().join(", ");
        return Err(ResultsError::UnknownParameter { study: project(), name: name.clone(), parameters });
    }
    if names.len() < fewest {
        let need = if fewest > 1 { "two parameters" } else { "a parameter" };
        return Err(ResultsError::TooLittle { study: project(), need });
    }
    Ok(names)
}
