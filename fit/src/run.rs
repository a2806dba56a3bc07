//! A training in a cell or a program: epochs with progress, early stopping and the best weights.

use crate::best::Best;
use crate::callback::Control;
use crate::fit::Fit;
use crate::history::{Ended, Epoch, History, Logs};
use crate::pass::{Optimizing, Parts, PassStep, Watch};
use crate::stop::EarlyStop;
use candle_core::{Device, Tensor};
use ferrotune_data::Dataset;
use ferrotune_devices::runtime::interrupted;
use ferrotune_display::progress;
use ferrotune_nn::Model;
use ferrotune_state::Result;
use std::cell::RefCell;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The number of elements among which the next one is chosen, where the length of the data is known, and where it is not.
const MOST_SHUFFLED: u64 = 100_000;
const SHUFFLED_OF_UNKNOWN: usize = 10_000;

/// The number of batches that are made before they are needed.
const PREFETCHED: usize = 2;

/// The interval at which the progress within an epoch is shown.
const SHOWN: Duration = Duration::from_millis(200);

pub(crate) type Rows = Dataset<(Tensor, Tensor)>;

/// A training that is under way.
pub(crate) struct Training<'f, 'a> {
    pub(crate) fit: &'f mut Fit<'a>,
    pub(crate) optimizing: &'f Optimizing,
    parts: &'f Parts<'f>,
    training: PassStep<'f>,
    validation: PassStep<'f>,
    batches: Rows,
    valid: Option<Rows>,
    /// The number of steps in an epoch, if it is known.
    steps: Option<u64>,
    rate: f64,
    pub(crate) control: Control,
    pub(crate) epochs: Vec<Epoch>,
    /// The number of epochs that belong to another trial, which this one continues. Early stopping leaves them out.
    pub(crate) inherited: usize,
}

/// Prepares a training, and calls `work` with it.
pub(crate) fn with_training<T>(
    mut fit: Fit<'_>,
    train: &Rows,
    valid: Option<&Rows>,
    work: impl FnOnce(&mut Training<'_, '_>) -> Result<T>,
) -> Result<T> {
    if fit.batch == 0 {
        Err("a batch of 0 rows trains nothing; choose `.batch(32)`")?;
    }
    check_names(&fit, valid.is_some())?;
    let device = fit.model.device().unwrap_or(Device::Cpu);
    let vars = fit.model.trainable();
    if vars.is_empty() {
        Err("the model has no variables to train; add a layer with weights, or call `unfreeze()`")?;
    }
    let optimizer = fit.optimizer.build(vars.clone())?;
    let rate = optimizer.learning_rate();
    if !(rate.is_finite() && rate > 0.0) {
        Err(format!("the learning rate is {rate}; choose a number above 0, such as `AdamW::lr(1e-3)`"))?;
    }
    let optimizing = Optimizing { optimizer: RefCell::new(optimizer), vars, clip_norm: fit.clip_norm };
    let criterion = std::mem::replace(&mut fit.criterion, crate::criterion::Criterion::None);
    let metrics = std::mem::take(&mut fit.metrics);
    let shapes = RefCell::new(HashMap::new());
    let parts = Parts { model: fit.model, criterion: &criterion, metrics: &metrics, device, batch: fit.batch, shapes };
    let buffer = fit.shuffle.unwrap_or_else(|| match train.len() {
        Some(rows) => rows.min(MOST_SHUFFLED) as usize,
        None => SHUFFLED_OF_UNKNOWN,
    });
    let rows = if buffer > 1 { train.shuffle(buffer, None) } else { train.clone() };
    let steps = train.len().map(|rows| rows.div_ceil(fit.batch as u64));
    if steps.is_none() && !fit.decay.is_constant() {
        Err(
            "a schedule needs the number of rows, which this dataset does not know; leave out `.schedule`, or read the \
                    data into memory",
        )?;
    }
    let mut training = Training {
        training: parts.training(&optimizing),
        validation: parts.validation(),
        optimizing: &optimizing,
        parts: &parts,
        batches: rows.batch(fit.batch, false).prefetch(PREFETCHED),
        valid: valid.map(|valid| valid.batch(fit.batch, false).prefetch(PREFETCHED)),
        steps,
        rate,
        control: Control { rate: 1.0, stop: false },
        epochs: Vec::new(),
        inherited: 0,
        fit: &mut fit,
    };
    work(&mut training)
}

/// Fails if metrics have names that stand for something else, or early stopping watches one that does not exist.
fn check_names(fit: &Fit<'_>, has_validation: bool) -> Result<()> {
    let names = || fit.metrics.iter().map(|(name, _)| name.as_str());
    if let Some(name) = names().find(|name| *name == "loss" || name.starts_with("val_")) {
        Err(format!(
            "a metric cannot have the name `{name}`, which stands for the loss or for validation data; choose another one"
        ))?;
    }
    let Some(EarlyStop { metric, .. }) = &fit.early_stop else { return Ok(()) };
    let mut known: Vec<String> = names().chain(["loss"]).map(str::to_owned).collect();
    if has_validation {
        known.extend(known.clone().into_iter().map(|name| format!("val_{name}")));
    }
    if !known.contains(metric) {
        known.sort();
        Err(format!("early_stop watches `{metric}`, which is not measured; measured are {}", known.join(", ")))?;
    }
    Ok(())
}

impl Training<'_, '_> {
    /// Trains for an epoch, and validates; none after an interrupt.
    ///
    /// # Errors
    /// If the loss is not finite, and the errors of the data, the callbacks and the device.
    pub(crate) fn epoch(&mut self, number: usize, shown: &mut dyn FnMut(String)) -> Result<Option<&Epoch>> {
        let begun = Instant::now();
        for callback in &mut self.fit.callbacks {
            callback.on_epoch_begin(number)?;
        }
        let mut rates = Rates {
            optimizing: self.optimizing,
            fit: &mut *self.fit,
            rate: self.rate * self.control.rate,
            first: number as u64 * self.steps.unwrap_or(0),
            steps: self.steps,
            set: None,
            shown,
            shown_at: Instant::now(),
        };
        // Batch norm computes its statistics of all rows, so a batch for training is filled up only without it.
        let fills = has_no_statistics(self.parts.model);
        let batches = self.batches.epoch(number as u64);
        let Some(mut logs) = self.parts.pass(&mut self.training, batches, fills, &mut rates)? else { return Ok(None) };
        if let Some(valid) = &self.valid {
            let Some(measured) = self.parts.pass(&mut self.validation, valid.epoch(0), true, &mut ())? else {
                return Ok(None);
            };
            logs.extend(measured.into_iter().map(|(name, value)| (format!("val_{name}"), value)));
        }
        let loss = logs["loss"];
        if !loss.is_finite() {
            return Err(format!(
                "the loss of epoch {number} is {loss}; lower the learning rate, clip gradients with `.clip_norm(1.0)`, or look for \
                 numbers in the data that are not finite"
            ))?;
        }
        let learning_rate = self.optimizing.optimizer.borrow().learning_rate();
        for callback in &mut self.fit.callbacks {
            callback.on_epoch_end(number, &logs, &mut self.control)?;
        }
        self.epochs.push(Epoch { logs, learning_rate, seconds: begun.elapsed().as_secs_f64() });
        Ok(self.epochs.last())
    }

    /// The index of the best epoch so far; none without early stopping.
    pub(crate) fn best(&self) -> Option<usize> {
        let early_stop = self.fit.early_stop.as_ref()?;
        let best = early_stop.best(&self.epochs[self.inherited..], self.parts.metrics)?;
        Some(best + self.inherited)
    }

    /// Whether the training ends before its last epoch.
    pub(crate) fn ends_early(&self, best: Option<usize>) -> bool {
        let own = self.epochs.len() - self.inherited;
        let best = best.map(|best| best - self.inherited);
        let early_stop = self.fit.early_stop.as_ref();
        self.control.stop || early_stop.is_some_and(|early_stop| early_stop.ends(best, own))
    }
}

pub(crate) fn run(fit: Fit<'_>, train: &Rows, valid: Option<&Rows>) -> Result<History> {
    with_training(fit, train, valid, |training| {
        let mut best = Best::default();
        let mut ended = Ended::Finished;
        for callback in &mut training.fit.callbacks {
            callback.on_train_begin()?;
        }
        let mut bar = progress(0..training.fit.epochs).named("epochs");
        while let Some(number) = bar.next() {
            let trained = training.epoch(number, &mut |note| bar.note(note));
            let logs = match trained {
                Ok(Some(epoch)) => sentence(&epoch.logs),
                Ok(None) => {
                    ended = Ended::Interrupted;
                    break;
                }
                // A wait for the device that was interrupted is an error of the device.
                Err(error) if interrupted() => {
                    eprintln!("ferrotune: the training was interrupted: {error}");
                    ended = Ended::Interrupted;
                    break;
                }
                Err(error) => {
                    best.put_back(training.fit.model.vars())?;
                    return Err(error);
                }
            };
            bar.note(logs);
            let now = training.best();
            best.keep(training.fit.model.vars(), now, training.epochs.len())?;
            if training.ends_early(now) {
                ended = Ended::Early;
                break;
            }
        }
        drop(bar);
        best.put_back(training.fit.model.vars())?;
        for callback in &mut training.fit.callbacks {
            callback.on_train_end()?;
        }
        Ok(History { epochs: std::mem::take(&mut training.epochs), ended, best_epoch: best.epoch })
    })
}

pub(crate) fn evaluate(fit: Fit<'_>, data: &Rows) -> Result<Logs> {
    let device = fit.model.device().unwrap_or(Device::Cpu);
    let shapes = RefCell::new(HashMap::new());
    let Fit { model, criterion, metrics, batch, .. } = &fit;
    let parts = Parts { model: *model, criterion, metrics, device, batch: (*batch).max(1), shapes };
    let batches = data.batch(parts.batch, false).prefetch(PREFETCHED);
    let measured = parts.pass(&mut parts.validation(), batches.epoch(0), true, &mut ())?;
    Ok(measured.ok_or("the cell was interrupted")?)
}

/// Sets the learning rate before each batch, and shows the progress within an epoch.
struct Rates<'r, 'a> {
    optimizing: &'r Optimizing,
    fit: &'r mut Fit<'a>,
    rate: f64,
    /// The number of the epoch's first step.
    first: u64,
    steps: Option<u64>,
    set: Option<f64>,
    shown: &'r mut dyn FnMut(String),
    shown_at: Instant,
}

impl Watch for Rates<'_, '_> {
    fn begin(&mut self, batch: usize) -> Result<()> {
        let all = self.steps.unwrap_or(0) * self.fit.epochs as u64;
        let rate = self.rate * self.fit.decay.at(self.first + batch as u64, all);
        // A rate on a device costs a transfer.
        if self.set != Some(rate) {
            let mut optimizer = self.optimizing.optimizer.borrow_mut();
            if optimizer.learning_rate() != rate {
                optimizer.set_learning_rate(rate);
            }
            self.set = Some(rate);
        }
        Ok(())
    }

    fn end(&mut self, batch: usize) -> Result<()> {
        if self.shown_at.elapsed() >= SHOWN {
            self.shown_at = Instant::now();
            let of = self.steps.map_or_else(String::new, |steps| format!(" of {steps}"));
            (self.shown)(format!("batch {}{of}", batch + 1));
        }
        for callback in &mut self.fit.callbacks {
            callback.on_batch_end(batch)?;
        }
        Ok(())
    }
}

/// The metrics in one line.
fn sentence(logs: &Logs) -> String {
    let parts: Vec<String> = logs.iter().map(|(name, value)| format!("{name} {value:.4}")).collect();
    parts.join(", ")
}

/// Whether all variables of floating-point numbers are trained, so that the model keeps no statistics of its batches.
fn has_no_statistics(model: &dyn Model) -> bool {
    let floats = model.vars().all_vars().iter().filter(|var| var.dtype().is_float()).count();
    floats == model.trainable().len()
}
