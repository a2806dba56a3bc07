//! `--where`: conditions on the columns of a trial.

use crate::ResultsError;
use crate::columns::{Cell, Column};
use ferrotune_journal::Study;
use ferrotune_space::record::TrialRecord;
use std::cmp::Ordering;

/// The separator between conditions that must all hold.
const AND: &str = " and ";
/// The comparison operators; longer ones first, because some begin with a shorter one.
const COMPARISONS: [(&str, Comparison); 8] = [
    ("<=", Comparison::AtMost),
    (">=", Comparison::AtLeast),
    ("!=", Comparison::Differs),
    ("==", Comparison::Equals),
    ("<", Comparison::Below),
    (">", Comparison::Above),
    ("=", Comparison::Equals),
    ("~", Comparison::Contains),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Equals,
    Differs,
    Contains,
    Below,
    Above,
    AtMost,
    AtLeast,
}

/// A condition on a column, such as `val_accuracy>0.9`.
#[derive(Debug)]
pub(super) struct Condition {
    column: Column,
    comparison: Comparison,
    value: Cell,
}

impl Condition {
    /// Parses conditions that must all hold.
    pub(super) fn read_all(study: &Study, text: &str) -> Result<Vec<Condition>, ResultsError> {
        text.split(AND).map(|condition| Condition::read(study, condition.trim())).collect()
    }

    fn read(study: &Study, text: &str) -> Result<Condition, ResultsError> {
        let places = COMPARISONS.iter().filter_map(|(sign, comparison)| Some((text.find(sign)?, sign, *comparison)));
        // If two operators begin at the same position, the longer operator is used, which is first in the list.
        let first = places.min_by_key(|(place, ..)| *place);
        let (place, sign, comparison) = first.ok_or_else(|| ResultsError::Condition { condition: text.to_owned() })?;
        let (name, value) = (text[..place].trim(), text[place + sign.len()..].trim().trim_matches(['"', '\'']));
        if name.is_empty() || value.is_empty() {
            return Err(ResultsError::Condition { condition: text.to_owned() });
        }
        let column = Column::named(study, name)?;
        let value = Cell { text: value.to_owned(), number: quantity(value) };
        let by_size = !matches!(comparison, Comparison::Equals | Comparison::Differs | Comparison::Contains);
        if by_size && value.number.is_none() {
            return Err(ResultsError::NotANumber { column: name.to_owned(), value: value.text });
        }
        Ok(Condition { column, comparison, value })
    }

    /// Whether the condition holds for the trial; false if the trial has no value in the column.
    pub(super) fn holds(&self, study: &Study, trial: &TrialRecord) -> bool {
        let cell = self.column.cell(study, trial);
        if cell.text.is_empty() {
            return false;
        }
        let order = cell.number.zip(self.value.number).and_then(|(one, other)| one.partial_cmp(&other));
        let equal = cell.text == self.value.text || order == Some(Ordering::Equal);
        match self.comparison {
            Comparison::Equals => equal,
            Comparison::Differs => !equal,
            Comparison::Contains => cell.text.contains(&self.value.text),
            Comparison::Below => order == Some(Ordering::Less),
            Comparison::Above => order == Some(Ordering::Greater),
            Comparison::AtMost => order.is_some_and(Ordering::is_le),
            Comparison::AtLeast => order.is_some_and(Ordering::is_ge),
        }
    }
}

/// A number or a number of bytes: `0.9`, `1e-3`, `512MiB`.
fn quantity(text: &str) -> Option<f64> {
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30)];
    let unit = units.iter().find_map(|(unit, power)| Some((text.strip_suffix(unit)?, *power)));
    let (digits, power) = unit.unwrap_or((text, 0));
    digits.trim().parse().ok().map(|number: f64| number * 2_f64.powi(power))
}
