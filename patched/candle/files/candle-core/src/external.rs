//! A device that the program itself provides.
//!
//! A [`Backend`] gets every kernel that candle asks a device for, as an [`Op`] with its inputs and their layouts. Its values
//! are immutable: what candle changes in place is which value a storage refers to, its [`Slot`]. A backend can therefore
//! compute at once, or only note what is to be computed.
//!
//! Such a device takes the place that Metal has where Metal is not built in: [`Device::Metal`] and `Storage::Metal`.

mod device;
mod operands;
mod storage;

use crate::op::ReduceOp;
use crate::scalar::Scalar;
use crate::{CpuStorage, CustomOp1, CustomOp2, CustomOp3, DType, Device, DeviceLocation, Layout, Result, Shape};
use std::any::Any;
use std::collections::BTreeMap;
use std::fmt::{self, Debug};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use crate::op::CmpOp;
pub(crate) use operands::Operands;
use operands::Uses;

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

/// A device that is not candle's own. Its `Debug` writes the device's name. Every error reaches the user as it is.
pub trait Backend: Any + Debug + Send + Sync {
    /// The result of a kernel, which has this shape and type. The inputs are as [`Op`] tells.
    fn apply(&self, op: Op, inputs: &[Input<'_>], shape: &Shape, dtype: DType) -> Result<Value>;

    /// The result of a custom operation, with its shape and type. The backend knows the operation by its name;
    /// `attributes` are the numbers that define it beside the inputs.
    fn custom(&self, name: &str, attributes: &[f64], inputs: &[Input<'_>]) -> Result<(Value, Shape, DType)>;

    /// A value of these elements in this shape.
    fn upload(&self, values: &CpuStorage, shape: &Shape) -> Result<Value>;

    /// The elements of a value, which has this type.
    fn download(&self, value: &Value, dtype: DType) -> Result<CpuStorage>;

    /// A new storage refers to its first value.
    fn stored(&self, slot: &Arc<Slot>);

    /// A storage refers to another value now than `before`.
    fn assigned(&self, slot: &Arc<Slot>, before: &Value);

    fn set_seed(&self, seed: u64) -> Result<()>;

    fn seed(&self) -> u64;

    /// Whether the CPU draws the first values of variables for the device, which would compile a program for each shape.
    fn draws_variables_on_host(&self) -> bool;

    /// Returns when everything that was asked for has been computed.
    fn synchronize(&self) -> Result<()>;
}

/// Which value a storage refers to.
pub struct Slot {
    value: Mutex<Value>,
    /// The operations for `backward` that use the storage.
    uses: Mutex<Uses>,
}

impl Slot {
    fn new(value: Value) -> Arc<Self> {
        Arc::new(Slot { value: Mutex::new(value), uses: Mutex::default() })
    }

    pub fn value(&self) -> Value {
        self.lock().clone()
    }

    /// Lets the storage refer to another value; returns the earlier one.
    pub fn replace(&self, value: Value) -> Value {
        std::mem::replace(&mut *self.lock(), value)
    }

    fn lock(&self) -> MutexGuard<'_, Value> {
        // A reference is replaced whole or not at all.
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether only operations that `backward` needs keep the storage, and no tensor of the program does.
    pub fn is_kept_for_backward_alone(&self) -> bool {
        let (kept, tensor) = {
            let uses = self.uses();
            (uses.tensors_kept(), uses.any_tensor())
        };
        tensor.is_some_and(|tensor| tensor.tensors_of_storage() == kept)
    }

    fn uses(&self) -> MutexGuard<'_, Uses> {
        // A use is added or removed whole or not at all.
        self.uses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Clone)]
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

/// The names of the devices that the program has made, by their ordinals, for messages that only know a device's location.
static NAMES: Mutex<BTreeMap<usize, String>> = Mutex::new(BTreeMap::new());

fn names() -> MutexGuard<'static, BTreeMap<usize, String>> {
    // A name is inserted whole or not at all.
    NAMES.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Debug for Device {
    /// Writes `Cpu`, or the name that the program has given to its device.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("Cpu"),
            Self::Cuda(device) => f.debug_tuple("Cuda").field(device).finish(),
            Self::Metal(device) => device.fmt(f),
        }
    }
}

impl Debug for MetalDevice {
    /// Writes the name that the program has given to the device.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.backend.fmt(f)
    }
}

impl Debug for DeviceLocation {
    /// Writes the same as the `Debug` of the device.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("Cpu"),
            Self::Cuda { gpu_id } => f.debug_struct("Cuda").field("gpu_id", gpu_id).finish(),
            Self::Metal { gpu_id } => match names().get(gpu_id) {
                Some(name) => f.write_str(name),
                None => write!(f, "external:{gpu_id}"),
            },
        }
    }
}

impl Device {
    /// A device of this backend. Two devices are the same if their backend is.
    pub fn external(backend: Arc<dyn Backend>, ordinal: usize) -> Self {
        names().insert(ordinal, format!("{backend:?}"));
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
        let slot = Slot::new(value);
        self.backend.stored(&slot);
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

/// The forward pass of a custom operation of one input.
pub(crate) fn custom1(op: &dyn CustomOp1, storage: &MetalStorage, l: &Layout) -> Result<(MetalStorage, Shape)> {
    custom(op.name(), &op.attributes()?, [(storage, l)])
}

pub(crate) fn custom2(op: &dyn CustomOp2, inputs: [(&MetalStorage, &Layout); 2]) -> Result<(MetalStorage, Shape)> {
    custom(op.name(), &op.attributes()?, inputs)
}

pub(crate) fn custom3(op: &dyn CustomOp3, inputs: [(&MetalStorage, &Layout); 3]) -> Result<(MetalStorage, Shape)> {
    custom(op.name(), &op.attributes()?, inputs)
}

fn custom<const N: usize>(
    name: &str,
    attributes: &[f64],
    inputs: [(&MetalStorage, &Layout); N],
) -> Result<(MetalStorage, Shape)> {
    let device = &inputs[0].0.device;
    let (value, shape, dtype) = device.backend.custom(name, attributes, &named(&inputs))?;
    Ok((device.storage(value, dtype, shape.elem_count()), shape))
}
