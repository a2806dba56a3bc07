//! What a pass has measured: the sums of its batches, of all replicas.

use crate::history::Logs;
use crate::pass::Parts;
use crate::replicas::gather;
use candle_core::{Result, Tensor};
use ferrotune_nn::metrics::{Measured, Meter, Metric};
use std::collections::BTreeMap;

/// The number of batches whose measured tensors are read together, by one program.
pub(crate) const READ_TOGETHER: usize = 64;

/// What a tensor of measured numbers contains after the two terms of the loss.
pub(crate) struct Layout {
    /// The shape of what each metric has measured.
    pub(crate) shapes: Vec<Vec<usize>>,
    /// The names of what a step has logged, each with two terms.
    pub(crate) logged: Vec<String>,
}

/// The sums over the batches of a pass.
pub(crate) struct Totals<'p, 'a> {
    parts: &'p Parts<'a>,
    is_training: bool,
    pub(crate) loss: [f64; 2],
    meters: Vec<Meter<&'p dyn Metric>>,
    logged: BTreeMap<String, [f64; 2]>,
}

impl<'p, 'a> Totals<'p, 'a> {
    pub(crate) fn of(parts: &'p Parts<'a>, is_training: bool) -> Totals<'p, 'a> {
        let meters = parts.metrics.iter().map(|(_, metric)| Meter::new(&**metric)).collect();
        Totals { parts, is_training, loss: [0.0; 2], meters, logged: BTreeMap::new() }
    }

    /// Reads the tensors of batches: those of the same shape together.
    pub(crate) fn read(&mut self, pending: &mut Vec<(usize, Tensor)>) -> Result<()> {
        let pending = std::mem::take(pending);
        let groups = pending.chunk_by(|(rows, one), (others, other)| rows == others && one.dims() == other.dims());
        for group in groups.flat_map(|group| group.chunks(READ_TOGETHER)) {
            let tensors: Vec<&Tensor> = group.iter().map(|(_, tensor)| tensor).collect();
            let Measured { dims, numbers } = Measured::read(&Tensor::stack(&tensors, 0)?)?;
            for numbers in numbers.chunks(dims[1].max(1)) {
                let all = match self.parts.divided() {
                    Some(replica) => gather(replica, numbers).map_err(candle_core::Error::wrap)?,
                    None => vec![numbers.to_vec()],
                };
                all.iter().try_for_each(|numbers| self.add(group[0].0, numbers))?;
            }
        }
        Ok(())
    }

    fn add(&mut self, rows: usize, numbers: &[f64]) -> Result<()> {
        let (loss, mut rest) = numbers.split_at(2);
        self.loss = [self.loss[0] + loss[0], self.loss[1] + loss[1]];
        let layouts = self.parts.layouts.borrow();
        let Layout { shapes, logged } = &layouts[&(self.is_training, rows)];
        for (shape, meter) in shapes.iter().zip(&mut self.meters) {
            let (numbers, after) = rest.split_at(shape.iter().product());
            rest = after;
            meter.merge(Measured { dims: shape.clone(), numbers: numbers.to_vec() })?;
        }
        for (name, terms) in logged.iter().zip(rest.chunks(2)) {
            let total = self.logged.entry(name.clone()).or_default();
            *total = [total[0] + terms[0], total[1] + terms[1]];
        }
        Ok(())
    }

    pub(crate) fn logs(self) -> ferrotune_state::Result<Logs> {
        let [sum, divisor] = self.loss;
        if divisor == 0.0 && self.meters.iter().all(Meter::is_empty) {
            Err("there are no rows to train or validate with; give a dataset that is not empty")?;
        }
        let mut logs = Logs::from([("loss".to_owned(), sum / divisor)]);
        logs.extend(self.logged.into_iter().map(|(name, [sum, divisor])| (name, sum / divisor)));
        for ((name, _), mut meter) in self.parts.metrics.iter().zip(self.meters) {
            logs.insert(name.clone(), meter.value()?);
        }
        Ok(logs)
    }
}

/// The loss of a batch, from what its step has returned: a read, for which the device computes.
pub(crate) fn loss_of(measured: &[Tensor]) -> Result<f64> {
    let mut total = [0.0; 2];
    for tensor in measured {
        let terms = Measured::read(&tensor.narrow(0, 0, 2)?)?.numbers;
        total = [total[0] + terms[0], total[1] + terms[1]];
    }
    Ok(total[0] / total[1])
}
