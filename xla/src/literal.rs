//! candle's arrays on the CPU as literals of PJRT, and literals as arrays.

use crate::element::element_of;
use candle_core::backend::BackendStorage as _;
use candle_core::{CpuStorage, DType, Result, bail};
use ferrotune_devices::pjrt::{Element, Literal};

/// The bytes of candle's array, in the machine's byte order, and their type.
pub(crate) fn bytes_of(values: &CpuStorage) -> Result<(Element, &[u8])> {
    let bytes = match values {
        CpuStorage::U8(v) => v.as_slice(),
        CpuStorage::U32(v) => bytemuck::cast_slice(v),
        CpuStorage::I16(v) => bytemuck::cast_slice(v),
        CpuStorage::I32(v) => bytemuck::cast_slice(v),
        CpuStorage::I64(v) => bytemuck::cast_slice(v),
        CpuStorage::BF16(v) => bytemuck::cast_slice(v),
        CpuStorage::F16(v) => bytemuck::cast_slice(v),
        CpuStorage::F32(v) => bytemuck::cast_slice(v),
        CpuStorage::F64(v) => bytemuck::cast_slice(v),
        other => bail!("{:?} has no XLA type; convert it with `to_dtype` on the CPU", other.dtype()),
    };
    Ok((element_of(values.dtype())?, bytes))
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

fn elements_of<T: bytemuck::AnyBitPattern>(bytes: &[u8]) -> Vec<T> {
    bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect()
}
