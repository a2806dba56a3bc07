//! A pass over the data, for training or for validation. On a device with a compiler a step is one program, which returns all that is
//! measured as one tensor; the tensors are read together.

use crate::criterion::Criterion;
use crate::history::Logs;
use candle_core::{DType, Device, Result, Tensor, Var};
use ferrotune_data::Iter;
use ferrotune_devices::runtime::interrupted;
use ferrotune_nn::Model;
use ferrotune_nn::metrics::{Measured, Meter, Metric};
use ferrotune_trial::optim::{AnyOptimizer, clip_grad_norm};
use ferrotune_xla::Step;
use std::cell::RefCell;
use std::collections::HashMap;

/// The number of batches whose measured tensors are read together, by one program.
const READ_TOGETHER: usize = 64;

/// The number of batches after which a device reads: later than it could, so that it has computed them and nobody waits.
const MOST_PENDING: usize = 8 * READ_TOGETHER;

/// What both passes use.
pub(crate) struct Parts<'a> {
    pub(crate) model: &'a dyn Model,
    pub(crate) criterion: &'a Criterion<'a>,
    pub(crate) metrics: &'a [(String, Box<dyn Metric>)],
    pub(crate) device: Device,
    /// The number of rows of a full batch.
    pub(crate) batch: usize,
    /// The shapes of what each metric measured of a batch, by the number of its rows.
    pub(crate) shapes: RefCell<HashMap<usize, Vec<Vec<usize>>>>,
}

/// The optimiser of a training with its variables.
pub(crate) struct Optimizing {
    pub(crate) optimizer: RefCell<Box<dyn AnyOptimizer>>,
    pub(crate) vars: Vec<Var>,
    pub(crate) clip_norm: Option<f64>,
}

/// A step of a pass: of inputs, targets and, where rows are filled up, weights.
pub(crate) type PassStep<'s> = Step<Box<dyn FnMut(&[Tensor]) -> Result<Vec<Tensor>> + 's>>;

impl Parts<'_> {
    /// A step that changes the variables.
    pub(crate) fn training<'s>(&'s self, optimizing: &'s Optimizing) -> PassStep<'s> {
        let step = move |arguments: &[Tensor]| {
            let (targets, weights) = (&arguments[1], arguments.get(2));
            let outputs = self.model.forward(&arguments[0], true)?;
            let (sum, divisor) = self.criterion.terms(&outputs, targets, weights)?;
            let mut grads = (&sum / &divisor)?.backward()?;
            if let Some(max_norm) = optimizing.clip_norm {
                clip_grad_norm(&mut grads, &optimizing.vars, max_norm)?;
            }
            optimizing.optimizer.borrow_mut().step(&grads)?;
            self.measured([sum, divisor], &outputs, targets, weights)
        };
        Step::new(&self.device, Box::new(step))
    }

    /// A step that only measures.
    pub(crate) fn validation(&self) -> PassStep<'_> {
        let step = |arguments: &[Tensor]| {
            let (targets, weights) = (&arguments[1], arguments.get(2));
            let outputs = self.model.forward(&arguments[0], false)?.detach();
            let terms = self.criterion.terms(&outputs, targets, weights)?;
            self.measured(terms.into(), &outputs, targets, weights)
        };
        Step::new(&self.device, Box::new(step))
    }

    /// The terms of the loss and what the metrics measure, as one tensor with one dimension.
    fn measured(
        &self,
        [sum, divisor]: [Tensor; 2],
        outputs: &Tensor,
        targets: &Tensor,
        weights: Option<&Tensor>,
    ) -> Result<Vec<Tensor>> {
        let outputs = outputs.detach();
        let measured: Vec<Tensor> =
            self.metrics.iter().map(|(_, metric)| metric.measure(&outputs, targets, weights)).collect::<Result<_>>()?;
        let shapes = measured.iter().map(|tensor| tensor.dims().to_vec()).collect();
        self.shapes.borrow_mut().insert(rows_of(targets), shapes);
        let is_wide = measured.iter().chain([&sum]).any(|tensor| tensor.dtype() == DType::F64);
        let dtype = if is_wide { DType::F64 } else { DType::F32 };
        let all = [sum.detach(), divisor.detach()].into_iter().chain(measured);
        let all: Vec<Tensor> = all.map(|tensor| tensor.to_dtype(dtype)?.flatten_all()).collect::<Result<_>>()?;
        Ok(vec![Tensor::cat(&all, 0)?])
    }

    /// Passes over all batches, calls `begin` before each and `end` after it, and returns the loss and the metrics; `None` after an
    /// interrupt. `fills` says whether a batch with fewer rows may be filled up.
    pub(crate) fn pass(
        &self,
        step: &mut PassStep<'_>,
        batches: Iter<(Tensor, Tensor)>,
        fills: bool,
        watch: &mut dyn Watch,
    ) -> ferrotune_state::Result<Option<Logs>> {
        let is_compiled = !self.device.is_cpu();
        let ones = if is_compiled { Some(Tensor::ones(self.batch, DType::F32, &self.device)?) } else { None };
        let meters = self.metrics.iter().map(|(_, metric)| Meter::new(&**metric)).collect();
        let mut totals = Totals { parts: self, loss: [0.0; 2], meters };
        let mut pending: Vec<(usize, Tensor)> = Vec::new();
        for (number, batch) in batches.enumerate() {
            if interrupted() {
                return Ok(None);
            }
            let (inputs, targets) = batch?;
            watch.begin(number)?;
            let rows = rows_of(&targets);
            let may_fill = is_compiled && fills && self.criterion.knows_weights();
            let missing = if may_fill { self.batch.saturating_sub(rows) } else { 0 };
            let mut arguments = vec![filled(&inputs, missing)?, filled(&targets, missing)?];
            for argument in &mut arguments {
                *argument = argument.to_device(&self.device)?;
            }
            if let Some(ones) = ones.as_ref().filter(|_| rows + missing == self.batch) {
                arguments.push(if missing == 0 { ones.clone() } else { weights_of(rows, missing, &self.device)? });
            }
            let measured = step.run(&arguments)?.swap_remove(0);
            pending.push((rows + missing, measured));
            if !is_compiled {
                totals.read(&mut pending)?;
            } else if pending.len() >= MOST_PENDING {
                totals.read(&mut pending.drain(..READ_TOGETHER).collect())?;
            }
            watch.end(number)?;
        }
        totals.read(&mut pending)?;
        totals.logs().map(Some)
    }
}

/// What happens around each batch.
pub(crate) trait Watch {
    fn begin(&mut self, batch: usize) -> ferrotune_state::Result<()>;
    fn end(&mut self, batch: usize) -> ferrotune_state::Result<()>;
}

/// Nothing happens around a batch.
impl Watch for () {
    fn begin(&mut self, _batch: usize) -> ferrotune_state::Result<()> {
        Ok(())
    }

    fn end(&mut self, _batch: usize) -> ferrotune_state::Result<()> {
        Ok(())
    }
}

/// The sums over the batches of a pass.
struct Totals<'p, 'a> {
    parts: &'p Parts<'a>,
    loss: [f64; 2],
    meters: Vec<Meter<&'p dyn Metric>>,
}

impl Totals<'_, '_> {
    /// Reads the tensors of batches: those of the same shape together.
    fn read(&mut self, pending: &mut Vec<(usize, Tensor)>) -> Result<()> {
        let pending = std::mem::take(pending);
        let groups = pending.chunk_by(|(rows, one), (others, other)| rows == others && one.dims() == other.dims());
        for group in groups.flat_map(|group| group.chunks(READ_TOGETHER)) {
            let tensors: Vec<&Tensor> = group.iter().map(|(_, tensor)| tensor).collect();
            let Measured { dims, numbers } = Measured::read(&Tensor::stack(&tensors, 0)?)?;
            for numbers in numbers.chunks(dims[1].max(1)) {
                self.add(group[0].0, numbers)?;
            }
        }
        Ok(())
    }

    fn add(&mut self, rows: usize, numbers: &[f64]) -> Result<()> {
        let (loss, mut rest) = numbers.split_at(2);
        self.loss = [self.loss[0] + loss[0], self.loss[1] + loss[1]];
        for (shape, meter) in self.parts.shapes.borrow()[&rows].iter().zip(&mut self.meters) {
            let (numbers, after) = rest.split_at(shape.iter().product());
            rest = after;
            meter.merge(Measured { dims: shape.clone(), numbers: numbers.to_vec() })?;
        }
        Ok(())
    }

    fn logs(self) -> ferrotune_state::Result<Logs> {
        let [sum, divisor] = self.loss;
        if divisor == 0.0 && self.meters.iter().all(Meter::is_empty) {
            Err("there are no rows to train or validate with; give a dataset that is not empty")?;
        }
        let mut logs = Logs::from([("loss".to_owned(), sum / divisor)]);
        for ((name, _), mut meter) in self.parts.metrics.iter().zip(self.meters) {
            logs.insert(name.clone(), meter.value()?);
        }
        Ok(logs)
    }
}

fn rows_of(tensor: &Tensor) -> usize {
    tensor.dims().first().copied().unwrap_or(1)
}

/// The tensor with its first row again at its end, so many times.
fn filled(tensor: &Tensor, missing: usize) -> Result<Tensor> {
    if missing == 0 {
        return Ok(tensor.clone());
    }
    let first = tensor.narrow(0, 0, 1)?;
    let mut dims = tensor.dims().to_vec();
    dims[0] = missing;
    Tensor::cat(&[tensor, &first.broadcast_as(dims)?.contiguous()?], 0)
}

fn weights_of(rows: usize, missing: usize, device: &Device) -> Result<Tensor> {
    let weights: Vec<f32> = std::iter::repeat_n(1.0, rows).chain(std::iter::repeat_n(0.0, missing)).collect();
    Tensor::from_vec(weights, rows + missing, device)
}
