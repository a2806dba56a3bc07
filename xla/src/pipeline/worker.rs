//! One stage at work: its programs, and the inputs that it keeps for the backward pass.

use super::part::{Loss, Part};
use super::{Body, Stage};
use crate::step::{Signature, Step};
use candle_core::{DType, Device, Result, Tensor, Var, bail};
use std::collections::VecDeque;
use std::rc::Rc;

/// Asks a program for its results, for arguments of these shapes and types; none on a device without a compiler.
pub(super) type Ask<'a, 'b> = &'b mut dyn FnMut(&str, &mut Step<Body<'a>>, &Signature) -> Result<Option<Signature>>;

/// Shape and type of a tensor.
pub(super) type Kind = (Vec<usize>, DType);

pub(super) struct Worker<'a> {
    part: Rc<Part<'a>>,
    /// None on the last stage, whose backward pass begins with the forward pass.
    forward: Option<Step<Body<'a>>>,
    backward: Step<Body<'a>>,
    update: Step<Body<'a>>,
    micro_batches: usize,
    /// Inputs whose backward pass is to come, and the draw at which the random numbers of their forward pass began.
    waiting: VecDeque<(Tensor, Option<u64>)>,
}

impl<'a> Worker<'a> {
    /// The stage at this place, counted from 1. The last one has the loss. `foreign` are the variables of the others, each with its
    /// stage's place.
    pub(super) fn new(
        stage: Stage<'a>,
        place: usize,
        loss: Option<Loss<'a>>,
        foreign: Vec<(usize, Var)>,
        micro_batches: usize,
    ) -> Result<Worker<'a>> {
        let Stage { vars, layers, mut update } = stage;
        let part = Rc::new(Part::new(place, vars, layers, loss, foreign)?);
        let step = |body: Body<'a>| Step::new(part.device(), body);
        let own = || part.clone();
        let (forward, backward, updating) = (own(), own(), own());
        Ok(Worker {
            forward: part.is_inner().then(|| step(Box::new(move |arguments| forward.forward(&arguments[0])))),
            backward: step(Box::new(move |arguments| backward.backward(&arguments[0], &arguments[1]))),
            update: step(Box::new(move |losses| {
                update(&updating.sums().means(micro_batches)?)?;
                updating.sums().clear()?;
                if losses.is_empty() { Ok(Vec::new()) } else { Ok(vec![Tensor::stack(losses, 0)?.mean(0)?]) }
            })),
            part,
            micro_batches,
            waiting: VecDeque::new(),
        })
    }

    pub(super) fn device(&self) -> &Device {
        self.part.device()
    }

    /// Asks each program, in the order in which they run. Returns what the stage passes on, if it does and that is known.
    pub(super) fn visit(&mut self, input: &Kind, target: &Kind, ask: Ask<'a, '_>) -> Result<Option<Kind>> {
        let output = match &mut self.forward {
            Some(forward) => match ask("forward", forward, &vec![input.clone()])?.as_deref() {
                Some([output]) => Some(output.clone()),
                _ => return Ok(None),
            },
            None => None,
        };
        let gradient = output.as_ref().unwrap_or(target).clone();
        let results = ask("backward", &mut self.backward, &vec![input.clone(), gradient])?;
        let losses = match results.as_deref() {
            Some([loss, ..]) if output.is_none() => vec![loss.clone(); self.micro_batches],
            _ => Vec::new(),
        };
        ask("update", &mut self.update, &losses)?;
        Ok(output)
    }

    /// Keeps an input for the backward pass. Returns what the next stage is given; the last stage returns nothing.
    pub(super) fn forward(&mut self, input: Tensor) -> Result<Option<Tensor>> {
        let Some(forward) = &mut self.forward else {
            self.waiting.push_back((input, None));
            return Ok(None);
        };
        let (mut outputs, draw) = forward.run_drawing(std::slice::from_ref(&input), None)?;
        self.waiting.push_back((input, Some(draw)));
        Ok(outputs.pop())
    }

    /// The backward pass of the input that waits longest, from the gradient of its output; on the last stage from its target.
    pub(super) fn backward(&mut self, gradient: Tensor) -> Result<Passed> {
        let Some((input, draw)) = self.waiting.pop_front() else {
            bail!("a stage has no input for a backward pass; please report this")
        };
        let mut results = self.backward.run_drawing(&[input, gradient], draw)?.0.into_iter();
        let loss = if self.forward.is_none() { results.next() } else { None };
        Ok(Passed { loss, gradient: results.next() })
    }

    /// One step of the optimiser. Returns the mean of the losses, if there are any.
    pub(super) fn update(&mut self, losses: &[Tensor]) -> Result<Option<Tensor>> {
        Ok(self.update.run(losses)?.pop())
    }

    /// Forgets a step that has failed.
    pub(super) fn reset(&mut self) -> Result<()> {
        self.waiting.clear();
        self.part.reset()
    }
}

/// What a backward pass returns.
pub(super) struct Passed {
    /// On the last stage.
    pub(super) loss: Option<Tensor>,
    /// That of the input, except on the first stage.
    pub(super) gradient: Option<Tensor>,
}
