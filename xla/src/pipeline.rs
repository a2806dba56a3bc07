//! Pipeline parallelism: the layers of a model are divided into stages, each on a device of its own, and the rows of a batch into
//! micro-batches, so that the stages work on different micro-batches at the same time.
//!
//! A pipeline divides no model by itself, and moves no variable: a stage is on the device of its variables.

mod part;
mod schedule;
mod worker;

use crate::backend::backend_of;
use crate::graph::Node;
use crate::step::{self, Signature, Step, computed, signature_of};
use crate::view::node_of;
use candle_core::backprop::GradStore;
use candle_core::{Device, Result, Tensor, Var, bail};
use schedule::{Pass, schedule};
use std::collections::{HashMap, VecDeque};
use worker::{Ask, Kind, Worker};

type Body<'a> = Box<dyn FnMut(&[Tensor]) -> Result<Vec<Tensor>> + 'a>;
type Layers<'a> = Box<dyn Fn(&Tensor) -> Result<Tensor> + 'a>;
type Update<'a> = Box<dyn FnMut(&GradStore) -> Result<()> + 'a>;

/// A stage: some consecutive layers of a model.
pub struct Stage<'a> {
    vars: Vec<Var>,
    layers: Layers<'a>,
    update: Update<'a>,
}

impl<'a> Stage<'a> {
    /// A stage on the device of its variables. `layers` takes the output of the previous stage, or a micro-batch, on this device.
    /// `update` takes the mean gradients of the variables over the batch, and changes the variables: a step of an optimiser for `vars`.
    ///
    /// On a device with a compiler, `layers` is called once more in the backward pass, so that its results need not be kept
    /// (rematerialisation). Its random numbers are the same in both calls.
    pub fn new(
        vars: Vec<Var>,
        layers: impl Fn(&Tensor) -> Result<Tensor> + 'a,
        update: impl FnMut(&GradStore) -> Result<()> + 'a,
    ) -> Stage<'a> {
        Stage { vars, layers: Box::new(layers), update: Box::new(update) }
    }
}

/// A model that is divided into stages.
///
/// ```
/// use candle_core::{DType, Device, Tensor, Var};
/// use candle_nn::{Optimizer as _, SGD, loss::mse};
/// use ferrotune_xla::{Pipeline, Stage, cores};
///
/// let cores = cores(&Device::Cpu)?;                     // or of a TPU: one device for each core
/// let mut stages = Vec::new();
/// for index in 0..2 {
///     let device = &cores[index % cores.len()];
///     let weight = Var::ones((4, 4), DType::F32, device)?;
///     let mut optimiser = SGD::new(vec![weight.clone()], 0.01)?;
///     let layers = { let weight = weight.clone(); move |x: &Tensor| x.matmul(&weight) };
///     stages.push(Stage::new(vec![weight], layers, move |gradients| optimiser.step(gradients)));
/// }
/// let mut pipeline = Pipeline::new(stages, |output, target| mse(output, target), 2)?;
/// let (x, y) = (Tensor::ones((8, 4), DType::F32, &cores[0])?, Tensor::ones((8, 4), DType::F32, cores.last().unwrap())?);
/// let first = pipeline.run(&x, &y)?.to_scalar::<f32>()?;
/// assert_eq!(first, 225.0);
/// assert!(pipeline.run(&x, &y)?.to_scalar::<f32>()? < first);
/// # Ok::<(), candle_core::Error>(())
/// ```
pub struct Pipeline<'a> {
    workers: Vec<Worker<'a>>,
    /// The programs that divide the inputs and the targets into micro-batches.
    dividers: [Step<Body<'a>>; 2],
    micro_batches: usize,
    /// All passes of a step, in their order.
    passes: Vec<(usize, Pass)>,
    /// The shapes and types for which all programs are compiled.
    prepared: Option<Signature>,
    /// Whether a step has begun and has not ended, so that the pipeline cannot be used.
    is_torn: bool,
}

impl<'a> Pipeline<'a> {
    /// A pipeline of these stages, in the order of the model. `loss` takes the output of the last stage and the target, and returns a
    /// number: the mean over the rows of the micro-batch. Stages may share a device, and a pipeline of one stage accumulates
    /// gradients over micro-batches.
    ///
    /// # Errors
    /// If there are no stages or no micro-batches, a stage has no variables or has them on several devices, or two stages have the
    /// same variable. If a stage uses a variable of another stage, [`Pipeline::run`] returns an error.
    pub fn new(
        stages: Vec<Stage<'a>>,
        loss: impl Fn(&Tensor, &Tensor) -> Result<Tensor> + 'a,
        micro_batches: usize,
    ) -> Result<Pipeline<'a>> {
        if stages.is_empty() || micro_batches == 0 {
            bail!("a pipeline of {} stages and {micro_batches} micro-batches; it needs one of each", stages.len());
        }
        let own =
            |(place, stage): (usize, &Stage<'a>)| stage.vars.iter().map(move |var| (place, var.clone())).collect();
        let owned: Vec<Vec<(usize, Var)>> = (1..).zip(&stages).map(own).collect();
        let owned = owned.concat();
        refuse_shared(&owned)?;
        let count = stages.len();
        let mut loss: Option<part::Loss<'a>> = Some(Box::new(loss));
        let mut workers = Vec::new();
        for (index, stage) in stages.into_iter().enumerate() {
            let loss = if index + 1 == count { loss.take() } else { None };
            let foreign = owned.iter().filter(|(place, _)| *place != index + 1).cloned().collect();
            workers.push(Worker::new(stage, index + 1, loss, foreign, micro_batches)?);
        }
        let dividers = [0, count - 1].map(|index| divider(workers[index].device(), micro_batches));
        let passes = schedule(count, micro_batches);
        Ok(Pipeline { workers, dividers, micro_batches, passes, prepared: None, is_torn: false })
    }

    /// Takes one step of training. `x` is the batch, on the device of the first stage, and `y` the targets of its rows, on the device of
    /// the last stage. Returns the mean of the losses of the micro-batches, on the device of the last stage.
    ///
    /// The variables of all stages then have the values that one device gives them for the whole batch, as long as the layers treat
    /// each row by itself; a batch norm, for one, has the mean of its micro-batch. Between cores of one plugin this call does not wait
    /// for a device: it starts all programs, and reading the loss waits for their end.
    ///
    /// # Errors
    /// Before anything runs: if the rows cannot be divided into micro-batches, a tensor is on another device, and on devices with a
    /// compiler the errors of [`Step::run`], of the layers and of the loss. Later: the errors of the devices. Some stages may then have
    /// taken the step already, so load a checkpoint.
    pub fn run(&mut self, x: &Tensor, y: &Tensor) -> Result<Tensor> {
        self.prepare(x, y)?;
        if std::mem::replace(&mut self.is_torn, true) {
            self.workers.iter_mut().try_for_each(Worker::reset)?;
        }
        let losses = self.pass(x, y)?;
        let mut mean = None;
        let last = self.workers.len() - 1;
        for (index, worker) in self.workers.iter_mut().enumerate() {
            mean = worker.update(if index == last { &losses } else { &[] })?;
        }
        self.is_torn = false;
        match mean {
            Some(mean) => Ok(mean),
            None => bail!("the last stage has returned no loss; please report this"),
        }
    }

    /// The programs of all stages in the form of [`Step::stablehlo`], each with its name, such as `stage_1_forward`; the last stage has
    /// no program for the forward pass alone. Each program is for one core. This runs nothing.
    ///
    /// # Errors
    /// The errors of [`Pipeline::run`] before anything runs, and if a device has no compiler.
    pub fn stablehlo(&mut self, x: &Tensor, y: &Tensor) -> Result<Vec<(String, String)>> {
        let mut programs = Vec::new();
        self.visit(x, y, &mut |name, step, signature| {
            let (text, results) = step.written(signature)?;
            programs.push((name.to_owned(), text));
            Ok(Some(results))
        })?;
        Ok(programs)
    }

    /// Compiles the programs for such tensors, unless they are compiled.
    fn prepare(&mut self, x: &Tensor, y: &Tensor) -> Result<()> {
        let signature = signature_of(&[x.clone(), y.clone()]);
        for (name, tensor, worker) in [("input", x, self.workers.first()), ("target", y, self.workers.last())] {
            let Some(worker) = worker else { continue };
            if !tensor.device().same_device(worker.device()) {
                let (here, there) = (tensor.device().location(), worker.device().location());
                bail!("the {name} of the pipeline is on {here:?} and its stage on {there:?}; move it with `to_device`");
            }
        }
        if self.prepared.as_ref() != Some(&signature) {
            self.visit(x, y, &mut |_, step, signature| step.prepare(signature))?;
            self.prepared = Some(signature);
        }
        Ok(())
    }

    /// Calls `ask` for all programs, in the order of the stages, as far as their arguments are known before they run.
    fn visit(&mut self, x: &Tensor, y: &Tensor, ask: Ask<'a, '_>) -> Result<()> {
        let (mut input, target) = (self.divided(x)?, self.divided(y)?);
        if x.dims()[0] != y.dims()[0] {
            bail!("the pipeline is given {} rows and {} targets", x.dims()[0], y.dims()[0]);
        }
        for (index, worker) in self.workers.iter_mut().enumerate() {
            let mut named = |pass: &str, step: &mut Step<Body<'a>>, signature: &Signature| {
                ask(&format!("stage_{}_{pass}", index + 1), step, signature)
            };
            let Some(output) = worker.visit(&input, &target, &mut named)? else { break };
            input = output;
        }
        Ok(())
    }

    /// The shape and type of a micro-batch.
    fn divided(&self, batch: &Tensor) -> Result<Kind> {
        match batch.dims() {
            [rows, others @ ..] if *rows > 0 && rows % self.micro_batches == 0 => {
                Ok(([&[rows / self.micro_batches], others].concat(), batch.dtype()))
            }
            dims => bail!(
                "a batch of shape {dims:?} cannot be divided into {} micro-batches; make its rows a multiple of that",
                self.micro_batches
            ),
        }
    }

    /// Runs the forward and backward passes of all micro-batches, and returns their losses.
    fn pass(&mut self, x: &Tensor, y: &Tensor) -> Result<Vec<Tensor>> {
        let [inputs, targets] = &mut self.dividers;
        let (inputs, targets) = (inputs.run(std::slice::from_ref(x))?, targets.run(std::slice::from_ref(y))?);
        let last = self.workers.len() - 1;
        let mut mail = Mail::default();
        mail.insert((0, Pass::Forward), inputs.into());
        mail.insert((last, Pass::Backward), targets.into());
        let mut losses = Vec::new();
        for (stage, pass) in &self.passes {
            match pass {
                Pass::Forward => {
                    let input = taken(&mut mail, *stage, Pass::Forward)?;
                    if let Some(output) = self.workers[*stage].forward(input)? {
                        let output = sent(&output, self.workers[stage + 1].device())?;
                        mail.entry((stage + 1, Pass::Forward)).or_default().push_back(output);
                    }
                }
                Pass::Backward => {
                    if *stage == last {
                        let input = taken(&mut mail, last, Pass::Forward)?;
                        self.workers[last].forward(input)?;
                    }
                    let gradient = taken(&mut mail, *stage, Pass::Backward)?;
                    let passed = self.workers[*stage].backward(gradient)?;
                    losses.extend(passed.loss);
                    if let Some(gradient) = passed.gradient {
                        let gradient = sent(&gradient, self.workers[stage - 1].device())?;
                        mail.entry((stage - 1, Pass::Backward)).or_default().push_back(gradient);
                    }
                }
            }
        }
        Ok(losses)
    }
}

/// The tensors that have arrived at a stage for its next passes, in the order of the micro-batches.
type Mail = HashMap<(usize, Pass), VecDeque<Tensor>>;

fn taken(mail: &mut Mail, stage: usize, pass: Pass) -> Result<Tensor> {
    match mail.get_mut(&(stage, pass)).and_then(VecDeque::pop_front) {
        Some(tensor) => Ok(tensor),
        None => bail!("a stage of the pipeline works before the others; please report this"),
    }
}

/// A step that divides a batch into the rows of each micro-batch.
fn divider<'a>(device: &Device, micro_batches: usize) -> Step<Body<'a>> {
    let divide = move |arguments: &[Tensor]| -> Result<Vec<Tensor>> {
        let rows = arguments[0].dim(0)? / micro_batches;
        (0..micro_batches).map(|index| arguments[0].narrow(0, index * rows, rows)).collect()
    };
    Step::new(device, Box::new(divide))
}

/// Refuses a variable that belongs to two stages: each stage has its own optimiser, so the variable would get two steps by half of its
/// gradient. `owned` are the variables of all stages, each with the index of its stage.
fn refuse_shared(owned: &[(usize, Var)]) -> Result<()> {
    let mut owners = HashMap::new();
    for (place, var) in owned {
        if let Some(owner) = owners.insert(var.id(), place)
            && owner != place
        {
            bail!("stages {owner} and {place} of the pipeline have the same variable; give it to one");
        }
    }
    Ok(())
}

/// A copy of the tensor on another device, without its history. Between cores of one plugin the copy is started without a wait;
/// between other devices the array goes through the host.
fn sent(tensor: &Tensor, device: &Device) -> Result<Tensor> {
    if tensor.device().same_device(device) {
        return Ok(tensor.detach());
    }
    match (backend_of(tensor.device()), backend_of(device)) {
        (Some(from), Some(to)) if from.client().is_same(to.client()) && from.cores() == to.cores() => {
            let node = node_of(tensor)?;
            let node = computed(from, &node, &node.form())?;
            let copies = to.copies(node.value().unwrap_or_default())?;
            step::tensor(device, &Node::data(copies, &node.form()))
        }
        _ => tensor.detach().to_device(device),
    }
}
