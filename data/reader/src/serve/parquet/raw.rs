//! The columns of a row group as they are.

use super::{Column, Table, float16, whole};
use crate::serve::columns::{self, Texts, block, micros, micros_of_days};
use crate::serve::table::Part;
use crate::wire::{Block, NO_DATE, NO_TEXT};
use anyhow::{Context as _, Result, bail};
use parquet::basic::{ConvertedType, LogicalType, TimeUnit};
use parquet::column::reader::ColumnReader;
use parquet::file::reader::RowGroupReader;
use std::cell::RefCell;

/// The meaning of a column's whole numbers.
enum Whole {
    Number,
    Days,
    /// A date in a unit of so many per second.
    Instant(i64),
}

impl Table {
    /// The columns of a row group, each for itself.
    pub(super) fn read_raw(&self, group: &dyn RowGroupReader, rows: usize, part: &Part<'_>) -> Result<Block> {
        let raw = |index: usize| {
            let column = Column { group, index, rows };
            column.raw().map_err(|error| part.named(&column.name(), error))
        };
        let columns: Vec<columns::Column> =
            self.wanted.iter().map(|wanted| raw(wanted.columns[0])).collect::<Result<_>>()?;
        Ok(block(columns))
    }
}

impl Column<'_> {
    fn raw(&self) -> Result<columns::Column> {
        use columns::Column::{Dates, Numbers, YesNo};
        if self.descriptor().max_rep_level() > 0 {
            bail!("it has lists; call `.drop` with its name");
        }
        let numbers = |numbers| Ok(Numbers(numbers));
        match self.reader()? {
            ColumnReader::BoolColumnReader(reader) => Ok(YesNo(self.flat(reader, Some(2), |bit| Ok(u8::from(*bit)))?)),
            ColumnReader::Int32ColumnReader(reader) => {
                let is_unsigned = self.is_unsigned();
                let number = |value: i32| if is_unsigned { i64::from(value as u32) } else { value.into() };
                self.raw_whole(self.flat(reader, Some(None), |value| Ok(Some(number(*value).into())))?)
            }
            ColumnReader::Int64ColumnReader(reader) => {
                let is_unsigned = self.is_unsigned();
                let number = |value: i64| if is_unsigned { i128::from(value as u64) } else { value.into() };
                self.raw_whole(self.flat(reader, Some(None), |value| Ok(Some(number(*value))))?)
            }
            ColumnReader::Int96ColumnReader(reader) => {
                Ok(Dates(self.flat(reader, Some(NO_DATE), |date| Ok(date.to_micros()))?))
            }
            ColumnReader::FloatColumnReader(reader) => {
                numbers(self.flat(reader, Some(f64::NAN), |value| Ok(f64::from(*value)))?)
            }
            ColumnReader::DoubleColumnReader(reader) => numbers(self.flat(reader, Some(f64::NAN), |value| Ok(*value))?),
            ColumnReader::ByteArrayColumnReader(reader) => match self.scale() {
                Some(scale) => numbers(self.flat(reader, Some(f64::NAN), |bytes| decimal(bytes.data(), scale))?),
                None => {
                    let texts = RefCell::new(Texts::default());
                    let rows = self.flat(reader, Some(NO_TEXT), |bytes| {
                        let text = str::from_utf8(bytes.data());
                        let text = text.context("the value is not UTF-8 text; call `.drop` with the column's name")?;
                        Ok(texts.borrow_mut().place(text))
                    })?;
                    Ok(columns::Column::Texts(texts.into_inner().with_rows(rows)))
                }
            },
            ColumnReader::FixedLenByteArrayColumnReader(reader) => {
                match (self.descriptor().logical_type_ref(), self.scale()) {
                    (Some(LogicalType::Float16), _) => {
                        numbers(self.flat(reader, Some(f64::NAN), |bytes| float16(bytes.data()).map(f64::from))?)
                    }
                    (_, Some(scale)) => {
                        numbers(self.flat(reader, Some(f64::NAN), |bytes| decimal(bytes.data(), scale))?)
                    }
                    _ => bail!("its type FIXED_LEN_BYTE_ARRAY is no number; call `.drop` with its name"),
                }
            }
        }
    }

    /// The meaning of whole numbers. Fails for times of day and durations.
    fn meaning(&self) -> Result<Whole> {
        let per_second = |unit: &TimeUnit| match unit {
            TimeUnit::MILLIS => 1000,
            TimeUnit::MICROS => 1_000_000,
            TimeUnit::NANOS => 1_000_000_000,
        };
        Ok(match (self.descriptor().logical_type_ref(), self.descriptor().converted_type()) {
            (Some(LogicalType::Date), _) | (None, ConvertedType::DATE) => Whole::Days,
            (Some(LogicalType::Timestamp(time)), _) => Whole::Instant(per_second(&time.unit)),
            (None, ConvertedType::TIMESTAMP_MILLIS) => Whole::Instant(1000),
            (None, ConvertedType::TIMESTAMP_MICROS) => Whole::Instant(1_000_000),
            _ => {
                self.unit().context("it is neither a number nor a date; call `.drop` with its name")?;
                Whole::Number
            }
        })
    }

    fn raw_whole(&self, rows: Vec<Option<i128>>) -> Result<columns::Column> {
        if let Some(scale) = self.scale() {
            let unit = 10_f64.powi(scale);
            let number = |row: &Option<i128>| row.map_or(f64::NAN, |number| number as f64 / unit);
            return Ok(columns::Column::Numbers(rows.iter().map(number).collect()));
        }
        // Dates have at most 64 bits.
        let date =
            |row: &Option<i128>, micros: &dyn Fn(i64) -> i64| row.map_or(NO_DATE, |number| micros(number as i64));
        Ok(match self.meaning()? {
            Whole::Number => columns::Column::whole(rows.into_iter()),
            Whole::Days => columns::Column::Dates(rows.iter().map(|row| date(row, &micros_of_days)).collect()),
            Whole::Instant(per_second) => {
                columns::Column::Dates(rows.iter().map(|row| date(row, &|number| micros(number, per_second))).collect())
            }
        })
    }
}

fn decimal(bytes: &[u8], scale: i32) -> Result<f64> {
    Ok(whole(bytes)? as f64 / 10_f64.powi(scale))
}
