//! The addition of a trial that was run elsewhere: the trial is checked and recorded as finished, and no objective is
//! called.

use super::{Search, SearchError};
use ferrotune_journal::{End, Usage};
use ferrotune_space::Parameter;
use ferrotune_space::record::Ending;
use std::collections::BTreeMap;

impl Search {
    /// Adds a finished trial with these parameters and a value for each objective; returns its number. Oracles learn from
    /// it as from any other trial.
    ///
    /// Fails, and records nothing, if a value is outside its range or not finite, or if a parameter has another kind in
    /// other trials.
    pub(crate) fn add(
        &mut self,
        parameters: &BTreeMap<String, Parameter>,
        values: Vec<f64>,
    ) -> Result<u64, SearchError> {
        self.check_addition(parameters, &values).map_or(Ok(()), |reason| Err(SearchError::Addition { reason }))?;
        let number = self.journal.begin_trial()?;
        for (name, parameter) in parameters {
            self.journal.parameter(number, name, parameter.clone())?;
        }
        let end = End { ending: Ending::Finished, values, executions: Vec::new() };
        self.journal.trial_ended(number, Usage::default(), end)?;
        Ok(number)
    }

    /// The reason why the study cannot have such a trial, if there is one.
    fn check_addition(&self, parameters: &BTreeMap<String, Parameter>, values: &[f64]) -> Option<String> {
        let objectives = self.spec.objectives.len();
        if values.len() != objectives || values.iter().any(|value| !value.is_finite()) {
            return Some(format!(
                "it has the values {values:?}; give a finite number for each of {objectives} objectives"
            ));
        }
        parameters.iter().find_map(|(name, Parameter { distribution, value })| {
            if let Err(error) = distribution.validate(name) {
                return Some(error.to_string());
            }
            if !distribution.contains(value) {
                let value = value.exact();
                return Some(format!("`{name}` has the value {value}, but it is {distribution}; give one of these"));
            }
            let mut others = self
                .trials()
                .iter()
                .filter_map(|trial| Some((trial.number, &trial.parameters.get(name)?.distribution)));
            let (other, before) = others.next()?;
            (std::mem::discriminant(before) != std::mem::discriminant(distribution)).then(|| {
                format!("`{name}` is {distribution} here and {before} in trial {other}; give it one kind in all trials")
            })
        })
    }
}
