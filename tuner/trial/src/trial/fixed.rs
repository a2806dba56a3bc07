//! A trial of given values, so that the function that the objective uses can build the best model again. Belongs to
//! no search: only the trial itself keeps its reports, and no checkpoint is written.
//!
//! This is Optuna's `FixedTrial`; Keras Tuner has `hypermodel.build(best_hps)`.

use super::Trial;
use crate::connection::SupervisorClient;
use crate::device::connected;
use ferrotune_space::given::{Values, fit};
use ferrotune_space::objective::{Direction, Objective};
use ferrotune_space::record::TrialRecord;
use ferrotune_space::wire::{Assignment, Reply, Request, Verdict};
use ferrotune_space::{Distribution, Value};
use ferrotune_state::{Result, Shared, current_seed, located};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io;
use std::ops::Deref;
use std::path::PathBuf;

/// Values of parameters by their names: from a list of pairs, a map, or a trial's record.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(transparent)]
pub struct FixedValues(Values);

impl<N: Into<String>, const COUNT: usize> From<[(N, Value); COUNT]> for FixedValues {
    fn from(values: [(N, Value); COUNT]) -> FixedValues {
        FixedValues(values.into_iter().map(|(name, value)| (name.into(), value)).collect())
    }
}

impl From<Values> for FixedValues {
    fn from(values: Values) -> FixedValues {
        FixedValues(values)
    }
}

impl From<&TrialRecord> for FixedValues {
    fn from(trial: &TrialRecord) -> FixedValues {
        let values = trial.parameters.iter().map(|(name, parameter)| (name.clone(), parameter.value.clone()));
        FixedValues(values.collect())
    }
}

/// The settings that only a trial of given values has.
#[derive(Clone, Debug, Default)]
pub(in crate::trial) struct Fixed {
    /// The file that [`Trial::restore`] loads.
    pub(in crate::trial) checkpoint: Option<PathBuf>,
}

impl Trial {
    /// A trial that has these values and belongs to no search. Pass the trial to the function that builds the objective's model, to
    /// build the best model again without a second copy of the code. `%best` shows the call for the best trial.
    ///
    /// A request for a parameter that is not among the values fails, and so does a range that does not contain its value.
    /// Only [`Trial::best`] uses the reports, the trial is never pruned, it runs all the epochs that it asks for,
    /// and no checkpoint is written. Its device is the connected device, and its seed is the present one.
    ///
    /// ```
    /// use ferrotune_trial::{Result, Trial};
    ///
    /// fn model(trial: &Trial) -> Result<(usize, f64)> {
    ///     let units = trial.int("units", 32..=512).step(32).get()?;
    ///     let lr = trial.float("lr", 1e-4..=1e-1).log().get()?;
    ///     Ok((units, lr))
    /// }
    ///
    /// let best = Trial::of([("units", 64.into()), ("lr", 0.01.into())]);
    /// assert_eq!(model(&best)?, (64, 0.01));
    /// let error = model(&Trial::of([("lr", 0.01.into())])).unwrap_err();
    /// assert_eq!(error.to_string(), "Trial::of has no value for `units`, only for lr; add it");
    /// # Ok::<(), ferrotune_trial::Error>(())
    /// ```
    pub fn of(values: impl Into<FixedValues>) -> FixedTrial {
        FixedTrial::of(values.into())
    }
}

/// A [`Trial`] of given values that belongs to no search, made by [`Trial::of`].
#[derive(Debug)]
pub struct FixedTrial {
    trial: Box<dyn Held>,
}

/// A trial behind a trait object, so that a cell with a [`FixedTrial`] does not compile the code that drops all parts of a trial.
trait Held: Debug {
    fn get(&self) -> &Trial;
    fn get_mut(&mut self) -> &mut Trial;
}

impl Held for Trial {
    fn get(&self) -> &Trial {
        self
    }

    fn get_mut(&mut self) -> &mut Trial {
        self
    }
}

impl FixedTrial {
    fn of(FixedValues(values): FixedValues) -> FixedTrial {
        let assignment = Assignment {
            trial: 0,
            folder: PathBuf::new(),
            device: connected(),
            checkpoint: None,
            seed: current_seed(),
            execution: 0,
            profile: None,
            debug_nans: false,
            items: Vec::new(),
            reported: BTreeMap::new(),
            objectives: Vec::new(),
            // Only workers of early versions read this field.
            objective: Objective::new("", Direction::Min),
        };
        let trial = Trial::new(Box::new(FixedAnswers { values }), assignment);
        FixedTrial { trial: Box::new(Trial { fixed: Some(Fixed::default()), ..trial }) }
    }

    /// Sets the checkpoint that [`Trial::restore`] loads: the checkpoint of a search's trial, with the model's weights.
    /// [`Trial::epochs`] continues after the checkpoint's epoch. The file is read by `restore`, which fails if it cannot be read.
    ///
    /// ```no_run
    /// # use ferrotune_trial::{Result, Trial};
    /// # fn model(_: &Trial) -> Result<candle_nn::VarMap> { Ok(candle_nn::VarMap::new()) }
    /// # fn main() -> Result<()> {
    /// let best = Trial::of([("units", 64.into())]).with_checkpoint("studies/digits/trials/10/checkpoint-000004.safetensors");
    /// let vars = model(&best)?;
    /// best.restore(&vars)?;
    /// # Ok(()) }
    /// ```
    pub fn with_checkpoint(mut self, path: impl Into<PathBuf>) -> FixedTrial {
        self.trial.get_mut().fixed = Some(Fixed { checkpoint: Some(path.into()) });
        self
    }

    /// The content of the checkpoint, of which nothing is restored; none if there is none.
    #[doc(hidden)]
    #[track_caller]
    pub fn read_checkpoint(&self) -> Result<Option<Shared>> {
        located(self.trial.get().given_checkpoint().map(|saved| saved.map(|(saved, _)| saved)))
    }

    /// Sets a metric as an objective whose smallest report [`Trial::best`] returns.
    pub fn minimize(self, metric: &str) -> FixedTrial {
        self.with_objective(Objective::new(metric, Direction::Min))
    }

    /// Sets a metric as an objective whose largest report [`Trial::best`] returns.
    pub fn maximize(self, metric: &str) -> FixedTrial {
        self.with_objective(Objective::new(metric, Direction::Max))
    }

    fn with_objective(mut self, objective: Objective) -> FixedTrial {
        self.trial.get_mut().assignment.objectives.push(objective);
        self
    }
}

impl Deref for FixedTrial {
    type Target = Trial;

    fn deref(&self) -> &Trial {
        self.trial.get()
    }
}

/// A client that answers a trial's requests from given values.
#[derive(Debug)]
struct FixedAnswers {
    values: Values,
}

impl SupervisorClient for FixedAnswers {
    fn exchange(&mut self, request: &Request) -> io::Result<Reply> {
        Ok(match request {
            // The trial's own call adds its place to the error.
            Request::Suggest { name, distribution, .. } => match self.value(name, distribution) {
                Ok(value) => Reply::Value { value },
                Err(reason) => Reply::Refused { reason },
            },
            Request::Epochs { total: 0, .. } => {
                Reply::Refused { reason: "trial.epochs(0) trains nothing; give at least 1".to_owned() }
            }
            Request::Epochs { total, resume_at } => Reply::Epochs { start: *resume_at.min(total), stop: *total },
            Request::Report { .. } => Reply::Verdict { verdict: Verdict::Continue },
            _ => Reply::Done,
        })
    }
}

impl FixedAnswers {
    /// The parameter's value in the type of its range, or the reason why it has none.
    fn value(&self, name: &str, distribution: &Distribution) -> Result<Value, String> {
        distribution.validate(name).map_err(|error| error.to_string())?;
        // `trial.fixed` has one value, which need not be given.
        let only = match distribution {
            Distribution::Choice { values, .. } if values.len() == 1 => values.first(),
            _ => None,
        };
        let Some(value) = self.values.get(name).or(only) else {
            let known = self.values.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            let known = if known.is_empty() { "nor for any other".to_owned() } else { format!("only for {known}") };
            return Err(format!("Trial::of has no value for `{name}`, {known}; add it"));
        };
        let text = value.exact();
        fit(value, distribution).ok_or_else(|| {
            format!("Trial::of gives `{name}` the value {text}, but it is {distribution}; give one of these")
        })
    }
}
