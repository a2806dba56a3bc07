//! Searches in which every trial trains to its end. The sampler chooses the values.

use super::sampler::{Sampler, Suggestions};
use super::settings::Settings;
use super::{Next, Oracle, wind_up};
use ferrotune_space::record::TrialRecord;
use ferrotune_space::{Distribution, Value};

/// An oracle that starts trials, each of which trains to its end, until there are enough or the sampler has no further values.
#[derive(Debug)]
pub(super) struct WholeTrials {
    suggestions: Suggestions,
}

impl WholeTrials {
    pub(super) fn new(settings: Settings, sampler: Box<dyn Sampler>) -> WholeTrials {
        WholeTrials { suggestions: Suggestions::new(settings, sampler) }
    }
}

impl Oracle for WholeTrials {
    fn next(&mut self, trials: &[TrialRecord], running: &[u64]) -> Next {
        if (trials.len() as u64) < self.suggestions.limit(trials) {
            return Next::New;
        }
        wind_up(trials, running)
    }

    fn suggest(&mut self, trial: u64, name: &str, distribution: &Distribution, trials: &[TrialRecord]) -> Value {
        self.suggestions.suggest(trial, name, distribution, trials)
    }

    fn objection(&self, name: &str, distribution: &Distribution) -> Option<String> {
        self.suggestions.objection(name, distribution)
    }

    fn epochs(&mut self, _trial: u64, total: u64, _trials: &[TrialRecord]) -> u64 {
        total
    }
}
