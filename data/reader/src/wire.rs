//! What a dataset asks a reader through its standard input, and what the reader answers through its standard output.
//!
//! A request is a line of JSON. A reply is the length of a JSON text as four bytes, least first, that text, and then
//! the bytes of its arrays. The first request has the version of its sender, because a Rust program may find the
//! `ferrotune` of another version.

use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, Read, Write};
use std::path::PathBuf;

/// What to read. A pattern such as `part-*.csv` stands for files, in the order of their names.
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
        /// The bits of what stands for a missing number, because JSON has no NaN; without it, one is an error.
        missing: Option<u32>,
    },
    /// Records, as bytes.
    Records {
        /// How records are told apart.
        framing: Framing,
        /// A path or a pattern.
        files: String,
    },
    /// The array in a file, or several of them, as one block.
    Array {
        /// The path.
        file: String,
        /// How the file is laid out.
        layout: Layout,
    },
    /// The files of a folder's folders, without reading them: [`Contents::files`] and [`Contents::classes`].
    Folder {
        /// The path.
        folder: String,
    },
    /// Images, each asked for by its path.
    Images {
        /// 1 for grey or 3 for red, green and blue.
        channels: usize,
        /// Rows of pixels.
        height: usize,
        /// Columns of pixels.
        width: usize,
    },
}

/// The format of a table.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Format {
    /// Text with a header, whose values this byte separates.
    Csv {
        /// A comma, mostly.
        delimiter: u8,
    },
    /// Apache Parquet.
    Parquet,
    /// Apache Arrow's files (Feather, version 2) and streams.
    Arrow,
}

/// How records of a file are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Framing {
    /// Lines of UTF-8, without their ends.
    Lines,
    /// TensorFlow's TFRecord, whose checksums are checked.
    TfRecord,
}

/// How an array is laid out in a file.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Layout {
    /// MNIST's IDX, with a header that has its type and shape.
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
    /// Their names; `None` stands for all columns that no other group names.
    pub columns: Option<Vec<String>>,
    /// What they become.
    pub kind: Kind,
}

/// What columns become.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Kind {
    /// A row of f32 for each row.
    Matrix,
    /// A number of f32 for each row, of a single column.
    Numbers,
    /// A class of u32 for each row, of a single column: the place of its text in this list, or, without a list, the
    /// whole number that stands there.
    Classes(Option<Vec<String>>),
}

/// A request. The first one opens a source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Request {
    /// Answered with [`Reply::Opened`].
    Open {
        /// [`VERSION`](crate::VERSION) of who asks.
        version: String,
        /// What to open.
        source: Source,
    },
    /// The block with this number, which is the next one where the source does not know how many it has.
    Block(u64),
    /// The image in this file.
    Image(PathBuf),
}

/// What is known of an open source.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Contents {
    /// The rows of each block, where they are known without reading it.
    pub rows: Option<Vec<u64>>,
    /// The names of a table's columns, or of several arrays.
    pub columns: Vec<String>,
    /// A folder's files with the number of their class, in the order of their paths.
    pub files: Vec<(PathBuf, u32)>,
    /// The names of the classes: of a folder's folders.
    pub classes: Vec<String>,
}

/// The type of an array's numbers, and its shape.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shape {
    /// As candle writes it: `u8`, `u32`, `i16`, `i32`, `i64`, `f8e4m3`, `bf16`, `f16`, `f32` or `f64`.
    pub dtype: String,
    /// The lengths of its dimensions, the outermost first.
    pub dims: Vec<usize>,
}

impl Shape {
    /// How many bytes the numbers are; none if the type is unknown, or there are too many.
    pub(crate) fn bytes(&self) -> Option<usize> {
        let size = match self.dtype.as_str() {
            "u8" | "f8e4m3" => 1,
            "i16" | "bf16" | "f16" => 2,
            "u32" | "i32" | "f32" => 4,
            "i64" | "f64" => 8,
            _ => return None,
        };
        // Who computes strides multiplies lengths beside one that is zero, too.
        let bytes = self.dims.iter().try_fold(size, |bytes: usize, dim| bytes.checked_mul((*dim).max(1)))?;
        Some(if self.dims.contains(&0) { 0 } else { bytes })
    }
}

/// Numbers of a shape, least byte first.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    /// Their type and shape.
    pub shape: Shape,
    /// Their bytes, the innermost dimension first.
    pub bytes: Vec<u8>,
}

/// The arrays of some rows: as many as the source has groups. Those of records are the bytes of all records, and where
/// each ends.
pub type Block = Vec<Array>;

/// An answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// The source is open.
    Opened(Contents),
    /// A block or an image.
    Block(Block),
    /// There is no such block.
    End,
    /// Why not, in one line that names the file.
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

/// The next request; `None` after the last one.
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
