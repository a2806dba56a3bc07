//! A device that the program itself provides.
//!
//! A [`Backend`] gets every kernel that candle asks a device for, as an [`Op`] with its inputs and their layouts. Its values
//! are immutable: what candle changes in place is which value a storage refers to, its [`Slot`]. A backend can therefore
//! compute at once, or only note what is to be computed.
//!
//! Such a device takes the place that Metal has where Metal is not built in: [`Device::Metal`] and `Storage::Metal`.

use crate::backend::{BackendDevice, BackendStorage};
use crate::conv::{ParamsConv1D, ParamsConv2D, ParamsConvTranspose1D, ParamsConvTranspose2D};
use crate::op::{BinaryOpT, ReduceOp, UnaryOpT};
use crate::scalar::Scalar;
use crate::{CpuStorage, DType, Device, DeviceLocation, Layout, Result, Shape};
use std::any::Any;
use std::fmt::{self, Debug};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use crate::op::CmpOp;

/// A value on the device, as the backend knows it: a dense array.
pub type Value = Arc<dyn Any + Send + Sync>;

/// A kernel that candle asks for. The inputs of each are named in their order.
#[derive(Debug, Clone, PartialEq)]
pub enum Op {
    /// `x * mul + add`.
    Affine { mul: f64, add: f64 },
    /// `x` to the power of a number.
    Powf(f64),
    /// `x` where it is positive, `alpha * (exp(x) - 1)` elsewhere.
    Elu { alpha: f64 },
    /// Reduces these dimensions to size 1.
    Reduce(ReduceOp, Vec<usize>),
    /// Compares `x` and `y`; the result is 1 or 0 in `u8`.
    Cmp(CmpOp),
    /// Converts `x` to the result's type, as Rust's `as` does.
    ToDType,
    /// A function of `x` alone, by candle's name for it.
    Unary(&'static str),
    /// A function of `x` and `y`, by candle's name for it.
    Binary(&'static str),
    /// Condition, value where it is not 0, value elsewhere.
    WhereCond,
    /// Input, kernel; one or two spatial dimensions.
    Conv { spatial: usize, stride: usize, padding: usize, dilation: usize },
    /// Input, kernel; one or two spatial dimensions.
    ConvTranspose { spatial: usize, stride: usize, padding: usize, output_padding: usize, dilation: usize },
    AvgPool2d { kernel: (usize, usize), stride: (usize, usize) },
    MaxPool2d { kernel: (usize, usize), stride: (usize, usize) },
    /// To these spatial sizes.
    UpsampleNearest(Vec<usize>),
    UpsampleBilinear2d { size: (usize, usize), align_corners: bool, scale: (Option<f64>, Option<f64>) },
    /// Source, indices.
    Gather { dim: usize },
    /// Old value, indices, source.
    Scatter { dim: usize },
    /// Old value, indices, source.
    ScatterAdd { dim: usize },
    /// Source, indices.
    IndexSelect { dim: usize },
    /// Old value, indices, source.
    IndexAdd { dim: usize },
    Matmul,
    /// The whole old value, source: the source's elements, densely, from `offset` on.
    Copy { offset: usize },
    /// The whole old value, the whole source: `rows` rows of `columns` elements.
    Copy2d { rows: usize, columns: usize, source: Rows, target: Rows },
    /// The elements of the old value that the input's layout names become this number.
    Set(Scalar),
    /// Random numbers, evenly from `low` to `high`.
    Uniform { low: f64, high: f64 },
    Normal { mean: f64, deviation: f64 },
    Zeros,
    /// Any numbers: candle sets all of them before it reads one.
    Uninit,
}

/// Where rows of a dense array begin, in elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rows {
    pub offset: usize,
    pub stride: usize,
}

/// An input of a kernel: the elements of a storage that a layout names.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    pub storage: &'a MetalStorage,
    pub layout: &'a Layout,
}

/// A device that is not candle's own. Every error reaches the user as it is.
pub trait Backend: Any + Debug + Send + Sync {
    /// The result of a kernel, which has this shape and type. The inputs are as [`Op`] tells.
    fn apply(&self, op: Op, inputs: &[Input<'_>], shape: &Shape, dtype: DType) -> Result<Value>;

    /// The result of a custom operation, with its shape and type. The backend knows the operation by its name;
    /// `attributes` are the numbers that define it beside the inputs.
    fn custom(&self, name: &str, attributes: &[f64], inputs: &[Input<'_>]) -> Result<(Value, Shape, DType)>;

    fn upload(&self, values: CpuStorage) -> Result<Value>;

    /// The elements of a value, which has this type.
    fn download(&self, value: &Value, dtype: DType) -> Result<CpuStorage>;

    /// A storage refers to another value now than `before`.
    fn assigned(&self, slot: &Arc<Slot>, before: &Value);

    fn set_seed(&self, seed: u64) -> Result<()>;

    fn seed(&self) -> u64;

    /// Returns when everything that was asked for has been computed.
    fn synchronize(&self) -> Result<()>;
}

/// Which value a storage refers to.
pub struct Slot(Mutex<Value>);

impl Slot {
    pub fn value(&self) -> Value {
        self.lock().clone()
    }

    /// Lets the storage refer to another value; returns the earlier one.
    pub fn replace(&self, value: Value) -> Value {
        std::mem::replace(&mut *self.lock(), value)
    }

    fn lock(&self) -> MutexGuard<'_, Value> {
        // A reference is replaced whole or not at all.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Clone)]
pub struct MetalDevice {
    ordinal: usize,
    backend: Arc<dyn Backend>,
}

pub struct MetalStorage {
    slot: Arc<Slot>,
    dtype: DType,
    count: usize,
    device: MetalDevice,
}

#[derive(thiserror::Error, Debug)]
pub enum MetalError {
    #[error("{0}")]
    Message(String),
}

impl From<String> for MetalError {
    fn from(e: String) -> Self {
        MetalError::Message(e)
    }
}

impl Device {
    /// A device of this backend. Two devices are the same if their backend is.
    pub fn external(backend: Arc<dyn Backend>, ordinal: usize) -> Self {
        Self::Metal(MetalDevice { ordinal, backend })
    }

    /// The backend, if this is a device that the program provides.
    pub fn as_external(&self) -> Option<&Arc<dyn Backend>> {
        match self {
            Self::Metal(device) => Some(&device.backend),
            _ => None,
        }
    }
}

impl MetalDevice {
    /// A storage of `count` elements that refers to `value`.
    pub fn storage(&self, value: Value, dtype: DType, count: usize) -> MetalStorage {
        let slot = Arc::new(Slot(Mutex::new(value)));
        MetalStorage { slot, dtype, count, device: self.clone() }
    }

    fn create(&self, op: Op, shape: &Shape, dtype: DType) -> Result<MetalStorage> {
        Ok(self.storage(self.backend.apply(op, &[], shape, dtype)?, dtype, shape.elem_count()))
    }
}

impl MetalStorage {
    pub fn slot(&self) -> &Arc<Slot> {
        &self.slot
    }

    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// How many elements the storage has, which may be more than a layout names.
    pub fn count(&self) -> usize {
        self.count
    }

    fn all(&self) -> Layout {
        Layout::contiguous(self.count)
    }

    fn apply<S: Into<Shape>>(&self, op: Op, inputs: &[(&Self, &Layout)], shape: S, dtype: DType) -> Result<Self> {
        let shape = shape.into();
        let value = self.device.backend.apply(op, &named(inputs), &shape, dtype)?;
        Ok(self.device.storage(value, dtype, shape.elem_count()))
    }

    /// Replaces the value by the result of a kernel that has as many elements.
    fn change<S: Into<Shape>>(&self, op: Op, inputs: &[(&Self, &Layout)], shape: S) -> Result<()> {
        let value = self.device.backend.apply(op, &named(inputs), &shape.into(), self.dtype)?;
        let before = self.slot.replace(value);
        self.device.backend.assigned(&self.slot, &before);
        Ok(())
    }
}

impl Debug for MetalStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} elements of {:?}", self.count, self.dtype)
    }
}

fn named<'a>(inputs: &[(&'a MetalStorage, &'a Layout)]) -> Vec<Input<'a>> {
    inputs.iter().map(|(storage, layout)| Input { storage, layout }).collect()
}

/// The forward pass of a custom operation.
pub(crate) fn custom(
    name: &str,
    attributes: &[f64],
    inputs: &[(&MetalStorage, &Layout)],
) -> Result<(MetalStorage, Shape)> {
    let device = &inputs[0].0.device;
    let (value, shape, dtype) = device.backend.custom(name, attributes, &named(inputs))?;
    Ok((device.storage(value, dtype, shape.elem_count()), shape))
}

impl BackendStorage for MetalStorage {
    type Device = MetalDevice;

    fn try_clone(&self, _: &Layout) -> Result<Self> {
        Ok(self.device.storage(self.slot.value(), self.dtype, self.count))
    }

    fn dtype(&self) -> DType {
        self.dtype
    }

    fn device(&self) -> &MetalDevice {
        &self.device
    }

    fn to_cpu_storage(&self) -> Result<CpuStorage> {
        self.device.backend.download(&self.slot.value(), self.dtype)
    }

    fn affine(&self, l: &Layout, mul: f64, add: f64) -> Result<Self> {
        self.apply(Op::Affine { mul, add }, &[(self, l)], l.shape(), self.dtype)
    }

    fn powf(&self, l: &Layout, exponent: f64) -> Result<Self> {
        self.apply(Op::Powf(exponent), &[(self, l)], l.shape(), self.dtype)
    }

    fn elu(&self, l: &Layout, alpha: f64) -> Result<Self> {
        self.apply(Op::Elu { alpha }, &[(self, l)], l.shape(), self.dtype)
    }

    fn reduce_op(&self, op: ReduceOp, l: &Layout, dims: &[usize]) -> Result<Self> {
        let mut shape = l.dims().to_vec();
        for dim in dims {
            shape[*dim] = 1;
        }
        let is_index = matches!(op, ReduceOp::ArgMin | ReduceOp::ArgMax);
        let dtype = if is_index { DType::U32 } else { self.dtype };
        self.apply(Op::Reduce(op, dims.to_vec()), &[(self, l)], shape, dtype)
    }

    fn cmp(&self, op: CmpOp, rhs: &Self, l: &Layout, rhs_l: &Layout) -> Result<Self> {
        self.apply(Op::Cmp(op), &[(self, l), (rhs, rhs_l)], l.shape(), DType::U8)
    }

    fn to_dtype(&self, l: &Layout, dtype: DType) -> Result<Self> {
        self.apply(Op::ToDType, &[(self, l)], l.shape(), dtype)
    }

    fn unary_impl<B: UnaryOpT>(&self, l: &Layout) -> Result<Self> {
        self.apply(Op::Unary(B::NAME), &[(self, l)], l.shape(), self.dtype)
    }

    fn binary_impl<B: BinaryOpT>(&self, rhs: &Self, l: &Layout, rhs_l: &Layout) -> Result<Self> {
        self.apply(Op::Binary(B::NAME), &[(self, l), (rhs, rhs_l)], l.shape(), self.dtype)
    }

    fn where_cond(&self, l: &Layout, t: &Self, t_l: &Layout, f: &Self, f_l: &Layout) -> Result<Self> {
        self.apply(Op::WhereCond, &[(self, l), (t, t_l), (f, f_l)], l.shape(), t.dtype)
    }

    fn conv1d(&self, l: &Layout, kernel: &Self, kernel_l: &Layout, p: &ParamsConv1D) -> Result<Self> {
        let op = Op::Conv { spatial: 1, stride: p.stride, padding: p.padding, dilation: p.dilation };
        self.apply(op, &[(self, l), (kernel, kernel_l)], p.out_dims(), self.dtype)
    }

    fn conv_transpose1d(&self, l: &Layout, kernel: &Self, kernel_l: &Layout, p: &ParamsConvTranspose1D) -> Result<Self> {
        let (stride, padding, dilation) = (p.stride, p.padding, p.dilation);
        let op = Op::ConvTranspose { spatial: 1, stride, padding, output_padding: p.output_padding, dilation };
        self.apply(op, &[(self, l), (kernel, kernel_l)], p.out_dims(), self.dtype)
    }

    fn conv2d(&self, l: &Layout, kernel: &Self, kernel_l: &Layout, p: &ParamsConv2D) -> Result<Self> {
        let op = Op::Conv { spatial: 2, stride: p.stride, padding: p.padding, dilation: p.dilation };
        self.apply(op, &[(self, l), (kernel, kernel_l)], p.out_dims(), self.dtype)
    }

    fn conv_transpose2d(&self, l: &Layout, kernel: &Self, kernel_l: &Layout, p: &ParamsConvTranspose2D) -> Result<Self> {
        let (stride, padding, dilation) = (p.stride, p.padding, p.dilation);
        let op = Op::ConvTranspose { spatial: 2, stride, padding, output_padding: p.output_padding, dilation };
        self.apply(op, &[(self, l), (kernel, kernel_l)], p.out_dims(), self.dtype)
    }

    fn avg_pool2d(&self, l: &Layout, kernel: (usize, usize), stride: (usize, usize)) -> Result<Self> {
        self.apply(Op::AvgPool2d { kernel, stride }, &[(self, l)], pooled(l, kernel, stride)?, self.dtype)
    }

    fn max_pool2d(&self, l: &Layout, kernel: (usize, usize), stride: (usize, usize)) -> Result<Self> {
        self.apply(Op::MaxPool2d { kernel, stride }, &[(self, l)], pooled(l, kernel, stride)?, self.dtype)
    }

    fn upsample_nearest1d(&self, l: &Layout, size: usize) -> Result<Self> {
        let (batch, channels, _) = l.shape().dims3()?;
        self.apply(Op::UpsampleNearest(vec![size]), &[(self, l)], (batch, channels, size), self.dtype)
    }

    fn upsample_nearest2d(&self, l: &Layout, height: usize, width: usize) -> Result<Self> {
        let (batch, channels, _, _) = l.shape().dims4()?;
        let op = Op::UpsampleNearest(vec![height, width]);
        self.apply(op, &[(self, l)], (batch, channels, height, width), self.dtype)
    }

    fn upsample_bilinear2d(
        &self,
        l: &Layout,
        height: usize,
        width: usize,
        align_corners: bool,
        scale_h: Option<f64>,
        scale_w: Option<f64>,
    ) -> Result<Self> {
        let (batch, channels, _, _) = l.shape().dims4()?;
        let op = Op::UpsampleBilinear2d { size: (height, width), align_corners, scale: (scale_h, scale_w) };
        self.apply(op, &[(self, l)], (batch, channels, height, width), self.dtype)
    }

    fn gather(&self, l: &Layout, ids: &Self, ids_l: &Layout, dim: usize) -> Result<Self> {
        self.apply(Op::Gather { dim }, &[(self, l), (ids, ids_l)], ids_l.shape(), self.dtype)
    }

    fn scatter_set(
        &mut self,
        l: &Layout,
        ids: &Self,
        ids_l: &Layout,
        src: &Self,
        src_l: &Layout,
        dim: usize,
    ) -> Result<()> {
        self.change(Op::Scatter { dim }, &[(self, l), (ids, ids_l), (src, src_l)], l.shape())
    }

    fn scatter_add_set(
        &mut self,
        l: &Layout,
        ids: &Self,
        ids_l: &Layout,
        src: &Self,
        src_l: &Layout,
        dim: usize,
    ) -> Result<()> {
        self.change(Op::ScatterAdd { dim }, &[(self, l), (ids, ids_l), (src, src_l)], l.shape())
    }

    fn index_select(&self, ids: &Self, l: &Layout, ids_l: &Layout, dim: usize) -> Result<Self> {
        let mut shape = l.dims().to_vec();
        shape[dim] = ids_l.shape().elem_count();
        self.apply(Op::IndexSelect { dim }, &[(self, l), (ids, ids_l)], shape, self.dtype)
    }

    fn index_add(
        &self,
        l: &Layout,
        ids: &Self,
        ids_l: &Layout,
        src: &Self,
        src_l: &Layout,
        dim: usize,
    ) -> Result<Self> {
        self.apply(Op::IndexAdd { dim }, &[(self, l), (ids, ids_l), (src, src_l)], l.shape(), self.dtype)
    }

    fn matmul(
        &self,
        rhs: &Self,
        (_, m, n, _): (usize, usize, usize, usize),
        l: &Layout,
        rhs_l: &Layout,
    ) -> Result<Self> {
        let batches = &l.dims()[..l.dims().len() - 2];
        let shape = [batches, &[m, n]].concat();
        self.apply(Op::Matmul, &[(self, l), (rhs, rhs_l)], shape, self.dtype)
    }

    fn copy_strided_src(&self, dst: &mut Self, offset: usize, l: &Layout) -> Result<()> {
        dst.change(Op::Copy { offset }, &[(dst, &dst.all()), (self, l)], dst.count)
    }

    fn copy2d(
        &self,
        dst: &mut Self,
        rows: usize,
        columns: usize,
        src_stride: usize,
        dst_stride: usize,
        src_offset: usize,
        dst_offset: usize,
    ) -> Result<()> {
        let source = Rows { offset: src_offset, stride: src_stride };
        let target = Rows { offset: dst_offset, stride: dst_stride };
        let op = Op::Copy2d { rows, columns, source, target };
        dst.change(op, &[(dst, &dst.all()), (self, &self.all())], dst.count)
    }

    fn const_set(&mut self, number: Scalar, l: &Layout) -> Result<()> {
        self.change(Op::Set(number), &[(self, l)], self.count)
    }
}

/// The shape after pooling without padding.
fn pooled(l: &Layout, kernel: (usize, usize), stride: (usize, usize)) -> Result<Shape> {
    let (batch, channels, height, width) = l.shape().dims4()?;
    if kernel.0 > height || kernel.1 > width {
        crate::bail!("a pooling window of {kernel:?} does not fit into {height} by {width} elements");
    }
    let size = |size: usize, kernel: usize, stride: usize| (size - kernel) / stride + 1;
    Ok((batch, channels, size(height, kernel.0, stride.0), size(width, kernel.1, stride.1)).into())
}

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
        self.storage_from_cpu_storage_owned(values.clone())
    }

    fn storage_from_cpu_storage_owned(&self, values: CpuStorage) -> Result<MetalStorage> {
        let (dtype, count) = (values.dtype(), count_of(&values));
        Ok(self.storage(self.backend.upload(values)?, dtype, count))
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
