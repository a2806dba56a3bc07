//! A training in a cell or a program: epochs with progress, early stopping and the best weights.

use crate::best::Best;
use crate::callback::{BatchEnd, Control};
use crate::check::{check, check_training, divided, is_watched, precision_of};
use crate::criterion::{Criterion, Kind};
use crate::fit::Fit;
use crate::history::{Ended, Epoch, History, Logs};
use crate::optimizers::Optimizers;
use crate::pass::{Parts, Pass, Watch};
use crate::replicas::{average_statistics, begin_alike, first_seed};
use crate::stop::{Directions, EarlyStop};
use candle_core::Tensor;
use ferrotune_data::Dataset;
use ferrotune_devices::runtime::interrupted;
use ferrotune_display::{Progress, progress};
use ferrotune_state::Result;
use std::ops::Range;
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
    pub(crate) optimizers: &'f Optimizers,
    parts: &'f Parts<'f>,
    training: Pass<'f>,
    validation: Pass<'f>,
    batches: Rows,
    valid: Option<Rows>,
    /// The number of steps in an epoch, if it is known.
    steps: Option<u64>,
    pub(crate) control: Control,
    pub(crate) directions: Directions,
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
    check(&fit, valid.is_some())?;
    let optimizers = Optimizers::of(fit.model, &fit.optimizers, fit.clip_norm)?;
    let criterion = std::mem::replace(&mut fit.criterion, Criterion::from(Kind::None));
    let metrics = std::mem::take(&mut fit.metrics);
    let parts = Parts::new(fit.model, &criterion, &metrics, precision_of(&fit), fit.batch, fit.replica);
    if let Some(replica) = divided(&fit) {
        begin_alike(replica, fit.model.vars())?;
    }
    let directions = Directions::new(&metrics, &fit.directions);
    if let Some(EarlyStop { metric, .. }) = &fit.early_stop
        && directions.of(metric).is_none()
    {
        Err(directions.unknown("early_stop", metric))?;
    }
    // Processes have seeds of their own, and all replicas need the same order.
    let seed = divided(&fit).map(first_seed).transpose()?;
    let buffer = fit.shuffle.unwrap_or_else(|| match train.len() {
        Some(rows) => rows.min(MOST_SHUFFLED) as usize,
        None => SHUFFLED_OF_UNKNOWN,
    });
    check_training(&fit, buffer > 1)?;
    let rows = if buffer > 1 { train.shuffle(buffer, seed) } else { train.clone() };
    let in_a_step = fit.batch * fit.accumulated;
    let steps = train.len().map(|rows| rows.div_ceil(in_a_step as u64));
    if steps.is_none() && !fit.decay.is_constant() {
        Err(
            "a schedule needs the number of rows, which this dataset does not know; leave out `.schedule`, or read the \
                    data into memory",
        )?;
    }
    let mut training = Training {
        training: parts.training(&optimizers, fit.accumulated),
        validation: parts.validation(),
        optimizers: &optimizers,
        parts: &parts,
        batches: rows.batch(in_a_step, false).prefetch(PREFETCHED),
        valid: valid.map(|valid| valid.batch(fit.batch, false).prefetch(PREFETCHED)),
        steps,
        control: Control::new(1.0, false, directions.clone()),
        directions,
        epochs: Vec::new(),
        inherited: 0,
        fit: &mut fit,
    };
    work(&mut training)
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
            optimizers: self.optimizers,
            fit: &mut *self.fit,
            epoch: number,
            rate: self.control.rate,
            first: number as u64 * self.steps.unwrap_or(0),
            steps: self.steps,
            set: None,
            shown,
            shown_at: Instant::now(),
        };
        let batches = self.batches.epoch(number as u64);
        let Some(mut logs) = self.parts.pass(&mut self.training, batches, &mut rates)? else { return Ok(None) };
        let loss = logs["loss"];
        if !loss.is_finite() {
            return Err(format!(
                "the loss of epoch {number} is {loss}; lower the learning rate, clip gradients with `.clip_norm(1.0)`, or look for \
                 numbers in the data that are not finite and, on a device with a compiler, for an index out of range, which \
                 `FERROTUNE_CHECK_INDEXES=1` names; build the model again if its weights are not finite now"
            ))?;
        }
        if let Some(replica) = divided(self.fit) {
            average_statistics(replica, self.fit.model.vars(), self.optimizers.vars())?;
        }
        if let Some(valid) = &self.valid {
            let Some(measured) = self.parts.pass(&mut self.validation, valid.epoch(0), &mut ())? else {
                return Ok(None);
            };
            logs.extend(measured.into_iter().map(|(name, value)| (format!("val_{name}"), value)));
        }
        is_watched(self.fit, logs.keys().map(String::as_str))?;
        if let Some(first) = self.epochs.first().filter(|first| !first.logs.keys().eq(logs.keys())) {
            let names = |logs: &Logs| logs.keys().cloned().collect::<Vec<_>>().join(", ");
            return Err(format!(
                "epoch {number} has the metrics {}, and the first one has {}; log the same names in each epoch",
                names(&logs),
                names(&first.logs)
            ))?;
        }
        let learning_rate = self.optimizers.learning_rate();
        for callback in &mut self.fit.callbacks {
            callback.on_epoch_end(number, &logs, &mut self.control)?;
        }
        self.epochs.push(Epoch { logs, learning_rate, seconds: begun.elapsed().as_secs_f64() });
        Ok(self.epochs.last())
    }

    /// The index of the best epoch so far; none without early stopping.
    pub(crate) fn best(&self) -> Option<usize> {
        let early_stop = self.fit.early_stop.as_ref()?;
        let best = early_stop.best(&self.epochs[self.inherited..], &self.directions)?;
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
        let is_shown = training.fit.replica.is_none_or(|replica| replica.index() == 0);
        let mut bar = EpochBar(is_shown.then(|| progress(0..training.fit.epochs).named("epochs")));
        for number in 0..training.fit.epochs {
            bar.next();
            let trained = training.epoch(number, &mut |text| bar.note(text));
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
            bar.note(logs.clone());
            let now = training.best();
            best.keep(training.fit.model.vars(), now, training.epochs.len())?;
            if training.ends_early(now) {
                bar.note(format!("{logs}, stopped early"));
                ended = Ended::Early;
                break;
            }
        }
        if ended != Ended::Interrupted {
            bar.next();
        }
        drop(bar);
        best.put_back(training.fit.model.vars())?;
        for callback in &mut training.fit.callbacks {
            callback.on_train_end()?;
        }
        Ok(History { epochs: std::mem::take(&mut training.epochs), ended, best_epoch: best.epoch })
    })
}

/// The progress over the epochs; none of a replica that is not the first one.
struct EpochBar(Option<Progress<Range<usize>>>);

impl EpochBar {
    /// The epoch before is done, and the next one begins.
    fn next(&mut self) {
        if let Some(bar) = &mut self.0 {
            bar.next();
        }
    }

    fn note(&mut self, text: String) {
        if let Some(bar) = &mut self.0 {
            bar.note(text);
        }
    }
}

pub(crate) fn evaluate(fit: Fit<'_>, data: &Rows) -> Result<Logs> {
    check(&fit, false)?;
    let Fit { model, criterion, metrics, batch, replica, .. } = &fit;
    let parts = Parts::new(*model, criterion, metrics, precision_of(&fit), *batch, *replica);
    let batches = data.batch(parts.batch, false).prefetch(PREFETCHED);
    let measured = parts.pass(&mut parts.validation(), batches.epoch(0), &mut ())?;
    Ok(measured.ok_or("the cell was interrupted")?)
}

/// Sets the learning rate before each batch, and shows the progress within an epoch.
struct Rates<'r, 'a> {
    optimizers: &'r Optimizers,
    fit: &'r mut Fit<'a>,
    epoch: usize,
    /// The factor of callbacks.
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
        let all = self.steps.unwrap_or(0) * self.fit.planned.unwrap_or(self.fit.epochs) as u64;
        let factor = self.rate * self.fit.decay.at(self.first + batch as u64, all);
        if self.set != Some(factor) {
            self.optimizers.set_rates(factor);
            self.set = Some(factor);
        }
        Ok(())
    }

    fn end(&mut self, number: usize, measured: &[Tensor]) -> Result<()> {
        if self.shown_at.elapsed() >= SHOWN {
            self.shown_at = Instant::now();
            let of = self.steps.map_or_else(String::new, |steps| format!(" of {steps}"));
            (self.shown)(format!("step {}{of}", number + 1));
        }
        let batch = BatchEnd::new(self.epoch, number, measured);
        self.fit.callbacks.iter_mut().try_for_each(|callback| callback.on_batch_end(&batch))
    }
}

/// The metrics in one line.
fn sentence(logs: &Logs) -> String {
    let parts: Vec<String> = logs.iter().map(|(name, value)| format!("{name} {value:.4}")).collect();
    parts.join(", ")
}
