//! Tables in memory: columns of numbers, categories, yes and no, and dates, with gaps, as [`Prep`](crate::Prep) needs them.
//!
//! Has neither joins nor expressions: for these, use Polars or DuckDB, and read what they write.

mod column;
pub(crate) mod date;
mod describe;
mod head;
mod infer;
mod number;
mod options;
mod raw;
mod read;
mod share;
mod value;

pub use column::{Column, ColumnKind};
pub(crate) use column::{NO_BIT, NO_DATE, NO_TEXT, Values};
pub use describe::{Description, Summary};
pub(crate) use describe::{quantile, rounded};
pub use head::Head;
pub use options::TableOptions;
pub use value::Value;

use crate::dataset::Dataset;
use crate::{DataError, Result};
use candle_core::{Device, Tensor};
use column::ColumnKind as Kind;
use infer::Texts;
use std::collections::HashMap;
use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;

/// A table in memory. [`csv`](crate::csv), [`parquet`](crate::parquet), [`arrow`](crate::arrow) and
/// [`json_table`](crate::json_table) read tables with `.target("column")`, or without a column to predict with `.table()`.
///
/// A cell that ends with a table shows its first rows. Clones share the values. `%%tune` can capture a table.
///
/// ```
/// use ferrotune_data::{ColumnKind, Table};
/// let houses = Table::from_columns([
///     ("rooms", vec![3.into(), 5.into(), None::<f64>.into(), 2.into()]),
///     ("city", vec!["Oslo".into(), "Bergen".into(), "Oslo".into(), "Oslo".into()]),
///     ("sold", vec![true.into(), false.into(), false.into(), true.into()]),
/// ])?
/// .with_target("sold")?;
/// assert_eq!(houses.column("rooms")?.kind(), ColumnKind::Number);
/// assert_eq!(houses.classes(), Some(&["false".to_owned(), "true".to_owned()][..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Table {
    /// The files, for messages.
    name: Arc<str>,
    columns: Vec<Column>,
    rows: usize,
    /// The place of the column to predict.
    target: Option<usize>,
}

impl Table {
    /// Makes a table of columns, each of which has a name and its values.
    ///
    /// Fails if columns have different lengths or equal names, if there is none, or if a column has values of different
    /// types or a number that is infinite.
    pub fn from_columns<S: Into<String>>(columns: impl IntoIterator<Item = (S, Vec<Value>)>) -> Result<Table> {
        let column = |(name, values): (S, Vec<Value>)| of_values(name.into(), &values);
        let table = Table::of("the table", columns.into_iter().map(column).collect::<Result<_>>()?)?;
        let is_twice = |column: &&Column| table.columns.iter().filter(|other| other.name == column.name).count() > 1;
        match table.columns.iter().find(is_twice) {
            Some(twice) => Err(DataError::column(&twice.name, "the table has it twice; rename one")),
            None => Ok(table),
        }
    }

    pub(crate) fn of(name: &str, columns: Vec<Column>) -> Result<Table> {
        let Some(rows) = columns.first().map(|column| column.values.len()) else {
            return Err(DataError::table(name, "it has no columns"));
        };
        if let Some(other) = columns.iter().find(|column| column.values.len() != rows) {
            let (first, has) = (&columns[0].name, other.values.len());
            return Err(DataError::column(&other.name, format!("it has {has} rows, and `{first}` has {rows}")));
        }
        Ok(Table { name: name.into(), columns, rows, target: None })
    }

    /// The number of rows.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// All columns, also the one to predict, in the order of the file.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// The column with this name. Fails if there is none, and names the most similar one.
    pub fn column(&self, name: &str) -> Result<&Column> {
        self.place(name).map(|place| &self.columns[place])
    }

    /// The column to predict, if there is one.
    pub fn target(&self) -> Option<&Column> {
        self.target.map(|place| &self.columns[place])
    }

    /// The names of the classes, if the column to predict has categories or yes and no. The class with the number `i` is
    /// `classes()[i]`: categories are sorted, and no is 0.
    pub fn classes(&self) -> Option<&[String]> {
        match &self.target()?.values {
            Values::YesNo { words, .. } => Some(words),
            Values::Texts { texts, is_category: true, .. } => Some(texts),
            Values::Texts { .. } | Values::Numbers(_) | Values::Dates(_) | Values::Empty(_) => None,
        }
    }

    /// The same table with this column to predict: numbers, categories, or yes and no.
    ///
    /// Fails if there is no such column, if it has gaps, or if it has another kind.
    pub fn with_target(&self, name: &str) -> Result<Table> {
        let place = self.place(name)?;
        let column = &self.columns[place];
        let failed = |reason: String| Err(DataError::column(name, reason));
        let gaps: Vec<usize> = (0..self.rows).filter(|row| column.values.is_gap(*row)).collect();
        match column.kind() {
            Kind::Empty => return failed("it has no value to predict".to_owned()),
            Kind::Number | Kind::Category | Kind::YesNo => {}
            kind @ (Kind::Text | Kind::Date) => {
                let note = column.note().map(|note| format!(" ({note})")).unwrap_or_default();
                return failed(format!(
                    "its kind is {kind}{note}, and a target is a number, a category or yes/no; read the file with `.category(\"{name}\")` for classes"
                ));
            }
        }
        if let Some(first) = gaps.first() {
            let rows = match gaps.len() {
                1 => format!("{} has", read::row_name(&self.name, *first)),
                2 => format!("rows {first} and {} of {} have", gaps[1], self.name),
                count => format!("rows {first}, {} and {} more of {} have", gaps[1], count - 2, self.name),
            };
            return failed(format!(
                "{rows} no value to predict; fill them, or leave such rows out with `.without_gaps(\"{name}\")` first"
            ));
        }
        Ok(Table { target: Some(place), ..self.clone() })
    }

    /// The same table without a column. Fails if there is no such column, or no other one.
    pub fn drop(&self, name: &str) -> Result<Table> {
        let place = self.place(name)?;
        let mut columns = self.columns.clone();
        columns.remove(place);
        let target = self.target.filter(|target| *target != place).map(|target| target - usize::from(target > place));
        Ok(Table { target, ..Table::of(&self.name, columns)? })
    }

    /// The rows that have a value in this column. Fails if there is no such column.
    pub fn without_gaps(&self, name: &str) -> Result<Table> {
        let values = &self.column(name)?.values;
        let rows: Vec<u32> = (0..self.rows as u32).filter(|row| !values.is_gap(*row as usize)).collect();
        Ok(self.gather(&rows))
    }

    /// Splits the rows into parts, whose sizes are these fractions of the table, in an order that the seed decides. No row is in
    /// two parts. The same seed chooses the same rows as [`Dataset::split`](crate::Dataset::split).
    ///
    /// Fails if a fraction is negative, or if the fractions' sum is above 1.
    pub fn split<const N: usize>(&self, fractions: [f64; N], seed: impl Into<Option<u64>>) -> Result<[Table; N]> {
        let rows = Tensor::arange(0u32, self.rows as u32, &Device::Cpu).map_err(|error| self.failed(&error))?;
        let parts = Dataset::from_tensors(rows)?.split(fractions, seed)?;
        let mut tables = Vec::new();
        for part in &parts {
            let rows: Vec<u32> = match part.len() {
                Some(0) => Vec::new(),
                _ => part.to_tensors()?.to_vec1().map_err(|error| self.failed(&error))?,
            };
            tables.push(self.gather(&rows));
        }
        match <[Table; N]>::try_from(tables) {
            Ok(tables) => Ok(tables),
            Err(_) => unreachable!("each part has become a table"),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    fn gather(&self, rows: &[u32]) -> Table {
        let column = |column: &Column| Column { values: column.values.gather(rows), ..column.clone() };
        Table { columns: self.columns.iter().map(column).collect(), rows: rows.len(), ..self.clone() }
    }

    fn place(&self, name: &str) -> Result<usize> {
        let place = self.columns.iter().position(|column| column.name == name);
        place.ok_or_else(|| {
            let names: Vec<&str> = self.columns.iter().map(|column| column.name.as_str()).collect();
            DataError::table(&*self.name, format!("there is no column `{name}`{}", near(name, &names)))
        })
    }

    fn failed(&self, error: &candle_core::Error) -> DataError {
        DataError::table(&*self.name, error.to_string())
    }
}

impl Debug for Table {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "Table of {} rows and {} columns from {}", self.rows, self.columns.len(), self.name)
    }
}

/// The column of values of one type.
fn of_values(name: String, values: &[Value]) -> Result<Column> {
    let row_name = |row: usize| format!("row {row}");
    let wrong = |row: usize, value: &Value| {
        DataError::column(&name, format!("row {row} has {}, and rows before it another type", value.shown()))
    };
    let first = values.iter().find(|value| **value != Value::Gap);
    let values: Values = match first {
        None | Some(Value::Gap) => Values::Empty(values.len()),
        Some(Value::Number(_)) => {
            let number = |(row, value): (usize, &Value)| match value {
                Value::Gap => Ok(f64::NAN),
                Value::Number(number) if number.is_finite() => Ok(*number),
                Value::Number(_) => {
                    Err(DataError::column(&name, format!("the number in row {row} is infinite; give a gap")))
                }
                other => Err(wrong(row, other)),
            };
            Values::Numbers(values.iter().enumerate().map(number).collect::<Result<_>>()?)
        }
        Some(Value::YesNo(_)) => {
            let bit = |(row, value): (usize, &Value)| match value {
                Value::Gap => Ok(NO_BIT),
                Value::YesNo(bit) => Ok(u8::from(*bit)),
                other => Err(wrong(row, other)),
            };
            let rows = values.iter().enumerate().map(bit).collect::<Result<_>>()?;
            Values::YesNo { rows, words: ["false", "true"].map(str::to_owned) }
        }
        Some(Value::Text(_)) => {
            let (mut rows, mut texts) = (Vec::new(), Vec::new());
            let mut places = HashMap::new();
            for (row, value) in values.iter().enumerate() {
                match value {
                    Value::Gap => rows.push(NO_TEXT),
                    Value::Text(text) => rows.push(*places.entry(text).or_insert_with(|| {
                        texts.push(text.clone());
                        (texts.len() - 1) as u32
                    })),
                    other => return Err(wrong(row, other)),
                }
            }
            return Texts { name: &name, rows, texts, is_typed: true, row_name: &row_name }.column(None, &[]);
        }
    };
    Ok(Column { name, values, note: None })
}

/// The cure of a name that does not exist: the most similar name, or all names.
pub(crate) fn near<S: AsRef<str>>(name: &str, names: &[S]) -> String {
    let closest = names.iter().map(|other| (distance(name, other.as_ref()), other.as_ref())).min();
    match closest {
        Some((distance, other)) if distance <= name.chars().count().div_ceil(3) && distance < other.chars().count() => {
            format!("; did you mean `{other}`?")
        }
        Some(_) if names.len() <= 12 => {
            let names: Vec<String> = names.iter().map(|name| format!("`{}`", name.as_ref())).collect();
            format!("; there are {}", names.join(", "))
        }
        _ => "; `.columns()` lists all".to_owned(),
    }
}

/// The number of characters to insert, remove or replace between two names, in any case: Levenshtein's distance.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.to_lowercase().chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, character) in one.to_lowercase().chars().enumerate() {
        let mut before = row[0];
        row[0] = at + 1;
        for (column, second) in other.iter().enumerate() {
            let replaced = before + usize::from(character != *second);
            before = row[column + 1];
            row[column + 1] = replaced.min(row[column] + 1).min(before + 1);
        }
    }
    row[other.len()]
}
