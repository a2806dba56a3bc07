//! Mixed precision: matrix products and convolutions of `f32` tensors multiply in `bf16` and add in `f32`. All other operations, the
//! variables and their gradients stay in `f32`.

use crate::backend::backend_of;
use crate::graph::{Array as _, Node};
use candle_core::{DType, Device, Result, bail};
use ferrotune_devices::pjrt::Element;
use std::cell::Cell;
use std::sync::Arc;

thread_local! {
    /// Whether this thread records products of `f32` tensors in `bf16`.
    static IN_BF16: Cell<bool> = const { Cell::new(false) };
}

/// Calls `work`, in which matrix products and convolutions of `f32` tensors on `device` multiply in this type, `bf16`, and add in `f32`.
/// Their gradients do the same, if `backward` is called in `work`. This is PyTorch's `autocast` for products; `f32` changes nothing.
///
/// ```no_run
/// # use candle_core::{DType, Tensor};
/// let device = ferrotune_xla::open("libpjrt_cpu.so".as_ref())?;
/// let x = Tensor::full(1.001_f32, (2, 2), &device)?;
/// let product = ferrotune_xla::autocast(&device, DType::BF16, || x.matmul(&x))?;
/// assert_eq!(product.to_vec2::<f32>()?[0][0], 2.);       // in bf16 1.001 is 1
/// # Ok::<(), candle_core::Error>(())
/// ```
///
/// # Errors
/// If the type is neither `f32` nor `bf16`, if the device has no compiler, and the errors of `work`.
pub fn autocast<T>(device: &Device, dtype: DType, work: impl FnOnce() -> Result<T>) -> Result<T> {
    check_precision(device, dtype)?;
    let before = IN_BF16.replace(dtype == DType::BF16);
    let _restore = Restore(before);
    work()
}

/// Fails if products on this device cannot multiply in this type.
///
/// # Errors
/// Those of [`autocast`].
pub fn check_precision(device: &Device, dtype: DType) -> Result<()> {
    match dtype {
        DType::F32 => Ok(()),
        DType::BF16 if backend_of(device).is_some() => Ok(()),
        DType::BF16 => bail!(
            "mixed precision in bf16 needs a device with a compiler (tpu, cuda, xla:cpu), and this is {:?}; choose DType::F32 here",
            device.location()
        ),
        other => {
            bail!("mixed precision is in bf16, not in {}; choose DType::BF16, or DType::F32 for none", other.as_str())
        }
    }
}

/// Puts the earlier precision back, also after a panic.
struct Restore(bool);

impl Drop for Restore {
    fn drop(&mut self) {
        IN_BF16.set(self.0);
    }
}

/// A factor of a product, in the precision of this thread.
pub(crate) fn factor(x: &Arc<Node>) -> Arc<Node> {
    if IN_BF16.get() && x.element == Element::F32 { x.convert(Element::Bf16) } else { x.clone() }
}
