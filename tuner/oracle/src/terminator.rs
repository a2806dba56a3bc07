//! The terminators, which decide whether a search ends before its limit of trials. Terminators see only trial records, and
//! end nothing themselves.
//!
//! A terminator is written as `NAME` or `NAME:SETTING=NUMBER`, for example `stagnation:trials=50`.

use std::fmt;
use std::str::FromStr;

/// The number of finished trials before `regret` judges a search.
pub(crate) const FEWEST_TRIALS: usize = 20;
/// The default share of `regret`.
pub(crate) const USUAL_SHARE: f64 = 0.01;

/// A terminator: judges a search after each of its trials.
///
/// ```
/// use ferrotune_oracle::terminator::Terminator;
/// assert_eq!("stagnation".parse(), Ok(Terminator::Stagnation { trials: 30 }));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Terminator {
    /// `stagnation`: ends a search whose best value has not improved for `trials` finished trials.
    Stagnation {
        /// The number of finished trials without an improvement, at least 1.
        trials: u64,
    },
    /// `regret`: ends a search when a Gaussian process predicts with confidence that no relevant improvement is
    /// possible (Makarova et al. 2022, Automatic Termination for Hyperparameter Optimization, AutoML).
    Regret {
        /// The smallest relevant improvement, as a share of the difference between the best and the median trial.
        share: f64,
    },
}

/// The reason why a text does not name a terminator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TerminatorError {
    /// There is no terminator of this name, or it has no such setting.
    #[error("`{text}` names no terminator; write stagnation:trials=30 or regret:share=0.01")]
    Unknown {
        /// The given text.
        text: String,
    },
    /// The setting cannot have this number.
    #[error("terminator {name} has {setting}={number}; give {wanted}")]
    Number {
        /// The terminator.
        name: &'static str,
        /// The setting.
        setting: &'static str,
        /// The given number.
        number: String,
        /// The allowed numbers.
        wanted: &'static str,
    },
}

impl Terminator {
    /// Names of the terminators.
    pub const NAMES: [&str; 2] = ["stagnation", "regret"];

    /// Whether a search with these losses of finished trials, in the order of their numbers, has to end.
    ///
    /// `regret` is a bound on the possible improvement, in the losses' unit, if a model can compute one.
    pub(crate) fn ends(self, losses: &[f64], regret: impl FnOnce() -> Option<f64>) -> bool {
        match self {
            Terminator::Stagnation { trials } => {
                let best = losses.iter().enumerate().min_by(|a, b| a.1.total_cmp(b.1)).map_or(0, |(index, _)| index);
                (losses.len().saturating_sub(best + 1)) as u64 >= trials
            }
            Terminator::Regret { .. } if losses.len() < FEWEST_TRIALS => false,
            Terminator::Regret { share } => regret().is_some_and(|regret| regret <= threshold(share, losses)),
        }
    }
}

/// The largest improvement that is not relevant: a share of the difference between the best and the median of
/// these losses; 0 if there are no losses.
pub(crate) fn threshold(share: f64, losses: &[f64]) -> f64 {
    let mut sorted = losses.to_vec();
    sorted.sort_by(f64::total_cmp);
    match (sorted.get(sorted.len() / 2), sorted.first()) {
        (Some(median), Some(best)) => share * (median - best),
        _ => 0.0,
    }
}

impl FromStr for Terminator {
    type Err = TerminatorError;

    fn from_str(text: &str) -> Result<Terminator, TerminatorError> {
        let usual_share = USUAL_SHARE.to_string();
        let (name, setting) = text.split_once(':').map_or((text, None), |(name, setting)| (name, Some(setting)));
        let unknown = || TerminatorError::Unknown { text: text.to_owned() };
        let number = |key: &str, default: &str| match setting {
            None => Ok(default.to_owned()),
            Some(setting) => match setting.split_once('=') {
                Some((known, number)) if known == key => Ok(number.to_owned()),
                _ => Err(unknown()),
            },
        };
        match name {
            "stagnation" => {
                let (number, wanted) = (number("trials", "30")?, "a whole number from 1 on");
                let trials = number.parse().ok().filter(|trials| *trials > 0);
                let error = || TerminatorError::Number { name: "stagnation", setting: "trials", number, wanted };
                trials.map(|trials| Terminator::Stagnation { trials }).ok_or_else(error)
            }
            "regret" => {
                let (number, wanted) = (number("share", &usual_share)?, "a share above 0 and below 1");
                let share = number.parse().ok().filter(|share| *share > 0.0 && *share < 1.0);
                let error = || TerminatorError::Number { name: "regret", setting: "share", number, wanted };
                share.map(|share| Terminator::Regret { share }).ok_or_else(error)
            }
            _ => Err(unknown()),
        }
    }
}

impl fmt::Display for Terminator {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Terminator::Stagnation { trials } => write!(formatter, "stagnation:trials={trials}"),
            Terminator::Regret { share } => write!(formatter, "regret:share={share}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn stagnation_counts_from_the_best_trial() {
        let ends = |losses: &[f64]| Terminator::Stagnation { trials: 3 }.ends(losses, || None);
        assert!(!ends(&[]) && !ends(&[1.0, 2.0, 3.0]) && ends(&[1.0, 2.0, 3.0, 1.0]));
        assert!(!ends(&[1.0, 2.0, 3.0, 0.5]), "the last one is better");
    }

    #[test]
    fn regret_is_measured_by_what_has_been_gained() {
        let losses: Vec<f64> = (0..21_i32).map(f64::from).collect();
        let ends = |regret| Terminator::Regret { share: 0.1 }.ends(&losses, || regret);
        assert!(ends(Some(1.0)) && !ends(Some(1.1)) && !ends(None));
        assert!(!Terminator::Regret { share: 0.1 }.ends(&losses[..19], || Some(0.0)), "too few trials");
    }

    #[test]
    fn terminators_are_read_and_written_in_one_form() {
        for text in ["stagnation:trials=7", "regret:share=0.05"] {
            assert_eq!(text.parse::<Terminator>().map(|terminator| terminator.to_string()).as_deref(), Ok(text));
        }
        let error = |text: &str| text.parse::<Terminator>().expect_err("refused").to_string();
        expect!["`emmr` names no terminator; write stagnation:trials=30 or regret:share=0.01"]
            .assert_eq(&error("emmr"));
        expect!["`regret:x=1` names no terminator; write stagnation:trials=30 or regret:share=0.01"]
            .assert_eq(&error("regret:x=1"));
        expect!["terminator stagnation has trials=0; give a whole number from 1 on"]
            .assert_eq(&error("stagnation:trials=0"));
        expect!["terminator regret has share=2; give a share above 0 and below 1"].assert_eq(&error("regret:share=2"));
    }
}
