//! Tables from files: the blocks of all files become columns, whose kinds are found over all rows.

use super::column::{Column, NO_BIT, NO_DATE, NO_TEXT, Values};
use super::infer::{Ask, Texts};
use super::{Table, near};
use crate::blocks::Arrays;
use crate::reader::Files;
use crate::{DataError, Result};
use ferrotune_reader::{Array, Format, Source};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// What the user has said about the columns of a table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asked {
    pub(crate) kinds: BTreeMap<String, Ask>,
    pub(crate) without: Vec<String>,
    pub(crate) gaps: Vec<String>,
    /// The columns in which a gap leaves out its row.
    pub(crate) whole: Vec<String>,
    /// Whether a number for gaps was given, which no table has.
    pub(crate) has_missing: bool,
}

/// The values of a column in the blocks that have been read.
enum Raw {
    /// Gaps only, of any type.
    Gaps(usize),
    Numbers(Vec<f64>),
    YesNo(Vec<u8>),
    Dates(Vec<i64>),
    Texts {
        rows: Vec<u32>,
        texts: Vec<String>,
        places: HashMap<String, u32>,
    },
}

/// Reads a table. Fails if a file cannot be read, or if a column is not what the user has said.
pub(crate) fn read(format: Format, files: &str, asked: &Asked) -> Result<Table> {
    if asked.has_missing {
        return Err(DataError::table(
            files,
            "`.missing` is for `.features`; a table keeps its gaps, and Prep fills them",
        ));
    }
    let source = Source::Columns { format, files: files.to_owned(), without: asked.without.clone() };
    let (opened, contents) = Files::open(source)?;
    let files = without_query(files);
    let names: Vec<String> = contents.columns.into_iter().filter(|name| !asked.without.contains(name)).collect();
    check_names(files, &names, asked)?;
    let mut arrays = Arrays::new(&Arc::new(opened));
    let mut columns: Vec<Raw> = names.iter().map(|_| Raw::Gaps(0)).collect();
    let mut rows = 0;
    while let Some(block) = arrays.next()? {
        let (of_columns, rest) = block.as_chunks::<3>();
        if of_columns.len() != columns.len() || !rest.is_empty() {
            return Err(damaged(files));
        }
        for ((column, arrays), name) in columns.iter_mut().zip(of_columns).zip(&names) {
            column.add(arrays).ok_or_else(|| damaged(files))?.map_err(|reason| failed(name, reason))?;
        }
        rows = columns.first().map_or(0, Raw::len);
    }
    if rows == 0 {
        return Err(DataError::table(files, "it has no rows"));
    }
    let is_typed = !matches!(format, Format::Csv { .. });
    let row_name = |row: usize| row_name(files, row);
    let column = |(name, raw): (&String, Raw)| raw.column(name, is_typed, asked, &row_name);
    let columns: Vec<Column> = names.iter().zip(columns).map(column).collect::<Result<_>>()?;
    let table = Table::of(files, columns)?;
    asked.whole.iter().try_fold(table, |table, name| table.without_gaps(name))
}

/// The name of files in messages: an address of the web without its query, which may be a signature.
fn without_query(files: &str) -> &str {
    let is_web = files.starts_with("http://") || files.starts_with("https://");
    files.split_once('?').filter(|_| is_web).map_or(files, |(address, _)| address)
}

/// The name of a row in messages. Of several files, rows are counted over all of them.
pub(super) fn row_name(files: &str, row: usize) -> String {
    let is_pattern = files.contains(['*', '?', '[']);
    if is_pattern { format!("row {row}, counted over all of {files}") } else { format!("row {row} of {files}") }
}

fn check_names(files: &str, names: &[String], asked: &Asked) -> Result<()> {
    match asked.kinds.keys().chain(&asked.whole).find(|name| !names.contains(name)) {
        Some(unknown) => {
            Err(DataError::table(files, format!("there is no column `{unknown}`{}", near(unknown, names))))
        }
        None => Ok(()),
    }
}

fn damaged(files: &str) -> DataError {
    DataError::Unread { reason: format!("the reader of {files} gave a block that does not fit its columns") }
}

fn failed(column: &str, reason: String) -> DataError {
    DataError::Column { column: column.to_owned(), reason }
}

fn numbers<T, const N: usize>(array: &Array, number: fn([u8; N]) -> T) -> Vec<T> {
    array.bytes.as_chunks().0.iter().map(|bytes| number(*bytes)).collect()
}

impl Raw {
    fn len(&self) -> usize {
        match self {
            Raw::Gaps(rows) => *rows,
            Raw::Numbers(rows) => rows.len(),
            Raw::YesNo(rows) => rows.len(),
            Raw::Dates(rows) => rows.len(),
            Raw::Texts { rows, .. } => rows.len(),
        }
    }

    /// Adds the arrays of a block. `None` if they are damaged, and an error if they have another type than before.
    fn add(&mut self, [values, bytes, ends]: &[Array; 3]) -> Option<std::result::Result<(), String>> {
        let more = match values.shape.dtype.as_str() {
            "f64" => Raw::Numbers(numbers(values, f64::from_le_bytes)),
            "u8" => Raw::YesNo(values.bytes.clone()),
            "i64" => Raw::Dates(numbers(values, i64::from_le_bytes)),
            "u32" => {
                let texts = texts(&bytes.bytes, &numbers(ends, i64::from_le_bytes))?;
                let rows = numbers(values, u32::from_le_bytes);
                if rows.iter().any(|place| *place != NO_TEXT && *place as usize >= texts.len()) {
                    return None;
                }
                let places = texts.iter().cloned().zip(0..).collect();
                Raw::Texts { rows, texts, places }
            }
            _ => return None,
        };
        Some(self.append(more))
    }

    fn append(&mut self, more: Raw) -> std::result::Result<(), String> {
        match (&mut *self, more) {
            (Raw::Gaps(rows), more) if *rows == 0 => *self = more,
            (Raw::Numbers(rows), Raw::Numbers(more)) => rows.extend(more),
            (Raw::YesNo(rows), Raw::YesNo(more)) => rows.extend(more),
            (Raw::Dates(rows), Raw::Dates(more)) => rows.extend(more),
            (Raw::Texts { rows, texts, places }, Raw::Texts { rows: more, texts: others, .. }) => {
                let mut place = |text: String| {
                    *places.entry(text).or_insert_with_key(|text| {
                        texts.push(text.clone());
                        (texts.len() - 1) as u32
                    })
                };
                let others: Vec<u32> = others.into_iter().map(&mut place).collect();
                rows.extend(
                    more.into_iter().map(|place| if place == NO_TEXT { NO_TEXT } else { others[place as usize] }),
                );
            }
            // Whole numbers are texts in the blocks that have some beyond 2^53.
            (Raw::Texts { .. }, Raw::Numbers(more)) => return self.append(of_whole(&more)),
            (Raw::Numbers(rows), more @ Raw::Texts { .. }) => {
                *self = of_whole(rows);
                return self.append(more);
            }
            (one, other) => {
                let (one, other) = (one.kind(), other.kind());
                return Err(format!(
                    "it has {one} in one file and {other} in another; write one type, or call `.drop` with its name"
                ));
            }
        }
        Ok(())
    }

    fn kind(&self) -> &'static str {
        match self {
            Raw::Gaps(_) => "gaps",
            Raw::Numbers(_) => "numbers",
            Raw::YesNo(_) => "yes or no",
            Raw::Dates(_) => "dates",
            Raw::Texts { .. } => "texts",
        }
    }

    /// The column, with its kind.
    fn column(self, name: &str, is_typed: bool, asked: &Asked, row_name: &dyn Fn(usize) -> String) -> Result<Column> {
        let ask = asked.kinds.get(name).copied();
        let of_texts = |rows, texts| Texts { name, rows, texts, is_typed, row_name }.column(ask, &asked.gaps);
        let values = match (self, ask) {
            (Raw::Texts { rows, texts, .. }, _) => return of_texts(rows, texts),
            (Raw::Gaps(rows), _) => Values::Empty(rows),
            (Raw::Numbers(rows), _) if rows.iter().all(|number| number.is_nan()) => Values::Empty(rows.len()),
            (Raw::Numbers(rows), None | Some(Ask::Number)) => {
                if let Some(row) = rows.iter().position(|number| number.is_infinite()) {
                    let reason = format!(
                        "the number in {} is infinite; write a gap, or call `.drop(\"{name}\")`",
                        row_name(row)
                    );
                    return Err(failed(name, reason));
                }
                Values::Numbers(rows.into())
            }
            (Raw::Numbers(numbers), Some(Ask::Category | Ask::Date)) => {
                let Raw::Texts { rows, texts, .. } = of_whole(&numbers) else { return Err(damaged(name)) };
                return of_texts(rows, texts);
            }
            (Raw::YesNo(rows), _) if rows.iter().all(|bit| *bit == NO_BIT) => Values::Empty(rows.len()),
            (Raw::YesNo(rows), Some(Ask::Number)) => Values::Numbers(
                rows.iter().map(|bit| if *bit == NO_BIT { f64::NAN } else { f64::from(*bit) }).collect(),
            ),
            (Raw::YesNo(_), Some(Ask::Date)) => return Err(failed(name, "yes and no are no dates".to_owned())),
            (Raw::YesNo(rows), None | Some(Ask::Category)) => {
                Values::YesNo { rows: rows.into(), words: ["false", "true"].map(str::to_owned) }
            }
            (Raw::Dates(rows), _) if rows.iter().all(|date| *date == NO_DATE) => Values::Empty(rows.len()),
            (Raw::Dates(rows), None | Some(Ask::Date)) => Values::Dates(rows.into()),
            (Raw::Dates(_), Some(Ask::Number | Ask::Category)) => {
                return Err(failed(
                    name,
                    "it has dates; Prep makes numbers of them without `.number` or `.category`".to_owned(),
                ));
            }
        };
        Ok(Column { name: name.to_owned(), values, note: None })
    }
}

/// The texts that end at these positions.
fn texts(bytes: &[u8], ends: &[i64]) -> Option<Vec<String>> {
    let mut begin = 0;
    let text = |end: &i64| {
        let text = bytes.get(begin..usize::try_from(*end).ok()?)?;
        begin += text.len();
        String::from_utf8(text.to_vec()).ok()
    };
    ends.iter().map(text).collect()
}

/// Numbers as texts.
fn of_whole(numbers: &[f64]) -> Raw {
    let (mut texts, mut places) = (Vec::new(), HashMap::new());
    let mut place = |number: &f64| {
        if number.is_nan() {
            return NO_TEXT;
        }
        *places.entry(number.to_string()).or_insert_with_key(|text: &String| {
            texts.push(text.clone());
            (texts.len() - 1) as u32
        })
    };
    let rows = numbers.iter().map(&mut place).collect();
    Raw::Texts { rows, texts, places }
}
