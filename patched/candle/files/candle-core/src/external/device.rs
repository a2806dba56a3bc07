//! What candle asks a device for, as operations of the backend.

use super::{MetalDevice, MetalStorage, Op};
use crate::backend::{BackendDevice, BackendStorage};
use crate::{CpuStorage, DType, DeviceLocation, Result, Shape};
use std::sync::Arc;

impl BackendDevice for MetalDevice {
    type Storage = MetalStorage;

    /// There is no device that could be found by its number alone.
    fn new(_: usize) -> Result<Self> {
        Err(crate::Error::NotCompiledWithMetalSupport)
    }

    fn set_seed(&self, seed: u64) -> Result<()> {
        self.backend.set_seed(seed)
    }

    fn get_current_seed(&self) -> Result<u64> {
        Ok(self.backend.seed())
    }

    fn location(&self) -> DeviceLocation {
        DeviceLocation::Metal { gpu_id: self.ordinal }
    }

    fn same_device(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.backend, &other.backend) && self.ordinal == other.ordinal
    }

    fn zeros_impl(&self, shape: &Shape, dtype: DType) -> Result<MetalStorage> {
        self.create(Op::Zeros, shape, dtype)
    }

    unsafe fn alloc_uninit(&self, shape: &Shape, dtype: DType) -> Result<MetalStorage> {
        self.create(Op::Uninit, shape, dtype)
    }

    fn storage_from_slice<T: crate::WithDType>(&self, values: &[T]) -> Result<MetalStorage> {
        self.storage_from_cpu_storage_owned(T::to_cpu_storage(values))
    }

    fn storage_from_cpu_storage(&self, values: &CpuStorage) -> Result<MetalStorage> {
        self.storage_in_shape(values, &Shape::from(count_of(values)))
    }

    fn storage_from_cpu_storage_owned(&self, values: CpuStorage) -> Result<MetalStorage> {
        self.storage_from_cpu_storage(&values)
    }

    fn rand_uniform(&self, shape: &Shape, dtype: DType, low: f64, high: f64) -> Result<MetalStorage> {
        self.create(Op::Uniform { low, high }, shape, dtype)
    }

    fn rand_normal(&self, shape: &Shape, dtype: DType, mean: f64, deviation: f64) -> Result<MetalStorage> {
        self.create(Op::Normal { mean, deviation }, shape, dtype)
    }

    fn synchronize(&self) -> Result<()> {
        self.backend.synchronize()
    }
}

impl MetalDevice {
    /// A storage for a tensor of this shape, with all of these elements in their order.
    pub(crate) fn storage_in_shape(&self, values: &CpuStorage, shape: &Shape) -> Result<MetalStorage> {
        Ok(self.storage(self.backend.upload(values, shape)?, values.dtype(), shape.elem_count()))
    }
}

fn count_of(values: &CpuStorage) -> usize {
    match values {
        CpuStorage::U8(v) => v.len(),
        CpuStorage::U32(v) => v.len(),
        CpuStorage::I16(v) => v.len(),
        CpuStorage::I32(v) => v.len(),
        CpuStorage::I64(v) => v.len(),
        CpuStorage::BF16(v) => v.len(),
        CpuStorage::F16(v) => v.len(),
        CpuStorage::F32(v) => v.len(),
        CpuStorage::F64(v) => v.len(),
        CpuStorage::F8E4M3(v) => v.len(),
        CpuStorage::F6E2M3(v) | CpuStorage::F6E3M2(v) | CpuStorage::F4(v) | CpuStorage::F8E8M0(v) => v.len(),
    }
}
