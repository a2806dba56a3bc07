//! The records of files: lines, and TensorFlow's TFRecord.

use super::files;
use crate::wire::{Array, Block, Framing, Shape};
use anyhow::{Context as _, Result, bail};
use std::io::{BufRead as _, BufReader, Read};
use std::path::PathBuf;

/// The size of a block in bytes. The record that reaches this size is the last record of the block.
const BLOCK_BYTES: usize = 1 << 20;

/// The size of the largest record, a protection from a wrong length in a damaged file.
const RECORD_BYTES: u64 = 1 << 32;

/// The records of files, read one after another.
pub(super) struct Records {
    files: std::vec::IntoIter<PathBuf>,
    all: Vec<PathBuf>,
    framing: Framing,
    /// The number of the next block.
    next: u64,
    current: Option<Current>,
}

struct Current {
    name: String,
    reader: BufReader<Box<dyn Read>>,
    /// The number of records that have been read.
    records: u64,
}

impl Records {
    /// Opens the first file.
    pub(super) fn open(files: Vec<PathBuf>, framing: Framing) -> Result<Records> {
        let mut records = Records { files: files.clone().into_iter(), all: files, framing, next: 0, current: None };
        records.open_next()?;
        Ok(records)
    }

    /// Opens the next file, if any.
    fn open_next(&mut self) -> Result<()> {
        self.current = match self.files.next() {
            Some(path) => {
                let reader = BufReader::with_capacity(1 << 18, files::open(&path)?);
                Some(Current { name: files::name(&path), reader, records: 0 })
            }
            None => None,
        };
        Ok(())
    }

    /// The block with this number: the bytes of its records, and the end of each record. Reads the files again from their
    /// beginning if that block has already been read, and skips the blocks before it.
    pub(super) fn block(&mut self, number: u64) -> Result<Option<Block>> {
        if number < self.next {
            *self = Records::open(self.all.clone(), self.framing)?;
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
        let (mut bytes, mut ends) = (Vec::new(), Vec::new());
        while bytes.len() < BLOCK_BYTES {
            let Some(current) = &mut self.current else { break };
            if current.read(self.framing, &mut bytes)? {
                ends.push(bytes.len() as i64);
            } else {
                self.open_next()?;
            }
        }
        if ends.is_empty() {
            return Ok(None);
        }
        let shape = |dtype: &str, length| Shape { dtype: dtype.to_owned(), dims: vec![length] };
        let ends =
            Array { shape: shape("i64", ends.len()), bytes: ends.into_iter().flat_map(i64::to_le_bytes).collect() };
        Ok(Some(vec![Array { shape: shape("u8", bytes.len()), bytes }, ends]))
    }
}

impl Current {
    /// Adds the next record to `bytes`. Returns whether there is one.
    fn read(&mut self, framing: Framing, bytes: &mut Vec<u8>) -> Result<bool> {
        let is_read = match framing {
            Framing::Lines => self.read_line(bytes),
            Framing::TfRecord => self.read_tf_record(bytes),
        };
        let is_read = is_read.with_context(|| format!("record {} of {}", self.records, self.name))?;
        self.records += u64::from(is_read);
        Ok(is_read)
    }

    fn read_line(&mut self, bytes: &mut Vec<u8>) -> Result<bool> {
        let begin = bytes.len();
        if self.reader.read_until(b'\n', bytes)? == 0 {
            return Ok(false);
        }
        for end in [b'\n', b'\r'] {
            if bytes.len() > begin && bytes.last() == Some(&end) {
                bytes.pop();
            }
        }
        str::from_utf8(&bytes[begin..]).context("the line is not UTF-8")?;
        Ok(true)
    }

    /// Reads a record of length, checksum of the length, data, and checksum of the data:
    /// <https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details>.
    fn read_tf_record(&mut self, bytes: &mut Vec<u8>) -> Result<bool> {
        if self.reader.fill_buf()?.is_empty() {
            return Ok(false);
        }
        let cut = "the file ends within the record";
        let (mut length, mut checksum) = ([0; 8], [0; 4]);
        self.reader.read_exact(&mut length).and_then(|()| self.reader.read_exact(&mut checksum)).context(cut)?;
        check(&length, checksum)?;
        let length = u64::from_le_bytes(length);
        if length > RECORD_BYTES {
            bail!("it says that it has {length} bytes, and the largest record has {RECORD_BYTES}");
        }
        let begin = bytes.len();
        if self.reader.by_ref().take(length).read_to_end(bytes)? < length as usize {
            bail!(cut);
        }
        self.reader.read_exact(&mut checksum).context(cut)?;
        check(&bytes[begin..], checksum)?;
        Ok(true)
    }
}

fn check(bytes: &[u8], masked: [u8; 4]) -> Result<()> {
    let masked_crc = crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8);
    if u32::from_le_bytes(masked) != masked_crc {
        bail!(
            "its checksum does not fit: the file is damaged, or no TFRecord file; a compressed one needs the ending .gz"
        );
    }
    Ok(())
}
