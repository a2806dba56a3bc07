//! What values to try: the part of an oracle that knows nothing of epochs, workers or the order of questions.

use super::history::{History, Proposed};
use super::random;
use super::settings::Settings;
use crate::record::TrialRecord;
use crate::space::{Distribution, Value, is_training};
use std::fmt::Debug;

/// Proposes all parameters of a trial together.
pub(crate) trait Sampler: Debug {
    /// A point of the unit cube of `history.space`, one coordinate for each dimension, for the trial `trial`; `None`
    /// to draw at random.
    ///
    /// A function of the history, its settings and the trial's number: whatever else a sampler keeps must be a cache.
    fn propose(&mut self, history: &History, trial: u64) -> Option<Vec<f64>>;

    /// Whether it looks at the history at all.
    fn looks_back(&self) -> bool {
        true
    }

    /// Value of a parameter that no trial has asked for before; at random, as a rule.
    fn draw(&self, seed: u64, trial: u64, name: &str, distribution: &Distribution) -> Value {
        random::draw(seed, trial, name, distribution)
    }

    /// Whether there is nothing left that would be worth a trial.
    fn is_exhausted(&mut self, _history: &History) -> bool {
        false
    }
}

/// A sampler's answers to single questions.
///
/// The proposal to a trial is made when it asks for its first parameter, and kept until the trial is over. After a
/// restart it is made again, from the same records. Parameters that no trial has asked for before are drawn by themselves.
#[derive(Debug)]
pub(super) struct Suggestions {
    sampler: Box<dyn Sampler>,
    history: History,
    proposed: Proposed,
}

impl Suggestions {
    pub(super) fn new(settings: Settings, sampler: Box<dyn Sampler>) -> Suggestions {
        Suggestions { sampler, history: History::new(settings), proposed: Proposed::new() }
    }

    /// The value of a parameter that `trial` asks for the first time.
    pub(super) fn suggest(
        &mut self,
        trial: u64,
        name: &str,
        distribution: &Distribution,
        trials: &[TrialRecord],
    ) -> Value {
        if !self.has_proposed(trial) && self.sampler.looks_back() {
            self.propose(trial, trials);
        }
        let proposal = self.proposed.get(&trial).and_then(|values| values.get(name));
        let proposal = proposal.and_then(|value| distribution.clamp_to_lattice(value));
        proposal.unwrap_or_else(|| self.sampler.draw(self.history.settings.seed, trial, name, distribution))
    }

    /// Whether the values for `trial` are settled, but for parameters that are new.
    pub(super) fn has_proposed(&self, trial: u64) -> bool {
        self.proposed.contains_key(&trial)
    }

    /// Whether the sampler has nothing left to try.
    pub(super) fn is_exhausted(&mut self, trials: &[TrialRecord]) -> bool {
        if !self.sampler.looks_back() {
            return false;
        }
        let next = trials.len() as u64;
        self.remember_neighbours(next, trials);
        self.history.update(trials, next, &self.proposed);
        self.sampler.is_exhausted(&self.history)
    }

    fn propose(&mut self, trial: u64, trials: &[TrialRecord]) {
        self.remember_neighbours(trial, trials);
        self.propose_one(trial, trials);
    }

    /// Forgets the proposals of trials that are over, and makes those again that a restart has lost.
    fn remember_neighbours(&mut self, trial: u64, trials: &[TrialRecord]) {
        let is_choosing = |trial: &TrialRecord| trial.ending.is_none() && !is_training(trial);
        self.proposed.retain(|number, _| trials.get(*number as usize).is_none_or(is_choosing));
        for neighbour in trials.iter().filter(|other| other.number < trial && is_choosing(other)) {
            if !self.proposed.contains_key(&neighbour.number) {
                self.propose_one(neighbour.number, trials);
            }
        }
    }

    fn propose_one(&mut self, trial: u64, trials: &[TrialRecord]) {
        self.history.update(trials, trial, &self.proposed);
        let point = self.sampler.propose(&self.history, trial);
        self.proposed.insert(trial, point.map(|point| self.history.space.decode(&point)).unwrap_or_default());
    }
}
