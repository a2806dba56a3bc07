//! The options of a `Prep`: what is scaled, what stands for a gap, and how categories and dates become features.

use super::Prep;
use super::fit::fit;
use crate::{Result, Table, Value};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The scale of numbers, and of dates as numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Scale {
    /// The mean 0 and the standard deviation 1 in the part for training: scikit-learn's `StandardScaler`. Equal numbers become 0.
    #[default]
    Standard,
    /// From 0 to 1 in the part for training: scikit-learn's `MinMaxScaler`. Equal numbers become 0.
    MinMax,
    /// As they are.
    Unscaled,
}

/// The value that stands for a gap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fill {
    /// The median of numbers and dates, and the most frequent category.
    #[default]
    Median,
    /// The mean of numbers, the median of dates, and the most frequent category.
    Mean,
    /// None: a gap is an error.
    Refuse,
}

/// A part of a date that becomes features.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum DatePart {
    /// The days since 1970 with the time of the day as a fraction, scaled like a number: a trend.
    Days,
    /// The year, scaled like a number.
    Year,
    /// Twelve features, of which that of the month is 1.
    Month,
    /// Seven features, of which that of the day of the week is 1; the first one is Monday.
    Weekday,
    /// 24 features, of which that of the hour is 1, in UTC.
    Hour,
}

/// The options of a [`Prep`], from [`Prep::options`].
///
/// ```
/// use ferrotune_data::{Prep, Scale, Table};
/// let table = Table::from_columns([
///     ("rooms", vec![3.into(), 5.into()]),
///     ("city", vec!["Oslo".into(), "Bergen".into()]),
/// ])?;
/// let prep = Prep::options().scale(Scale::MinMax).ordinal("city").fit(&table)?;
/// assert_eq!(prep.features(&table)?.to_vec2::<f32>()?, [[0.0, 1.0], [1.0, 0.5]]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct PrepOptions {
    pub(super) scale: Scale,
    pub(super) fill: Fill,
    pub(super) one_hot_up_to: usize,
    pub(super) flags: bool,
    pub(super) scaled_target: bool,
    pub(super) skipped: BTreeSet<String>,
    pub(super) scales: BTreeMap<String, Scale>,
    pub(super) fills: BTreeMap<String, Value>,
    pub(super) ordinal: BTreeMap<String, bool>,
    pub(super) parts: BTreeMap<String, Vec<DatePart>>,
}

impl Default for PrepOptions {
    fn default() -> PrepOptions {
        PrepOptions {
            scale: Scale::Standard,
            fill: Fill::Median,
            one_hot_up_to: 20,
            flags: true,
            scaled_target: false,
            skipped: BTreeSet::new(),
            scales: BTreeMap::new(),
            fills: BTreeMap::new(),
            ordinal: BTreeMap::new(),
            parts: BTreeMap::new(),
        }
    }
}

impl PrepOptions {
    /// Sets the scale of all numbers and dates. The default is [`Scale::Standard`].
    pub fn scale(self, scale: Scale) -> PrepOptions {
        PrepOptions { scale, ..self }
    }

    /// Sets the scale of a column of numbers or dates.
    pub fn scale_of(mut self, column: &str, scale: Scale) -> PrepOptions {
        self.scales.insert(column.to_owned(), scale);
        self
    }

    /// Sets what stands for gaps. The default is [`Fill::Median`].
    pub fn fill(self, fill: Fill) -> PrepOptions {
        PrepOptions { fill, ..self }
    }

    /// Sets the value that stands for the gaps of a column, such as 0 or `"none"`.
    pub fn fill_with(mut self, column: &str, value: impl Into<Value>) -> PrepOptions {
        self.fills.insert(column.to_owned(), value.into());
        self
    }

    /// Adds no features that are 1 where a value is missing.
    pub fn without_flags(self) -> PrepOptions {
        PrepOptions { flags: false, ..self }
    }

    /// Sets the number of categories up to which a column has a feature for each of them. With more, it has one feature, as with
    /// [`PrepOptions::ordinal`]. The default is 20.
    pub fn one_hot_up_to(self, categories: usize) -> PrepOptions {
        PrepOptions { one_hot_up_to: categories, ..self }
    }

    /// Makes a feature for each category of a column, however many there are.
    pub fn one_hot(mut self, column: &str) -> PrepOptions {
        self.ordinal.insert(column.to_owned(), false);
        self
    }

    /// Makes one feature of the categories of a column: the place among the sorted categories, counted from 1 and divided by their
    /// number. A text of `fill_with` that no row has comes last. A category that the part for training does not have is 0.
    pub fn ordinal(mut self, column: &str) -> PrepOptions {
        self.ordinal.insert(column.to_owned(), true);
        self
    }

    /// Sets the parts of a column of dates that become features. The default is the days, the month and the weekday, and the hour if
    /// the part for training has times of the day.
    pub fn date_parts(mut self, column: &str, parts: impl IntoIterator<Item = DatePart>) -> PrepOptions {
        self.parts.insert(column.to_owned(), parts.into_iter().collect());
        self
    }

    /// Makes no feature of a column.
    pub fn skip(mut self, column: &str) -> PrepOptions {
        self.skipped.insert(column.to_owned());
        self
    }

    /// Scales a target of numbers to the mean 0 and the standard deviation 1. [`Prep::inverse`] makes predictions of the results of a
    /// model.
    pub fn scaled_target(self) -> PrepOptions {
        PrepOptions { scaled_target: true, ..self }
    }

    /// Fits to the part for training: see [`Prep::fit`]. Fails also if an option names a column that does not exist, or whose kind has
    /// no such option.
    pub fn fit(&self, train: &Table) -> Result<Prep> {
        fit(self, train)
    }

    /// The columns that options name.
    pub(super) fn named(&self) -> impl Iterator<Item = &String> {
        let (skipped, scales, fills) = (self.skipped.iter(), self.scales.keys(), self.fills.keys());
        skipped.chain(scales).chain(fills).chain(self.ordinal.keys()).chain(self.parts.keys())
    }
}
