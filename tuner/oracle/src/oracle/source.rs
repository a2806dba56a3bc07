//! The trials of other studies from which samplers learn, and the check which of them fit the search. Chooses nothing.

use crate::inferred::{Space, has_asked_all};
use ferrotune_space::Distribution;
use ferrotune_space::given::Given;
use ferrotune_space::record::TrialRecord;
use ferrotune_space::spec::StudySpec;
use std::collections::BTreeMap;

/// The trials of other studies.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Source {
    /// Finished trials, with only the parameters that the oracle chooses, those of each study together.
    pub(super) trials: Vec<TrialRecord>,
    /// The place of each trial's study among the studies.
    pub(super) studies: Vec<usize>,
    /// The space inferred from the trials of each study.
    spaces: Vec<Space>,
}

impl Source {
    /// The trials that a search has copied from other studies. Leaves out a trial in which a fixed parameter has another
    /// value.
    pub fn of(spec: &StudySpec) -> Source {
        let mut source = Source::default();
        for (study, warm_start) in spec.warm_starts.iter().enumerate() {
            let records = warm_start.records();
            let mut trials: Vec<TrialRecord> =
                records.filter(|trial| spec.given.agrees_with_source(&trial.parameters)).collect();
            for trial in &mut trials {
                trial.parameters.retain(|name, _| spec.given.leaves_open(name));
            }
            source.spaces.push(Space::infer(&trials));
            source.studies.extend(std::iter::repeat_n(study, trials.len()));
            source.trials.extend(trials);
        }
        source
    }

    /// The places of the studies of which no trial fits.
    pub fn unfitting<'a>(&self, own: impl Iterator<Item = &'a TrialRecord> + Clone, given: &Given) -> Vec<usize> {
        let fitting = self.fitting(own, given);
        let fits = |study: usize| self.studies.iter().zip(&fitting).any(|(of, fits)| *of == study && *fits);
        (0..self.spaces.len()).filter(|study| !fits(*study)).collect()
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
        let gone = |space: &Space| -> Vec<String> {
            let is_due = |index| {
                let is_active = |trial: &TrialRecord| space.is_active(index, &space.encode(&trial.parameters));
                whole.clone().any(is_active)
            };
            let dimensions = space.dimensions.iter().enumerate();
            let unknown = dimensions.filter(|(_, dimension)| !ranges.contains_key(dimension.name.as_str()));
            unknown.filter(|(index, _)| is_due(*index)).map(|(_, dimension)| dimension.name.clone()).collect()
        };
        let gone: Vec<Vec<String>> = self.spaces.iter().map(gone).collect();
        let fits = |(trial, study): (&TrialRecord, &usize)| {
            trial.parameters.iter().all(|(name, parameter)| match ranges.get(name.as_str()) {
                Some(range) => range.contains(&parameter.value),
                None => !gone[*study].contains(name),
            })
        };
        self.trials.iter().zip(&self.studies).map(fits).collect()
    }
}
