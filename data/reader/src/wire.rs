//! The requests that a dataset sends to a reader's standard input, and the replies on the reader's standard output.
//!
//! A request is a line of JSON. A reply is the length of a JSON text as four bytes, least significant first, that text, and then
//! the bytes of its arrays. The first request has the version of its sender, because a Rust program may find the
//! `ferrotune` of another version.

use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, Read, Write};
use std::path::PathBuf;

/// The date of a row without one, in [`Source::Columns`].
pub const NO_DATE: i64 = i64::MIN;

/// The place of the text of a row without one, in [`Source::Columns`].
pub const NO_TEXT: u32 = u32::MAX;

/// The data to read. A pattern such as `part-*.csv` means all matching files, in the order of their names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Source {
    /// Columns of tables.
    Table {
        /// The files' format.
        format: Format,
        /// A path or a pattern.
        files: String,
        /// The arrays of each block.
        groups: Vec<Group>,
        /// The bits of the value for missing numbers, because JSON has no NaN. Without it, a missing number is an error.
        missing: Option<u32>,
    },
    /// All columns of tables, each for itself: three arrays for each column in a block. The dtype of the first array is the column's
    /// type: `f64` for numbers (a gap is NaN), `u8` for yes and no (1 and 0; a gap is 2), `i64` for dates (microseconds since 1970 in
    /// UTC; a gap is [`NO_DATE`]) and `u32` for texts (their places among the texts of the block; a gap is [`NO_TEXT`]). The
    /// other two arrays are the bytes of the block's different texts, and the end of each text.
    Columns {
        /// The files' format.
        format: Format,
        /// A path or a pattern.
        files: String,
        /// The names of the columns to leave out.
        without: Vec<String>,
    },
    /// Records, as bytes.
    Records {
        /// The format that separates the records.
        framing: Framing,
        /// A path or a pattern.
        files: String,
    },
    /// A block of the array in a file, or of the several arrays in it.
    Array {
        /// The path.
        file: String,
        /// The layout of the file.
        layout: Layout,
    },
    /// The files in the subfolders of a folder, without reading them: [`Contents::files`] and [`Contents::classes`].
    Folder {
        /// The path.
        folder: String,
    },
    /// Images, each of which is requested by its path.
    Images {
        /// The number of channels: 1 for grey, or 3 for red, green and blue.
        channels: usize,
        /// The number of rows of pixels.
        height: usize,
        /// The number of columns of pixels.
        width: usize,
    },
}

/// The format of a table.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Format {
    /// Text with a header and with this byte between values.
    Csv {
        /// The byte between values, mostly a comma.
        delimiter: u8,
    },
    /// Apache Parquet.
    Parquet,
    /// Apache Arrow's files (Feather, version 2) and streams.
    Arrow,
    /// Lines of JSON with an object for each row. Only for [`Source::Columns`].
    JsonLines,
}

/// The format that separates the records of a file.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Framing {
    /// Lines of UTF-8, without their ends.
    Lines,
    /// TensorFlow's TFRecord, whose checksums are checked.
    TfRecord,
}

/// The layout of arrays in a file.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Layout {
    /// MNIST's IDX, with the type and the shape in a header.
    Idx,
    /// Bytes without a header.
    Bytes,
    /// NumPy's NPY.
    Npy,
    /// Hugging Face's safetensors: several arrays, whose names are [`Contents::columns`].
    Safetensors,
}

/// Columns that become one array.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// The columns' names; `None` means all columns that no other group names.
    pub columns: Option<Vec<String>>,
    /// The kind of array that the columns become.
    pub kind: Kind,
}

/// The kind of array that columns become.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Kind {
    /// A matrix of f32, with a row for each row of the table.
    Matrix,
    /// A number of f32 for each row, from a single column.
    Numbers,
    /// A class of u32 for each row, from a single column: the place of the column's text in this list, or, without a list, the
    /// whole number in the column.
    Classes(Option<Vec<String>>),
}

/// A request. The first one opens a source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Request {
    /// A request to open a source, answered with [`Reply::Opened`].
    Open {
        /// The [`VERSION`](crate::VERSION) of the sender.
        version: String,
        /// The source to open.
        source: Source,
    },
    /// The block with this number. It must be the next block if the number of the source's blocks is unknown.
    Block(u64),
    /// The image in this file.
    Image(PathBuf),
}

/// The contents of an open source.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Contents {
    /// The rows of each block, if they are known without reading it.
    pub rows: Option<Vec<u64>>,
    /// The names of a table's columns, or of a file's arrays.
    pub columns: Vec<String>,
    /// The files of a folder, each with the number of its class, in the order of their paths.
    pub files: Vec<(PathBuf, u32)>,
    /// The names of the classes, which are the names of the subfolders.
    pub classes: Vec<String>,
}

/// The type of an array's numbers, and its shape.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shape {
    /// The type in candle's notation: `u8`, `u32`, `i16`, `i32`, `i64`, `f8e4m3`, `bf16`, `f16`, `f32` or `f64`.
    pub dtype: String,
    /// The lengths of the dimensions, the outermost first.
    pub dims: Vec<usize>,
}

impl Shape {
    /// The size of the numbers in bytes; `None` if the type is unknown or the size overflows.
    pub(crate) fn bytes(&self) -> Option<usize> {
        let size = match self.dtype.as_str() {
            "u8" | "f8e4m3" => 1,
            "i16" | "bf16" | "f16" => 2,
            "u32" | "i32" | "f32" => 4,
            "i64" | "f64" => 8,
            _ => return None,
        };
        // A length of zero does not protect the computation of strides from overflow, so it counts as one here.
        let bytes = self.dims.iter().try_fold(size, |bytes: usize, dim| bytes.checked_mul((*dim).max(1)))?;
        Some(if self.dims.contains(&0) { 0 } else { bytes })
    }
}

/// Numbers with a shape, as little-endian bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    /// The numbers' type and shape.
    pub shape: Shape,
    /// The numbers' bytes, the innermost dimension first.
    pub bytes: Vec<u8>,
}

/// The arrays of some rows: one for each group of the source. For records, the arrays are the bytes of all records, and the end
/// of each record.
pub type Block = Vec<Array>;

/// The reply to a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// The source is open.
    Opened(Contents),
    /// A block of rows, or an image.
    Block(Block),
    /// The source has no such block.
    End,
    /// The error, in one line that names the file.
    Failed(String),
}

#[derive(Serialize, Deserialize)]
enum Header {
    Opened(Contents),
    Block(Vec<Shape>),
    End,
    Failed(String),
}

/// Sends a request.
pub fn write_request(writer: &mut impl Write, request: &Request) -> io::Result<()> {
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    writer.write_all(&line)?;
    writer.flush()
}

/// Receives the next request; `None` after the last one.
pub fn read_request(reader: &mut impl BufRead) -> io::Result<Option<Request>> {
    let mut line = Vec::new();
    reader.read_until(b'\n', &mut line)?;
    if line.is_empty() { Ok(None) } else { Ok(Some(serde_json::from_slice(&line)?)) }
}

/// Sends a reply.
pub fn write_reply(writer: &mut impl Write, reply: Reply) -> io::Result<()> {
    let (header, arrays) = match reply {
        Reply::Opened(contents) => (Header::Opened(contents), Vec::new()),
        Reply::Block(arrays) => (Header::Block(arrays.iter().map(|array| array.shape.clone()).collect()), arrays),
        Reply::End => (Header::End, Vec::new()),
        Reply::Failed(reason) => (Header::Failed(reason), Vec::new()),
    };
    let header = serde_json::to_vec(&header)?;
    let length = u32::try_from(header.len()).map_err(io::Error::other)?;
    writer.write_all(&length.to_le_bytes())?;
    writer.write_all(&header)?;
    for array in arrays {
        writer.write_all(&array.bytes)?;
    }
    writer.flush()
}

/// Waits for a reply. Fails with [`io::ErrorKind::UnexpectedEof`] if the reader has ended.
pub fn read_reply(reader: &mut impl Read) -> io::Result<Reply> {
    let mut length = [0; 4];
    reader.read_exact(&mut length)?;
    let header = serde_json::from_slice(&read_bytes(reader, u32::from_le_bytes(length) as usize)?)?;
    Ok(match header {
        Header::Opened(contents) => Reply::Opened(contents),
        Header::End => Reply::End,
        Header::Failed(reason) => Reply::Failed(reason),
        Header::Block(shapes) => {
            let array = |shape: Shape| {
                let bytes = shape.bytes().ok_or_else(|| io::Error::other(format!("{shape:?} has no size")))?;
                Ok(Array { bytes: read_bytes(reader, bytes)?, shape })
            };
            Reply::Block(shapes.into_iter().map(array).collect::<io::Result<_>>()?)
        }
    })
}

fn read_bytes(reader: &mut impl Read, count: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(count);
    if reader.take(count as u64).read_to_end(&mut bytes)? < count {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(bytes)
}
