//! Apache Parquet files. Only the requested columns of each row group are read.

mod raw;

use super::files::{self, Input};
use super::table::{BadValue, Choice, NO_VALUE, Part, Values, Wanted, place_of, wanted};
use crate::wire::Block;
use anyhow::{Context as _, Error, Result, bail};
use half::f16;
use parquet::basic::{ConvertedType, LogicalType};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::DataType;
use parquet::file::reader::{FileReader as _, RowGroupReader, SerializedFileReader};
use parquet::schema::types::ColumnDescriptor;
use std::path::{Path, PathBuf};

/// The largest number of rows for which memory is reserved before the rows are read.
const RESERVED_ROWS: usize = 1 << 20;

/// The row groups of files with the same columns; each row group is a block.
pub(super) struct Parquet {
    tables: Vec<Table>,
    choice: Choice,
    missing: Option<f32>,
}

struct Table {
    name: String,
    reader: SerializedFileReader<Input>,
    wanted: Vec<Wanted>,
}

impl Parquet {
    /// Reads the metadata of the files, and returns the names of their columns.
    pub(super) fn open(
        files: Vec<PathBuf>,
        mut choice: Choice,
        missing: Option<f32>,
    ) -> Result<(Parquet, Vec<String>)> {
        let tables = files.iter().map(|file| {
            let table = Table::open(file, &choice)?;
            choice = choice.clone().after(&table.columns());
            Ok(table)
        });
        let tables: Vec<Table> = tables.collect::<Result<_>>()?;
        let columns = tables.first().map(Table::columns).unwrap_or_default();
        Ok((Parquet { tables, choice, missing }, columns))
    }

    /// The number of rows in each block.
    pub(super) fn rows(&self) -> Vec<u64> {
        let groups = |table: &Table| {
            let groups = table.reader.metadata().row_groups().iter();
            groups.map(|group| group.num_rows().max(0) as u64).collect::<Vec<u64>>()
        };
        self.tables.iter().flat_map(groups).collect()
    }

    pub(super) fn block(&self, number: u64) -> Result<Option<Block>> {
        let blocks = self.tables.iter().map(|table| table.reader.num_row_groups());
        let Some((table, number)) = place_of(number, blocks) else { return Ok(None) };
        self.tables[table].read(number, &self.choice, self.missing).map(Some)
    }
}

impl Table {
    fn open(path: &Path, choice: &Choice) -> Result<Table> {
        let name = files::name(path);
        let reader =
            SerializedFileReader::new(Input::open(path)?).with_context(|| format!("{name} is no Parquet file"))?;
        let mut table = Table { name, reader, wanted: Vec::new() };
        table.wanted = wanted(&table.name, &table.columns(), choice)?;
        table.check_rows().with_context(|| format!("{} is damaged", table.name))?;
        Ok(table)
    }

    /// Fails if the numbers of rows in the metadata, which have no checksum, contradict each other.
    fn check_rows(&self) -> Result<()> {
        let metadata = self.reader.metadata();
        for (number, group) in metadata.row_groups().iter().enumerate() {
            for column in self.wanted.iter().flat_map(|wanted| &wanted.columns) {
                let column = group.column(*column);
                let is_flat = column.column_descr().max_rep_level() == 0;
                if is_flat && column.num_values() != group.num_rows() {
                    let (rows, values) = (group.num_rows(), column.num_values());
                    let name = column.column_path().string();
                    bail!("row group {number} says that it has {rows} rows, and its column `{name}` has {values}");
                }
            }
        }
        let rows = metadata.row_groups().iter().try_fold(0_i64, |sum, group| sum.checked_add(group.num_rows()));
        let all = metadata.file_metadata().num_rows();
        if rows != Some(all) {
            bail!("it says that it has {all} rows, and its row groups have others");
        }
        Ok(())
    }

    fn columns(&self) -> Vec<String> {
        let schema = self.reader.metadata().file_metadata().schema_descr();
        schema.columns().iter().map(|column| column.path().string()).collect()
    }

    fn read(&self, number: usize, choice: &Choice, missing: Option<f32>) -> Result<Block> {
        let before = || {
            let groups = self.reader.metadata().row_groups().iter().take(number);
            Ok(groups.map(|group| group.num_rows().max(0) as u64).sum())
        };
        let part = Part { file: &self.name, name: format!("row group {number} of {}", self.name), before: &before };
        let group = self.reader.get_row_group(number).with_context(|| part.name.clone())?;
        let rows = usize::try_from(group.metadata().num_rows());
        let rows = rows.with_context(|| format!("{}: the number of its rows is damaged", part.name))?;
        if !matches!(choice, Choice::Groups(_)) {
            return self.read_raw(&*group, rows, &part);
        }
        let read = |wanted: &Wanted| Ok(wanted.read(&*group, rows, &part, missing)?.into_array());
        self.wanted.iter().map(read).collect()
    }
}

impl Wanted {
    fn read(&self, group: &dyn RowGroupReader, rows: usize, part: &Part<'_>, missing: Option<f32>) -> Result<Values> {
        let column = |index| Column { group, index, rows };
        let named = |index: usize, error: Error| part.named(&column(index).name(), error);
        self.gather(
            rows,
            |index| column(index).numbers(missing).map_err(|error| named(index, error)),
            |index| column(index).classes(self).map_err(|error| named(index, error)),
        )
    }
}

/// A column of a row group.
struct Column<'a> {
    group: &'a dyn RowGroupReader,
    index: usize,
    rows: usize,
}

impl Column<'_> {
    fn descriptor(&self) -> &ColumnDescriptor {
        self.group.metadata().column(self.index).column_descr()
    }

    fn name(&self) -> String {
        self.descriptor().path().string()
    }

    fn reader(&self) -> Result<ColumnReader> {
        if self.descriptor().max_rep_level() > 0 {
            bail!("it has lists, which are neither a number nor text");
        }
        Ok(self.group.get_column_reader(self.index)?)
    }

    /// The number of digits after the point in the column's decimals. Older files have only a converted type.
    fn scale(&self) -> Option<i32> {
        match (self.descriptor().logical_type_ref(), self.descriptor().converted_type()) {
            (Some(LogicalType::Decimal(decimal)), _) => Some(decimal.scale),
            (None, ConvertedType::DECIMAL) => Some(self.descriptor().type_scale()),
            _ => None,
        }
    }

    /// The number by which the column's whole numbers are divided. Fails if they are dates or times.
    fn unit(&self) -> Result<f64> {
        use ConvertedType::{INT_8, INT_16, INT_32, INT_64, NONE, UINT_8, UINT_16, UINT_32, UINT_64};
        if let Some(scale) = self.scale() {
            return Ok(10_f64.powi(scale));
        }
        match (self.descriptor().logical_type_ref(), self.descriptor().converted_type()) {
            // A column without any value has the type `Unknown`.
            (Some(LogicalType::Integer(_) | LogicalType::Unknown), _) => Ok(1.),
            (None, NONE | INT_8 | INT_16 | INT_32 | INT_64 | UINT_8 | UINT_16 | UINT_32 | UINT_64) => Ok(1.),
            (Some(other), _) => bail!("its type {other:?} is no number; store it as one"),
            (None, other) => bail!("its type {other} is no number; store it as one"),
        }
    }

    fn is_unsigned(&self) -> bool {
        use ConvertedType::{UINT_8, UINT_16, UINT_32, UINT_64};
        match self.descriptor().logical_type_ref() {
            Some(LogicalType::Integer(integer)) => !integer.is_signed,
            _ => matches!(self.descriptor().converted_type(), UINT_8 | UINT_16 | UINT_32 | UINT_64),
        }
    }

    fn numbers(&self, missing: Option<f32>) -> Result<Vec<f32>> {
        let (unit, is_unsigned) = (self.unit(), self.is_unsigned());
        let known = |number: f32| if number.is_nan() { missing.context(NO_VALUE) } else { Ok(number) };
        match self.reader()? {
            ColumnReader::BoolColumnReader(reader) => self.flat(reader, missing, |bit| Ok(f32::from(u8::from(*bit)))),
            ColumnReader::Int32ColumnReader(reader) => {
                let unit = unit?;
                let number = |number: i32| if is_unsigned { f64::from(number as u32) } else { f64::from(number) };
                self.flat(reader, missing, |value| Ok((number(*value) / unit) as f32))
            }
            ColumnReader::Int64ColumnReader(reader) => {
                let unit = unit?;
                let number = |number: i64| if is_unsigned { number as u64 as f64 } else { number as f64 };
                self.flat(reader, missing, |value| Ok((number(*value) / unit) as f32))
            }
            ColumnReader::FloatColumnReader(reader) => self.flat(reader, missing, |value| known(*value)),
            ColumnReader::DoubleColumnReader(reader) => self.flat(reader, missing, |value| known(*value as f32)),
            ColumnReader::FixedLenByteArrayColumnReader(reader) => match self.descriptor().logical_type_ref() {
                Some(LogicalType::Float16) => self.flat(reader, missing, |bytes| known(float16(bytes.data())?)),
                _ if self.scale().is_some() => {
                    let unit = unit?;
                    self.flat(reader, missing, |bytes| Ok((whole(bytes.data())? as f64 / unit) as f32))
                }
                _ => bail!("its type FIXED_LEN_BYTE_ARRAY is no number"),
            },
            ColumnReader::ByteArrayColumnReader(reader) if self.scale().is_some() => {
                let unit = unit?;
                self.flat(reader, missing, |bytes| Ok((whole(bytes.data())? as f64 / unit) as f32))
            }
            _ => bail!("its type {} is no number", self.descriptor().physical_type()),
        }
    }

    fn classes(&self, wanted: &Wanted) -> Result<Vec<u32>> {
        if self.scale().is_some() {
            bail!("its type is decimal, and no class: store whole numbers or text");
        }
        let (unit, is_unsigned) = (self.unit(), self.is_unsigned());
        match self.reader()? {
            ColumnReader::BoolColumnReader(reader) => {
                self.flat(reader, None, |bit| wanted.class_of_number((*bit).into()))
            }
            ColumnReader::Int32ColumnReader(reader) => {
                unit?;
                let whole = |number: i32| if is_unsigned { i128::from(number as u32) } else { number.into() };
                self.flat(reader, None, |number| wanted.class_of_number(whole(*number)))
            }
            ColumnReader::Int64ColumnReader(reader) => {
                unit?;
                let whole = |number: i64| if is_unsigned { i128::from(number as u64) } else { number.into() };
                self.flat(reader, None, |number| wanted.class_of_number(whole(*number)))
            }
            ColumnReader::ByteArrayColumnReader(reader) => self
                .flat(reader, None, |text| wanted.class(str::from_utf8(text.data()).context("a value is not UTF-8")?)),
            _ => bail!("its type {} is no class: neither a whole number nor text", self.descriptor().physical_type()),
        }
    }

    /// The values of all rows, with `missing` in place of missing values.
    fn flat<T: DataType, X: Copy>(
        &self,
        mut reader: ColumnReaderImpl<T>,
        missing: Option<X>,
        value: impl Fn(&T::T) -> Result<X>,
    ) -> Result<Vec<X>> {
        let deepest = self.descriptor().max_def_level();
        let (mut values, mut levels) = (Vec::with_capacity(self.rows.min(RESERVED_ROWS)), Vec::new());
        let mut rows = 0;
        while rows < self.rows {
            let (read, ..) = reader.read_records(self.rows - rows, Some(&mut levels), None, &mut values)?;
            if read == 0 {
                bail!("it ends after {rows} of {} rows", self.rows);
            }
            rows += read;
        }
        let at_row = |row: usize| move |reason: Error| Error::new(BadValue { row, reason });
        if deepest == 0 || values.len() == self.rows {
            return values.iter().enumerate().map(|(row, found)| value(found).map_err(at_row(row))).collect();
        }
        let mut present = values.iter();
        let at = |(row, level): (usize, &i16)| {
            let found = if *level == deepest { present.next() } else { None };
            found.map_or_else(|| missing.context(NO_VALUE), &value).map_err(at_row(row))
        };
        levels.iter().enumerate().map(at).collect()
    }
}

fn float16(bytes: &[u8]) -> Result<f32> {
    match *bytes {
        [low, high] => Ok(f16::from_le_bytes([low, high]).to_f32()),
        _ => bail!("a number of 16 bits has {} bytes", bytes.len()),
    }
}

/// The whole number of a decimal, which is in two's complement with the most significant byte first.
fn whole(bytes: &[u8]) -> Result<i128> {
    let is_negative = bytes.first().is_some_and(|byte| *byte >= 0x80);
    let mut number = [if is_negative { 0xff } else { 0 }; 16];
    let Some(begin) = number.len().checked_sub(bytes.len()) else { bail!("a decimal has {} bytes", bytes.len()) };
    number[begin..].copy_from_slice(bytes);
    Ok(i128::from_be_bytes(number))
}
