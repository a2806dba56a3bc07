//! Files that are one array.

use super::files;
use crate::wire::{Array, Layout, Shape};
use anyhow::{Context as _, Result, bail};
use std::path::Path;

/// The array in a file.
pub(super) fn read(path: &Path, layout: Layout) -> Result<Array> {
    let mut bytes = Vec::new();
    files::open(path)?.read_to_end(&mut bytes).map_err(|error| files::unread(&files::name(path), error))?;
    match layout {
        Layout::Bytes => Ok(Array { shape: Shape { dtype: "u8".to_owned(), dims: vec![bytes.len()] }, bytes }),
        Layout::Idx => idx(bytes).with_context(|| format!("{} is no IDX file", files::name(path))),
    }
}

/// Two zeros, the type, the number of dimensions, their lengths, and the numbers, most significant byte first:
/// <https://yann.lecun.org/exdb/mnist/>.
fn idx(mut bytes: Vec<u8>) -> Result<Array> {
    let Some(&[0, 0, kind, rank]) = bytes.first_chunk() else { bail!("it does not begin with two zeros") };
    let begin = 4 + 4 * usize::from(rank);
    let lengths = bytes.get(4..begin).context("it ends within its header")?;
    let lengths = lengths.as_chunks::<4>().0.iter();
    let dims: Vec<usize> = lengths.map(|length| u32::from_be_bytes(*length) as usize).collect();
    let count = dims.iter().try_fold(1_usize, |count, length| count.checked_mul(*length));
    let numbers = bytes.split_off(begin);
    let size = match kind {
        0x08 | 0x09 => 1,
        0x0b => 2,
        0x0c | 0x0d => 4,
        0x0e => 8,
        other => bail!("its type {other:#04x} is unknown"),
    };
    if count.and_then(|count| count.checked_mul(size)) != Some(numbers.len()) {
        bail!("its shape {dims:?} does not match the {} bytes behind the header", numbers.len());
    }
    let (dtype, bytes) = match kind {
        0x08 => ("u8", numbers),
        0x09 => ("i64", whole(&numbers, |[byte]: [u8; 1]| i64::from(byte as i8))),
        0x0b => ("i64", whole(&numbers, |bytes| i16::from_be_bytes(bytes).into())),
        0x0c => ("i64", whole(&numbers, |bytes| i32::from_be_bytes(bytes).into())),
        0x0d => ("f32", turned::<4>(&numbers)),
        _ => ("f64", turned::<8>(&numbers)),
    };
    Ok(Array { shape: Shape { dtype: dtype.to_owned(), dims }, bytes })
}

fn whole<const N: usize>(numbers: &[u8], number: impl Fn([u8; N]) -> i64) -> Vec<u8> {
    numbers.as_chunks().0.iter().flat_map(|bytes| number(*bytes).to_le_bytes()).collect()
}

/// The same numbers, least significant byte first.
fn turned<const N: usize>(numbers: &[u8]) -> Vec<u8> {
    numbers.as_chunks::<N>().0.iter().flat_map(|bytes| bytes.iter().rev().copied()).collect()
}
