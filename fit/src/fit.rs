//! The description of a training, which [`Fit::run`] and [`Fit::run_in`] carry out.

mod steps;

use crate::callback::{BatchEnd, Callback, OnBatch, OnEpoch};
use crate::criterion::{Criterion, Kind};
use crate::history::{History, Logs};
use crate::optimizers::Configs;
use crate::stop::EarlyStop;
use crate::{run, trial};
use candle_core::{DType, Tensor};
use ferrotune_data::{Dataset, Prep};
use ferrotune_devices::Replica;
use ferrotune_nn::loss::{CrossEntropy, Loss, Mse};
use ferrotune_nn::metrics::{Meter, Metric};
use ferrotune_nn::{Model, metrics};
use ferrotune_state::{Result, located};
use ferrotune_trial::optim::{Config, Decay, ParamsAdamW, constant};
use ferrotune_trial::{Direction, Trial};

/// A training of a model.
///
/// Without further calls: AdamW with a rate of 0.001, batches of 32 rows in a new order in each epoch, and 10 epochs. The model's
/// variables decide the device. A device with a compiler runs each step as one program: the last batch of an epoch is filled up with rows
/// that do not count, so that it needs no program of its own. On the CPU it stays smaller.
///
/// | metric | is |
/// |---|---|
/// | `loss`, `accuracy`, … | the mean over the batches of an epoch, as the model was at each of them |
/// | `val_loss`, `val_accuracy`, … | of the validation data, after the epoch |
pub struct Fit<'a> {
    pub(crate) model: &'a dyn Model,
    pub(crate) criterion: Criterion<'a>,
    pub(crate) optimizers: Configs<'a>,
    pub(crate) decay: Decay,
    pub(crate) batch: usize,
    pub(crate) epochs: usize,
    /// The number of epochs for the schedule, if it is another one.
    pub(crate) planned: Option<usize>,
    pub(crate) shuffle: Option<usize>,
    pub(crate) metrics: Vec<(String, Box<dyn Metric>)>,
    /// The name of the metric with which the training has begun, until another one takes its place.
    first_metric: Option<String>,
    pub(crate) directions: Vec<(String, Direction)>,
    pub(crate) early_stop: Option<EarlyStop>,
    pub(crate) clip_norm: Option<f64>,
    pub(crate) precision: DType,
    pub(crate) accumulated: usize,
    pub(crate) replica: Option<&'a Replica<'a>>,
    pub(crate) prep: Option<&'a Prep>,
    pub(crate) callbacks: Vec<Box<dyn Callback + 'a>>,
}

impl<'a> Fit<'a> {
    /// A training without a loss; [`Fit::loss`] sets one.
    pub fn new(model: &'a impl Model) -> Fit<'a> {
        Fit {
            model,
            criterion: Kind::None.into(),
            optimizers: vec![(String::new(), Box::new(ParamsAdamW { lr: 1e-3, ..ParamsAdamW::default() }))],
            decay: constant(),
            batch: 32,
            epochs: 10,
            planned: None,
            shuffle: None,
            metrics: Vec::new(),
            first_metric: None,
            directions: Vec::new(),
            early_stop: None,
            clip_norm: None,
            precision: DType::F32,
            accumulated: 1,
            replica: None,
            prep: None,
            callbacks: Vec::new(),
        }
    }

    /// A training with the cross-entropy, which also measures the accuracy. The outputs are a score for each class, or one logit for each
    /// row of two classes; the targets are classes of type `u32`.
    pub fn classifier(model: &'a impl Model) -> Fit<'a> {
        Fit::new(model).criterion(CrossEntropy::default()).begun_with("accuracy", metrics::accuracy())
    }

    /// A training with the mean squared error, which also measures the mean absolute error. The targets are numbers.
    pub fn regressor(model: &'a impl Model) -> Fit<'a> {
        Fit::new(model).criterion(Mse).begun_with("mae", metrics::mae())
    }

    /// Sets the loss as a closure of outputs and targets. It returns a number for each row, a tensor of shape (n,) or (n, 1), or the mean
    /// of all rows, a tensor without dimensions.
    ///
    /// ```
    /// # use candle_core::{Device, Tensor};
    /// # use ferrotune_fit::Fit;
    /// # let model = ferrotune_nn::mlp(13, &[8], 3).build(&Device::Cpu)?;
    /// # let train = ferrotune_data::wine()?;
    /// Fit::new(&model).loss(|outputs, targets| candle_nn::loss::cross_entropy(outputs, targets)).epochs(1).run(&train, None)?;
    /// # Ok::<(), ferrotune_state::Error>(())
    /// ```
    #[must_use]
    pub fn loss(self, loss: impl Fn(&Tensor, &Tensor) -> candle_core::Result<Tensor> + 'a) -> Fit<'a> {
        Fit { criterion: Kind::Closure(Box::new(loss)).into(), ..self }
    }

    /// Sets a loss of `nn::loss`, such as `CrossEntropy { label_smoothing: 0.1, ..Default::default() }`.
    #[must_use]
    pub fn criterion(self, loss: impl Loss + 'a) -> Fit<'a> {
        Fit { criterion: Kind::Loss(Box::new(loss)).into(), ..self }
    }

    /// Sets the optimiser, such as `AdamW::lr(1e-3)` or `optim::SGD::lr(0.1)`.
    #[must_use]
    pub fn optimizer(self, optimizer: impl Config + 'a) -> Fit<'a> {
        self.optimizer_of("", optimizer)
    }

    /// Sets the decay of the learning rate over the whole training, such as `optim::cosine(0.1)`.
    #[must_use]
    pub fn schedule(self, decay: Decay) -> Fit<'a> {
        Fit { decay, ..self }
    }

    /// Sets the number of rows in a batch.
    #[must_use]
    pub fn batch(self, rows: usize) -> Fit<'a> {
        Fit { batch: rows, ..self }
    }

    /// Sets the number of epochs: passes over the data.
    #[must_use]
    pub fn epochs(self, epochs: usize) -> Fit<'a> {
        Fit { epochs, planned: None, ..self }
    }

    /// Sets the number of elements among which the next one is chosen, as in `Dataset::shuffle`; with 0 the order is that of the data.
    /// Otherwise it is the whole data if its length is known, at most 100,000, and 10,000 if not.
    #[must_use]
    pub fn shuffle(self, buffer: usize) -> Fit<'a> {
        Fit { shuffle: Some(buffer), ..self }
    }

    /// Adds a metric, which is measured on the data for training, and as `val_NAME` on those for validation. It takes the place of the
    /// accuracy or the mean absolute error with which a training has begun, if it has that name.
    #[must_use]
    pub fn metric<N: Metric + 'static>(mut self, name: &str, metric: Meter<N>) -> Fit<'a> {
        if self.first_metric == Some(name.to_owned()) {
            self.metrics.retain(|(other, _)| other != name);
            self.first_metric = None;
        }
        self.metrics.push((name.to_owned(), Box::new(metric.into_metric())));
        self
    }

    fn begun_with<N: Metric + 'static>(self, name: &str, metric: Meter<N>) -> Fit<'a> {
        Fit { first_metric: Some(name.to_owned()), ..self.metric(name, metric) }
    }

    /// Ends the training when this metric has not become better for `patience` epochs in a row. The model then has the weights of
    /// the best epoch, also after an interrupt, and if all epochs ran.
    ///
    /// Losses and errors such as `val_loss` and `val_mae` are better when they are smaller, other metrics when they are greater. Of what a
    /// step logs, [`Fit::minimize`] or [`Fit::maximize`] says it. The
    /// weights of the best epoch take the memory of the variables once more, and twice while a better epoch is copied; a checkpoint has them, too.
    #[must_use]
    pub fn early_stop(self, metric: &str, patience: usize) -> Fit<'a> {
        Fit { early_stop: Some(EarlyStop { metric: metric.to_owned(), patience }), ..self }
    }

    /// Clips the gradients of each step to this norm, over all variables.
    #[must_use]
    pub fn clip_norm(self, max_norm: f64) -> Fit<'a> {
        Fit { clip_norm: Some(max_norm), ..self }
    }

    /// Computes models of `f32` in mixed precision: with `DType::BF16` matrix products and convolutions multiply in `bf16` and add in `f32`; all else, the
    /// variables and the optimiser stay in `f32`, so that no loss needs a scale. It needs a device with a compiler.
    #[must_use]
    pub fn precision(self, dtype: DType) -> Fit<'a> {
        Fit { precision: dtype, ..self }
    }

    /// Adds the gradients of so many batches before each step of the optimiser, which is then the step of one greater batch: so many times
    /// the rows of [`Fit::batch`], of which `backward` keeps the activations of one batch at once. A layer with batch norm sees each
    /// batch alone. On a device with a compiler the step's program grows with the number.
    #[must_use]
    pub fn accumulate(self, batches: usize) -> Fit<'a> {
        Fit { accumulated: batches, ..self }
    }

    /// Trains this replica of a strategy, in its scope: each replica takes its rows of each batch, whose size is that of all replicas
    /// together, and all take the same steps, with the metrics of all rows. The replicas begin with the variables of the first one, and
    /// have the precision of the strategy. Callbacks run in each replica: add one that writes files where `replica.index()` is 0.
    ///
    /// ```
    /// # use ferrotune_devices::{Strategy, Replica};
    /// # use ferrotune_fit::Fit;
    /// # let train = ferrotune_data::wine()?;
    /// let strategy = Strategy::mirrored(["cpu", "cpu"])?;
    /// let losses = strategy.scope(|replica| {
    ///     let device = candle_core::Device::Cpu;          // in a notebook: strategy::device(replica)?
    ///     let model = ferrotune_nn::mlp(13, &[8], 3).build(&device)?;
    ///     Ok(Fit::classifier(&model).replica(replica).epochs(2).run(&train, None)?.get("loss"))
    /// });
    /// let losses = losses.into_iter().collect::<Result<Vec<_>, ferrotune_state::Error>>()?;
    /// assert_eq!(losses[0], losses[1]);
    /// # Ok::<(), ferrotune_state::Error>(())
    /// ```
    #[must_use]
    pub fn replica(self, replica: &'a Replica<'a>) -> Fit<'a> {
        Fit { replica: Some(replica), ..self }
    }

    /// Saves a preparation with the checkpoints of a trial, so that `best.prep()` returns it and an export has it.
    #[must_use]
    pub fn prep(self, prep: &'a Prep) -> Fit<'a> {
        Fit { prep: Some(prep), ..self }
    }

    /// Calls a function after each step of training: after each batch, or with [`Fit::accumulate`] after so many. Its loss is read only if
    /// the function asks for it.
    ///
    /// ```
    /// # use ferrotune_fit::Fit;
    /// # let model = ferrotune_nn::mlp(13, &[8], 3).build(&candle_core::Device::Cpu)?;
    /// let mut losses = Vec::new();
    /// let fit = Fit::classifier(&model).batch(100).epochs(2).on_batch(|batch| {
    ///     losses.push(batch.loss()?);
    ///     Ok(())
    /// });
    /// fit.run(&ferrotune_data::wine()?, None)?;       // 178 rows
    /// assert_eq!(losses.len(), 4);
    /// # Ok::<(), ferrotune_state::Error>(())
    /// ```
    #[must_use]
    pub fn on_batch(self, function: impl FnMut(&BatchEnd<'_>) -> Result<()> + 'a) -> Fit<'a> {
        self.callback(OnBatch(function))
    }

    /// Calls a function after each epoch, with its number and its metrics.
    ///
    /// ```
    /// # use candle_core::Device;
    /// # use ferrotune_fit::Fit;
    /// # let model = ferrotune_nn::mlp(13, &[8], 3).build(&Device::Cpu)?;
    /// # let train = ferrotune_data::wine()?;
    /// let mut losses = Vec::new();
    /// Fit::classifier(&model)
    ///     .epochs(2)
    ///     .on_epoch(|_epoch, logs| {
    ///         losses.push(logs["loss"]);
    ///         Ok(())
    ///     })
    ///     .run(&train, None)?;
    /// assert_eq!(losses.len(), 2);
    /// # Ok::<(), ferrotune_state::Error>(())
    /// ```
    #[must_use]
    pub fn on_epoch(self, function: impl FnMut(usize, &Logs) -> Result<()> + 'a) -> Fit<'a> {
        self.callback(OnEpoch(function))
    }

    /// Adds a callback, such as [`CsvLog`](crate::CsvLog).
    #[must_use]
    pub fn callback(mut self, callback: impl Callback + 'a) -> Fit<'a> {
        self.callbacks.push(Box::new(callback));
        self
    }

    /// Trains, and shows the progress in the notebook. Without validation data, `valid` is `None`.
    ///
    /// An interrupt of the cell ends the training after the running batch, and the history says so.
    ///
    /// # Errors
    /// If the loss of an epoch is NaN or infinite, if the metric of [`Fit::early_stop`] does not exist, and the errors of the data, the
    /// model and the device.
    #[track_caller]
    pub fn run<'d>(
        self,
        train: &Dataset<(Tensor, Tensor)>,
        valid: impl Into<Option<&'d Dataset<(Tensor, Tensor)>>>,
    ) -> Result<History> {
        located(run::run(self, train, valid.into()).map_err(ferrotune_state::Error::into_source))
    }

    /// The loss and the metrics of a dataset, as those for validation: nothing is trained.
    ///
    /// ```
    /// # use candle_core::Device;
    /// # use ferrotune_fit::Fit;
    /// # let model = ferrotune_nn::mlp(13, &[8], 3).build(&Device::Cpu)?;
    /// let measured = Fit::classifier(&model).evaluate(&ferrotune_data::wine()?)?;
    /// assert!(measured["accuracy"] <= 1.0 && measured["loss"] > 0.0);
    /// # Ok::<(), ferrotune_state::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of the data, the model and the device.
    #[track_caller]
    pub fn evaluate(self, data: &Dataset<(Tensor, Tensor)>) -> Result<Logs> {
        located(run::evaluate(self, data).map_err(ferrotune_state::Error::into_source))
    }

    /// Trains in a trial: continues at the trial's checkpoint, reports all metrics of each epoch, and saves the model, the optimiser and
    /// the history after it. The history that it returns is a value of an objective, for which the reports count.
    ///
    /// A trial that is continued anywhere has the losses of one that never stopped; on the CPU bit for bit.
    ///
    /// ```no_run
    /// # use ferrotune_fit::Fit;
    /// # use ferrotune_trial::{AdamW, Result, Trial};
    /// # fn objective(trial: &Trial) -> Result<ferrotune_fit::History> {
    /// # let [train, valid] = ferrotune_data::wine()?.split([0.8, 0.2], 7)?;
    /// let units = trial.int("units", 8..=128).get()?;
    /// let model = ferrotune_nn::mlp(13, &[units], 3).build(&trial.device()?)?;
    /// let lr = trial.float("lr", 1e-4..=1e-1).log().get()?;
    /// Fit::classifier(&model).optimizer(AdamW::lr(lr)).epochs(30).run_in(trial, &train, &valid)
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the trial is pruned or stopped, and the errors of [`Fit::run`].
    #[track_caller]
    pub fn run_in<'d>(
        self,
        trial: &Trial,
        train: &Dataset<(Tensor, Tensor)>,
        valid: impl Into<Option<&'d Dataset<(Tensor, Tensor)>>>,
    ) -> Result<History> {
        located(trial::run(self, trial, train, valid.into()).map_err(ferrotune_state::Error::into_source))
    }
}
