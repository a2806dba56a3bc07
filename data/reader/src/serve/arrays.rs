//! Files with one array, or with several arrays and their names.

use super::files;
use crate::npy::{NPY_HEADER_BYTES, NpyHeader};
use crate::wire::{Array, Block, Layout, Shape};
use anyhow::{Context as _, Error, Result, anyhow, bail};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use std::path::Path;

/// The arrays in a file, and their names if the file has several.
pub(super) fn read(path: &Path, layout: Layout) -> Result<(Vec<String>, Block)> {
    let mut bytes = Vec::new();
    let name = files::name(path);
    files::open(path)?.read_to_end(&mut bytes).map_err(|error| files::unread(&name, error))?;
    let one = |array| (Vec::new(), vec![array]);
    match layout {
        Layout::Bytes => Ok(one(Array { shape: Shape { dtype: "u8".to_owned(), dims: vec![bytes.len()] }, bytes })),
        Layout::Idx => idx(bytes).map(one).with_context(|| format!("{name} is no IDX file")),
        Layout::Npy => npy(bytes).map(one).with_context(|| format!("cannot read {name}")),
        Layout::Safetensors => safetensors(&bytes).with_context(|| format!("cannot read {name}")),
    }
}

/// The array of an NPY file, with the last dimension as the innermost.
fn npy(mut bytes: Vec<u8>) -> Result<Array> {
    let header = NpyHeader::read(&bytes[..bytes.len().min(NPY_HEADER_BYTES)]).map_err(Error::msg)?;
    bytes.drain(..header.data);
    header.check(bytes.len() as u64).map_err(Error::msg)?;
    let shape = header.shape;
    let bytes = if header.is_fortran { turned_inside_out(&bytes, &shape.dims) } else { bytes };
    Ok(Array { shape, bytes })
}

/// Reorders numbers whose first dimension is the innermost, so that the last dimension is the innermost.
fn turned_inside_out(numbers: &[u8], dims: &[usize]) -> Vec<u8> {
    let count: usize = dims.iter().product();
    let size = numbers.len() / count.max(1);
    let mut turned = Vec::with_capacity(numbers.len());
    for mut place in 0..count {
        // The loop goes from the innermost dimension of the result to its outermost.
        let (mut from, mut stride) = (0, count);
        for length in dims.iter().rev() {
            stride /= length;
            from += place % length * stride;
            place /= length;
        }
        turned.extend_from_slice(&numbers[from * size..(from + 1) * size]);
    }
    turned
}

/// All tensors of a file, in the order of their names: <https://huggingface.co/docs/safetensors>.
fn safetensors(bytes: &[u8]) -> Result<(Vec<String>, Block)> {
    let mut tensors = SafeTensors::deserialize(bytes)
        .map_err(|error| anyhow!("it is no whole safetensors file ({error}); copy or save it again"))?
        .tensors();
    tensors.sort_by(|(name, _), (other, _)| name.cmp(other));
    let array = |(name, tensor): (String, TensorView)| {
        let array = Array { shape: shape(&name, &tensor)?, bytes: tensor.data().to_vec() };
        Ok((name, array))
    };
    tensors.into_iter().map(array).collect::<Result<Vec<_>>>().map(|arrays| arrays.into_iter().unzip())
}

fn shape(name: &str, tensor: &TensorView) -> Result<Shape> {
    let dtype = match tensor.dtype() {
        Dtype::BOOL | Dtype::U8 => "u8",
        Dtype::F8_E4M3 => "f8e4m3",
        Dtype::I16 => "i16",
        Dtype::BF16 => "bf16",
        Dtype::F16 => "f16",
        Dtype::U32 => "u32",
        Dtype::I32 => "i32",
        Dtype::F32 => "f32",
        Dtype::I64 => "i64",
        Dtype::F64 => "f64",
        other => bail!("its tensor `{name}` is of type {other}, which candle does not have; save it as F32 or I64"),
    };
    let shape = Shape { dtype: dtype.to_owned(), dims: tensor.shape().to_vec() };
    if shape.bytes() != Some(tensor.data().len()) {
        bail!("its tensor `{name}` has the shape {:?}, which is too large; save it again", shape.dims);
    }
    Ok(shape)
}

/// The array of an IDX file: two zeros, the type, the number of dimensions, their lengths, and the numbers, most significant byte
/// first: <https://yann.lecun.org/exdb/mnist/>.
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

/// Converts numbers from big-endian to little-endian.
fn turned<const N: usize>(numbers: &[u8]) -> Vec<u8> {
    numbers.as_chunks::<N>().0.iter().flat_map(|bytes| bytes.iter().rev().copied()).collect()
}
