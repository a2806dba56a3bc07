//! The trials of other studies from which a search learns before its first trial. Reads no study; a search keeps a copy, so
//! that it continues in the same way when another study has grown or has been deleted.

use crate::given::Values;
use crate::record::{Ending, TrialRecord};
use crate::{Distribution, Parameter};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The data that a search has copied from another study.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WarmStart {
    /// The name of the other study, as the user gave it: a project of the same directory or database, or a folder.
    pub study: String,
    /// The ranges of the other study's parameters, each from the latest trial that asked for the parameter.
    pub ranges: BTreeMap<String, Distribution>,
    /// The other study's trials, in the order of their numbers; at least one.
    pub trials: Vec<SourceTrial>,
    /// The parameter values of the other study's best trial, which are tried first.
    pub best: Values,
}

/// A trial of the other study.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SourceTrial {
    /// The trial's number in the other study.
    pub number: u64,
    /// The values of the parameters that the trial asked for.
    pub parameters: Values,
    /// The trial's values, one for each objective, in the order of the new search.
    pub values: Vec<f64>,
    /// The trial's last report of each metric on which the new search has a constraint.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metrics: BTreeMap<String, f64>,
}

impl WarmStart {
    /// These finished trials of another study, at least one, whose metrics are those of constraints, and what is tried first.
    pub fn of(study: impl Into<String>, trials: &[TrialRecord], best: Values) -> WarmStart {
        let asked = trials.iter().flat_map(|trial| &trial.parameters);
        let source = |trial: &TrialRecord| {
            let values = trial.parameters.iter().map(|(name, parameter)| (name.clone(), parameter.value.clone()));
            let reports = trial.metrics.values().flatten();
            SourceTrial {
                number: trial.number,
                parameters: values.collect(),
                values: trial.values.clone(),
                metrics: reports.filter_map(|(name, value)| Some((name.clone(), (*value)?))).collect(),
            }
        };
        WarmStart {
            study: study.into(),
            ranges: asked.map(|(name, parameter)| (name.clone(), parameter.distribution.clone())).collect(),
            trials: trials.iter().map(source).collect(),
            best,
        }
    }

    /// The source trials as records of finished trials with their own numbers. A record's metrics are those of constraints, at
    /// step 0.
    pub fn records(&self) -> impl Iterator<Item = TrialRecord> {
        self.trials.iter().map(|trial| {
            let parameter = |(name, value): (&String, _)| {
                let distribution = self.ranges.get(name)?.clone();
                Some((name.clone(), Parameter { distribution, value: Clone::clone(value) }))
            };
            let metrics: BTreeMap<_, _> =
                trial.metrics.iter().map(|(metric, value)| (metric.clone(), Some(*value))).collect();
            TrialRecord {
                parameters: trial.parameters.iter().filter_map(parameter).collect(),
                values: trial.values.clone(),
                metrics: BTreeMap::from([(0, metrics)]),
                ending: Some(Ending::Finished),
                ..TrialRecord::new(trial.number)
            }
        })
    }
}

/// Whether the text that names another study is a path, that is, has a slash.
pub fn is_path(study: &str) -> bool {
    study.contains('/')
}

/// The folder of the study that `study` names, which is a path or a project in `directory`.
pub fn folder_of(directory: &Path, study: &str) -> PathBuf {
    if is_path(study) { PathBuf::from(study) } else { directory.join(study) }
}
