//! A column of a table in memory: its kind and its values, with gaps.

use super::date;
use candle_core::{Device, Tensor};
use serde::{Deserialize, Serialize};
use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

/// The date of a row without one.
pub(crate) const NO_DATE: i64 = i64::MIN;
/// The place of the text of a row without one.
pub(crate) const NO_TEXT: u32 = u32::MAX;
/// The number of a row without yes or no.
pub(crate) const NO_BIT: u8 = 2;

/// The kind of a column of a [`Table`](super::Table), which decides how [`Prep`](crate::Prep) makes features of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ColumnKind {
    /// Numbers, such as 3 and 0.5.
    Number,
    /// Few different texts, such as names of cities.
    Category,
    /// Yes or no, true or false.
    YesNo,
    /// Dates, some with a time of the day.
    Date,
    /// Many different texts, or a mixture of numbers and texts.
    Text,
    /// Gaps only.
    Empty,
}

/// The name of the kind: `number`, `category`, `yes/no`, `date`, `text` or `empty`.
impl Display for ColumnKind {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            ColumnKind::Number => "number",
            ColumnKind::Category => "category",
            ColumnKind::YesNo => "yes/no",
            ColumnKind::Date => "date",
            ColumnKind::Text => "text",
            ColumnKind::Empty => "empty",
        })
    }
}

/// A column of a [`Table`](super::Table).
#[derive(Clone, Debug)]
pub struct Column {
    pub(crate) name: String,
    pub(crate) values: Values,
    /// Why the column has its kind, if that may surprise.
    pub(crate) note: Option<String>,
}

/// The values of a column. Clones share them.
#[derive(Clone, Debug)]
pub(crate) enum Values {
    /// A number of gaps.
    Empty(usize),
    /// Numbers; a gap is NaN, and no number is infinite.
    Numbers(Arc<[f64]>),
    /// 0 for no and 1 for yes, with the words for both; a gap is `NO_BIT`.
    YesNo { rows: Arc<[u8]>, words: [String; 2] },
    /// Microseconds since 1970; a gap is `NO_DATE`.
    Dates(Arc<[i64]>),
    /// Places among different texts, which are sorted; a gap is `NO_TEXT`.
    Texts { rows: Arc<[u32]>, texts: Arc<[String]>, is_category: bool },
}

impl Column {
    /// The name in the file's header.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The kind, as it was found or asked for.
    pub fn kind(&self) -> ColumnKind {
        match &self.values {
            Values::Empty(_) => ColumnKind::Empty,
            Values::Numbers(_) => ColumnKind::Number,
            Values::YesNo { .. } => ColumnKind::YesNo,
            Values::Dates(_) => ColumnKind::Date,
            Values::Texts { is_category: true, .. } => ColumnKind::Category,
            Values::Texts { is_category: false, .. } => ColumnKind::Text,
        }
    }

    /// Why the column has its kind, if that may surprise: for example, the first row that has a text among numbers.
    pub fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// The number of rows without a value.
    pub fn gaps(&self) -> usize {
        (0..self.values.len()).filter(|row| self.values.is_gap(*row)).count()
    }
}

impl Values {
    pub(crate) fn len(&self) -> usize {
        match self {
            Values::Empty(rows) => *rows,
            Values::Numbers(rows) => rows.len(),
            Values::YesNo { rows, .. } => rows.len(),
            Values::Dates(rows) => rows.len(),
            Values::Texts { rows, .. } => rows.len(),
        }
    }

    pub(crate) fn is_gap(&self, row: usize) -> bool {
        match self {
            Values::Empty(_) => true,
            Values::Numbers(rows) => rows[row].is_nan(),
            Values::YesNo { rows, .. } => rows[row] == NO_BIT,
            Values::Dates(rows) => rows[row] == NO_DATE,
            Values::Texts { rows, .. } => rows[row] == NO_TEXT,
        }
    }

    /// The value of a row as text; `None` for a gap.
    pub(crate) fn text(&self, row: usize) -> Option<String> {
        if self.is_gap(row) {
            return None;
        }
        Some(match self {
            Values::Empty(_) => return None,
            Values::Numbers(rows) => match rows[row] {
                number if number == 0. || (1e-5..1e16).contains(&number.abs()) => number.to_string(),
                number => format!("{number:e}"),
            },
            Values::YesNo { rows, words } => words[usize::from(rows[row])].clone(),
            Values::Dates(rows) => date::text(rows[row]),
            Values::Texts { rows, texts, .. } => texts[rows[row] as usize].clone(),
        })
    }

    /// The values of some rows.
    pub(crate) fn gather(&self, chosen: &[u32]) -> Values {
        fn of<T: Copy>(rows: &[T], chosen: &[u32]) -> Arc<[T]> {
            chosen.iter().map(|row| rows[*row as usize]).collect()
        }
        match self {
            Values::Empty(_) => Values::Empty(chosen.len()),
            Values::Numbers(rows) => Values::Numbers(of(rows, chosen)),
            Values::YesNo { rows, words } => Values::YesNo { rows: of(rows, chosen), words: words.clone() },
            Values::Dates(rows) => Values::Dates(of(rows, chosen)),
            Values::Texts { rows, texts, is_category } => {
                Values::Texts { rows: of(rows, chosen), texts: Arc::clone(texts), is_category: *is_category }
            }
        }
    }

    /// The numbers of the rows, as they travel to a trial.
    pub(super) fn tensor(&self) -> candle_core::Result<Tensor> {
        let device = &Device::Cpu;
        match self {
            Values::Empty(rows) => Tensor::from_vec(vec![NO_BIT; *rows], *rows, device),
            Values::Numbers(rows) => Tensor::from_slice(rows, rows.len(), device),
            Values::YesNo { rows, .. } => Tensor::from_slice(rows, rows.len(), device),
            Values::Dates(rows) => Tensor::from_slice(rows, rows.len(), device),
            Values::Texts { rows, .. } => Tensor::from_slice(rows, rows.len(), device),
        }
    }
}
