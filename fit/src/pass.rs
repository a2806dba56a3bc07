//! A pass over the data, for training or for validation. On a device with a compiler a step is one program, which returns all that is
//! measured as one tensor; the tensors are read together.

use crate::batch::{Terms, rows_of};
use crate::criterion::{Computed, Criterion};
use crate::history::Logs;
use crate::optimizers::{Optimizers, add, check_gradients, divide};
use crate::totals::{Layout, READ_TOGETHER, Totals};
use candle_core::backprop::GradStore;
use candle_core::{DType, Device, Result, Tensor, bail};
use ferrotune_data::Iter;
use ferrotune_devices::Replica;
use ferrotune_devices::runtime::interrupted;
use ferrotune_nn::Model;
use ferrotune_nn::metrics::Metric;
use ferrotune_xla::strategy::{average, mean, shard};
use ferrotune_xla::{Step, autocast};
use std::cell::RefCell;
use std::collections::HashMap;

/// The number of batches after which a device reads: later than it could, so that it has computed them and nobody waits.
const MOST_PENDING: usize = 8 * READ_TOGETHER;

/// What both passes use.
pub(crate) struct Parts<'a> {
    pub(crate) model: &'a dyn Model,
    pub(crate) criterion: &'a Criterion<'a>,
    pub(crate) metrics: &'a [(String, Box<dyn Metric>)],
    pub(crate) device: Device,
    pub(crate) precision: DType,
    /// The number of rows whose gradients are computed at once, over all replicas.
    pub(crate) batch: usize,
    /// This replica, if the batch is divided.
    pub(crate) replica: Option<&'a Replica<'a>>,
    /// What the tensors of measured numbers contain, by training or validation and the number of their rows.
    pub(crate) layouts: RefCell<HashMap<(bool, usize), Layout>>,
}

type Body<'s> = Box<dyn FnMut(&[Tensor]) -> Result<Vec<Tensor>> + 's>;

/// A pass: the step of inputs, targets and, where rows are filled up, weights.
pub(crate) struct Pass<'s> {
    step: Step<Body<'s>>,
    is_training: bool,
    /// The number of rows of a full batch, over all replicas.
    rows: usize,
    /// Whether a batch with fewer rows may be filled up.
    fills: bool,
}

impl<'a> Parts<'a> {
    pub(crate) fn new(
        model: &'a dyn Model,
        criterion: &'a Criterion<'a>,
        metrics: &'a [(String, Box<dyn Metric>)],
        precision: DType,
        batch: usize,
        replica: Option<&'a Replica<'a>>,
    ) -> Parts<'a> {
        let device = model.device().unwrap_or(Device::Cpu);
        Parts { model, criterion, metrics, device, precision, batch, replica, layouts: RefCell::default() }
    }

    /// A pass that changes the variables, after the gradients of so many batches.
    pub(crate) fn training<'s>(&'s self, optimizers: &'s Optimizers, accumulated: usize) -> Pass<'s> {
        let body =
            move |arguments: &[Tensor]| autocast(&self.device, self.precision, || self.train(arguments, optimizers));
        let step = self.step(Box::new(body));
        // A batch norm computes its statistics of all rows, and what is not trained may be such a statistic.
        Pass { step, is_training: true, rows: self.batch * accumulated, fills: has_no_statistics(self.model) }
    }

    /// A pass that only measures.
    pub(crate) fn validation(&self) -> Pass<'_> {
        let body = |arguments: &[Tensor]| {
            autocast(&self.device, self.precision, || {
                let chunk = arguments.iter().map(|argument| self.spread(argument)).collect::<Result<Vec<_>>>()?;
                Ok(vec![self.measured(self.compute(&chunk, false, None)?, &chunk, false)?])
            })
        };
        Pass { step: self.step(Box::new(body)), is_training: false, rows: self.batch, fills: true }
    }

    /// The step of a pass. A loss of `nn::loss` with a label that is no class is NaN, which is an error, so the line about indexes that
    /// are not checked is for closures alone.
    fn step<'s>(&self, body: Body<'s>) -> Step<Body<'s>> {
        let step = Step::new(&self.device, body);
        if self.criterion.is_known() { step.without_notes() } else { step }
    }

    fn train(&self, arguments: &[Tensor], optimizers: &Optimizers) -> Result<Vec<Tensor>> {
        let vars = optimizers.vars();
        let chunks = self.chunks(arguments)?;
        if self.criterion.optimizes() {
            let chunk = &chunks[0];
            return Ok(vec![self.measured(self.compute(chunk, true, Some(optimizers))?, chunk, true)?]);
        }
        let others = self.divided();
        if let ([chunk], None) = (&chunks[..], others) {
            let computed = self.compute(chunk, true, None)?;
            let [sum, divisor] = &computed.loss;
            optimizers.step(&mut (sum / divisor)?.backward()?)?;
            return Ok(vec![self.measured(computed, chunk, true)?]);
        }
        // Gradients of sums are added, and divided once by the sum of all divisors: the gradient of the whole batch.
        let mut total: Option<(GradStore, Tensor)> = None;
        let mut all = Vec::new();
        for chunk in &chunks {
            let computed = self.compute(chunk, true, None)?;
            let [sum, divisor] = &computed.loss;
            let (grads, divisor) = (sum.backward()?, divisor.detach());
            total = Some(match total {
                None => (grads, divisor),
                Some((mut sums, divisors)) => {
                    add(&mut sums, &grads, vars)?;
                    (sums, (divisors + divisor)?)
                }
            });
            all.push(self.measured(computed, chunk, true)?);
        }
        let Some((mut grads, mut divisor)) = total else { bail!("a batch without rows trains nothing") };
        if let Some(replica) = others {
            // The average gives variables without a gradient one of zeros.
            check_gradients(&grads, vars)?;
            average(replica, &mut grads, vars)?;
            divisor = mean(replica, &divisor)?;
        }
        divide(&mut grads, &divisor, vars)?;
        optimizers.step(&mut grads)?;
        Ok(all)
    }

    fn compute(&self, chunk: &[Tensor], train: bool, optimizers: Option<&Optimizers>) -> Result<Computed> {
        self.criterion.compute(self.model, [&chunk[0], &chunk[1]], chunk.get(2), train, optimizers)
    }

    /// The arguments of a step in parts whose gradients are computed one after the other.
    fn chunks(&self, arguments: &[Tensor]) -> Result<Vec<Vec<Tensor>>> {
        let sizes = self.chunk_sizes(rows_of(&arguments[1]));
        let mut start = 0;
        let mut chunk = |size: usize| -> Result<Vec<Tensor>> {
            let part = |argument: &Tensor| match sizes.len() {
                1 => self.spread(argument),
                _ => self.spread(&argument.narrow(0, start, size)?),
            };
            let chunk = arguments.iter().map(part).collect();
            start += size;
            chunk
        };
        sizes.iter().map(|size| chunk(*size)).collect()
    }

    /// The numbers of rows of these parts, of so many rows of this replica.
    fn chunk_sizes(&self, rows: usize) -> Vec<usize> {
        let most = (self.batch / self.count()).max(1);
        (0..rows).step_by(most).map(|start| most.min(rows - start)).collect()
    }

    /// The tensor with its rows spread over the cores of the replica.
    fn spread(&self, rows: &Tensor) -> Result<Tensor> {
        match self.replica {
            Some(replica) if replica.strategy().spread().is_some() => {
                let cores = replica.strategy().num_replicas_in_sync();
                if rows_of(rows).is_multiple_of(cores) { shard(replica, rows) } else { Ok(rows.clone()) }
            }
            _ => Ok(rows.clone()),
        }
    }

    /// This replica, if there are others.
    pub(crate) fn divided(&self) -> Option<&'a Replica<'a>> {
        self.replica.filter(|replica| replica.count() > 1)
    }

    /// The number of replicas among which the program divides a batch.
    fn count(&self) -> usize {
        self.replica.map_or(1, Replica::count)
    }

    /// The terms of the loss, what the metrics measure and what the step has logged, as one tensor with one dimension.
    fn measured(&self, computed: Computed, chunk: &[Tensor], train: bool) -> Result<Tensor> {
        let Computed { loss: [sum, divisor], outputs, logged } = computed;
        let (targets, weights) = (&chunk[1], chunk.get(2));
        let mut measured = Vec::new();
        if let Some(outputs) = &outputs {
            let outputs = outputs.detach();
            for (_, metric) in self.metrics {
                measured.push(metric.measure(&outputs, targets, weights)?);
            }
        }
        let shapes = measured.iter().map(|tensor| tensor.dims().to_vec()).collect();
        let (names, terms): (Vec<String>, Vec<Terms>) = logged.into_iter().unzip();
        if let Some(name) = names.iter().find(|name| self.metrics.iter().any(|(other, _)| other == *name)) {
            bail!("`{name}` is a metric and is logged; give one of both another name")
        }
        let mut layouts = self.layouts.borrow_mut();
        if layouts.iter().any(|((other, _), layout)| *other == train && layout.logged != names) {
            bail!(
                "a step logs {names:?} after other values in batches before; log the same names in the same order for each batch"
            )
        }
        layouts.insert((train, rows_of(targets)), Layout { shapes, logged: names });
        drop(layouts);
        measured.extend(terms.into_iter().flatten());
        let is_wide = measured.iter().chain([&sum]).any(|tensor| tensor.dtype() == DType::F64);
        let dtype = if is_wide { DType::F64 } else { DType::F32 };
        let all = [sum.detach(), divisor.detach()].into_iter().chain(measured);
        let all: Vec<Tensor> = all.map(|tensor| tensor.to_dtype(dtype)?.flatten_all()).collect::<Result<_>>()?;
        Tensor::cat(&all, 0)
    }

    /// Passes over all batches, calls `begin` before each and `end` after it, and returns the loss and the metrics; `None` after an
    /// interrupt. A training ends at a loss that is not finite, which is then that of the pass.
    pub(crate) fn pass(
        &self,
        pass: &mut Pass<'_>,
        batches: Iter<(Tensor, Tensor)>,
        watch: &mut dyn Watch,
    ) -> ferrotune_state::Result<Option<Logs>> {
        let is_compiled = !self.device.is_cpu();
        let count = self.count();
        let full = pass.rows / count;
        // From the CPU, so that no program is compiled for it.
        let on_device = || Tensor::ones(full, DType::F32, &Device::Cpu)?.to_device(&self.device);
        let ones = if is_compiled { Some(on_device()?) } else { None };
        let mut totals = Totals::of(self, pass.is_training);
        let mut pending: Vec<(usize, Tensor)> = Vec::new();
        for (number, batch) in batches.enumerate() {
            if interrupted() {
                return Ok(None);
            }
            let (inputs, targets) = batch?;
            watch.begin(number)?;
            let rows = rows_of(&targets);
            let may_fill = (is_compiled || count > 1) && pass.fills && self.criterion.knows_weights();
            // A program has one number of rows; on the CPU it is enough that all replicas have as many.
            let wanted = if is_compiled { pass.rows } else { rows.next_multiple_of(count) };
            let missing = if may_fill { wanted.saturating_sub(rows) } else { 0 };
            let mut arguments = vec![filled(&inputs, missing)?, filled(&targets, missing)?];
            if missing > 0 {
                arguments.push(weights_of(rows, missing)?);
            }
            for argument in &mut arguments {
                *argument = self.share(argument)?.to_device(&self.device)?;
            }
            if let Some(ones) = ones.as_ref().filter(|_| missing == 0 && rows_of(&arguments[1]) == full) {
                arguments.push(ones.clone());
            }
            let rows = rows_of(&arguments[1]);
            let measured = pass.step.run(&arguments)?;
            watch.end(number, &measured)?;
            let sizes = if measured.len() == 1 { vec![rows] } else { self.chunk_sizes(rows) };
            pending.extend(sizes.into_iter().zip(measured));
            if !is_compiled {
                totals.read(&mut pending)?;
            } else if pending.len() >= MOST_PENDING {
                totals.read(&mut pending.drain(..READ_TOGETHER).collect())?;
            }
            if pass.is_training && !totals.loss[0].is_finite() {
                break;
            }
        }
        totals.read(&mut pending)?;
        totals.logs().map(Some)
    }

    /// This replica's rows of a batch.
    fn share(&self, batch: &Tensor) -> Result<Tensor> {
        let Some(replica) = self.divided() else { return Ok(batch.clone()) };
        let (rows, count) = (rows_of(batch), replica.count());
        if !rows.is_multiple_of(count) {
            bail!(
                "{count} replicas cannot share a batch of {rows} rows, which cannot be filled up: not the first batch of a closure, nor with \
                 variables that are not trained, or with a loss that is a mean; leave rows out, so that all batches can be shared, or \
                 return a loss for each row"
            )
        }
        batch.narrow(0, replica.index() * (rows / count), rows / count)
    }
}

/// What happens around each batch.
pub(crate) trait Watch {
    fn begin(&mut self, batch: usize) -> ferrotune_state::Result<()>;
    /// `measured` are the tensors that the step has returned; each begins with the two terms of the loss.
    fn end(&mut self, batch: usize, measured: &[Tensor]) -> ferrotune_state::Result<()>;
}

/// Nothing happens around a batch.
impl Watch for () {
    fn begin(&mut self, _batch: usize) -> ferrotune_state::Result<()> {
        Ok(())
    }

    fn end(&mut self, _batch: usize, _measured: &[Tensor]) -> ferrotune_state::Result<()> {
        Ok(())
    }
}

/// Whether all variables of floating-point numbers are trained, so that the model certainly keeps no statistics of its batches.
fn has_no_statistics(model: &dyn Model) -> bool {
    let floats = model.vars().all_vars().iter().filter(|var| var.dtype().is_float()).count();
    floats == model.trainable().len()
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

fn weights_of(rows: usize, missing: usize) -> Result<Tensor> {
    let weights: Vec<f32> = std::iter::repeat_n(1.0, rows).chain(std::iter::repeat_n(0.0, missing)).collect();
    Tensor::from_vec(weights, rows + missing, &Device::Cpu)
}
