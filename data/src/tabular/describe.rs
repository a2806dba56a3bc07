//! A description of each column of a table: counts, gaps, quantiles and categories.

use super::column::{ColumnKind, NO_TEXT, Values};
use super::head::{short, titled};
use super::{Column, Table, date};
use ferrotune_display::{Bundle, Show, table};
use std::fmt::{self, Debug, Display, Formatter};

/// The number of most frequent categories that a description shows.
const SHOWN_CATEGORIES: usize = 3;

/// A description of all columns, from [`Table::describe`]: a table in a notebook, and aligned text elsewhere.
#[derive(Clone, PartialEq)]
pub struct Description {
    /// The line above the columns: the file and the number of rows.
    pub title: String,
    /// The columns, in the order of the table.
    pub columns: Vec<Summary>,
}

/// The description of a column.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// The column's name.
    pub name: String,
    /// The column's kind.
    pub kind: ColumnKind,
    /// Whether it is the column to predict.
    pub is_target: bool,
    /// The number of rows with a value.
    pub count: usize,
    /// The number of rows without a value.
    pub gaps: usize,
    /// The mean and the standard deviation of numbers, with the divisor `count - 1` as in pandas; NaN for the deviation of one number.
    pub mean_std: Option<[f64; 2]>,
    /// The minimum, the quartiles and the maximum of numbers, between whose neighbours the quartiles lie as in NumPy.
    pub quantiles: Option<[f64; 5]>,
    /// The first and the last date.
    pub dates: Option<[String; 2]>,
    /// The different texts, or yes and no, each with its number of rows, the most frequent first.
    pub categories: Vec<(String, usize)>,
    /// Why the column has its kind, if that may surprise.
    pub note: Option<String>,
}

impl Table {
    /// The counts, gaps, quantiles and categories of each column.
    ///
    /// ```
    /// # use ferrotune_data::Table;
    /// let table = Table::from_columns([("rooms", vec![3.into(), None::<f64>.into(), 4.into(), 8.into()])])?;
    /// let described = table.describe();
    /// assert_eq!((described.columns[0].count, described.columns[0].gaps), (3, 1));
    /// assert_eq!(described.columns[0].quantiles, Some([3.0, 3.5, 4.0, 6.0, 8.0]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn describe(&self) -> Description {
        let summary = |(place, column): (usize, &Column)| summary(column, self.target == Some(place));
        let title = format!("{self:?}");
        Description { title, columns: self.columns.iter().enumerate().map(summary).collect() }
    }
}

fn summary(column: &Column, is_target: bool) -> Summary {
    let gaps = column.gaps();
    let mut summary = Summary {
        name: column.name.clone(),
        kind: column.kind(),
        is_target,
        count: column.values.len() - gaps,
        gaps,
        mean_std: None,
        quantiles: None,
        dates: None,
        categories: Vec::new(),
        note: column.note.clone(),
    };
    match &column.values {
        Values::Numbers(rows) => {
            let mut known: Vec<f64> = rows.iter().copied().filter(|number| !number.is_nan()).collect();
            known.sort_by(f64::total_cmp);
            if !known.is_empty() {
                summary.mean_std = Some(mean_std(&known));
                summary.quantiles = Some([0., 0.25, 0.5, 0.75, 1.].map(|part| quantile(&known, part)));
            }
        }
        Values::Dates(rows) => {
            let known =
                || rows.iter().enumerate().filter(|(row, _)| !column.values.is_gap(*row)).map(|(_, date)| *date);
            summary.dates = known().min().zip(known().max()).map(|(first, last)| [date::text(first), date::text(last)]);
        }
        Values::YesNo { rows, words } => {
            let count = |bit: u8| rows.iter().filter(|row| **row == bit).count();
            summary.categories = vec![(words[0].clone(), count(0)), (words[1].clone(), count(1))];
        }
        Values::Texts { rows, texts, .. } => {
            let mut counts = vec![0; texts.len()];
            rows.iter().filter(|place| **place != NO_TEXT).for_each(|place| counts[*place as usize] += 1);
            summary.categories = texts.iter().cloned().zip(counts).filter(|(_, count)| *count > 0).collect();
        }
        Values::Empty(_) => {}
    }
    summary.categories.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    summary
}

/// The mean and the standard deviation.
fn mean_std(numbers: &[f64]) -> [f64; 2] {
    let count = numbers.len() as f64;
    let mean = numbers.iter().sum::<f64>() / count;
    let squares: f64 = numbers.iter().map(|number| (number - mean).powi(2)).sum();
    [mean, (squares / (count - 1.)).sqrt()]
}

/// The quantile of sorted numbers, linear between neighbours: NumPy's default.
pub(crate) fn quantile(sorted: &[f64], part: f64) -> f64 {
    let place = part * (sorted.len() - 1) as f64;
    let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    below + (above - below) * place.fract()
}

impl Summary {
    fn cells(&self) -> Vec<String> {
        let target = if self.is_target { "target, " } else { "" };
        let mut cells =
            vec![short(&self.name), format!("{target}{}", self.kind), self.count.to_string(), self.gaps.to_string()];
        cells.extend(self.mean_std.map_or([String::new(), String::new()], |both| both.map(rounded)));
        cells.extend(self.quantiles.map_or([const { String::new() }; 5], |five| five.map(rounded)));
        cells.push(self.values());
        cells
    }

    /// The dates or categories as one text, with the note.
    fn values(&self) -> String {
        let count = self.count.max(1) as f64;
        let share = |(text, rows): &(String, usize)| format!("{} {:.0} %", short(text), 100. * *rows as f64 / count);
        let mut parts: Vec<String> = self.categories.iter().take(SHOWN_CATEGORIES).map(share).collect();
        if self.categories.len() > SHOWN_CATEGORIES {
            parts.push(format!("… of {} different", self.categories.len()));
        }
        parts.extend(self.dates.as_ref().map(|[first, last]| format!("{first} to {last}")));
        let values = parts.join(", ");
        match &self.note {
            Some(note) if values.is_empty() => note.clone(),
            Some(note) => format!("{values}; {note}"),
            None => values,
        }
    }
}

/// A number with about five digits.
pub(crate) fn rounded(number: f64) -> String {
    let size = number.abs();
    if number.is_nan() {
        return String::new();
    }
    if number.fract() == 0. && size < 1e9 {
        return number.to_string();
    }
    if !(1e-4..1e9).contains(&size) {
        return format!("{number:.4e}");
    }
    let decimals = (4 - size.log10().floor() as i32).clamp(0, 8) as usize;
    let text = format!("{number:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

impl Show for Description {
    fn bundle(&self) -> Bundle {
        let header = ["column", "kind", "count", "gaps", "mean", "std", "min", "25%", "50%", "75%", "max", "values"];
        let rows: Vec<Vec<String>> = self.columns.iter().map(Summary::cells).collect();
        titled(&self.title, &table(&header, &rows))
    }
}

impl Display for Description {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.bundle().text_of("text/plain"))
    }
}

impl Debug for Description {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        Display::fmt(self, formatter)
    }
}
