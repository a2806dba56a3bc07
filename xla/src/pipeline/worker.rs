//! The worker of one stage: its programs, and the inputs that it keeps for the backward pass.

use super::part::{Loss, Part};
use super::{Body, Stage};
use crate::step::{Signature, Step};
use candle_core::{DType, Device, Result, Tensor, Var, bail};
use std::collections::VecDeque;
use std::rc::Rc;

/// A function that is called for each program with the shapes and types of its arguments, and returns those of its results; it returns
/// none on a device without a compiler.
pub(super) type Ask<'a, 'b> = &'b mut dyn FnMut(&str, &mut Step<Body<'a>>, &Signature) -> Result<Option<Signature>>;

/// The shape and type of a tensor.
pub(super) type Kind = (Vec<usize>, DType);

pub(super) struct Worker<'a> {
    part: Rc<Part<'a>>,
    /// The program of the forward pass; none on the last stage, whose backward pass includes the forward pass.
    forward: Option<Step<Body<'a>>>,
    backward: Step<Body<'a>>,
    update: Step<Body<'a>>,
    micro_batches: usize,
    /// The inputs that wait for their backward pass, each with the draw at which the random numbers of its forward pass began.
    waiting: VecDeque<(Tensor, Option<u64>)>,
}

impl<'a> Worker<'a> {
    /// The worker of the stage with this number, from 1. The last stage has the loss. `foreign` are the variables of the other stages,
    /// each with the number of its stage.
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

    /// Calls `ask` for each program, in the order in which they run. Returns the form of the stage's output, if it has one and it is known.
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

    /// Runs the forward pass and keeps its input for the backward pass. Returns the output for the next stage; none on the last stage.
    pub(super) fn forward(&mut self, input: Tensor) -> Result<Option<Tensor>> {
        let Some(forward) = &mut self.forward else {
            self.waiting.push_back((input, None));
            return Ok(None);
        };
        let (mut outputs, draw) = forward.run_drawing(std::slice::from_ref(&input), None)?;
        self.waiting.push_back((input, Some(draw)));
        Ok(outputs.pop())
    }

    /// Runs the backward pass of the oldest waiting input, from the gradient of its output; on the last stage from its target.
    pub(super) fn backward(&mut self, gradient: Tensor) -> Result<Passed> {
        let Some((input, draw)) = self.waiting.pop_front() else {
            bail!("a stage has no input for a backward pass; please report this")
        };
        let mut results = self.backward.run_drawing(&[input, gradient], draw)?.0.into_iter();
        let loss = if self.forward.is_none() { results.next() } else { None };
        Ok(Passed { loss, gradient: results.next() })
    }

    /// Takes one step of the optimiser. Returns the mean of the losses, if there are any.
    pub(super) fn update(&mut self, losses: &[Tensor]) -> Result<Option<Tensor>> {
        Ok(self.update.run(losses)?.pop())
    }

    /// Drops the inputs and sums of a step that has failed.
    pub(super) fn reset(&mut self) -> Result<()> {
        self.waiting.clear();
        self.part.reset()
    }
}

/// The results of a backward pass.
pub(super) struct Passed {
    /// The loss, on the last stage.
    pub(super) loss: Option<Tensor>,
    /// The gradient of the input, except on the first stage.
    pub(super) gradient: Option<Tensor>,
}
