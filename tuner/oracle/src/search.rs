//! A search by ask and tell, for a program that runs its trials itself. The records are in memory; the program stores them if it wants to.

use crate::oracle::{Next, Oracle, OracleError, create};
use ferrotune_space::objective::{Constraint, Objective};
use ferrotune_space::record::{Ending, TrialRecord};
use ferrotune_space::spec::StudySpec;
use ferrotune_space::{Distribution, Parameter, Scale, SpaceError, Value};
use std::fmt;
use std::ops::RangeInclusive;

/// A search whose trials the program runs: [`Search::ask`] begins a trial, its values come from [`Search::float`], [`Search::int`],
/// [`Search::choice`] and [`Search::value`], and [`Search::tell`] ends it. Trials may overlap, and end in any order.
///
/// Values follow from the records, the seed and the description of the search alone, so a search that is made again with
/// [`Search::with_trials`] continues as if it had not ended.
///
/// ```
/// use ferrotune_oracle::Search;
/// use ferrotune_oracle::space::objective::{Direction, Objective};
/// use ferrotune_oracle::space::spec::StudySpec;
///
/// let objectives = vec![Objective::new("loss", Direction::Min)];
/// let spec = StudySpec { max_trials: 30, seed: Some(7), ..StudySpec::new("valley", objectives) };
/// let mut search = Search::new(&spec)?;
/// while let Some(trial) = search.ask() {
///     let x = search.float(trial, "x", -10.0..=10.0)?;
///     let y = match search.choice(trial, "kind", ["flat", "steep"])? {
///         "steep" => search.log_float(trial, "y", 1e-3..=1e3)?.log10(),
///         _ => 2.0,
///     };
///     search.tell(trial, &[(x - 2.0).powi(2) + y.powi(2)])?;
/// }
/// let best = search.best().and_then(|trial| trial.value());
/// assert!(best.is_some_and(|loss| loss < 0.1), "{best:?}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Search {
    objectives: Vec<Objective>,
    constraints: Vec<Constraint>,
    oracle: Box<dyn Oracle>,
    trials: Vec<TrialRecord>,
}

impl fmt::Debug for Search {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Search { objectives, constraints, trials, oracle: _ } = self;
        formatter
            .debug_struct("Search")
            .field("objectives", objectives)
            .field("constraints", constraints)
            .field("trials", trials)
            .finish_non_exhaustive()
    }
}

/// Why a search cannot do what the program asks for.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum AskError {
    /// No trial has this number.
    #[error("the search has no trial {trial}; use a number that ask() has returned")]
    NoTrial {
        /// The number.
        trial: u64,
    },
    /// The trial has ended.
    #[error("trial {trial} has ended; ask() begins another one")]
    Ended {
        /// The trial's number.
        trial: u64,
    },
    /// No value can be drawn from the range.
    #[error(transparent)]
    Range(#[from] SpaceError),
    /// The oracle cannot have a parameter of this range.
    #[error("{reason}")]
    Refused {
        /// The fault and its cure.
        reason: String,
    },
    /// The trial has asked for this parameter with another range.
    #[error("trial {trial} has asked for {name} with another range; give each parameter one range in a trial")]
    OtherRange {
        /// The trial's number.
        trial: u64,
        /// The parameter.
        name: String,
    },
    /// The number of values is not that of the objectives.
    #[error("trial {trial} has {given} values for {objectives} objectives; tell one for each")]
    Values {
        /// The trial's number.
        trial: u64,
        /// The number of values.
        given: usize,
        /// The number of objectives.
        objectives: usize,
    },
}

impl Search {
    /// A search without trials.
    ///
    /// # Errors
    /// Fails if the description of the search is invalid, and for an oracle that decides how long each trial trains, such as `hyperband`:
    /// here the program decides that, with the answers of [`Search::report`].
    pub fn new(spec: &StudySpec) -> Result<Search, OracleError> {
        Search::with_trials(spec, Vec::new())
    }

    /// A search that continues from these records, which are those of [`Search::trials`] of an earlier one. Trials without an ending
    /// run.
    ///
    /// # Errors
    /// Those of [`Search::new`], and records that are not all of a search's, in the order of their numbers.
    pub fn with_trials(spec: &StudySpec, trials: Vec<TrialRecord>) -> Result<Search, OracleError> {
        let misplaced = (0..).zip(&trials).find(|(place, trial)| *place != trial.number);
        if let Some((place, trial)) = misplaced {
            return Err(OracleError::MisplacedRecord { place, number: trial.number });
        }
        let oracle = create(spec)?;
        if oracle.pauses() {
            return Err(OracleError::DecidesEpochs { oracle: spec.oracle.clone() });
        }
        let (objectives, constraints) = (spec.objectives.clone(), spec.constraints.clone());
        Ok(Search { objectives, constraints, oracle, trials })
    }

    /// Begins a trial, and returns its number; `None` if the search is over: it has `max_trials` trials, its terminator ends it, or every
    /// combination of its values was tried.
    pub fn ask(&mut self) -> Option<u64> {
        let running: Vec<u64> =
            self.trials.iter().filter(|trial| trial.ending.is_none()).map(|trial| trial.number).collect();
        let next = self.oracle.next(&self.trials, &running);
        (next == Next::New).then(|| {
            let number = self.trials.len() as u64;
            self.trials.push(TrialRecord::new(number));
            number
        })
    }

    /// The trial's value of a parameter. The first call for a name chooses the value, and later ones return it again.
    ///
    /// # Errors
    /// Fails for a trial that is not there or has ended, and for a range that is empty or differs from that of an earlier call.
    pub fn value(&mut self, trial: u64, name: &str, distribution: &Distribution) -> Result<Value, AskError> {
        if let Some(known) = self.running(trial)?.parameters.get(name) {
            let is_same = known.distribution == *distribution;
            let other = || AskError::OtherRange { trial, name: name.to_owned() };
            return is_same.then(|| known.value.clone()).ok_or_else(other);
        }
        distribution.validate(name)?;
        if let Some(reason) = self.oracle.objection(name, distribution) {
            return Err(AskError::Refused { reason });
        }
        let value = self.oracle.suggest(trial, name, distribution, &self.trials);
        let parameter = Parameter { distribution: distribution.clone(), value: value.clone() };
        self.running(trial)?.parameters.insert(name.to_owned(), parameter);
        Ok(value)
    }

    /// The trial's value of a real parameter, uniform in the range.
    ///
    /// # Errors
    /// Those of [`Search::value`].
    pub fn float(&mut self, trial: u64, name: &str, range: RangeInclusive<f64>) -> Result<f64, AskError> {
        self.scaled(trial, name, range, Scale::Linear)
    }

    /// The trial's value of a real parameter, whose logarithm is uniform in the range.
    ///
    /// # Errors
    /// Those of [`Search::value`], and a range that starts at 0 or below.
    pub fn log_float(&mut self, trial: u64, name: &str, range: RangeInclusive<f64>) -> Result<f64, AskError> {
        self.scaled(trial, name, range, Scale::Log)
    }

    fn scaled(&mut self, trial: u64, name: &str, range: RangeInclusive<f64>, scale: Scale) -> Result<f64, AskError> {
        let (low, high) = range.into_inner();
        match self.value(trial, name, &Distribution::Float { low, high, step: None, scale })? {
            Value::Float(value) => Ok(value),
            other => unreachable!("a range of floats has no value {other:?}"),
        }
    }

    /// The trial's value of a whole parameter.
    ///
    /// # Errors
    /// Those of [`Search::value`].
    pub fn int(&mut self, trial: u64, name: &str, range: RangeInclusive<i64>) -> Result<i64, AskError> {
        let (low, high) = range.into_inner();
        match self.value(trial, name, &Distribution::Int { low, high, step: 1, scale: Scale::Linear })? {
            Value::Int(value) => Ok(value),
            other => unreachable!("a range of whole numbers has no value {other:?}"),
        }
    }

    /// The trial's choice among values without an order.
    ///
    /// # Errors
    /// Those of [`Search::value`]; the choices are at least one, all different, of one type.
    pub fn choice<T: Clone + Into<Value>>(
        &mut self,
        trial: u64,
        name: &str,
        choices: impl IntoIterator<Item = T>,
    ) -> Result<T, AskError> {
        let choices: Vec<T> = choices.into_iter().collect();
        let values: Vec<Value> = choices.iter().cloned().map(Into::into).collect();
        let chosen = self.value(trial, name, &Distribution::Choice { values: values.clone(), is_ordered: false })?;
        let index = values.iter().position(|value| *value == chosen);
        Ok(choices[index.unwrap_or_else(|| unreachable!("{chosen:?} is one of the choices"))].clone())
    }

    /// Adds a report of a running trial: the value at a step of an objective's metric, or of one that a constraint names. Returns whether the search's pruner ends the trial: then the
    /// program stops it, and calls [`Search::prune`].
    ///
    /// # Errors
    /// Fails for a trial that is not there or has ended.
    pub fn report(&mut self, trial: u64, step: u64, metric: &str, value: f64) -> Result<bool, AskError> {
        let reports = self.running(trial)?.metrics.entry(step).or_default();
        reports.insert(metric.to_owned(), Some(value).filter(|value| value.is_finite()));
        Ok(self.oracle.ends(trial, &self.trials).is_some())
    }

    /// Ends a trial with a value for each objective. A trial with a value that is not finite has failed.
    ///
    /// # Errors
    /// Fails for a trial that is not there or has ended, and for a wrong number of values.
    pub fn tell(&mut self, trial: u64, values: &[f64]) -> Result<(), AskError> {
        let objectives = self.objectives.len();
        let record = self.running(trial)?;
        if values.len() != objectives {
            return Err(AskError::Values { trial, given: values.len(), objectives });
        }
        if values.iter().all(|value| value.is_finite()) {
            (record.values, record.ending) = (values.to_vec(), Some(Ending::Finished));
        } else {
            record.ending = Some(Ending::Failed { reason: format!("the values {values:?} are not all finite") });
        }
        Ok(())
    }

    /// Ends a trial as failed, for this reason. The oracle avoids its neighbourhood.
    ///
    /// # Errors
    /// Fails for a trial that is not there or has ended.
    pub fn fail(&mut self, trial: u64, reason: impl Into<String>) -> Result<(), AskError> {
        self.running(trial)?.ending = Some(Ending::Failed { reason: reason.into() });
        Ok(())
    }

    /// Ends a trial as pruned; its reports count.
    ///
    /// # Errors
    /// Fails for a trial that is not there or has ended.
    pub fn prune(&mut self, trial: u64) -> Result<(), AskError> {
        let objective = self.objectives[0].clone();
        let record = self.running(trial)?;
        record.values = record.summary(&objective).into_iter().collect();
        record.ending = Some(Ending::Pruned);
        Ok(())
    }

    /// The records of all trials, by number.
    pub fn trials(&self) -> &[TrialRecord] {
        &self.trials
    }

    /// The finished trial with the best value of the first objective, among those that keep the constraints; the earliest one of equals.
    pub fn best(&self) -> Option<&TrialRecord> {
        let keeps = |trial: &&TrialRecord| trial.violation(&self.objectives, &self.constraints) <= 0.0;
        let finished = self.trials.iter().filter(|trial| trial.ending == Some(Ending::Finished)).filter(keeps);
        let loss = |trial: &TrialRecord| self.objectives[0].direction.loss(trial.value().unwrap_or(f64::NAN));
        let valued = finished.map(|trial| (loss(trial), trial)).filter(|(loss, _)| loss.is_finite());
        valued.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, trial)| trial)
    }

    /// The record of a trial that has not ended.
    fn running(&mut self, trial: u64) -> Result<&mut TrialRecord, AskError> {
        let record = usize::try_from(trial).ok().and_then(|index| self.trials.get_mut(index));
        let record = record.ok_or(AskError::NoTrial { trial })?;
        if record.ending.is_some() { Err(AskError::Ended { trial }) } else { Ok(record) }
    }
}
