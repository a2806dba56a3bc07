//! The switch for NaN detection: an error at the operation that makes a NaN or an infinity, not in a loss much later. candle detects it.

/// Turns NaN detection on or off. The first operation whose result has a NaN or an infinity that its inputs do not have ends
/// the cell, trial or program. The error names the operation, the shapes and types of its inputs and result, and the
/// gradient in which the operation was. `jax_debug_nans` of JAX and the anomaly mode of PyTorch do the same.
///
/// Infinities in tensors that are made from values, such as masks, are inputs: they are no error. A compiled step whose results or
/// variables are not finite runs again, operation by operation, with the same arguments, variables and random numbers. Its
/// variables have their values from before the step after that. Integers, quantized matrices and changes in place are not checked.
/// Each result is read back, so NaN detection is slow on a device: use it only to find a fault.
///
/// ```no_run
/// use candle_core::{Device, Tensor};
/// ferrotune_trial::debug_nans(true);
/// let x = Tensor::new(&[1f32, 0.], &Device::Cpu)?;
/// x.log()?;   // log(f32[2]) has made -inf, which its inputs had not: element [1] of the result f32[2]
/// # Ok::<(), candle_core::Error>(())
/// ```
///
/// # Panics
/// The operation panics; cells and trials turn the panic into an error.
pub fn debug_nans(on: bool) {
    candle_core::anomaly::detect(on);
}
