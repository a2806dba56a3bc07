//! Reads an oracle's settings from its text: `NAME` or `NAME:SETTING=VALUE,…`, for example `hyperband:factor=4,min=2`.
//! Has no list of settings; each oracle asks for its own.

use std::cell::RefCell;
use std::fmt::Display;
use std::ops::{Bound, RangeBounds};

/// The smallest similarity of a name that is suggested.
const LIKENESS: f64 = 0.7;

/// The reason why an oracle cannot have its settings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    /// The oracle has no such setting.
    #[error("oracle {oracle} has no setting `{setting}`{}; {}", suggestion(.nearest), settings(.known))]
    Unknown {
        /// The oracle.
        oracle: &'static str,
        /// The given setting.
        setting: String,
        /// The most similar setting, if one is similar.
        nearest: Option<String>,
        /// The settings of this oracle.
        known: Vec<String>,
    },
    /// The setting is not written as `SETTING=VALUE`.
    #[error("oracle {oracle} has `{text}`, which is no setting; write {oracle}:SETTING=VALUE,…")]
    Form {
        /// The oracle.
        oracle: &'static str,
        /// The given text.
        text: String,
    },
    /// The setting is given twice.
    #[error("oracle {oracle} has {setting} twice; keep one")]
    Repeated {
        /// The oracle.
        oracle: &'static str,
        /// The setting.
        setting: String,
    },
    /// The setting cannot have this value.
    #[error("oracle {oracle} has {setting}={value}; give {wanted}")]
    Value {
        /// The oracle.
        oracle: &'static str,
        /// The setting.
        setting: String,
        /// The given value.
        value: String,
        /// The allowed values.
        wanted: String,
    },
}

fn suggestion(nearest: &Option<String>) -> String {
    nearest.as_ref().map_or_else(String::new, |name| format!(", did you mean `{name}`?"))
}

fn settings(known: &[String]) -> String {
    if known.is_empty() { "it has none".to_owned() } else { format!("it has {}", known.join(", ")) }
}

/// The settings in the text of one oracle. A setting is known if the oracle asks for it.
#[derive(Debug)]
pub(super) struct SettingsText<'a> {
    oracle: &'static str,
    pairs: Vec<(&'a str, &'a str)>,
    asked: RefCell<Vec<&'a str>>,
}

impl<'a> SettingsText<'a> {
    /// The settings in the text after the oracle's name and colon.
    pub(super) fn read(oracle: &'static str, text: &'a str) -> Result<SettingsText<'a>, SettingError> {
        let mut pairs: Vec<(&str, &str)> = Vec::new();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let pair = part.split_once('=').map(|(setting, value)| (setting.trim(), value.trim()));
            let pair = pair.filter(|(setting, value)| !setting.is_empty() && !value.is_empty());
            let (setting, value) = pair.ok_or_else(|| SettingError::Form { oracle, text: part.to_owned() })?;
            if pairs.iter().any(|(known, _)| *known == setting) {
                return Err(SettingError::Repeated { oracle, setting: setting.to_owned() });
            }
            pairs.push((setting, value));
        }
        Ok(SettingsText { oracle, pairs, asked: RefCell::default() })
    }

    /// A setting that is a whole number within bounds; `None` if it is not given.
    pub(super) fn count(
        &self,
        setting: &'static str,
        bounds: impl RangeBounds<u64>,
    ) -> Result<Option<u64>, SettingError> {
        self.parsed(setting, &described("a whole number", &bounds), |text| {
            text.parse().ok().filter(|number| bounds.contains(number))
        })
    }

    /// A setting that is a number within bounds; `None` if it is not given.
    pub(super) fn number(
        &self,
        setting: &'static str,
        bounds: impl RangeBounds<f64>,
    ) -> Result<Option<f64>, SettingError> {
        self.parsed(setting, &described("a number", &bounds), |text| {
            text.parse().ok().filter(|number: &f64| number.is_finite() && bounds.contains(number))
        })
    }

    /// A setting that is `true` or `false`; `None` if it is not given.
    pub(super) fn switch(&self, setting: &'static str) -> Result<Option<bool>, SettingError> {
        self.parsed(setting, "true or false", |text| text.parse().ok())
    }

    /// All settings, for an oracle whose settings have the names of parameters.
    pub(super) fn all(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.asked.borrow_mut().extend(self.pairs.iter().map(|(setting, _)| *setting));
        self.pairs.iter().copied()
    }

    /// The error of a setting whose value is not `wanted`.
    pub(super) fn refused(&self, setting: &str, value: &str, wanted: &str) -> SettingError {
        let (setting, value, wanted) = (setting.to_owned(), value.to_owned(), wanted.to_owned());
        SettingError::Value { oracle: self.oracle, setting, value, wanted }
    }

    /// Fails if there is a setting that the oracle has not asked for.
    pub(super) fn finish(&self) -> Result<(), SettingError> {
        let asked = self.asked.borrow();
        let Some((setting, _)) = self.pairs.iter().find(|(setting, _)| !asked.contains(setting)) else {
            return Ok(());
        };
        let alike = asked.iter().map(|known| (strsim::jaro_winkler(setting, known), *known));
        let nearest = alike.filter(|(likeness, _)| *likeness >= LIKENESS).max_by(|a, b| a.0.total_cmp(&b.0));
        Err(SettingError::Unknown {
            oracle: self.oracle,
            setting: (*setting).to_owned(),
            nearest: nearest.map(|(_, name)| name.to_owned()),
            known: asked.iter().map(|name| (*name).to_owned()).collect(),
        })
    }

    fn parsed<T>(
        &self,
        setting: &'static str,
        wanted: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, SettingError> {
        self.asked.borrow_mut().push(setting);
        let Some((_, text)) = self.pairs.iter().find(|(known, _)| *known == setting) else { return Ok(None) };
        parse(text).map(Some).ok_or_else(|| self.refused(setting, text, wanted))
    }
}

/// A description of the allowed values: `a number above 0 and below 1`.
fn described<T: Display>(kind: &str, bounds: &impl RangeBounds<T>) -> String {
    let low = match bounds.start_bound() {
        Bound::Included(low) => format!(" from {low}"),
        Bound::Excluded(low) => format!(" above {low}"),
        Bound::Unbounded => String::new(),
    };
    let high = match (bounds.end_bound(), bounds.start_bound()) {
        (Bound::Included(high), Bound::Excluded(_)) => format!(" and up to {high}"),
        (Bound::Included(high), _) => format!(" to {high}"),
        (Bound::Excluded(high), _) => format!(" and below {high}"),
        (Bound::Unbounded, Bound::Included(_)) => " on".to_owned(),
        (Bound::Unbounded, _) => String::new(),
    };
    format!("{kind}{low}{high}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    /// Reads a text in the same way as an oracle with a setting of each kind.
    fn read(text: &str) -> String {
        let read = || {
            let given = SettingsText::read("example", text)?;
            let factor = given.count("factor", 2..=9)?;
            let size = given.count("population", 4..)?;
            let gamma = given.number("gamma", (Bound::Excluded(0.0), Bound::Excluded(1.0)))?;
            let sigma = given.number("sigma0", (Bound::Excluded(0.0), Bound::Unbounded))?;
            let separable = given.switch("separable")?;
            given.finish()?;
            Ok::<_, SettingError>(format!("{factor:?} {size:?} {gamma:?} {sigma:?} {separable:?}"))
        };
        read().unwrap_or_else(|error| error.to_string())
    }

    #[test]
    fn texts_are_read_or_refused_in_one_line() {
        let texts = [
            "",
            "factor=4, gamma=0.25,separable=true",
            "facter=4",
            "gama=0.1",
            "xyz=1",
            "factor=1",
            "factor=4.5",
            "population=3",
            "gamma=1",
            "gamma=NaN",
            "sigma0=0",
            "separable=yes",
            "factor",
            "factor=",
            "factor=4,factor=5",
        ];
        let read: Vec<String> = texts.iter().map(|text| format!("{text}: {}", read(text))).collect();
        expect![[r#"
            : None None None None None
            factor=4, gamma=0.25,separable=true: Some(4) None Some(0.25) None Some(true)
            facter=4: oracle example has no setting `facter`, did you mean `factor`?; it has factor, population, gamma, sigma0, separable
            gama=0.1: oracle example has no setting `gama`, did you mean `gamma`?; it has factor, population, gamma, sigma0, separable
            xyz=1: oracle example has no setting `xyz`; it has factor, population, gamma, sigma0, separable
            factor=1: oracle example has factor=1; give a whole number from 2 to 9
            factor=4.5: oracle example has factor=4.5; give a whole number from 2 to 9
            population=3: oracle example has population=3; give a whole number from 4 on
            gamma=1: oracle example has gamma=1; give a number above 0 and below 1
            gamma=NaN: oracle example has gamma=NaN; give a number above 0 and below 1
            sigma0=0: oracle example has sigma0=0; give a number above 0
            separable=yes: oracle example has separable=yes; give true or false
            factor: oracle example has `factor`, which is no setting; write example:SETTING=VALUE,…
            factor=: oracle example has `factor=`, which is no setting; write example:SETTING=VALUE,…
            factor=4,factor=5: oracle example has factor twice; keep one
        "#]]
        .assert_eq(&format!("{}\n", read.join("\n")));
    }
}
