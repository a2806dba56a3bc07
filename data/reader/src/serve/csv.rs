//! Tables of text with a header, with a comma or another byte between values: RFC 4180, by the crate `csv`.

mod raw;

use super::files;
use super::table::{Choice, NO_VALUE, Values, Wanted, row_of, wanted};
use crate::wire::Block;
use anyhow::{Context as _, Error, Result, anyhow, bail};
use csv::{ByteRecord, ErrorKind};
use std::io::{self, Read};
use std::path::PathBuf;

/// The number of rows in one block.
const ROWS: usize = 16_384;

/// The texts for a missing number, as in pandas.
const MISSING: [&str; 8] = ["", "NA", "N/A", "n/a", "<NA>", "NULL", "null", "None"];

/// Tables with the same columns, read one after another.
pub(super) struct Csv {
    files: Vec<PathBuf>,
    delimiter: u8,
    choice: Choice,
    missing: Option<f32>,
    /// The number of the next block.
    next: u64,
    current: Option<Current>,
    /// The number of files after the current file.
    left: usize,
}

struct Current {
    name: String,
    reader: csv::Reader<Watched>,
    columns: Vec<String>,
    wanted: Vec<Wanted>,
    /// The number of rows that have been read.
    rows: u64,
    /// Whether the last value of the last row has several lines.
    ends_in_lines: bool,
}

/// A file that remembers its last byte that is not part of a line end.
struct Watched {
    inner: Box<dyn Read>,
    last: Option<u8>,
}

impl Read for Watched {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(bytes)?;
        self.last = bytes[..count].iter().rev().copied().find(|byte| !b"\r\n".contains(byte)).or(self.last);
        Ok(count)
    }
}

impl Csv {
    /// Opens the first table, and returns the names of its columns.
    pub(super) fn open(
        files: Vec<PathBuf>,
        delimiter: u8,
        choice: Choice,
        missing: Option<f32>,
    ) -> Result<(Csv, Vec<String>)> {
        let left = files.len();
        let mut csv = Csv { files, delimiter, choice, missing, next: 0, current: None, left };
        csv.open_next()?;
        let columns = csv.current.as_ref().map(|current| current.columns.clone()).unwrap_or_default();
        csv.choice = csv.choice.after(&columns);
        Ok((csv, columns))
    }

    /// The block with this number. If it is not the next block, the blocks before it are read again.
    pub(super) fn block(&mut self, number: u64) -> Result<Option<Block>> {
        if number < self.next {
            (self.next, self.left, self.current) = (0, self.files.len(), None);
        }
        loop {
            let Some(block) = self.next_block()? else { return Ok(None) };
            self.next += 1;
            if self.next > number {
                return Ok(Some(block));
            }
        }
    }

    fn next_block(&mut self) -> Result<Option<Block>> {
        loop {
            if self.current.is_none() && !self.open_next()? {
                return Ok(None);
            }
            if let Some(current) = &mut self.current
                && let Some(block) = current.read_as(&self.choice, self.missing)?
            {
                return Ok(Some(block));
            }
            self.current = None;
        }
    }

    fn open_next(&mut self) -> Result<bool> {
        let Some(path) = self.files.get(self.files.len() - self.left) else { return Ok(false) };
        let name = files::name(path);
        let mut reader = csv::ReaderBuilder::new()
            .delimiter(self.delimiter)
            .from_reader(Watched { inner: files::open(path)?, last: None });
        let headers = reader.headers().with_context(|| format!("cannot read the header of {name}"))?;
        let columns: Vec<String> = headers.iter().map(|column| column.trim().to_owned()).collect();
        let wanted = wanted(&name, &columns, &self.choice)?;
        self.current = Some(Current { name, reader, columns, wanted, rows: 0, ends_in_lines: false });
        self.left -= 1;
        Ok(true)
    }
}

impl Current {
    /// Fails if the last value begins with a quote and does not end with one: the value would contain the rows after it.
    fn check_end(&self) -> Result<()> {
        if self.ends_in_lines && self.reader.get_ref().last != Some(b'"') {
            let last = row_of(&self.name, self.rows.saturating_sub(1));
            bail!("{last}: the file ends within a quoted value");
        }
        Ok(())
    }

    /// The error of a row that cannot be read.
    fn unread(&self, error: csv::Error) -> Error {
        match error.kind() {
            ErrorKind::UnequalLengths { len, expected_len, .. } => {
                let row = row_of(&self.name, self.rows);
                anyhow!("{row}: it has {len} values, and the header has {expected_len}")
            }
            _ => files::unread(&self.name, error),
        }
    }

    fn read_as(&mut self, choice: &Choice, missing: Option<f32>) -> Result<Option<Block>> {
        match choice {
            Choice::Groups(_) => self.read(missing),
            Choice::AllBut(_) | Choice::Each { .. } => self.read_raw(),
        }
    }

    /// Reads the next row into `record`. Returns whether there is one.
    fn next_row(&mut self, record: &mut ByteRecord) -> Result<bool> {
        if !self.reader.read_byte_record(record).map_err(|error| self.unread(error))? {
            self.check_end()?;
            return Ok(false);
        }
        self.ends_in_lines = record.iter().next_back().is_some_and(|field| field.contains(&b'\n'));
        Ok(true)
    }

    /// The next rows; `None` after the last one.
    fn read(&mut self, missing: Option<f32>) -> Result<Option<Block>> {
        let mut arrays: Vec<Values> = self.wanted.iter().map(Wanted::values).collect();
        let mut record = ByteRecord::new();
        let mut rows = 0;
        while rows < ROWS && self.next_row(&mut record)? {
            for (wanted, values) in self.wanted.iter().zip(&mut arrays) {
                for column in &wanted.columns {
                    let text = record.get(*column).unwrap_or_default();
                    add(wanted, values, text, missing).with_context(|| {
                        format!("{}, column `{}`", row_of(&self.name, self.rows), self.columns[*column])
                    })?;
                }
            }
            (self.rows, rows) = (self.rows + 1, rows + 1);
        }
        Ok((rows > 0).then(|| arrays.into_iter().map(Values::into_array).collect()))
    }
}

fn add(wanted: &Wanted, values: &mut Values, text: &[u8], missing: Option<f32>) -> Result<()> {
    let text = str::from_utf8(text).context("the value is not UTF-8")?.trim();
    match values {
        Values::Classes(classes) => classes.push(wanted.class(text)?),
        Values::Numbers { numbers, .. } => numbers.push(number(text, missing)?),
    }
    Ok(())
}

fn number(text: &str, missing: Option<f32>) -> Result<f32> {
    match text {
        "true" | "True" | "TRUE" => Ok(1.),
        "false" | "False" | "FALSE" => Ok(0.),
        text if MISSING.contains(&text) => missing.context(NO_VALUE),
        text => match text.parse::<f32>() {
            Ok(number) if number.is_nan() => missing.context(NO_VALUE),
            Ok(number) => Ok(number),
            Err(_) => bail!("`{}` is no number", text.escape_debug()),
        },
    }
}
