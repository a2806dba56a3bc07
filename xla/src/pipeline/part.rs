//! The computations of a stage's programs, with candle's own operations: the layers, their gradients, and the sums of the gradients
//! over micro-batches.

use super::Layers;
use crate::backend::backend_of;
use crate::sharding::{zeros_as, zeros_like};
use candle_core::backprop::GradStore;
use candle_core::{DType, Device, Result, Tensor, Var, bail};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

/// A function that computes the loss of an output and a target.
pub(super) type Loss<'a> = Box<dyn Fn(&Tensor, &Tensor) -> Result<Tensor> + 'a>;

pub(super) struct Part<'a> {
    /// The number of the stage, from 1.
    place: usize,
    device: Device,
    layers: Layers<'a>,
    /// The loss, only on the last stage.
    loss: Option<Loss<'a>>,
    sums: Sums,
    /// The variables of the other stages, each with the number of its stage.
    foreign: Vec<(usize, Var)>,
    /// The inputs and outputs of forward passes with the graph between them, on a device without a compiler. There, a second call of
    /// the layers would draw other random numbers.
    graphs: RefCell<VecDeque<(Tensor, Tensor)>>,
}

impl<'a> Part<'a> {
    /// The stage with this number, from 1. `foreign` are the variables of the other stages, each with the number of its stage.
    pub(super) fn new(
        place: usize,
        vars: Vec<Var>,
        layers: Layers<'a>,
        loss: Option<Loss<'a>>,
        foreign: Vec<(usize, Var)>,
    ) -> Result<Part<'a>> {
        let Some(first) = vars.first() else {
            bail!("stage {place} of the pipeline has no variables; put its layers into a neighbouring stage")
        };
        let device = first.device().clone();
        if let Some(other) = vars.iter().find(|var| !var.device().same_device(&device)) {
            let (one, other) = (device.location(), other.device().location());
            bail!("stage {place} of the pipeline has variables on {one:?} and {other:?}; a stage is on one device");
        }
        Ok(Part { place, device, layers, loss, sums: Sums::new(vars)?, foreign, graphs: RefCell::default() })
    }

    pub(super) fn device(&self) -> &Device {
        &self.device
    }

    pub(super) fn sums(&self) -> &Sums {
        &self.sums
    }

    /// Whether another stage follows this one.
    pub(super) fn is_inner(&self) -> bool {
        self.loss.is_none()
    }

    pub(super) fn forward(&self, input: &Tensor) -> Result<Vec<Tensor>> {
        let (input, output) = self.called(input)?;
        let result = output.detach();
        match backend_of(&self.device) {
            Some(backend) if backend.trace.has_changes() => bail!(
                "stage {} of the pipeline sets a variable in its layers, such as the running mean of a batch norm, and they are \
                 called once more in the backward pass; use layers that set none, such as layer_norm or group_norm",
                self.place
            ),
            Some(_) => {}
            None => self.graphs.borrow_mut().push_back((input, output)),
        }
        Ok(vec![result])
    }

    /// The gradient of the input, from the gradient of the output. The last stage takes the target instead, and returns the loss first.
    /// The first stage returns no gradient. The gradients of the stage's variables are added to its sums.
    pub(super) fn backward(&self, input: &Tensor, gradient: &Tensor) -> Result<Vec<Tensor>> {
        let known = self.graphs.borrow_mut().pop_front();
        let (input, output) = known.map_or_else(|| self.called(input), Ok)?;
        let (mut results, gradients) = match &self.loss {
            Some(loss) => {
                let loss = loss(&output, gradient)?;
                if loss.rank() > 0 {
                    bail!("the loss of the pipeline has the shape {:?}; return its mean over the rows", loss.dims());
                }
                (vec![loss.detach()], loss.backward()?)
            }
            // The gradient of this sum with respect to the output is `gradient`.
            None => (Vec::new(), (output * gradient)?.sum_all()?.backward()?),
        };
        if let Some((owner, _)) = self.foreign.iter().find(|(_, var)| gradients.get(var).is_some()) {
            bail!(
                "stage {} of the pipeline uses a variable of stage {owner}, whose gradient would be lost; give each stage variables of \
                 its own",
                self.place
            );
        }
        self.sums.add(&gradients)?;
        if self.place > 1 {
            let Some(gradient) = gradients.get(&input) else {
                bail!("the output of stage {} of the pipeline does not depend on its input", self.place)
            };
            results.push(gradient.clone());
        }
        Ok(results)
    }

    /// The input, as a variable if an earlier stage needs its gradient, and the output of the layers.
    fn called(&self, input: &Tensor) -> Result<(Tensor, Tensor)> {
        let input = if self.place > 1 { Var::from_tensor(input)?.into_inner() } else { input.detach() };
        let output = (self.layers)(&input)?;
        let place = self.place;
        if !output.device().same_device(&self.device) {
            let (there, here) = (output.device().location(), self.device.location());
            bail!("stage {place} of the pipeline returns a tensor on {there:?}, and its variables are on {here:?}");
        }
        if !output.dtype().is_float() {
            bail!(
                "stage {place} of the pipeline returns {:?}; only floating-point numbers have gradients",
                output.dtype()
            );
        }
        Ok((input, output))
    }

    pub(super) fn reset(&self) -> Result<()> {
        self.graphs.borrow_mut().clear();
        self.sums.clear()
    }
}

/// The gradients of variables, summed over micro-batches, in variables on their device.
pub(super) struct Sums(Vec<Sum>);

struct Sum {
    var: Var,
    /// The sum of the gradients, in `f32` for 16-bit floats.
    sum: Var,
    /// Whether there was ever a gradient: an optimiser does not change a variable without one.
    has_gradient: Cell<bool>,
}

impl Sums {
    fn new(vars: Vec<Var>) -> Result<Sums> {
        let sum = |var: Var| {
            let dtype = if matches!(var.dtype(), DType::F16 | DType::BF16) { DType::F32 } else { var.dtype() };
            let sum = Var::from_tensor(&zeros_as(&var, dtype)?)?;
            Ok(Sum { var, sum, has_gradient: Cell::new(false) })
        };
        Ok(Sums(vars.into_iter().filter(|var| var.dtype().is_float()).map(sum).collect::<Result<_>>()?))
    }

    fn add(&self, gradients: &GradStore) -> Result<()> {
        for Sum { var, sum, has_gradient } in &self.0 {
            if let Some(gradient) = gradients.get(var) {
                has_gradient.set(true);
                sum.set(&(sum.as_detached_tensor() + gradient.to_dtype(sum.dtype())?)?)?;
            }
        }
        Ok(())
    }

    /// The mean gradients over so many micro-batches.
    pub(super) fn means(&self, micro_batches: usize) -> Result<GradStore> {
        // candle has no constructor of a `GradStore`. An optimiser does not read the entry of this scalar.
        let mut gradients = Tensor::zeros((), DType::F32, &Device::Cpu)?.backward()?;
        for Sum { var, sum, .. } in self.0.iter().filter(|sum| sum.has_gradient.get()) {
            let mean = (sum.as_detached_tensor() / micro_batches as f64)?;
            gradients.insert(var, mean.to_dtype(var.dtype())?);
        }
        Ok(gradients)
    }

    pub(super) fn clear(&self) -> Result<()> {
        self.0.iter().try_for_each(|Sum { sum, .. }| sum.set(&zeros_like(sum)?))
    }
}
