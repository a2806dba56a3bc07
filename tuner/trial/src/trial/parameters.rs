//! The hyper-parameters that an objective may ask for. The supervisor checks ranges when it draws values.
//!
//! An objective asks for a conditional parameter under an `if`, as in Optuna: nothing is declared, and oracles learn
//! its condition from the trials without it. Keras Tuner has `conditional_scope` because it must know the whole space
//! before the first trial; `.when()` replaces it here for objectives without an `if`.

mod kinds;
mod question;

use kinds::decimal;
pub use kinds::{Choosable, Integer, Plain, Real};
pub(super) use question::Asked;

use super::Trial;
use crate::error::TrialError;
use ferrotune_space::{Distribution, Scale, Value};
use ferrotune_state::{Result, located};
use question::Question;
use std::marker::PhantomData;
use std::ops::RangeInclusive;

impl Trial {
    /// A request for a whole number of any integer type. Bounds are inclusive.
    ///
    /// ```no_run
    /// # fn objective(trial: &ferrotune_trial::Trial) -> ferrotune_trial::Result<()> {
    /// let units: usize = trial.int("units", 32..=512).step(32).get()?;
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn int<T: Integer>(&self, name: &str, range: RangeInclusive<T>) -> IntParameter<'_, T> {
        IntParameter::new(Question::here(self, name), &range)
    }

    /// A request for a real number. Bounds are inclusive.
    ///
    /// ```no_run
    /// # fn objective(trial: &ferrotune_trial::Trial) -> ferrotune_trial::Result<()> {
    /// let lr = trial.float("lr", 1e-4..=1e-1).log().get()?;
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn float<T: Real>(&self, name: &str, range: RangeInclusive<T>) -> FloatParameter<'_, T> {
        FloatParameter::new(Question::here(self, name), &range)
    }

    /// A request for one of a list of strings, numbers or bools. A choice of strings gives a `String`.
    ///
    /// ```no_run
    /// # fn objective(trial: &ferrotune_trial::Trial) -> ferrotune_trial::Result<()> {
    /// let optimiser = trial.choice("optimiser", ["adam", "sgd"]).get()?;
    /// let batch: usize = trial.choice("batch", [32, 64, 128]).get()?;
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn choice<T: Choosable>(&self, name: &str, values: impl AsRef<[T]>) -> ChoiceParameter<'_, T> {
        let values = values.as_ref().iter().map(Choosable::to_value).collect();
        let question = Question::here(self, name);
        ChoiceParameter { question, values, is_ordered: false, default: None, kind: PhantomData }
    }

    /// A request for `false` or `true`.
    #[track_caller]
    pub fn bool(&self, name: &str) -> ChoiceParameter<'_, bool> {
        self.choice(name, [false, true])
    }

    /// A request for a fixed value, which is recorded like the others.
    #[track_caller]
    pub fn fixed<T: Choosable>(&self, name: &str, value: T) -> ChoiceParameter<'_, T> {
        self.choice(name, [value])
    }
}

/// A request for a whole number, made by [`Trial::int`].
pub type IntParameter<'a, T> = NumberParameter<'a, T, Whole>;

/// A request for a real number, made by [`Trial::float`].
pub type FloatParameter<'a, T> = NumberParameter<'a, T, Continuous>;

/// The kind of a parameter of whole numbers.
#[derive(Clone, Debug)]
pub enum Whole {}

/// The kind of a parameter of real numbers.
#[derive(Clone, Debug)]
pub enum Continuous {}

/// A request for a number of the kind [`Whole`] or [`Continuous`].
#[derive(Clone, Debug)]
#[must_use = "a parameter is asked for with .get()?"]
pub struct NumberParameter<'a, T, K> {
    question: Question<'a>,
    low: T,
    high: T,
    step: Option<T>,
    scale: Scale,
    default: Option<T>,
    kind: PhantomData<fn() -> K>,
}

impl<'a, T: Copy, K> NumberParameter<'a, T, K> {
    fn new(question: Question<'a>, range: &RangeInclusive<T>) -> Self {
        let (low, high) = (*range.start(), *range.end());
        NumberParameter { question, low, high, step: None, scale: Scale::Linear, default: None, kind: PhantomData }
    }

    /// Restricts the values to `low, low + step, …`.
    pub fn step(mut self, step: T) -> Self {
        self.step = Some(step);
        self
    }

    /// Draws values uniformly in the logarithm.
    pub fn log(mut self) -> Self {
        self.scale = Scale::Log;
        self
    }

    /// Draws values uniformly in the logarithm, mirrored so that most of them are near the upper bound. Keras Tuner's `reverse_log`.
    pub fn reverse_log(mut self) -> Self {
        self.scale = Scale::ReverseLog;
        self
    }

    /// Makes the parameter conditional: it is asked for only if `parent`, an earlier parameter, has this value. Otherwise the
    /// value is the default or the lower bound, and is not recorded. With several values of one parent, any of them is enough; with
    /// several parents, all must match.
    pub fn when(mut self, parent: &str, value: impl Choosable) -> Self {
        self.question.when(parent, value.to_value());
        self
    }

    /// Sets the value of the first trial.
    pub fn default(mut self, value: T) -> Self {
        self.default = Some(value);
        self
    }
}

impl<T: Integer> IntParameter<'_, T> {
    /// Asks for the value in this trial.
    ///
    /// Fails if the range is empty or invalid, or differs from an earlier range of the same name, or exceeds `i64`.
    #[track_caller]
    pub fn get(self) -> Result<T> {
        located(self.value())
    }

    fn value(self) -> Result<T, TrialError> {
        let wide = |value: T| value.try_into().map_err(|_| self.question.too_large(&value));
        let step = self.step.map_or(Ok(1), wide)?;
        let distribution = Distribution::Int { low: wide(self.low)?, high: wide(self.high)?, step, scale: self.scale };
        let value = self.question.whole(&distribution, self.default.map(wide).transpose()?)?;
        T::try_from(value).map_err(|_| self.question.mismatch(&value))
    }
}

impl<T: Real> FloatParameter<'_, T> {
    /// Asks for the value in this trial.
    ///
    /// Fails if the range is empty or invalid, or differs from an earlier range of the same name.
    #[track_caller]
    pub fn get(self) -> Result<T> {
        let step = self.step.map(Real::to_f64);
        let bound = |bound: T| if step.is_some() { decimal(bound.to_f64()) } else { bound.to_f64() };
        let (low, high) = (bound(self.low), bound(self.high));
        let distribution = Distribution::Float { low, high, step: step.map(decimal), scale: self.scale };
        located(self.question.real(&distribution, self.default.map(Real::to_f64)).map(T::from_f64))
    }
}

/// A request for one value of a list, made by [`Trial::choice`], [`Trial::bool`] and [`Trial::fixed`].
#[derive(Clone, Debug)]
#[must_use = "a parameter is asked for with .get()?"]
pub struct ChoiceParameter<'a, T> {
    question: Question<'a>,
    values: Vec<Value>,
    is_ordered: bool,
    default: Option<Value>,
    kind: PhantomData<fn() -> T>,
}

impl<T: Choosable> ChoiceParameter<'_, T> {
    /// Sets the value of the first trial.
    pub fn default(mut self, value: T) -> Self {
        self.default = Some(value.to_value());
        self
    }

    /// Declares that neighbours in the list are similar, as in `["small", "medium", "large"]`; the search uses ranks.
    pub fn ordered(mut self) -> Self {
        self.is_ordered = true;
        self
    }

    /// Makes the parameter conditional: it is asked for only if `parent`, an earlier parameter, has this value. Otherwise the
    /// value is the default or the first of the list, and is not recorded. With several values of one parent, any of them is enough; with
    /// several parents, all must match.
    ///
    /// ```no_run
    /// # fn objective(trial: &ferrotune_trial::Trial) -> ferrotune_trial::Result<()> {
    /// let optimiser = trial.choice("optimiser", ["adam", "sgd"]).get()?;
    /// let momentum = trial.float("momentum", 0.5..=0.99).when("optimiser", "sgd").default(0.9).get()?;
    /// # Ok(()) }
    /// ```
    pub fn when(mut self, parent: &str, value: impl Choosable) -> Self {
        self.question.when(parent, value.to_value());
        self
    }

    fn ask<V>(self, read: impl FnOnce(&Value) -> Option<V>) -> Result<V, TrialError> {
        let distribution = Distribution::Choice { values: self.values, is_ordered: self.is_ordered };
        let value = self.question.ask(&distribution, self.default)?;
        read(&value).ok_or_else(|| self.question.mismatch(&value))
    }
}

impl<T: Plain> ChoiceParameter<'_, T> {
    /// Asks for the value in this trial.
    ///
    /// Fails if the list is empty, or if a parameter of this name had another kind before.
    #[track_caller]
    pub fn get(self) -> Result<T> {
        located(self.ask(T::from_value))
    }
}
