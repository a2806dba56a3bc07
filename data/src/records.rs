//! Datasets of the records in files: lines, JSON lines and TFRecord.

use crate::blocks::Arrays;
use crate::dataset::Dataset;
use crate::reader::Files;
use crate::stream::{BoxStream, Stream};
use crate::{DataError, Result};
use ferrotune_reader::{Array, Block, Framing, Source};
use std::sync::Arc;

/// The lines of text files, without their line ends, in the order of the files' names: `files` is a path, an address such as
/// `gs://bucket/log.txt`, or a pattern such as `logs/*.txt.gz`. Files that end in `.gz` or `.zst` are decompressed.
///
/// Fails if there is no such file. A line that is not UTF-8 is an error instead of the lines that are read with it,
/// about a MiB of them.
pub fn lines(files: &str) -> Result<Dataset<String>> {
    records(Framing::Lines, files, |line| String::from_utf8(line.to_vec()).map_err(|error| error.to_string()))
}

/// The JSON values in files with one value on each line: see [`lines`].
///
/// ```no_run
/// let reviews = ferrotune_data::json_lines("reviews.jsonl.gz")?;
/// let texts = reviews.map(1, |review| Ok(review["text"].as_str().ok_or("no text")?.to_owned()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn json_lines(files: &str) -> Result<Dataset<serde_json::Value>> {
    records(Framing::Lines, files, |line| serde_json::from_slice(line).map_err(|error| error.to_string()))
}

/// The bytes of the records in TensorFlow's TFRecord files; both checksums of each record are checked. `files` is a path, an
/// address or a pattern, and files that end in `.gz` are decompressed.
///
/// Source: <https://www.tensorflow.org/tutorials/load_data/tfrecord>.
pub fn tf_records(files: &str) -> Result<Dataset<Vec<u8>>> {
    records(Framing::TfRecord, files, |bytes| Ok(bytes.to_vec()))
}

type OfBytes<X> = fn(&[u8]) -> std::result::Result<X, String>;

fn records<X: Send + 'static>(framing: Framing, files: &str, of_bytes: OfBytes<X>) -> Result<Dataset<X>> {
    // Opening here reports a missing file now, and not in the loop.
    let (opened, _) = Files::open(Source::Records { framing, files: files.to_owned() })?;
    let (opened, files) = (Arc::new(opened), Arc::<str>::from(files));
    let open = move |_| {
        let arrays = Arrays::new(&opened);
        let stream = RecordStream { arrays, of_bytes, files: Arc::clone(&files), block: Records::default(), number: 0 };
        Ok(Box::new(stream) as BoxStream<X>)
    };
    Ok(Dataset::made(Arc::new(open), None))
}

struct RecordStream<X> {
    arrays: Arrays,
    of_bytes: OfBytes<X>,
    files: Arc<str>,
    block: Records,
    /// The number of the next record.
    number: u64,
}

/// The records of a block.
#[derive(Default)]
struct Records {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    next: usize,
}

impl Records {
    fn of(block: Block) -> Option<Records> {
        let [Array { bytes, .. }, ends] = <[Array; 2]>::try_from(block).ok()?;
        let ends = ends.bytes.as_chunks().0.iter().map(|end| i64::from_le_bytes(*end) as usize).collect();
        Some(Records { bytes, ends, next: 0 })
    }

    fn next(&mut self) -> Option<&[u8]> {
        let begin = self.next.checked_sub(1).map_or(0, |last| self.ends[last]);
        let end = *self.ends.get(self.next)?;
        self.next += 1;
        self.bytes.get(begin..end)
    }
}

impl<X> RecordStream<X> {
    /// Opens the next block. Returns whether there is one.
    fn open_block(&mut self) -> Result<bool> {
        let Some(block) = self.arrays.next()? else { return Ok(false) };
        let damaged =
            || DataError::Unread { reason: format!("the reader of {} gave a block without records", self.files) };
        self.block = Records::of(block).ok_or_else(damaged)?;
        Ok(true)
    }
}

impl<X: Send> Stream<X> for RecordStream<X> {
    fn next(&mut self) -> Option<Result<X>> {
        loop {
            if let Some(bytes) = self.block.next() {
                let number = self.number;
                self.number += 1;
                let element = (self.of_bytes)(bytes);
                let unread = |error| DataError::Unread {
                    reason: format!("record {number}, counted over all of {}: {error}", self.files),
                };
                return Some(element.map_err(unread));
            }
            match self.open_block() {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => return Some(Err(error)),
            }
        }
    }

    fn skip(&mut self, count: u64) -> Result<u64> {
        let mut skipped = 0;
        while skipped < count {
            if self.block.next().is_some() {
                skipped += 1;
            } else if !self.open_block()? {
                break;
            }
        }
        self.number += skipped;
        Ok(skipped)
    }
}
