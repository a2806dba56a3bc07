//! The common part of a request for any kind of parameter: its name, its position in the source and its condition.

use super::super::Trial;
use crate::connection::unexpected;
use crate::error::TrialError;
use crate::place::place;
use ferrotune_space::wire::{Reply, Request};
use ferrotune_space::{Distribution, Value};
use std::fmt::Display;
use std::panic::Location;

/// A parameter without its range.
#[derive(Clone, Debug)]
pub(super) struct Question<'a> {
    trial: &'a Trial,
    name: String,
    /// The position of the request in the source.
    location: &'static Location<'static>,
    /// The parents, each with a value that it must have.
    conditions: Vec<(String, Value)>,
}

/// A parameter that an objective has asked for.
#[derive(Debug)]
pub(in crate::trial) struct Asked {
    distribution: Distribution,
    /// The value, or `None` if the parameter's condition is false.
    value: Option<Value>,
}

impl<'a> Question<'a> {
    /// A request whose position in the source is that of the caller.
    #[track_caller]
    pub(super) fn here(trial: &'a Trial, name: &str) -> Question<'a> {
        Question { trial, name: name.to_owned(), location: Location::caller(), conditions: Vec::new() }
    }

    pub(super) fn when(&mut self, parent: &str, value: Value) {
        self.conditions.push((parent.to_owned(), value));
    }

    /// The value in this trial: from the supervisor, or the default if a condition is false.
    pub(super) fn ask(&self, distribution: &Distribution, default: Option<Value>) -> Result<Value, TrialError> {
        let is_wanted = self.is_wanted()?;
        let value = if is_wanted { self.suggested(distribution, default)? } else { self.idle(distribution, default)? };
        let asked = Asked { distribution: distribution.clone(), value: is_wanted.then(|| value.clone()) };
        self.trial.asked.borrow_mut().insert(self.name.clone(), asked);
        Ok(value)
    }

    /// A whole number in this trial.
    pub(super) fn whole(&self, distribution: &Distribution, default: Option<i64>) -> Result<i64, TrialError> {
        match self.ask(distribution, default.map(Value::Int))? {
            Value::Int(value) => Ok(value),
            value => Err(self.mismatch(&value)),
        }
    }

    /// A real number in this trial.
    pub(super) fn real(&self, distribution: &Distribution, default: Option<f64>) -> Result<f64, TrialError> {
        match self.ask(distribution, default.map(Value::Float))? {
            Value::Float(value) => Ok(value),
            value => Err(self.mismatch(&value)),
        }
    }

    /// The error of a value that is not of the parameter's type.
    pub(super) fn mismatch(&self, value: &dyn Display) -> TrialError {
        TrialError::Value { name: self.name.clone(), value: value.to_string() }
    }

    /// The error of a whole number beyond `i64`, which a study cannot record.
    pub(super) fn too_large(&self, value: &dyn Display) -> TrialError {
        TrialError::TooLarge { name: self.name.clone(), value: value.to_string() }
    }

    fn suggested(&self, distribution: &Distribution, default: Option<Value>) -> Result<Value, TrialError> {
        self.check(distribution, default.as_ref())?;
        let (name, place) = (self.name.clone(), place(self.location));
        match self.trial.ask(&Request::Suggest { name, distribution: distribution.clone(), default, place })? {
            Reply::Value { value } => Ok(value),
            reply => Err(unexpected(&reply)),
        }
    }

    /// The value of a parameter whose condition is false.
    fn idle(&self, distribution: &Distribution, default: Option<Value>) -> Result<Value, TrialError> {
        self.check(distribution, default.as_ref())?;
        Ok(default.unwrap_or_else(|| distribution.first()))
    }

    /// Checks for numbers that JSON cannot carry in a request, and for the needs of a parameter whose condition is false.
    fn check(&self, distribution: &Distribution, default: Option<&Value>) -> Result<(), TrialError> {
        let refused = |reason: String| TrialError::Refused { reason };
        distribution.validate(&self.name).map_err(|error| refused(error.to_string()))?;
        match default {
            Some(Value::Float(default)) if !default.is_finite() => {
                Err(refused(format!("the default {default} of `{}` is not {distribution}", self.name)))
            }
            _ => Ok(()),
        }
    }

    /// Whether every parent has one of its named values.
    fn is_wanted(&self) -> Result<bool, TrialError> {
        let asked = self.trial.asked.borrow();
        for (parent, value) in &self.conditions {
            let (name, parent) = (self.name.clone(), parent.clone());
            let known = match asked.get(&parent) {
                Some(known) if known.distribution.contains(value) => known,
                Some(known) => {
                    let (value, distribution) = (value.to_string(), known.distribution.to_string());
                    return Err(TrialError::Condition { name, parent, value, distribution });
                }
                None => return Err(TrialError::Parent { name, parent }),
            };
            let mut wanted = self.conditions.iter().filter(|(other, _)| *other == parent).map(|(_, value)| value);
            // A wanted value that is a sum of decimals means the nearest lattice point.
            let is_known = |wanted: &Value| known.distribution.clamp_to_lattice(wanted) == known.value;
            if known.value.is_none() || !wanted.any(is_known) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
