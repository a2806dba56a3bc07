//! Grid search: every combination of all parameters once. The grid has the values that the user gives for a parameter, or all
//! the parameter's values, or ten evenly spread values if there are too many. Learns nothing from losses.

use super::history::History;
use super::sampler::Sampler;
use super::text::{SettingError, SettingsText};
use ferrotune_space::given::{fit, parse_value};
use ferrotune_space::{Distribution, Scale, Value};
use std::collections::BTreeMap;

/// The number of grid values of a continuous or logarithmic range, including both ends.
const SPREAD: usize = 10;
/// The largest number of values of a range that is not treated as continuous.
const MOST: usize = 1000;

/// The grid sampler. Parameters that trials ask for later, or only under a condition, extend the grid.
#[derive(Debug, Default)]
pub(super) struct Grid {
    /// The values of some parameters, by name, in the user's order.
    given: BTreeMap<String, Vec<Value>>,
}

impl Grid {
    /// The sampler with the parameters' values in `text`: `lr=0.001|0.01`.
    pub(super) fn with(text: &SettingsText<'_>) -> Result<Grid, SettingError> {
        let values = |(name, values): (&str, &str)| {
            let parts: Vec<&str> = values.split('|').map(str::trim).collect();
            if parts.iter().any(|part| part.is_empty()) {
                return Err(text.refused(name, values, "the parameter's values with | between them"));
            }
            Ok((name.to_owned(), parts.into_iter().map(parse_value).collect()))
        };
        Ok(Grid { given: text.all().map(values).collect::<Result<_, _>>()? })
    }
}

impl Sampler for Grid {
    /// Proposes nothing: [`Suggestions`](super::sampler::Suggestions) gives the first combination that is left.
    fn propose(&mut self, _: &History, _trial: u64) -> Option<Vec<f64>> {
        None
    }

    fn draw(&self, _seed: u64, _trial: u64, name: &str, distribution: &Distribution) -> Value {
        let first = self.levels(name, distribution).and_then(|levels| levels.first().copied());
        distribution.from_unit(first.unwrap_or(0.0))
    }

    fn is_systematic(&self) -> bool {
        true
    }

    fn levels(&self, name: &str, distribution: &Distribution) -> Option<Vec<f64>> {
        let Some(given) = self.given.get(name) else { return Some(values(distribution)) };
        let unit = |value| fit(value, distribution).and_then(|value| distribution.to_unit(&value));
        let mut units: Vec<f64> = given.iter().filter_map(unit).collect();
        units.sort_by(f64::total_cmp);
        units.dedup();
        Some(units)
    }

    fn objection(&self, name: &str, distribution: &Distribution) -> Option<String> {
        let misfit = self.given.get(name)?.iter().find(|value| fit(value, distribution).is_none())?;
        let value = misfit.exact();
        Some(format!(
            "--oracle grid gives `{name}` the value {value}, but it is {distribution}; give values of its range"
        ))
    }
}

/// The coordinates of a parameter's values in the grid, equal to those of the recorded values.
fn values(distribution: &Distribution) -> Vec<f64> {
    let is_log = matches!(distribution, Distribution::Int { scale: Scale::Log | Scale::ReverseLog, .. });
    distribution.levels(if is_log { SPREAD } else { MOST }).unwrap_or_else(|| {
        let spread = (0..SPREAD).map(|part| part as f64 / (SPREAD - 1) as f64);
        let mut values: Vec<f64> =
            spread.filter_map(|unit| distribution.to_unit(&distribution.from_unit(unit))).collect();
        values.dedup();
        values
    })
}
