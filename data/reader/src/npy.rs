//! The header of NumPy's format NPY: <https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>.

use crate::wire::Shape;

/// The header of a file with one array.
#[derive(Clone, Debug, PartialEq)]
pub struct NpyHeader {
    /// The type of the numbers, and the lengths of the dimensions in NumPy's order.
    pub shape: Shape,
    /// Whether the first dimension is the innermost dimension in the file.
    pub is_fortran: bool,
    /// The position of the first byte of the numbers.
    pub data: usize,
}

/// The largest number of bytes that [`NpyHeader::read`] needs. The header of an array of numbers is never longer.
pub const NPY_HEADER_BYTES: usize = 1 << 16;

impl NpyHeader {
    /// Reads the header from the first [`NPY_HEADER_BYTES`] of a file. The error is a text that names the fault and its cure.
    pub fn read(bytes: &[u8]) -> Result<NpyHeader, String> {
        let (text, data) = header(bytes)?;
        let damaged = |key: &str| format!("its header has no valid `{key}`; save it again with numpy.save");
        let descr = value(text, "descr").ok_or_else(|| damaged("descr"))?;
        let Some(descr) = quoted(descr) else {
            return Err("its elements have several fields; save each field as an array of its own".to_owned());
        };
        let is_fortran = match value(text, "fortran_order") {
            Some(order) if order.starts_with("True") => true,
            Some(order) if order.starts_with("False") => false,
            _ => return Err(damaged("fortran_order")),
        };
        let dims = value(text, "shape").and_then(lengths).ok_or_else(|| damaged("shape"))?;
        Ok(NpyHeader { shape: Shape { dtype: candle_type(descr)?.to_owned(), dims }, is_fortran, data })
    }

    /// Fails, as [`NpyHeader::read`] does, unless the numbers of the shape need exactly the `bytes` after the header.
    pub fn check(&self, bytes: u64) -> Result<(), String> {
        if self.shape.bytes().is_some_and(|needed| needed as u64 == bytes) {
            return Ok(());
        }
        let Shape { dtype, dims } = &self.shape;
        Err(format!("its shape {dims:?} of {dtype} does not match the {bytes} bytes behind its header; save it again"))
    }

    /// The lengths of the dimensions in the order of the file, the innermost last.
    pub fn stored_dims(&self) -> Vec<usize> {
        let dims = self.shape.dims.iter().copied();
        if self.is_fortran { dims.rev().collect() } else { dims.collect() }
    }
}

/// The header's text, and the position of the first byte of the numbers.
fn header(bytes: &[u8]) -> Result<(&str, usize), String> {
    let Some(rest) = bytes.strip_prefix(b"\x93NUMPY") else {
        let archive =
            bytes.starts_with(b"PK").then_some("it is an NPZ archive; save each of its arrays with numpy.save");
        return Err(archive.unwrap_or("it is no NPY file; write it with numpy.save").to_owned());
    };
    let cut = || "it ends within its header; copy or save it again".to_owned();
    let (begin, length) = match *rest {
        [1, _, low, high, ..] => (10, usize::from(u16::from_le_bytes([low, high]))),
        [2 | 3, _, a, b, c, d, ..] => (12, u32::from_le_bytes([a, b, c, d]) as usize),
        [0 | 4.., ..] => return Err(format!("its format's version {} is unknown; save it with numpy.save", rest[0])),
        _ => return Err(cut()),
    };
    let data = length.saturating_add(begin);
    if data > NPY_HEADER_BYTES {
        return Err("its header is too long for an array of numbers; save it again with numpy.save".to_owned());
    }
    let header = bytes.get(begin..data).ok_or_else(cut)?;
    let text = str::from_utf8(header).map_err(|_| "its header is no text; copy or save it again".to_owned())?;
    Ok((text, data))
}

/// The text after a key of the header. The header is the text of a Python dictionary.
fn value<'a>(header: &'a str, key: &str) -> Option<&'a str> {
    let (_, value) = header.split_once(&format!("'{key}':"))?;
    Some(value.trim_start())
}

fn quoted(value: &str) -> Option<&str> {
    value.strip_prefix('\'')?.split_once('\'').map(|(text, _)| text)
}

/// The numbers of a tuple. Python 2 wrote an `L` after some of them.
fn lengths(value: &str) -> Option<Vec<usize>> {
    let (tuple, _) = value.strip_prefix('(')?.split_once(')')?;
    let lengths = tuple.split(',').map(|length| length.trim().trim_end_matches('L'));
    lengths.filter(|length| !length.is_empty()).map(|length| length.parse().ok()).collect()
}

fn candle_type(descr: &str) -> Result<&'static str, String> {
    Ok(match descr.strip_prefix(['<', '|']).unwrap_or(descr) {
        "u1" | "b1" => "u8",
        "u4" => "u32",
        "i2" => "i16",
        "i4" => "i32",
        "i8" => "i64",
        "f2" => "f16",
        "f4" => "f32",
        "f8" => "f64",
        other if other.contains('c') => {
            return Err(format!(
                "its type {descr} is complex; save `array.real` and `array.imag` as arrays of their own"
            ));
        }
        _ => {
            return Err(format!(
                "its type {descr} is none of candle's; save `array.astype(\"<f4\")`, or as u1, u4, i2, i4, i8, f2 or f8"
            ));
        }
    })
}
