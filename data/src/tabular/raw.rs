//! The values of a column while its file is read, before its kind is found.

use super::column::{Column, NO_BIT, NO_DATE, NO_TEXT, Values};
use super::infer::{Ask, GAPS, Texts};
use super::number::{Number, number, numbers_of};
use super::read::{Asked, damaged};
use crate::{DataError, Result};
use ferrotune_reader::Array;
use std::collections::HashMap;

/// What a column keeps of texts that are all numbers, or gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keeps {
    /// The numbers alone, as long as there is no other text.
    Numbers,
    Texts,
}

/// Why a block is not added to a column.
#[derive(Debug)]
pub(super) enum NotAdded {
    /// The texts of earlier blocks are needed now, and were not kept.
    LostTexts,
    /// The block has another type than earlier blocks.
    Types(String),
}

type Added = std::result::Result<(), NotAdded>;

/// The values of a column in the blocks that have been read.
pub(super) enum Raw {
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

fn numbers<T, const N: usize>(array: &Array, number: fn([u8; N]) -> T) -> Vec<T> {
    array.bytes.as_chunks().0.iter().map(|bytes| number(*bytes)).collect()
}

impl Raw {
    pub(super) fn len(&self) -> usize {
        match self {
            Raw::Gaps(rows) => *rows,
            Raw::Numbers(rows) => rows.len(),
            Raw::YesNo(rows) => rows.len(),
            Raw::Dates(rows) => rows.len(),
            Raw::Texts { rows, .. } => rows.len(),
        }
    }

    /// Adds the arrays of a block. `None` if they are damaged, and an error if they have another type than before.
    pub(super) fn add(&mut self, [values, bytes, ends]: &[Array; 3], keeps: Keeps, gaps: &[String]) -> Option<Added> {
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
                if keeps == Keeps::Texts || matches!(self, Raw::Texts { .. }) {
                    Raw::of_texts(rows, texts)
                } else if let Some(numbers) = plain(&rows, &texts, gaps) {
                    Raw::Numbers(numbers)
                } else if self.len() == 0 {
                    Raw::of_texts(rows, texts)
                } else {
                    return Some(Err(NotAdded::LostTexts));
                }
            }
            _ => return None,
        };
        Some(self.append(more))
    }

    fn of_texts(rows: Vec<u32>, texts: Vec<String>) -> Raw {
        let places = texts.iter().cloned().zip(0..).collect();
        Raw::Texts { rows, texts, places }
    }

    fn append(&mut self, mut more: Raw) -> Added {
        more.fit_gaps(self);
        self.fit_gaps(&more);
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
            (Raw::Texts { texts, .. }, Raw::Numbers(more)) if are_whole(texts, &more) => {
                return self.append(of_whole(&more));
            }
            (Raw::Numbers(rows), more @ Raw::Texts { .. }) if matches!(&more, Raw::Texts { texts, .. } if are_whole(texts, rows)) =>
            {
                *self = of_whole(rows);
                return self.append(more);
            }
            (one, other) => {
                let (one, other) = (one.kind(), other.kind());
                return Err(NotAdded::Types(format!(
                    "it has {one} in one file and {other} in another; write one type, or call `.drop` with its name"
                )));
            }
        }
        Ok(())
    }

    /// Makes gaps of the other column's type, if this one has no value: a part of a file without values may have another type.
    fn fit_gaps(&mut self, other: &Raw) {
        let Raw::Numbers(numbers) = self else { return };
        let rows = numbers.len();
        if rows == 0 || !numbers.iter().all(|number| number.is_nan()) {
            return;
        }
        *self = match other {
            Raw::Gaps(_) | Raw::Numbers(_) => return,
            Raw::YesNo(_) => Raw::YesNo(vec![NO_BIT; rows]),
            Raw::Dates(_) => Raw::Dates(vec![NO_DATE; rows]),
            Raw::Texts { .. } => Raw::of_texts(vec![NO_TEXT; rows], Vec::new()),
        };
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

    /// Makes gaps of the numbers that are written so. Texts become gaps when their kind is found.
    fn with_gaps(mut self, gaps: &[String]) -> Raw {
        let gaps = numbers_of(gaps);
        if let Raw::Numbers(rows) = &mut self {
            rows.iter_mut().filter(|row| gaps.contains(row)).for_each(|row| *row = f64::NAN);
        }
        self
    }

    /// The column, with its kind.
    pub(super) fn column(
        self,
        name: &str,
        is_typed: bool,
        asked: &Asked,
        row_name: &dyn Fn(usize) -> String,
    ) -> Result<Column> {
        let ask = asked.kinds.get(name).copied();
        let of_texts = |rows, texts| Texts { name, rows, texts, is_typed, row_name }.column(ask, &asked.gaps);
        let own = self.with_gaps(&asked.gaps);
        let values = match (own, ask) {
            (Raw::Texts { rows, texts, .. }, _) => return of_texts(rows, texts),
            (Raw::Gaps(rows), _) => Values::Empty(rows),
            (Raw::Numbers(rows), _) if rows.iter().all(|number| number.is_nan()) => Values::Empty(rows.len()),
            (Raw::Numbers(rows), None | Some(Ask::Number)) => {
                if let Some(row) = rows.iter().position(|number| number.is_infinite()) {
                    let (number, row) = (rows[row], row_name(row));
                    let reason = format!(
                        "`{number}` in {row} is infinite; make it a gap with `.gaps([\"{number}\"])`, or call `.drop(\"{name}\")`"
                    );
                    return Err(DataError::column(name, reason));
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
            (Raw::YesNo(_), Some(Ask::Date)) => {
                return Err(DataError::column(name, "yes and no are no dates".to_owned()));
            }
            (Raw::YesNo(rows), None | Some(Ask::Category)) => {
                Values::YesNo { rows: rows.into(), words: ["false", "true"].map(str::to_owned) }
            }
            (Raw::Dates(rows), _) if rows.iter().all(|date| *date == NO_DATE) => Values::Empty(rows.len()),
            (Raw::Dates(rows), None | Some(Ask::Date)) => Values::Dates(rows.into()),
            (Raw::Dates(_), Some(Ask::Number | Ask::Category)) => {
                return Err(DataError::column(
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

/// Whether texts and numbers are whole numbers alike.
fn are_whole(texts: &[String], numbers: &[f64]) -> bool {
    let is_whole = |text: &String| text.parse::<i128>().is_ok_and(|number| number.to_string() == *text);
    texts.iter().all(is_whole) && numbers.iter().all(|number| number.is_nan() || number.fract() == 0.0)
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

/// The numbers of the rows, if all texts are plain numbers or gaps.
fn plain(rows: &[u32], texts: &[String], gaps: &[String]) -> Option<Vec<f64>> {
    let value = |text: &String| match number(text) {
        _ if gaps.contains(text) || GAPS.contains(&text.as_str()) => Some(f64::NAN),
        Number::Plain(number) => Some(number),
        Number::Code(_) | Number::Infinite | Number::Comma | Number::No => None,
    };
    let numbers: Vec<f64> = texts.iter().map(value).collect::<Option<_>>()?;
    Some(rows.iter().map(|place| numbers.get(*place as usize).copied().unwrap_or(f64::NAN)).collect())
}
