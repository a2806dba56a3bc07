//! Finding the operation that makes a NaN or an infinity, in place of seeing it in a loss much later. candle finds it.

/// Begins or ends to look at the result of each operation: the first one that has a NaN or an infinity that its inputs had not ends
/// the cell, trial or program with an error that names the operation, the shapes and types of its inputs and result, and the
/// gradient in which it was. As `jax_debug_nans` of JAX and the anomaly mode of PyTorch.
///
/// Infinities in tensors that are made from values, such as masks, are inputs: they are no error. A compiled step whose results or
/// variables are not finite runs again, one operation after the other, with the same arguments, variables and random numbers; its
/// variables have their values from before the step after that. Integers, quantized matrices and changes in place are not looked at.
/// Each result is read, so this is for finding a fault, and slow on a device.
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
/// The operation panics; a cell and a trial make an error of that.
pub fn debug_nans(on: bool) {
    candle_core::anomaly::detect(on);
}
