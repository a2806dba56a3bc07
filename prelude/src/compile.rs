//! The compilation of functions of tensors to programs of the connected device.

use candle_core::{Result, Tensor};

/// A compiled step; see [`compile`]. A notebook's variable can hold the step if its function owns all values that it uses (`move`).
pub type Step<'a> = ferrotune_xla::Step<Box<dyn FnMut(&[Tensor]) -> Result<Vec<Tensor>> + 'a>>;

/// Makes a step from a function of tensors: a connected device with a compiler (`tpu`, `xla:cpu`) runs it as one program. On
/// the CPU the function is called each time. In a `%%tune` body the device is that of the trial.
///
/// `step.run(&[x, y])` calls the function at the first run with arguments of certain shapes and types, and
/// compiles the function's operations of candle. Later runs only execute. Variables that the function changes (`Var::set`, the
/// optimisers of `ferrotune::optim`) stay on the device from run to run. Other tensors that it uses have their present values
/// in each run. Random numbers are new in each run. Arguments may have any shape and dtype; each new shape compiles once
/// more.
///
/// ```ignore
/// let mut step = ferrotune::compile(move |args: &[Tensor]| {
///     let loss = candle_nn::loss::cross_entropy(&model.forward(&args[0])?, &args[1])?;
///     optimiser.backward_step(&loss)?;
///     Ok(vec![loss])
/// })?;
/// for (x, y) in &batches {
///     let loss = step.run(&[x.clone(), y.clone()])?[0].to_scalar::<f32>()?;
/// }
/// ```
///
/// # Errors
/// If the connected device cannot be opened. The errors of `run` are: those of the function; an error if the function reads a value
/// that it computes, or depends on something outside of the device that changes from call to call; and those of the device.
#[track_caller]
pub fn compile<'a>(function: impl FnMut(&[Tensor]) -> Result<Vec<Tensor>> + 'a) -> ferrotune_trial::Result<Step<'a>> {
    let device = crate::device::current()?;
    Ok(ferrotune_xla::Step::new(&device, Box::new(function)))
}
