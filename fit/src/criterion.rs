//! What a training minimises: a loss of `nn::loss`, a closure of outputs and targets, or a step of the user's own.

use crate::batch::{Batch, Returned, Terms};
use crate::optimizers::Optimizers;
use candle_core::{Result, Tensor, bail};
use ferrotune_nn::Model;
use ferrotune_nn::loss::{Loss, LossSettings};
use std::cell::Cell;

type LossClosure<'a> = Box<dyn Fn(&Tensor, &Tensor) -> Result<Tensor> + 'a>;
type StepClosure<'a> = Box<dyn Fn(&dyn Model, &Batch<'_>) -> Result<Tensor> + 'a>;
type StepsClosure<'a> = Box<dyn Fn(&dyn Model, &Batch<'_>) -> Result<()> + 'a>;

/// What a training minimises, and how.
pub(crate) struct Criterion<'a> {
    kind: Kind<'a>,
    /// What closures return, which is known after the first batch.
    returned: Cell<Option<Returned>>,
}

pub(crate) enum Kind<'a> {
    /// No loss was chosen.
    None,
    /// A loss that knows weights of rows.
    Loss(Box<dyn Loss + 'a>),
    /// The loss of outputs and targets.
    Closure(LossClosure<'a>),
    /// The loss of model and batch.
    Step(StepClosure<'a>),
    /// Steps of several optimisers.
    Steps(StepsClosure<'a>),
}

/// What is computed for a batch.
pub(crate) struct Computed {
    /// The loss, not detached.
    pub(crate) loss: Terms,
    /// The model's outputs, where a loss compares them with targets.
    pub(crate) outputs: Option<Tensor>,
    pub(crate) logged: Vec<(String, Terms)>,
}

impl<'a> From<Kind<'a>> for Criterion<'a> {
    fn from(kind: Kind<'a>) -> Criterion<'a> {
        Criterion { kind, returned: Cell::new(None) }
    }
}

impl Criterion<'_> {
    /// Whether it is known that rows may have weights. A mean has them no more.
    pub(crate) fn knows_weights(&self) -> bool {
        matches!(self.kind, Kind::None | Kind::Loss(_)) || self.returned.get() == Some(Returned::Rows)
    }

    /// Whether the loss is one of `nn::loss`.
    pub(crate) fn is_known(&self) -> bool {
        self.settings().is_some()
    }

    /// Whether metrics can compare outputs with targets.
    pub(crate) fn has_outputs(&self) -> bool {
        !matches!(self.kind, Kind::Step(_) | Kind::Steps(_))
    }

    /// The loss for a file; none of closures.
    pub(crate) fn settings(&self) -> Option<LossSettings> {
        match &self.kind {
            Kind::Loss(loss) => loss.settings(),
            _ => None,
        }
    }

    /// Whether the step itself calls the optimisers.
    pub(crate) fn optimizes(&self) -> bool {
        matches!(self.kind, Kind::Steps(_))
    }

    /// The loss of a batch. `optimizers` are those of a step of training.
    ///
    /// # Errors
    /// If no loss was chosen, if a closure returns another shape, and the errors of the model and the loss.
    pub(crate) fn compute(
        &self,
        model: &dyn Model,
        [inputs, targets]: [&Tensor; 2],
        weights: Option<&Tensor>,
        train: bool,
        optimizers: Option<&Optimizers>,
    ) -> Result<Computed> {
        let forward = || {
            let outputs = model.forward(inputs, train)?;
            Ok::<Tensor, candle_core::Error>(if train { outputs } else { outputs.detach() })
        };
        let batch = |optimizers| Batch::new([inputs, targets], weights, train, &self.returned, optimizers);
        let (loss, outputs, logged) = match &self.kind {
            Kind::None => bail!(
                "this training has no loss; choose one with `.loss(|outputs, targets| …)` or `.criterion`, or a step with `.step` or `.steps`; a \
                 closure of a trial is not saved, so choose it again"
            ),
            Kind::Loss(loss) => {
                let outputs = forward()?;
                let (sum, divisor) = loss.terms(&outputs, targets, weights)?;
                ([sum, divisor], Some(outputs), Vec::new())
            }
            Kind::Closure(closure) => {
                let outputs = forward()?;
                (batch(None).terms(&closure(&outputs, targets)?)?, Some(outputs), Vec::new())
            }
            Kind::Step(closure) => {
                let batch = batch(None);
                let loss = batch.terms(&closure(model, &batch)?)?;
                if batch.minimized().is_ok() {
                    bail!("`.step` minimises the loss that it returns; call `batch.minimize` in `.steps` only")
                }
                (loss, None, batch.logged())
            }
            Kind::Steps(closure) => {
                let batch = batch(optimizers);
                closure(model, &batch)?;
                (batch.minimized()?, None, batch.logged())
            }
        };
        Ok(Computed { loss, outputs, logged })
    }
}
