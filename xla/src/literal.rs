//! candle's arrays on the CPU as literals of PJRT, and literals as arrays.

use crate::element::element_of;
use candle_core::backend::BackendStorage as _;
use candle_core::{CpuStorage, DType, Error, Result, bail};
use ferrotune_devices::pjrt::Literal;
use ferrotune_devices::runtime::Client;

/// candle's array as a literal of PJRT, with one dimension, for uploads of this client.
pub(crate) fn literal_of(client: &Client, values: &CpuStorage) -> Result<Literal> {
    let (bytes, count) = match values {
        CpuStorage::U8(v) => (v.as_slice(), v.len()),
        CpuStorage::U32(v) => (bytes_of(v), v.len()),
        CpuStorage::I16(v) => (bytes_of(v), v.len()),
        CpuStorage::I32(v) => (bytes_of(v), v.len()),
        CpuStorage::I64(v) => (bytes_of(v), v.len()),
        CpuStorage::BF16(v) => (bytes_of(v), v.len()),
        CpuStorage::F16(v) => (bytes_of(v), v.len()),
        CpuStorage::F32(v) => (bytes_of(v), v.len()),
        CpuStorage::F64(v) => (bytes_of(v), v.len()),
        other => bail!("{:?} has no XLA type; convert it with `to_dtype` on the CPU", other.dtype()),
    };
    let count = i64::try_from(count).map_err(Error::wrap)?;
    client.literal(element_of(values.dtype())?, &[count], bytes).map_err(Error::wrap)
}

/// A literal of PJRT as an array on candle's CPU.
pub(crate) fn values_of(literal: &Literal, dtype: DType) -> Result<CpuStorage> {
    let bytes = literal.bytes();
    Ok(match dtype {
        DType::U8 => CpuStorage::U8(bytes.to_vec()),
        DType::U32 => CpuStorage::U32(elements_of(bytes)),
        DType::I16 => CpuStorage::I16(elements_of(bytes)),
        DType::I32 => CpuStorage::I32(elements_of(bytes)),
        DType::I64 => CpuStorage::I64(elements_of(bytes)),
        DType::BF16 => CpuStorage::BF16(elements_of(bytes)),
        DType::F16 => CpuStorage::F16(elements_of(bytes)),
        DType::F32 => CpuStorage::F32(elements_of(bytes)),
        DType::F64 => CpuStorage::F64(elements_of(bytes)),
        other => bail!("{other:?} is not computed with on XLA devices"),
    })
}

fn bytes_of<T: bytemuck::NoUninit>(values: &[T]) -> &[u8] {
    bytemuck::cast_slice(values)
}

fn elements_of<T: bytemuck::AnyBitPattern>(bytes: &[u8]) -> Vec<T> {
    bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect()
}
