//! The trials of another study from which samplers learn, and the check which of them fit the search. Chooses nothing.

use crate::inferred::{Space, has_asked_all};
use ferrotune_space::Distribution;
use ferrotune_space::given::Given;
use ferrotune_space::record::TrialRecord;
use ferrotune_space::spec::StudySpec;
use std::collections::BTreeMap;

/// The trials of another study.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Source {
    /// Finished trials, with only the parameters that the oracle chooses.
    pub(super) trials: Vec<TrialRecord>,
    /// The space inferred from these trials.
    space: Space,
}

impl Source {
    /// The trials that a search has copied from another study. Leaves out a trial in which a fixed parameter has another
    /// value.
    pub fn of(spec: &StudySpec) -> Source {
        let records = spec.warm_start.iter().flat_map(|warm_start| warm_start.records());
        let mut trials: Vec<TrialRecord> =
            records.filter(|trial| spec.given.agrees_with_source(&trial.parameters)).collect();
        for trial in &mut trials {
            trial.parameters.retain(|name, _| spec.given.leaves_open(name));
        }
        Source { space: Space::infer(&trials), trials }
    }

    /// For each trial, whether every parameter of the trial is also a parameter of the search and has a value in the search's range.
    ///
    /// A parameter that no trial of the search has asked for yet counts as a parameter of the search, unless a complete trial
    /// should have asked for that parameter.
    pub fn fitting<'a>(&self, own: impl Iterator<Item = &'a TrialRecord> + Clone, given: &Given) -> Vec<bool> {
        if self.trials.is_empty() {
            return Vec::new();
        }
        let asked = own.clone().flat_map(|trial| &trial.parameters).filter(|(name, _)| given.leaves_open(name));
        let ranges: BTreeMap<&str, &Distribution> =
            asked.map(|(name, parameter)| (name.as_str(), &parameter.distribution)).collect();
        let whole = own.filter(|trial| has_asked_all(trial));
        let is_due = |index| {
            let is_active = |trial: &TrialRecord| self.space.is_active(index, &self.space.encode(&trial.parameters));
            whole.clone().any(is_active)
        };
        let dimensions = self.space.dimensions.iter().enumerate();
        let unknown = dimensions.filter(|(_, dimension)| !ranges.contains_key(dimension.name.as_str()));
        let gone: Vec<&str> =
            unknown.filter(|(index, _)| is_due(*index)).map(|(_, dimension)| dimension.name.as_str()).collect();
        let fits = |trial: &TrialRecord| {
            trial.parameters.iter().all(|(name, parameter)| match ranges.get(name.as_str()) {
                Some(range) => range.contains(&parameter.value),
                None => !gone.contains(&name.as_str()),
            })
        };
        self.trials.iter().map(fits).collect()
    }
}
