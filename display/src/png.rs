//! An encoder of PNG files with 8-bit pixels, by [the specification](https://www.w3.org/TR/png-3/). Decodes no file.

use miniz_oxide::deflate::compress_to_vec_zlib;

/// The compression level from 0 to 10: the default level of zlib.
const COMPRESSION: u8 = 6;

/// The storage of a pixel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pixels {
    /// One byte: from black to white.
    Grey,
    /// Three bytes: red, green and blue.
    Rgb,
}

impl Pixels {
    /// The number of bytes of a pixel.
    pub fn bytes(self) -> usize {
        match self {
            Pixels::Grey => 1,
            Pixels::Rgb => 3,
        }
    }

    /// The number of the colour type in the file's header.
    fn colour_type(self) -> u8 {
        match self {
            Pixels::Grey => 0,
            Pixels::Rgb => 2,
        }
    }
}

/// Encodes rows of `width` pixels as a PNG file. `None` if a row is empty, if the last row is incomplete, or if a side is longer
/// than the format allows.
///
/// ```
/// use ferrotune_display::png::{Pixels, encode};
/// let file = encode(2, Pixels::Grey, &[0, 255, 255, 0]).unwrap();
/// assert_eq!(&file[1..4], b"PNG");
/// assert_eq!(encode(2, Pixels::Rgb, &[0, 255, 255, 0]), None);
/// ```
pub fn encode(width: usize, pixels: Pixels, bytes: &[u8]) -> Option<Vec<u8>> {
    let row_bytes = width.checked_mul(pixels.bytes()).filter(|bytes| *bytes > 0)?;
    if bytes.is_empty() || !bytes.len().is_multiple_of(row_bytes) {
        return None;
    }
    let side = |pixels: usize| i32::try_from(pixels).ok().map(i32::to_be_bytes);
    let mut header = Vec::from(side(width)?);
    header.extend(side(bytes.len() / row_bytes)?);
    // The fields are: 8 bits; zlib; one filter for each row; not interlaced.
    header.extend([8, pixels.colour_type(), 0, 0, 0]);
    let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
    chunk(&mut file, *b"IHDR", &header)?;
    chunk(&mut file, *b"IDAT", &compress_to_vec_zlib(&filtered(bytes, row_bytes, pixels.bytes()), COMPRESSION))?;
    chunk(&mut file, *b"IEND", &[])?;
    Some(file)
}

/// The rows, each after its filter. The filter is the difference to the pixel at the left, because neighbours are similar.
fn filtered(bytes: &[u8], row_bytes: usize, pixel_bytes: usize) -> Vec<u8> {
    const DIFFERENCE_TO_LEFT: u8 = 1;
    let mut filtered = Vec::with_capacity(bytes.len() + bytes.len() / row_bytes);
    for row in bytes.chunks(row_bytes) {
        filtered.push(DIFFERENCE_TO_LEFT);
        let left = std::iter::repeat_n(0, pixel_bytes).chain(row.iter().copied());
        filtered.extend(row.iter().zip(left).map(|(byte, left)| byte.wrapping_sub(left)));
    }
    filtered
}

fn chunk(file: &mut Vec<u8>, name: [u8; 4], content: &[u8]) -> Option<()> {
    file.extend(u32::try_from(content.len()).ok()?.to_be_bytes());
    let start = file.len();
    file.extend(name);
    file.extend(content);
    file.extend(crc32fast::hash(&file[start..]).to_be_bytes());
    Some(())
}
