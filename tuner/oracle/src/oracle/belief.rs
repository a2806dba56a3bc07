//! What a search's records say of the trials to come. Chooses nothing.

use super::gp::slices::{Slice, slices};
use super::history::{History, Proposed};
use super::settings::Settings;
use super::{OracleError, create};
use ferrotune_space::record::TrialRecord;
use ferrotune_space::spec::StudySpec;
use ferrotune_space::{Parameter, Value};
use std::collections::BTreeMap;

/// What a search expects.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Belief {
    /// A slice of the Gaussian process of `gp` and `auto` along each parameter that the best point has; empty before enough trials have
    /// finished.
    pub slices: Vec<Slice>,
    /// The values that the search's oracle gives the next trial, if that asks for the parameters as the trials so far; empty for a search
    /// without a seed.
    pub next: BTreeMap<String, Value>,
}

/// What a search with one objective and these trials expects.
///
/// Fails if the search's description is invalid.
pub fn belief(spec: &StudySpec, trials: &[TrialRecord]) -> Result<Belief, OracleError> {
    let mut history = History::new(Settings::new(spec)?);
    history.update(trials, trials.len() as u64, &Proposed::new());
    let slices = slices(&history);
    let mut belief = Belief { slices, next: BTreeMap::new() };
    if spec.seed.is_none() {
        return Ok(belief);
    }
    let (mut oracle, mut records) = (create(spec)?, trials.to_vec());
    let number = trials.len() as u64;
    records.push(TrialRecord::new(number));
    let mut point = vec![f64::NAN; history.space.dimensions.len()];
    for index in history.space.parents_first() {
        if !history.space.is_active(index, &point) {
            continue;
        }
        let dimension = &history.space.dimensions[index];
        let distribution = dimension.distribution.clone();
        let value = oracle.suggest(number, &dimension.name, &distribution, &records);
        point[index] = distribution.to_unit(&value).unwrap_or(f64::NAN);
        belief.next.insert(dimension.name.clone(), value.clone());
        records[trials.len()].parameters.insert(dimension.name.clone(), Parameter { distribution, value });
    }
    Ok(belief)
}
