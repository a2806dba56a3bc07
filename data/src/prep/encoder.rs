//! The features of one column: a gap is filled, numbers are scaled, and categories and parts of dates become zeros and ones.

use super::options::DatePart;
use crate::tabular::{Column, NO_BIT, NO_DATE, NO_TEXT, Value, Values, date, rounded};
use crate::{DataError, Result};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

const WEEKDAYS: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

/// A fitted column.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Encoder {
    pub(super) column: String,
    pub(super) step: Step,
    /// Whether a feature says that the value is missing.
    pub(super) has_flag: bool,
}

/// How the values of a column become features. Without a `fill`, a gap is an error.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Step {
    Number { fill: Option<f64>, scaling: Scaling },
    YesNo { fill: Option<bool>, words: [String; 2] },
    OneHot { fill: Option<String>, categories: Vec<String> },
    Ordinal { fill: Option<String>, categories: Vec<String> },
    Date { fill: Option<i64>, parts: Vec<(DatePart, Scaling)> },
}

/// A feature is `(number - shift) / by`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Scaling {
    pub(super) shift: f64,
    pub(super) by: f64,
}

impl Scaling {
    pub(super) const NONE: Scaling = Scaling { shift: 0., by: 1. };

    pub(super) fn of(self, number: f64) -> f64 {
        (number - self.shift) / self.by
    }
}

/// A value as the encoder needs it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Known {
    Gap,
    Number(f64),
    YesNo(bool),
    /// The place among the encoder's categories; `None` if it is not among them.
    Category(Option<usize>),
    Date(i64),
}

impl Encoder {
    /// The names of the features.
    pub(super) fn names(&self) -> Vec<String> {
        let column = &self.column;
        let mut names: Vec<String> = match &self.step {
            Step::Number { .. } | Step::Ordinal { .. } => vec![column.clone()],
            Step::YesNo { words, .. } => vec![format!("{column}={}", words[1])],
            Step::OneHot { categories, .. } => categories.iter().map(|name| format!("{column}={name}")).collect(),
            Step::Date { parts, .. } => parts.iter().flat_map(|(part, _)| part.names(column)).collect(),
        };
        if self.has_flag {
            names.push(format!("{column} is missing"));
        }
        names
    }

    /// How the column becomes features, in words.
    pub(super) fn description(&self) -> String {
        let filled = |fill: Option<String>| match fill {
            Some(fill) => format!("; a gap is {fill}"),
            None => "; a gap is an error".to_owned(),
        };
        match &self.step {
            Step::Number { fill, scaling } if *scaling == Scaling::NONE => {
                format!("the number{}", filled(fill.map(rounded)))
            }
            Step::Number { fill, scaling: Scaling { shift, by } } => {
                format!("(number - {}) / {}{}", rounded(*shift), rounded(*by), filled(fill.map(rounded)))
            }
            Step::YesNo { fill, words } => {
                let fill = fill.map(|bit| words[usize::from(bit)].clone());
                format!("1 for {}, 0 for {}{}", words[1], words[0], filled(fill))
            }
            Step::OneHot { fill, categories } => {
                format!("a feature for each of {} categories{}", categories.len(), filled(fill.clone()))
            }
            Step::Ordinal { fill, categories } => {
                format!("the place among {} categories, from 0 to 1{}", categories.len(), filled(fill.clone()))
            }
            Step::Date { fill, parts } => {
                let parts: Vec<String> = parts.iter().map(|(part, _)| format!("{part:?}").to_lowercase()).collect();
                format!("{}{}", parts.join(", "), filled(fill.map(date::text)))
            }
        }
    }

    /// Adds the features of a value. `None` if it is a gap that nothing fills.
    pub(super) fn encode(&self, value: Known, features: &mut [f32]) -> Option<()> {
        features.fill(0.);
        let value = if value == Known::Gap { self.filled()? } else { value };
        match (&self.step, value) {
            (Step::Number { scaling, .. }, Known::Number(number)) => features[0] = scaling.of(number) as f32,
            (Step::YesNo { .. }, Known::YesNo(bit)) => features[0] = f32::from(u8::from(bit)),
            (Step::OneHot { .. }, Known::Category(Some(place))) => features[place] = 1.,
            (Step::Ordinal { categories, .. }, Known::Category(Some(place))) => {
                features[0] = ((place + 1) as f64 / categories.len() as f64) as f32;
            }
            (Step::OneHot { .. } | Step::Ordinal { .. }, Known::Category(None)) => {}
            (Step::Date { parts, .. }, Known::Date(micros)) => {
                let mut from = 0;
                for (part, scaling) in parts {
                    part.encode(micros, *scaling, &mut features[from..]);
                    from += part.width();
                }
            }
            (step, value) => unreachable!("{value:?} has been read for another step than {step:?}"),
        }
        Some(())
    }

    /// The value that stands for a gap.
    fn filled(&self) -> Option<Known> {
        Some(match &self.step {
            Step::Number { fill, .. } => Known::Number((*fill)?),
            Step::YesNo { fill, .. } => Known::YesNo((*fill)?),
            Step::OneHot { fill, categories } | Step::Ordinal { fill, categories } => {
                let fill = fill.as_ref()?;
                Known::Category(categories.iter().position(|category| category == fill))
            }
            Step::Date { fill, .. } => Known::Date((*fill)?),
        })
    }

    fn categories(&self) -> HashMap<&str, usize> {
        match &self.step {
            Step::OneHot { categories, .. } | Step::Ordinal { categories, .. } => {
                categories.iter().enumerate().map(|(place, name)| (name.as_str(), place)).collect()
            }
            Step::Number { .. } | Step::YesNo { .. } | Step::Date { .. } => HashMap::new(),
        }
    }

    /// The values of a column. Fails if the column has another kind than the one of the fit.
    pub(super) fn known(&self, column: &Column) -> Result<Vec<Known>> {
        match (&self.step, &column.values) {
            (_, Values::Empty(rows)) => Ok(vec![Known::Gap; *rows]),
            (Step::Number { .. }, Values::Numbers(rows)) => {
                Ok(rows.iter().map(|row| if row.is_nan() { Known::Gap } else { Known::Number(*row) }).collect())
            }
            (Step::Date { .. }, Values::Dates(rows)) => {
                Ok(rows.iter().map(|row| if *row == NO_DATE { Known::Gap } else { Known::Date(*row) }).collect())
            }
            (Step::YesNo { .. }, Values::YesNo { rows, .. }) => {
                Ok(rows.iter().map(|row| if *row == NO_BIT { Known::Gap } else { Known::YesNo(*row == 1) }).collect())
            }
            (Step::OneHot { .. } | Step::Ordinal { .. } | Step::YesNo { .. }, Values::Texts { rows, texts, .. }) => {
                let categories = self.categories();
                let texts = texts.iter().map(|text| self.of_text(text, &categories));
                let texts: Vec<Option<Known>> = texts.collect();
                let unfit = |place: u32| match &column.values {
                    Values::Texts { texts, .. } => self.unfit(&Value::Text(texts[place as usize].clone())),
                    _ => self.other_kind(column),
                };
                let row = |place: &u32| match place {
                    &NO_TEXT => Ok(Known::Gap),
                    place => texts[*place as usize].ok_or_else(|| unfit(*place)),
                };
                rows.iter().map(row).collect()
            }
            // A part may have a single word of the two.
            (Step::OneHot { .. } | Step::Ordinal { .. }, Values::YesNo { rows, words }) => {
                let categories = self.categories();
                let known = |word: &String| Known::Category(categories.get(word.as_str()).copied());
                let [no, yes] = [known(&words[0]), known(&words[1])];
                let row = |bit: &u8| match *bit {
                    NO_BIT => Known::Gap,
                    bit => {
                        if bit == 1 {
                            yes
                        } else {
                            no
                        }
                    }
                };
                Ok(rows.iter().map(row).collect())
            }
            _ => Err(self.other_kind(column)),
        }
    }

    /// The value of a row to predict. Fails if it has another type than the column.
    pub(super) fn known_value(&self, value: &Value) -> Result<Known> {
        let known = match (&self.step, value) {
            (_, Value::Gap) => Some(Known::Gap),
            (Step::Number { .. }, Value::Number(number)) if number.is_finite() => Some(Known::Number(*number)),
            (Step::YesNo { .. }, Value::YesNo(bit)) => Some(Known::YesNo(*bit)),
            (Step::OneHot { categories, .. } | Step::Ordinal { categories, .. }, Value::Number(number)) => {
                // A category may be written in several ways, as `37`, `37.0` or `037`. One that is no number is no such value.
                let mut written = categories.iter().map(|text| text.parse::<f64>().ok());
                let place = written.clone().position(|text| text == Some(*number));
                written.any(|text| text.is_some()).then_some(Known::Category(place))
            }
            (Step::OneHot { .. } | Step::Ordinal { .. }, Value::Text(text)) if text.trim().is_empty() => {
                Some(Known::Gap)
            }
            (_, Value::Text(text)) => self.of_text(text.trim(), &self.categories()),
            _ => None,
        };
        known.ok_or_else(|| self.unfit(value))
    }

    /// The value of a text; `None` if the column has no texts, or not such a one.
    fn of_text(&self, text: &str, categories: &HashMap<&str, usize>) -> Option<Known> {
        match &self.step {
            Step::OneHot { .. } | Step::Ordinal { .. } => Some(Known::Category(categories.get(text).copied())),
            Step::YesNo { words, .. } => {
                words.iter().position(|word| word.eq_ignore_ascii_case(text)).map(|bit| Known::YesNo(bit == 1))
            }
            Step::Date { .. } => date::parse(text).map(|date| Known::Date(date.micros)),
            Step::Number { .. } => None,
        }
    }

    /// The kind of value that the column takes.
    pub(super) fn takes(&self) -> String {
        match &self.step {
            Step::Number { .. } => "a number".to_owned(),
            Step::YesNo { words, .. } => format!("true or false, `{}` or `{}`", words[1], words[0]),
            Step::OneHot { .. } | Step::Ordinal { .. } => "a text".to_owned(),
            Step::Date { .. } => "a date such as \"2024-05-31\"".to_owned(),
        }
    }

    fn unfit(&self, value: &Value) -> DataError {
        DataError::column(&self.column, format!("it takes {}, and not {}", self.takes(), value.shown()))
    }

    fn other_kind(&self, column: &Column) -> DataError {
        let (kind, verb) = match &self.step {
            Step::Number { .. } => ("number", "number"),
            Step::YesNo { .. } => ("yes/no", "drop"),
            Step::OneHot { .. } | Step::Ordinal { .. } => ("category", "category"),
            Step::Date { .. } => ("date", "date"),
        };
        let (name, found) = (&column.name, column.kind());
        let note = column.note().map(|note| format!(" ({note})")).unwrap_or_default();
        let cure = match verb {
            "drop" => "fit again with tables whose columns have the same kind".to_owned(),
            verb => format!("read the table with `.{verb}(\"{name}\")`"),
        };
        DataError::column(name, format!("its kind is {found}{note} here and was {kind} in the fit; {cure}"))
    }
}

impl DatePart {
    pub(super) fn width(self) -> usize {
        match self {
            DatePart::Days | DatePart::Year => 1,
            DatePart::Month => 12,
            DatePart::Weekday => 7,
            DatePart::Hour => 24,
        }
    }

    /// The number that is scaled, of the parts that are numbers.
    pub(super) fn number(self, micros: i64) -> Option<f64> {
        match self {
            DatePart::Days => Some(date::days(micros)),
            DatePart::Year => Some(date::parts(micros).year as f64),
            DatePart::Month | DatePart::Weekday | DatePart::Hour => None,
        }
    }

    fn encode(self, micros: i64, scaling: Scaling, features: &mut [f32]) {
        let parts = date::parts(micros);
        match self {
            DatePart::Month => features[(parts.month - 1) as usize] = 1.,
            DatePart::Weekday => features[parts.weekday as usize] = 1.,
            DatePart::Hour => features[parts.hour as usize] = 1.,
            DatePart::Days | DatePart::Year => {
                features[0] = self.number(micros).map_or(0., |number| scaling.of(number) as f32);
            }
        }
    }

    fn names(self, column: &str) -> Vec<String> {
        match self {
            DatePart::Days => vec![format!("{column} days")],
            DatePart::Year => vec![format!("{column} year")],
            DatePart::Month => (1..=12).map(|month| format!("{column} month={month}")).collect(),
            DatePart::Weekday => WEEKDAYS.iter().map(|day| format!("{column} weekday={day}")).collect(),
            DatePart::Hour => (0..24).map(|hour| format!("{column} hour={hour}")).collect(),
        }
    }
}
