//! Steps of the user's own, and optimisers of some variables.

use super::Fit;
use crate::batch::Batch;
use crate::criterion::Kind;
use candle_core::Tensor;
use ferrotune_nn::Model;
use ferrotune_trial::Direction;
use ferrotune_trial::optim::Config;

impl<'a> Fit<'a> {
    /// Sets the loss as a closure of the model and a batch, for a model whose outputs are not simply compared with targets. It returns a
    /// number for each row, or their mean. [`Batch::log`] adds metrics; those of [`Fit::metric`] have nothing to compare here.
    ///
    /// ```
    /// # use candle_core::{Device, Tensor};
    /// # use ferrotune_fit::Fit;
    /// // An autoencoder with a second loss, which keeps the outputs near 0.
    /// let model = ferrotune_nn::mlp(13, &[8], 13).build(&Device::Cpu)?;
    /// let history = Fit::new(&model)
    ///     .step(|model, batch| {
    ///         let outputs = model.forward(&batch.inputs, batch.train)?;
    ///         let (errors, sizes) = ((&outputs - &batch.inputs)?.sqr()?.mean(1)?, outputs.sqr()?.mean(1)?);
    ///         batch.log("size", &sizes)?;
    ///         errors + (sizes * 0.01)?
    ///     })
    ///     .epochs(2)
    ///     .run(&ferrotune_data::wine()?, None)?;
    /// assert_eq!(history.names(), ["loss", "size"]);
    /// # Ok::<(), ferrotune_state::Error>(())
    /// ```
    #[must_use]
    pub fn step(self, step: impl Fn(&dyn Model, &Batch<'_>) -> candle_core::Result<Tensor> + 'a) -> Fit<'a> {
        Fit { criterion: Kind::Step(Box::new(step)).into(), ..self }
    }

    /// Sets steps of your own with several optimisers, such as those of a GAN: the closure calls [`Batch::minimize`] for each loss, with
    /// the prefix of an optimiser of [`Fit::optimizer_of`].
    ///
    /// ```
    /// # use candle_core::{Device, Tensor};
    /// # use ferrotune_fit::Fit;
    /// # use ferrotune_nn::Model as _;
    /// # use ferrotune_trial::AdamW;
    /// // One layer learns to copy its inputs, and the other one to invert what the first one gives.
    /// let model = ferrotune_nn::mlp(13, &[13], 13).build(&Device::Cpu)?;
    /// Fit::new(&model)
    ///     .optimizer_of("0.", AdamW::lr(1e-3))
    ///     .optimizer_of("2.", AdamW::lr(1e-2))
    ///     .steps(|model, batch| {
    ///         let error = || (model.forward(&batch.inputs, batch.train)? - &batch.inputs)?.sqr()?.mean(1);
    ///         batch.minimize("0.", &error()?)?;
    ///         batch.minimize("2.", &error()?)
    ///     })
    ///     .epochs(1)
    ///     .run(&ferrotune_data::wine()?, None)?;
    /// # Ok::<(), ferrotune_state::Error>(())
    /// ```
    #[must_use]
    pub fn steps(self, steps: impl Fn(&dyn Model, &Batch<'_>) -> candle_core::Result<()> + 'a) -> Fit<'a> {
        Fit { criterion: Kind::Steps(Box::new(steps)).into(), ..self }
    }

    /// Sets another optimiser for the variables whose names begin with this prefix, such as a smaller rate for `"0."`, the first layer, or
    /// for a pretrained part. The schedule multiplies the rates of all.
    #[must_use]
    pub fn optimizer_of(mut self, prefix: &str, optimizer: impl Config + 'a) -> Fit<'a> {
        self.optimizers.retain(|(other, _)| other != prefix);
        self.optimizers.push((prefix.to_owned(), Box::new(optimizer)));
        // The optimiser of all other variables is the first one.
        self.optimizers.sort_by(|(one, _), (other, _)| one.cmp(other));
        self
    }

    /// Says that smaller values of what a step logs under this name are better.
    #[must_use]
    pub fn minimize(mut self, logged: &str) -> Fit<'a> {
        self.directions.push((logged.to_owned(), Direction::Min));
        self
    }

    /// Says that greater values of what a step logs under this name are better.
    #[must_use]
    pub fn maximize(mut self, logged: &str) -> Fit<'a> {
        self.directions.push((logged.to_owned(), Direction::Max));
        self
    }
}
