//! The columns of a record batch as they are.

use super::{Table, keys};
use crate::serve::columns::{Column, Texts, block, micros, micros_of_days};
use crate::wire::{self, NO_DATE, NO_TEXT};
use anyhow::{Context as _, Result, bail};
use arrow_array::Array;
use arrow_array::cast::AsArray as _;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Date64Type, Decimal128Type, Float16Type, Float32Type, Float64Type, Int8Type,
    Int16Type, Int32Type, Int64Type, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_schema::{DataType, TimeUnit};

impl Table {
    /// The columns of a record batch, each for itself.
    pub(super) fn read_raw(&self, number: usize) -> Result<wire::Block> {
        let before = || self.before(number);
        let part = self.part(number, &before);
        let batch = self.batch(number).with_context(|| part.name.clone())?;
        let raw = |place: usize| {
            let at = self.decoded.binary_search(&place).ok().context("a column is not decoded")?;
            let name = batch.schema_ref().field(at).name().as_str();
            column(batch.column(at)).map_err(|error| part.named(name, error))
        };
        let columns: Vec<Column> = self.wanted.iter().map(|wanted| raw(wanted.columns[0])).collect::<Result<_>>()?;
        Ok(block(columns))
    }
}

fn column(array: &dyn Array) -> Result<Column> {
    Ok(match array.data_type() {
        DataType::Boolean => {
            let bits = array.as_boolean();
            Column::YesNo(bits.iter().map(|bit| bit.map_or(2, u8::from)).collect())
        }
        DataType::Int8 => whole::<Int8Type>(array),
        DataType::Int16 => whole::<Int16Type>(array),
        DataType::Int32 => whole::<Int32Type>(array),
        DataType::Int64 => whole::<Int64Type>(array),
        DataType::UInt8 => whole::<UInt8Type>(array),
        DataType::UInt16 => whole::<UInt16Type>(array),
        DataType::UInt32 => whole::<UInt32Type>(array),
        DataType::UInt64 => whole::<UInt64Type>(array),
        DataType::Float16 => numbers::<Float16Type>(array, |number| number.to_f64()),
        DataType::Float32 => numbers::<Float32Type>(array, f64::from),
        DataType::Float64 => numbers::<Float64Type>(array, |number| number),
        DataType::Decimal128(_, scale) => {
            let unit = 10_f64.powi((*scale).into());
            numbers::<Decimal128Type>(array, |whole| whole as f64 / unit)
        }
        DataType::Date32 => dates::<Date32Type>(array, |days| micros_of_days(days.into())),
        DataType::Date64 => dates::<Date64Type>(array, |ms| micros(ms, 1000)),
        DataType::Timestamp(TimeUnit::Second, _) => dates::<TimestampSecondType>(array, |s| micros(s, 1)),
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            dates::<TimestampMillisecondType>(array, |ms| micros(ms, 1000))
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            dates::<TimestampMicrosecondType>(array, |us| micros(us, 1_000_000))
        }
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            dates::<TimestampNanosecondType>(array, |ns| micros(ns, 1_000_000_000))
        }
        DataType::Utf8 => texts(array.as_string::<i32>().iter()),
        DataType::LargeUtf8 => texts(array.as_string::<i64>().iter()),
        DataType::Utf8View => texts(array.as_string_view().iter()),
        DataType::Dictionary(..) => {
            let values = column(array.as_any_dictionary().values())?;
            of_places(values, keys(array))
        }
        DataType::Null => Column::Numbers(vec![f64::NAN; array.len()]),
        other => bail!("its type {other} is neither a number, text, yes or no, nor a date; call `.drop` with its name"),
    })
}

fn whole<T: ArrowPrimitiveType<Native: Into<i128>>>(array: &dyn Array) -> Column {
    Column::whole(array.as_primitive::<T>().iter().map(|value| value.map(Into::into)))
}

fn numbers<T: ArrowPrimitiveType>(array: &dyn Array, number: impl Fn(T::Native) -> f64) -> Column {
    Column::Numbers(array.as_primitive::<T>().iter().map(|value| value.map_or(f64::NAN, &number)).collect())
}

fn dates<T: ArrowPrimitiveType>(array: &dyn Array, micros: impl Fn(T::Native) -> i64) -> Column {
    Column::Dates(array.as_primitive::<T>().iter().map(|value| value.map_or(NO_DATE, &micros)).collect())
}

fn texts<'a>(rows: impl Iterator<Item = Option<&'a str>>) -> Column {
    let mut texts = Texts::default();
    rows.for_each(|row| match row {
        Some(text) => texts.push(text),
        None => texts.push_gap(),
    });
    Column::Texts(texts)
}

/// The values at these places of a dictionary.
fn of_places(values: Column, places: Vec<Option<usize>>) -> Column {
    fn at<T: Copy>(values: &[T], places: Vec<Option<usize>>, gap: T) -> Vec<T> {
        places.into_iter().map(|place| place.and_then(|place| values.get(place).copied()).unwrap_or(gap)).collect()
    }
    match values {
        Column::Numbers(values) => Column::Numbers(at(&values, places, f64::NAN)),
        Column::YesNo(values) => Column::YesNo(at(&values, places, 2)),
        Column::Dates(values) => Column::Dates(at(&values, places, NO_DATE)),
        Column::Texts(texts) => {
            let rows = at(texts.rows(), places, NO_TEXT);
            Column::Texts(texts.with_rows(rows))
        }
    }
}
