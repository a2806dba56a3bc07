//! Reads pruners from a command line: `NAME:SETTING=NUMBER,…`. Judges no trial.

use super::{Checks, Pruner};
use std::fmt;
use std::str::FromStr;

/// Names of the pruners, each with its settings.
const KINDS: [(&str, &[&str]); 6] = [
    ("median", &["startup", "warmup", "interval", "least"]),
    ("percentile", &["keep", "startup", "warmup", "interval", "least"]),
    ("forecast", &["chance"]),
    ("wilcoxon", &["p", "startup"]),
    ("patience", &["steps", "delta", AROUND]),
    ("threshold", &["lower", "upper", "warmup", "interval"]),
];

/// Settings of earlier versions: the pruner, the setting, and the pruner to use now.
const RETIRED: [(&str, &str, &str); 2] =
    [("forecast", "share", "forecast:chance=0.05"), ("wilcoxon", "wrong", "forecast")];

/// The setting of `patience` whose value is another pruner, which is the whole rest of the text.
const AROUND: &str = "around";

/// The reason why a text does not name a pruner.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PrunerError {
    /// No pruner has this name.
    #[error("there is no pruner `{name}`; choose one of {}", KINDS.map(|(name, _)| name).join(", "))]
    Unknown {
        /// The requested name.
        name: String,
    },
    /// The pruner has no such setting, or the setting is not written as `SETTING=NUMBER`.
    #[error("pruner {pruner} has no setting `{setting}`; write {pruner}:SETTING=NUMBER with {known}")]
    Setting {
        /// The pruner.
        pruner: &'static str,
        /// The given setting.
        setting: String,
        /// The settings of this pruner.
        known: String,
    },
    /// An earlier version had the setting.
    #[error("pruner {pruner} no longer has the setting `{setting}`; use {instead}")]
    Retired {
        /// The pruner.
        pruner: &'static str,
        /// The given setting.
        setting: &'static str,
        /// The pruner to use now.
        instead: &'static str,
    },
    /// The setting cannot have this number.
    #[error("pruner {pruner} has {setting}={number}; give {wanted}")]
    Number {
        /// The pruner.
        pruner: &'static str,
        /// The setting.
        setting: &'static str,
        /// The given number.
        number: String,
        /// The allowed numbers.
        wanted: &'static str,
    },
    /// The pruner has no effect without a certain setting.
    #[error("pruner {pruner} lacks {settings}; write for example {example}")]
    Missing {
        /// The pruner.
        pruner: &'static str,
        /// The missing setting.
        settings: &'static str,
        /// An example of the pruner with the setting.
        example: &'static str,
    },
}

impl Pruner {
    /// Names of the pruners.
    pub fn names() -> impl Iterator<Item = &'static str> {
        KINDS.iter().map(|(name, _)| *name)
    }
}

impl FromStr for Pruner {
    type Err = PrunerError;

    fn from_str(text: &str) -> Result<Pruner, PrunerError> {
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        let kind = KINDS.iter().find(|(known, _)| *known == name);
        let (pruner, known) = *kind.ok_or_else(|| PrunerError::Unknown { name: name.to_owned() })?;
        let (rest, around) = split_around(pruner, rest);
        let around = around.map(|text| text.parse().map(Box::new)).transpose()?;
        let settings = Settings::read(pruner, known, rest)?;
        let checks =
            || Ok(Checks { warmup: settings.count("warmup", 0, 0)?, interval: settings.count("interval", 1, 1)? });
        match pruner {
            "forecast" => {
                let chance = settings.number("chance", 0.05, (0.0, 1.0), "a probability from 0 to 1")?;
                Ok(Pruner::Forecast { chance })
            }
            "wilcoxon" => {
                let p = settings.number("p", 0.1, (0.0, 1.0), "a probability from 0 to 1")?;
                Ok(Pruner::Wilcoxon { p, startup: settings.count("startup", 2, 0)? })
            }
            "patience" => {
                let steps = settings.given("steps").then(|| settings.count("steps", 0, 0)).transpose()?;
                let steps =
                    steps.ok_or(PrunerError::Missing { pruner, settings: "steps", example: "patience:steps=5" })?;
                let delta = settings.number("delta", 0.0, (0.0, f64::MAX), "a number from 0 on")?;
                Ok(Pruner::Patience { steps, delta, around })
            }
            "threshold" if !settings.given("lower") && !settings.given("upper") => {
                Err(PrunerError::Missing { pruner, settings: "lower or upper", example: "threshold:upper=10" })
            }
            "threshold" => {
                let any = (f64::NEG_INFINITY, f64::INFINITY);
                let lower = settings.number("lower", any.0, any, "a number")?;
                let upper = settings.number("upper", any.1, (lower, any.1), "a number that is not below lower")?;
                Ok(Pruner::Threshold { lower, upper, checks: checks()? })
            }
            _ => {
                let keep = settings.number("keep", 50.0, (0.0, 100.0), "per cent from 0 to 100")?;
                let (startup, least) = (settings.count("startup", 5, 0)?, settings.count("least", 1, 1)?);
                Ok(Pruner::Percentile { keep, startup, checks: checks()?, least })
            }
        }
    }
}

/// The settings of `patience` that come before the other pruner, and the text of that pruner.
fn split_around<'a>(pruner: &str, rest: &'a str) -> (&'a str, Option<&'a str>) {
    let place = rest.match_indices(AROUND).map(|(place, _)| place).find(|place| {
        let begins = *place == 0 || rest[..*place].ends_with(',');
        begins && rest[place + AROUND.len()..].starts_with('=')
    });
    match place.filter(|_| pruner == "patience") {
        Some(place) => (&rest[..place], Some(&rest[place + AROUND.len() + 1..])),
        None => (rest, None),
    }
}

/// The settings of one pruner in a text.
struct Settings<'a> {
    pruner: &'static str,
    given: Vec<(&'static str, &'a str)>,
}

impl<'a> Settings<'a> {
    fn read(pruner: &'static str, known: &[&'static str], text: &'a str) -> Result<Settings<'a>, PrunerError> {
        let entry = |entry: &'a str| {
            let pair = entry.split_once('=');
            let known_pair = pair.and_then(|(key, number)| Some((*known.iter().find(|known| **known == key)?, number)));
            let setting = pair.map_or(entry, |(key, _)| key);
            known_pair.ok_or_else(|| match RETIRED.iter().find(|retired| (retired.0, retired.1) == (pruner, setting)) {
                Some((pruner, setting, instead)) => PrunerError::Retired { pruner, setting, instead },
                None => PrunerError::Setting { pruner, setting: setting.to_owned(), known: known.join(", ") },
            })
        };
        let entries = text.split(',').filter(|entry| !entry.is_empty()).map(entry);
        Ok(Settings { pruner, given: entries.collect::<Result<_, _>>()? })
    }

    fn given(&self, setting: &str) -> bool {
        self.given.iter().any(|(key, _)| *key == setting)
    }

    fn text(&self, setting: &str) -> Option<&'a str> {
        self.given.iter().rev().find(|(key, _)| *key == setting).map(|(_, number)| *number)
    }

    fn number(
        &self,
        setting: &'static str,
        default: f64,
        (low, high): (f64, f64),
        wanted: &'static str,
    ) -> Result<f64, PrunerError> {
        let Some(text) = self.text(setting) else { return Ok(default) };
        let number = text.parse().ok().filter(|number: &f64| (low..=high).contains(number));
        number.ok_or(PrunerError::Number { pruner: self.pruner, setting, number: text.to_owned(), wanted })
    }

    fn count(&self, setting: &'static str, default: u64, least: u64) -> Result<u64, PrunerError> {
        let Some(text) = self.text(setting) else { return Ok(default) };
        let wanted = if least == 0 { "a whole number from 0 on" } else { "a whole number from 1 on" };
        let number = text.parse().ok().filter(|number| *number >= least);
        number.ok_or(PrunerError::Number { pruner: self.pruner, setting, number: text.to_owned(), wanted })
    }
}

impl fmt::Display for Pruner {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pruner::Percentile { keep, startup, checks: Checks { warmup, interval }, least } => {
                let settings = format!("startup={startup},warmup={warmup},interval={interval},least={least}");
                if *keep == 50.0 {
                    write!(formatter, "median:{settings}")
                } else {
                    write!(formatter, "percentile:keep={keep},{settings}")
                }
            }
            Pruner::Forecast { chance } => write!(formatter, "forecast:chance={chance}"),
            Pruner::Wilcoxon { p, startup } => write!(formatter, "wilcoxon:p={p},startup={startup}"),
            Pruner::Patience { steps, delta, around } => {
                write!(formatter, "patience:steps={steps},delta={delta}")?;
                around.iter().try_for_each(|pruner| write!(formatter, ",{AROUND}={pruner}"))
            }
            Pruner::Threshold { lower, upper, checks: Checks { warmup, interval } } => {
                write!(formatter, "threshold:lower={lower},upper={upper},warmup={warmup},interval={interval}")
            }
        }
    }
}

impl TryFrom<String> for Pruner {
    type Error = PrunerError;

    fn try_from(text: String) -> Result<Pruner, PrunerError> {
        text.parse()
    }
}

impl From<Pruner> for String {
    fn from(pruner: Pruner) -> String {
        pruner.to_string()
    }
}
