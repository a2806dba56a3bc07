//! Columns as they are: numbers, yes and no, dates, or texts, with gaps. Decides nothing about the meaning of texts: the dataset's
//! process does, because it knows what the user has said about the columns.

use crate::wire::{Array, Block, NO_DATE, NO_TEXT, Shape};
use std::collections::HashMap;

/// The largest whole number up to which an f64 represents every whole number.
const EXACT: u64 = 1 << 53;

/// The values of a column in some rows.
pub(super) enum Column {
    /// Numbers; a gap is NaN.
    Numbers(Vec<f64>),
    /// 1 for yes and 0 for no; a gap is 2.
    YesNo(Vec<u8>),
    /// Microseconds since 1970; a gap is `NO_DATE`.
    Dates(Vec<i64>),
    Texts(Texts),
}

/// Different texts, and the place of each row's text among them; a gap is `NO_TEXT`.
#[derive(Default)]
pub(super) struct Texts {
    places: HashMap<String, u32>,
    bytes: Vec<u8>,
    ends: Vec<i64>,
    rows: Vec<u32>,
}

impl Texts {
    /// The place of a text, which is added if it is new.
    pub(super) fn place(&mut self, text: &str) -> u32 {
        if let Some(place) = self.places.get(text) {
            return *place;
        }
        let place = self.places.len() as u32;
        self.places.insert(text.to_owned(), place);
        self.bytes.extend(text.as_bytes());
        self.ends.push(self.bytes.len() as i64);
        place
    }

    pub(super) fn push(&mut self, text: &str) {
        let place = self.place(text);
        self.rows.push(place);
    }

    /// The same texts in rows with these places.
    pub(super) fn with_rows(self, rows: Vec<u32>) -> Texts {
        Texts { rows, ..self }
    }

    /// The places of the rows' texts.
    pub(super) fn rows(&self) -> &[u32] {
        &self.rows
    }

    pub(super) fn push_gap(&mut self) {
        self.rows.push(NO_TEXT);
    }
}

impl Column {
    /// A column of whole numbers: as numbers if an f64 represents each of them, and as texts otherwise.
    pub(super) fn whole(rows: impl Iterator<Item = Option<i128>> + Clone) -> Column {
        if rows.clone().flatten().all(|number| number.unsigned_abs() <= u128::from(EXACT)) {
            return Column::Numbers(rows.map(|number| number.map_or(f64::NAN, |number| number as f64)).collect());
        }
        let mut texts = Texts::default();
        rows.for_each(|number| match number {
            Some(number) => texts.push(&number.to_string()),
            None => texts.push_gap(),
        });
        Column::Texts(texts)
    }

    /// The three arrays of a block of `Source::Columns`.
    pub(super) fn into_arrays(self) -> [Array; 3] {
        let (values, texts) = match self {
            Column::Numbers(numbers) => (array("f64", numbers, f64::to_le_bytes), Texts::default()),
            Column::YesNo(bits) => (array("u8", bits, u8::to_le_bytes), Texts::default()),
            Column::Dates(dates) => (array("i64", dates, i64::to_le_bytes), Texts::default()),
            Column::Texts(mut texts) => (array("u32", std::mem::take(&mut texts.rows), u32::to_le_bytes), texts),
        };
        [values, array("u8", texts.bytes, u8::to_le_bytes), array("i64", texts.ends, i64::to_le_bytes)]
    }
}

fn array<T, const N: usize>(dtype: &str, values: Vec<T>, bytes: fn(T) -> [u8; N]) -> Array {
    let shape = Shape { dtype: dtype.to_owned(), dims: vec![values.len()] };
    Array { shape, bytes: values.into_iter().flat_map(bytes).collect() }
}

/// A block of columns.
pub(super) fn block(columns: impl IntoIterator<Item = Column>) -> Block {
    columns.into_iter().flat_map(Column::into_arrays).collect()
}

/// A date in microseconds, from a whole number of a unit of so many per second. A date outside of the years that microseconds can
/// count becomes the first or the last one that they can.
pub(super) fn micros(number: i64, per_second: i64) -> i64 {
    let number = i128::from(number);
    let micros = if per_second > 1_000_000 {
        number.div_euclid(i128::from(per_second / 1_000_000))
    } else {
        number * i128::from(1_000_000 / per_second)
    };
    micros.clamp(i128::from(NO_DATE + 1), i128::from(i64::MAX)) as i64
}

/// The first moment of a day in microseconds, from its number since 1970. A day outside of the years that microseconds can count
/// becomes the first or the last moment that they can.
pub(super) fn micros_of_days(days: i64) -> i64 {
    micros(days.saturating_mul(86_400), 1)
}
