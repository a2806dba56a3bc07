//! Apache Arrow's files and streams (<https://arrow.apache.org/docs/format/Columnar.html#serialization-and-interprocess-communication-ipc>),
//! by the crate `arrow-ipc`. Only the requested columns of each record batch are decoded.

mod raw;

use super::files::{self, Input};
use super::table::{BadValue, Choice, NO_VALUE, Part, Values, Wanted, place_of, wanted};
use crate::wire;
use anyhow::{Context as _, Error, Result, bail, ensure};
use arrow_array::cast::AsArray as _;
use arrow_array::types::{
    ArrowPrimitiveType, Decimal128Type, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, RecordBatch};
use arrow_buffer::Buffer;
use arrow_ipc::convert::try_fb_to_schema;
use arrow_ipc::reader::{FileDecoder, read_footer_length};
use arrow_ipc::{Block, Message, MessageHeader, root_as_footer, root_as_message};
use arrow_schema::{DataType, Schema};
use parquet::file::reader::{ChunkReader as _, Length as _};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const MAGIC: &[u8] = b"ARROW1";
const MAGIC_OF_FEATHER_1: &[u8] = b"FEA1";
/// The size of the footer's length and the magic bytes at the end of a file.
const TAIL: u64 = 10;
/// The marker before the length of a message since version 0.15 of Arrow.
const CONTINUATION: [u8; 4] = [0xff; 4];

/// The record batches of files with the same columns; each batch is a block.
pub(super) struct Arrow {
    tables: Vec<Table>,
    choice: Choice,
    missing: Option<f32>,
}

struct Table {
    file: File,
    decoder: FileDecoder,
    /// The places of the decoded columns in the table.
    decoded: Vec<usize>,
    batches: Vec<Block>,
    wanted: Vec<Wanted>,
}

struct File {
    name: String,
    input: Input,
}

/// The schema of a file, and the positions of its messages.
struct Messages {
    schema: Schema,
    decoder: FileDecoder,
    dictionaries: Vec<Block>,
    batches: Vec<Block>,
}

impl Arrow {
    /// Reads the metadata of the files, and returns the names of their columns.
    pub(super) fn open(files: Vec<PathBuf>, mut choice: Choice, missing: Option<f32>) -> Result<(Arrow, Vec<String>)> {
        let mut columns = None;
        let tables = files.iter().map(|path| {
            let (table, names) = Table::open(path, &choice)?;
            choice = choice.clone().after(&names);
            columns.get_or_insert(names);
            Ok(table)
        });
        let tables = tables.collect::<Result<_>>()?;
        Ok((Arrow { tables, choice, missing }, columns.unwrap_or_default()))
    }

    /// The number of rows in each block; `None` for remote files, where each batch would have to be fetched first.
    pub(super) fn rows(&self) -> Result<Option<Vec<u64>>> {
        if self.tables.iter().any(|table| matches!(table.file.input, Input::Remote(_))) {
            return Ok(None);
        }
        let rows =
            |table: &Table| -> Result<Vec<u64>> { table.batches.iter().map(|batch| table.file.rows(batch)).collect() };
        let rows: Vec<Vec<u64>> = self.tables.iter().map(rows).collect::<Result<_>>()?;
        Ok(Some(rows.concat()))
    }

    pub(super) fn block(&self, number: u64) -> Result<Option<wire::Block>> {
        let blocks = self.tables.iter().map(|table| table.batches.len());
        let Some((table, number)) = place_of(number, blocks) else { return Ok(None) };
        match self.choice {
            Choice::Groups(_) => self.tables[table].read(number, self.missing).map(Some),
            Choice::AllBut(_) | Choice::Each { .. } => self.tables[table].read_raw(number).map(Some),
        }
    }
}

impl File {
    fn bytes(&self, start: u64, length: u64) -> Result<Buffer> {
        let end = start.checked_add(length).filter(|end| *end <= self.input.len());
        ensure!(end.is_some(), "{} is damaged: it ends too early", self.name);
        let bytes = self.input.get_bytes(start, length as usize);
        Ok(Buffer::from(bytes.map_err(|error| files::unread(&self.name, error))?))
    }

    /// A message with its body.
    fn message(&self, block: &Block) -> Result<Buffer> {
        let (start, metadata, body) = self.place(block)?;
        self.bytes(start, metadata.saturating_add(body))
    }

    /// The position of a message, the number of bytes before its body, and the number of bytes in its body.
    fn place(&self, block: &Block) -> Result<(u64, u64, u64)> {
        let [start, metadata, body] = [block.offset(), block.metaDataLength().into(), block.bodyLength()]
            .map(|number: i64| u64::try_from(number).with_context(|| format!("{} is damaged", self.name)));
        Ok((start?, metadata?, body?))
    }

    fn rows(&self, block: &Block) -> Result<u64> {
        let (start, metadata, _) = self.place(block)?;
        let bytes = self.bytes(start, metadata)?;
        let rows = message(&bytes)?.header_as_record_batch().map(|batch| batch.length());
        rows.and_then(|rows| u64::try_from(rows).ok()).with_context(|| format!("{} is damaged", self.name))
    }

    /// The messages that a file's footer lists, or the messages of a stream, which are found one after the other.
    fn messages(&self) -> Result<Messages> {
        let begin = self.bytes(0, self.input.len().min(MAGIC.len() as u64))?;
        if begin.starts_with(MAGIC_OF_FEATHER_1) {
            bail!("{} has version 1 of Feather; write it again in version 2, which is an Arrow file", self.name);
        }
        let is_file = begin.as_slice() == MAGIC;
        let found = if is_file { self.messages_of_file() } else { self.messages_of_stream() };
        found.with_context(|| format!("{} is no Arrow file", self.name))
    }

    fn messages_of_file(&self) -> Result<Messages> {
        let end = self.input.len();
        let tail = self.bytes(end.saturating_sub(TAIL), TAIL)?;
        let length = read_footer_length(tail.as_slice().try_into()?)? as u64;
        let start = (end - TAIL).checked_sub(length).context("its footer is longer than it is")?;
        let bytes = self.bytes(start, length)?;
        // The crate's error cannot be sent to another thread.
        let footer = root_as_footer(&bytes).map_err(|error| anyhow::anyhow!("its footer is damaged: {error}"))?;
        let schema = try_fb_to_schema(footer.schema().context("its footer has no schema")?)?;
        let decoder = FileDecoder::new(Arc::new(schema.clone()), footer.version());
        let dictionaries = footer.dictionaries().iter().flatten().copied().collect();
        let batches = footer.recordBatches().iter().flatten().copied().collect();
        Ok(Messages { schema, decoder, dictionaries, batches })
    }

    fn messages_of_stream(&self) -> Result<Messages> {
        let (mut start, end) = (0, self.input.len());
        let mut found: Option<Messages> = None;
        let mut known = HashSet::new();
        while start < end {
            let lead = self.bytes(start, 8.min(end - start))?;
            let (prefix, length) = match lead.as_slice() {
                [a, b, c, d, length @ ..] if [*a, *b, *c, *d] == CONTINUATION => (8, length),
                lead => (4, lead.get(..4).unwrap_or_default()),
            };
            let length = i32::from_le_bytes(length.try_into().context("it ends too early")?);
            if length == 0 {
                return found.context("it has no schema");
            }
            let metadata = length.checked_add(prefix).filter(|_| length > 0).context("a message is damaged")?;
            let bytes = self.bytes(start, metadata as u64)?;
            let message = message(&bytes)?;
            let block = Block::new(start as i64, metadata, message.bodyLength());
            let (_, _, body) = self.place(&block)?;
            match (message.header_type(), &mut found) {
                (MessageHeader::Schema, None) => {
                    let schema = try_fb_to_schema(message.header_as_schema().context("it has no schema")?)?;
                    let decoder = FileDecoder::new(Arc::new(schema.clone()), message.version());
                    found = Some(Messages { schema, decoder, dictionaries: Vec::new(), batches: Vec::new() });
                }
                (MessageHeader::RecordBatch, Some(found)) => found.batches.push(block),
                (MessageHeader::DictionaryBatch, Some(found)) => {
                    let dictionary = message.header_as_dictionary_batch().context("a dictionary is damaged")?;
                    ensure!(
                        known.insert(dictionary.id()) && !dictionary.isDelta(),
                        "a dictionary changes within the stream; write it as a file"
                    );
                    found.dictionaries.push(block);
                }
                (other, _) => bail!("a message of type {other:?} is at a wrong place"),
            }
            start = start.saturating_add(metadata as u64).saturating_add(body);
        }
        // The format allows a stream without a mark of its end, but such a stream looks like a truncated one.
        if found.is_none() { bail!("it is empty") } else { bail!("it ends too early") }
    }
}

/// The message before a body, which describes the body.
fn message(bytes: &[u8]) -> Result<Message<'_>> {
    let prefix = if bytes.starts_with(&CONTINUATION) { 8 } else { 4 };
    let bytes = bytes.get(prefix..).context("a message is damaged")?;
    root_as_message(bytes).map_err(|error| anyhow::anyhow!("a message is damaged: {error}"))
}

impl Table {
    fn open(path: &Path, choice: &Choice) -> Result<(Table, Vec<String>)> {
        let file = File { name: files::name(path), input: Input::open(path)? };
        let Messages { schema, mut decoder, dictionaries, batches } = file.messages()?;
        let names: Vec<String> = schema.fields().iter().map(|field| field.name().clone()).collect();
        let wanted = wanted(&file.name, &names, choice)?;
        for block in dictionaries {
            let read = decoder.read_dictionary(&block, &file.message(&block)?);
            read.with_context(|| format!("a dictionary of {} is damaged", file.name))?;
        }
        let mut decoded: Vec<usize> = wanted.iter().flat_map(|wanted| &wanted.columns).copied().collect();
        decoded.sort_unstable();
        let decoder = decoder.with_projection(decoded.clone());
        Ok((Table { file, decoder, decoded, batches, wanted }, names))
    }

    fn read(&self, number: usize, missing: Option<f32>) -> Result<wire::Block> {
        let before = || self.before(number);
        let part = self.part(number, &before);
        let batch = self.batch(number).with_context(|| part.name.clone())?;
        self.wanted.iter().map(|wanted| Ok(self.values(wanted, &batch, &part, missing)?.into_array())).collect()
    }

    /// The number of rows before a record batch.
    fn before(&self, number: usize) -> Result<u64> {
        self.batches.iter().take(number).map(|batch| self.file.rows(batch)).sum()
    }

    fn part<'a>(&'a self, number: usize, before: &'a dyn Fn() -> Result<u64>) -> Part<'a> {
        let file = self.file.name.as_str();
        Part { file, name: format!("record batch {number} of {file}"), before }
    }

    fn batch(&self, number: usize) -> Result<RecordBatch> {
        let block = &self.batches[number];
        let batch = self.decoder.read_record_batch(block, &self.file.message(block)?)?;
        batch.context("it has no rows")
    }

    fn values(&self, wanted: &Wanted, batch: &RecordBatch, part: &Part<'_>, missing: Option<f32>) -> Result<Values> {
        let column = |place| self.decoded.binary_search(&place).ok().context("a column is not decoded");
        let named = |at: usize, error: Error| part.named(batch.schema_ref().field(at).name(), error);
        wanted.gather(
            batch.num_rows(),
            |place| column(place).and_then(|at| known(batch.column(at), missing).map_err(|error| named(at, error))),
            |place| column(place).and_then(|at| wanted.classes_of(batch.column(at)).map_err(|error| named(at, error))),
        )
    }
}

/// The numbers of a column, with `missing` in place of missing numbers.
fn known(column: &dyn Array, missing: Option<f32>) -> Result<Vec<f32>> {
    let mut numbers = numbers(column)?;
    for (row, number) in numbers.iter_mut().enumerate().filter(|(_, number)| number.is_nan()) {
        *number = missing.context(NO_VALUE).map_err(|reason| BadValue { row, reason })?;
    }
    Ok(numbers)
}

/// The numbers of a column, with NaN in place of missing numbers.
fn numbers(column: &dyn Array) -> Result<Vec<f32>> {
    match column.data_type() {
        DataType::Boolean => {
            let bits = column.as_boolean();
            Ok(bits.iter().map(|bit| bit.map_or(f32::NAN, |bit| f32::from(u8::from(bit)))).collect())
        }
        DataType::Int8 => Ok(each::<Int8Type>(column, f32::from)),
        DataType::Int16 => Ok(each::<Int16Type>(column, f32::from)),
        DataType::Int32 => Ok(each::<Int32Type>(column, |number| number as f32)),
        DataType::Int64 => Ok(each::<Int64Type>(column, |number| number as f32)),
        DataType::UInt8 => Ok(each::<UInt8Type>(column, f32::from)),
        DataType::UInt16 => Ok(each::<UInt16Type>(column, f32::from)),
        DataType::UInt32 => Ok(each::<UInt32Type>(column, |number| number as f32)),
        DataType::UInt64 => Ok(each::<UInt64Type>(column, |number| number as f32)),
        DataType::Float16 => Ok(each::<Float16Type>(column, |number| number.to_f32())),
        DataType::Float32 => Ok(each::<Float32Type>(column, |number| number)),
        DataType::Float64 => Ok(each::<Float64Type>(column, |number| number as f32)),
        DataType::Decimal128(_, scale) => {
            let unit = 10_f64.powi((*scale).into());
            Ok(each::<Decimal128Type>(column, |whole| (whole as f64 / unit) as f32))
        }
        DataType::Dictionary(..) => {
            let numbers = numbers(column.as_any_dictionary().values())?;
            Ok(keys(column).into_iter().map(|key| key.map_or(f32::NAN, |key| numbers[key])).collect())
        }
        DataType::Null => Ok(vec![f32::NAN; column.len()]),
        other => bail!("its type {other} is no number; store it as one"),
    }
}

fn each<T: ArrowPrimitiveType>(column: &dyn Array, number: impl Fn(T::Native) -> f32) -> Vec<f32> {
    let column = column.as_primitive::<T>();
    match column.nulls() {
        None => column.values().iter().map(|value| number(*value)).collect(),
        Some(_) => column.iter().map(|value| value.map_or(f32::NAN, &number)).collect(),
    }
}

/// The place of each row's value among a dictionary's values; `None` for a row without a value.
fn keys(column: &dyn Array) -> Vec<Option<usize>> {
    let dictionary = column.as_any_dictionary();
    // The crate cannot normalise keys of a dictionary without values.
    if dictionary.values().is_empty() {
        return vec![None; column.len()];
    }
    let has_value = |row: usize| dictionary.keys().is_valid(row);
    dictionary.normalized_keys().into_iter().enumerate().map(|(row, key)| has_value(row).then_some(key)).collect()
}

/// A function that returns the class in a row of a column.
type ClassAt<'a> = Box<dyn Fn(usize) -> Result<u32> + 'a>;

impl Wanted {
    fn classes_of(&self, column: &dyn Array) -> Result<Vec<u32>> {
        let at = self.class_at(column)?;
        (0..column.len()).map(|row| at(row).map_err(|reason| BadValue { row, reason }.into())).collect()
    }

    fn class_at<'a>(&'a self, column: &'a dyn Array) -> Result<ClassAt<'a>> {
        let class: ClassAt<'a> = match column.data_type() {
            DataType::Boolean => {
                let bits = column.as_boolean();
                Box::new(|row| self.class_of_number(bits.value(row).into()))
            }
            DataType::Int8 => self.whole::<Int8Type>(column),
            DataType::Int16 => self.whole::<Int16Type>(column),
            DataType::Int32 => self.whole::<Int32Type>(column),
            DataType::Int64 => self.whole::<Int64Type>(column),
            DataType::UInt8 => self.whole::<UInt8Type>(column),
            DataType::UInt16 => self.whole::<UInt16Type>(column),
            DataType::UInt32 => self.whole::<UInt32Type>(column),
            DataType::UInt64 => self.whole::<UInt64Type>(column),
            DataType::Utf8 => Box::new(|row| self.class(column.as_string::<i32>().value(row))),
            DataType::LargeUtf8 => Box::new(|row| self.class(column.as_string::<i64>().value(row))),
            DataType::Utf8View => Box::new(|row| self.class(column.as_string_view().value(row))),
            DataType::Dictionary(..) => {
                let (class, keys) = (self.class_at(column.as_any_dictionary().values())?, keys(column));
                return Ok(Box::new(move |row| class(keys[row].context(NO_VALUE)?)));
            }
            DataType::Null => Box::new(|_| bail!(NO_VALUE)),
            other => bail!("its type {other} is no class: neither a whole number nor text"),
        };
        Ok(Box::new(move |row| if column.is_valid(row) { class(row) } else { bail!(NO_VALUE) }))
    }

    fn whole<'a, T: ArrowPrimitiveType<Native: Into<i128>>>(&'a self, column: &'a dyn Array) -> ClassAt<'a> {
        let numbers = column.as_primitive::<T>();
        Box::new(|row| self.class_of_number(numbers.value(row).into()))
    }
}
