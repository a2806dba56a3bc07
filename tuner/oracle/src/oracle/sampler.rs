//! Samplers, which choose the values of parameters. A sampler knows nothing of epochs, workers or the order of
//! parameters.

use super::combinations::{Combinations, Member, Preference};
use super::history::{History, Proposed};
use super::random;
use super::settings::Settings;
use crate::inferred::{Dimension, has_asked_all, is_training};
use ferrotune_space::record::{Ending, TrialRecord};
use ferrotune_space::{Distribution, Value};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt::Debug;

/// The largest number of combinations that are counted.
const MOST_COMBINATIONS: usize = 10_000;

/// A sampler: proposes all parameters of a trial together.
pub(crate) trait Sampler: Debug {
    /// A point of the unit cube of `history.space`, one coordinate for each dimension, for the trial `trial`; `None`
    /// to draw at random.
    ///
    /// The proposal is a function of the history, its settings and the trial's number; all other state of a sampler must be a cache.
    fn propose(&mut self, history: &History, trial: u64) -> Option<Vec<f64>>;

    /// Whether the sampler's last proposal deliberately repeats an earlier combination.
    fn repeats(&self) -> bool {
        false
    }

    /// Whether the sampler uses the history.
    fn looks_back(&self) -> bool {
        true
    }

    /// The value of a parameter that no trial has asked for before; usually at random.
    fn draw(&self, seed: u64, trial: u64, name: &str, distribution: &Distribution) -> Value {
        random::draw(seed, trial, name, distribution)
    }

    /// Whether the first trial that asks for a parameter gets the middle of its range. The user expects a good value there
    /// more often than at the ends. A choice without an order has no middle.
    fn begins_in_the_middle(&self) -> bool {
        false
    }

    /// Whether the sampler tries the combinations of a grid one by one, whatever their results.
    fn is_systematic(&self) -> bool {
        false
    }

    /// The sorted coordinates of a parameter's values, of which no combination is tried twice; `None` if combinations are not
    /// counted.
    fn levels(&self, _name: &str, distribution: &Distribution) -> Option<Vec<f64>> {
        distribution.levels(MOST_COMBINATIONS)
    }

    /// The reason why the search cannot have a parameter with this range; `None` if it can.
    fn objection(&self, _name: &str, _distribution: &Distribution) -> Option<String> {
        None
    }
}

/// Random search: every parameter is drawn separately. Learns nothing from trials.
#[derive(Debug)]
pub(super) struct Random;

impl Sampler for Random {
    fn propose(&mut self, _history: &History, _trial: u64) -> Option<Vec<f64>> {
        None
    }

    fn looks_back(&self) -> bool {
        false
    }
}

/// Answers requests for single parameters with a sampler's proposals.
///
/// The proposal for a trial is made when it asks for its first parameter, and kept until the trial ends. After a
/// restart it is made again from the same records. A parameter that no trial has asked for before is drawn separately.
#[derive(Debug)]
pub(super) struct Suggestions {
    sampler: Box<dyn Sampler>,
    history: History,
    proposed: Proposed,
    /// Trials whose proposals repeat a combination on purpose.
    repeats: BTreeSet<u64>,
}

impl Suggestions {
    pub(super) fn new(settings: Settings, sampler: Box<dyn Sampler>) -> Suggestions {
        Suggestions { sampler, history: History::new(settings), proposed: Proposed::new(), repeats: BTreeSet::new() }
    }

    /// The reason why the search cannot have a parameter with this range; `None` if it can.
    pub(super) fn objection(&self, name: &str, distribution: &Distribution) -> Option<String> {
        self.sampler.objection(name, distribution)
    }

    /// The value of a parameter for which `trial` asks for the first time.
    pub(super) fn suggest(
        &mut self,
        trial: u64,
        name: &str,
        distribution: &Distribution,
        trials: &[TrialRecord],
    ) -> Value {
        if !self.has_proposed(trial) {
            self.propose(trial, trials);
        }
        let proposal = self.proposed.get(&trial).and_then(|values| values.get(name));
        let proposal = proposal.and_then(|value| distribution.clamp_to_lattice(value));
        let value = proposal
            .or_else(|| self.middle(trial, name, distribution, trials))
            .unwrap_or_else(|| self.sampler.draw(self.history.settings.seed, trial, name, distribution));
        if self.repeats.contains(&trial) {
            return value;
        }
        self.unless_repeated(trial, name, distribution, value, trials)
    }

    /// The middle of a range for which no other trial has asked, if the sampler begins there.
    fn middle(&self, trial: u64, name: &str, distribution: &Distribution, trials: &[TrialRecord]) -> Option<Value> {
        let given = &self.history.settings.given;
        let is_known = |other: &TrialRecord| {
            let counts = other.ending != Some(Ending::Cancelled) && given.agrees_with(&other.parameters);
            counts && other.number != trial && other.parameters.contains_key(name)
        };
        let begins = self.sampler.begins_in_the_middle() && distribution.has_order() && !trials.iter().any(is_known);
        begins.then(|| distribution.from_unit(0.5))
    }

    /// The proposed value, or another value if every combination with it has been tried.
    fn unless_repeated(
        &self,
        trial: u64,
        name: &str,
        distribution: &Distribution,
        value: Value,
        trials: &[TrialRecord],
    ) -> Value {
        let others = trials.iter().filter(|other| other.number != trial);
        let Some(combinations) = self.combinations(others) else { return value };
        let own = trials.iter().find(|other| other.number == trial);
        let asked = own.into_iter().flat_map(|own| &own.parameters);
        let asked = asked.filter(|(name, _)| self.history.settings.given.leaves_open(name));
        let asked: BTreeMap<&str, &Value> = asked.map(|(name, known)| (name.as_str(), &known.value)).collect();
        let preference = if self.sampler.is_systematic() { Preference::First } else { Preference::Nearest };
        combinations.free_value(&asked, name, distribution, value, preference)
    }

    /// The largest number of trials: the search's limit, or the present number if every combination has been tried or is
    /// running.
    pub(super) fn limit(&self, trials: &[TrialRecord]) -> u64 {
        let most = self.history.settings.max_trials;
        let count = trials.len() as u64;
        if count >= most {
            return most;
        }
        // Before a trial has asked for all its parameters, the space is only partly known, and only a grid may be exhausted.
        let is_exhausted = self.combinations(trials.iter()).is_some_and(|combinations| {
            (self.sampler.is_systematic() || combinations.has_whole()) && combinations.are_taken()
        });
        if is_exhausted { count } else { most }
    }

    /// The combinations of these trials; `None` if there are too many to count.
    fn combinations<'a>(&'a self, trials: impl Iterator<Item = &'a TrialRecord> + Clone) -> Option<Combinations<'a>> {
        let given = &self.history.settings.given;
        let trials = trials.filter(|trial| {
            // A trial that has started to train without parameters has no combination.
            let is_silent = trial.parameters.is_empty() && (trial.ending.is_some() || is_training(trial));
            !is_silent && trial.ending != Some(Ending::Cancelled) && given.agrees_with(&trial.parameters)
        });
        if !self.sampler.is_systematic() && !self.is_countable(trials.clone()) {
            return None;
        }
        // A trial that has asked for the same parameters as a complete one may be about to train.
        let names = |trial: &'a TrialRecord| -> Vec<&'a str> {
            trial.parameters.keys().map(String::as_str).filter(|name| given.leaves_open(name)).collect()
        };
        let whole: HashSet<Vec<&str>> = trials.clone().filter(|trial| has_asked_all(trial)).map(names).collect();
        let member = |trial| self.member(trial, whole.contains(&names(trial)));
        let levels = Box::new(|name: &str, distribution: &Distribution| self.sampler.levels(name, distribution));
        Some(Combinations::new(trials.map(member).collect(), levels))
    }

    /// Whether these trials show few enough combinations to count.
    fn is_countable<'a>(&self, trials: impl Iterator<Item = &'a TrialRecord>) -> bool {
        let mut cells: BTreeMap<&str, f64> = BTreeMap::new();
        for (name, parameter) in trials.flat_map(|trial| &trial.parameters) {
            if !self.history.settings.given.leaves_open(name) {
                continue;
            }
            let Some(count) = parameter.distribution.cells() else { return false };
            let most = cells.entry(name).or_insert(0.0);
            if count > *most {
                *most = count;
                if cells.values().product::<f64>() > MOST_COMBINATIONS as f64 {
                    return false;
                }
            }
        }
        true
    }

    /// The trial's values, and its proposed values, unless the trial may have asked for all its parameters.
    fn member<'a>(&'a self, trial: &'a TrialRecord, may_be_whole: bool) -> Member<'a> {
        let is_open = trial.ending.is_none();
        let mut member = Member::new(has_asked_all(trial), is_open);
        let given = &self.history.settings.given;
        for (name, known) in trial.parameters.iter().filter(|(name, _)| given.leaves_open(name)) {
            member.answer(name, &known.distribution, &known.value);
        }
        let proposed = self.proposed.get(&trial.number).filter(|_| is_open && !may_be_whole);
        let Some(proposed) = proposed else { return member };
        let space = &self.history.space;
        let value = |name: &str| trial.parameters.get(name).map(|known| &known.value).or_else(|| proposed.get(name));
        let unit = |dimension: &Dimension| dimension.distribution.to_unit(value(&dimension.name)?);
        let point: Vec<f64> = space.dimensions.iter().map(|known| unit(known).unwrap_or(f64::NAN)).collect();
        for (index, dimension) in space.dimensions.iter().enumerate().filter(|(index, _)| !point[*index].is_nan()) {
            if let Some(value) = proposed.get(&dimension.name).filter(|_| space.is_active(index, &point)) {
                member.answer(&dimension.name, &dimension.distribution, value);
            }
        }
        member
    }

    /// Whether there is a proposal for `trial`.
    pub(super) fn has_proposed(&self, trial: u64) -> bool {
        self.proposed.contains_key(&trial)
    }

    /// Makes the proposal for `trial`.
    pub(super) fn propose(&mut self, trial: u64, trials: &[TrialRecord]) {
        if !self.sampler.looks_back() {
            return;
        }
        self.remember_neighbours(trial, trials);
        self.propose_one(trial, trials);
    }

    /// Removes the proposals of ended trials, and repeats those that a restart has lost. Another program chooses the
    /// values of the trials that it runs itself.
    fn remember_neighbours(&mut self, trial: u64, trials: &[TrialRecord]) {
        let is_choosing =
            |trial: &TrialRecord| trial.ending.is_none() && !trial.runs_elsewhere() && !is_training(trial);
        self.proposed.retain(|number, _| trials.get(*number as usize).is_none_or(is_choosing));
        self.repeats.retain(|number| self.proposed.contains_key(number));
        for neighbour in trials.iter().filter(|other| other.number < trial && is_choosing(other)) {
            if !self.proposed.contains_key(&neighbour.number) {
                self.propose_one(neighbour.number, trials);
            }
        }
    }

    fn propose_one(&mut self, trial: u64, trials: &[TrialRecord]) {
        self.history.update(trials, trial, &self.proposed);
        let values = if self.sampler.is_systematic() {
            self.first_combination(trial, trials)
        } else {
            let point = self.sampler.propose(&self.history, trial);
            if self.sampler.repeats() {
                self.repeats.insert(trial);
            } else {
                self.repeats.remove(&trial);
            }
            point.map(|point| self.history.space.decode(&point)).unwrap_or_default()
        };
        self.proposed.insert(trial, values);
    }

    /// The first untried combination, in the order in which the last parameter changes fastest.
    fn first_combination(&self, trial: u64, trials: &[TrialRecord]) -> BTreeMap<String, Value> {
        let earlier = trials.iter().filter(|other| other.number < trial || other.ending.is_some());
        let mut values = BTreeMap::new();
        let Some(combinations) = self.combinations(earlier.filter(|other| other.number != trial)) else {
            return values;
        };
        let space = &self.history.space;
        let mut point = vec![f64::NAN; space.dimensions.len()];
        for index in space.parents_first() {
            if !space.is_active(index, &point) {
                continue;
            }
            let Dimension { name, distribution, .. } = &space.dimensions[index];
            let asked = values.iter().map(|(name, value): (&String, _)| (name.as_str(), value)).collect();
            let first = distribution.from_unit(0.0);
            let value = combinations.free_value(&asked, name, distribution, first, Preference::First);
            point[index] = distribution.to_unit(&value).unwrap_or(f64::NAN);
            values.insert(name.clone(), value);
        }
        values
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::OracleError;
    use ferrotune_space::objective::{Direction, Objective};
    use ferrotune_space::record::Runner;
    use ferrotune_space::spec::StudySpec;
    use ferrotune_space::{Parameter, Scale};

    #[derive(Debug)]
    struct Attentive;

    impl Sampler for Attentive {
        fn propose(&mut self, _: &History, _: u64) -> Option<Vec<f64>> {
            None
        }
    }

    #[test]
    fn values_are_proposed_for_the_own_trials_alone() -> Result<(), OracleError> {
        let spec = StudySpec::new("digits", vec![Objective::new("accuracy", Direction::Max)]);
        let mut suggestions = Suggestions::new(Settings::new(&spec)?, Box::new(Attentive));
        let theirs = TrialRecord { runner: Runner::Other, ..TrialRecord::new(1) };
        let trials = [TrialRecord::new(0), theirs, TrialRecord::new(2)];
        suggestions.propose(2, &trials);
        assert_eq!([0, 1, 2].map(|trial| suggestions.has_proposed(trial)), [true, false, true]);
        Ok(())
    }

    #[test]
    fn a_trial_that_asked_before_an_earlier_one_counts() -> Result<(), OracleError> {
        let mut spec = StudySpec::new("digits", vec![Objective::new("accuracy", Direction::Max)]);
        spec.seed = Some(3);
        let new = || Ok::<_, OracleError>(Suggestions::new(Settings::new(&spec)?, Box::new(Attentive)));
        let range = Distribution::Float { low: 0.0, high: 1.0, step: None, scale: Scale::Linear };
        let known = Parameter { distribution: range, value: Value::Float(0.5) };
        let asked = TrialRecord { parameters: BTreeMap::from([("rate".to_owned(), known)]), ..TrialRecord::new(1) };
        let counted = |suggestions: &Suggestions| -> Vec<Option<u64>> {
            suggestions.history.own().iter().map(|row| row.trial).collect()
        };
        // Another program may still ask for the values of trial 0 when trial 1 asks.
        let mut suggestions = new()?;
        suggestions.propose(1, &[TrialRecord { runner: Runner::Other, ..TrialRecord::new(0) }, asked.clone()]);
        suggestions.propose(0, &[TrialRecord::new(0), asked.clone()]);
        assert_eq!(counted(&suggestions), [Some(1)]);
        // The other program has asked for the values of trial 1.
        let mut suggestions = new()?;
        suggestions.propose(0, &[TrialRecord::new(0), TrialRecord { runner: Runner::Other, ..asked.clone() }]);
        assert_eq!(counted(&suggestions), [Some(1)]);
        // After a restart, trial 0 asks first, as it did before.
        let mut suggestions = new()?;
        suggestions.propose(0, &[TrialRecord::new(0), asked]);
        assert_eq!(counted(&suggestions), [None; 0]);
        Ok(())
    }
}
