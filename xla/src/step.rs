//! Compiled steps: a function of tensors that is traced once for each shape of its arguments, and then only executed.

mod again;
mod compiled;

use crate::backend::{Backend, backend_of};
use crate::checks::{Checking, Checks};
use crate::element::{element_of, to_dtype};
use crate::first_program::instead_of_running;
use crate::graph::{Array as _, Form, Node, next_id};
use crate::program::{Argument, Numbers, Program};
use crate::random;
use crate::recent::{MOST_RECENT, Recent};
use crate::stablehlo;
use crate::trace::Traced;
use crate::value::Value;
use crate::view::{dense, node_of};
use crate::work::Executable;
use again::{Again, Variables};
use candle_core::external::{Input, Slot};
use candle_core::op::BackpropOp;
use candle_core::{DType, Device, Result, Storage, Tensor, anomaly, bail};
pub(crate) use compiled::computed;
use compiled::{Compiled, From, State};
use std::sync::{Arc, Weak};

/// The shape and type of each argument.
pub type Signature = Vec<(Vec<usize>, DType)>;

/// A function of tensors that is compiled; see [`Step::new`].
pub struct Step<F> {
    device: Device,
    body: F,
    compiled: Recent<Vec<Form>, Compiled>,
    /// The arguments for which a program was requested, in the order of the requests.
    signatures: Vec<Signature>,
    /// Whether a line says once that indexes are not checked.
    notes: bool,
}

impl<F: FnMut(&[Tensor]) -> Result<Vec<Tensor>>> Step<F> {
    /// A step on this device. On a device without a compiler (the CPU) the step calls the function each time.
    ///
    /// When the step first runs with arguments of certain shapes and types, it calls the function two or three times. The
    /// calls trace candle's operations, which become a program. The repeated calls show that the program does not depend on anything that
    /// changes from one call to the next in the program's own memory, such as a step counter. Later changes, such as that of a
    /// learning rate in Rust, have no effect: the number belongs on the device, as in ferrotune's optimisers, or among the arguments.
    /// Variables that the function changes (`Var::set`, an optimiser) stay on the device between runs. Random numbers are new in each run.
    pub fn new(device: &Device, body: F) -> Step<F> {
        Step { device: device.clone(), body, compiled: Recent::new(), signatures: Vec::new(), notes: true }
    }

    /// The step without the line about indexes that are not checked, for a caller that reads of the results whether they are numbers.
    #[must_use]
    pub fn without_notes(self) -> Step<F> {
        Step { notes: false, ..self }
    }

    /// Runs the step: changes its variables, and returns the results of the function.
    ///
    /// # Errors
    /// The errors of the function while it is traced; if the function reads a value that it computes, or depends on something that
    /// changes from call to call; and the errors of the device. If the device does not start the run, the variables are unchanged.
    pub fn run(&mut self, arguments: &[Tensor]) -> Result<Vec<Tensor>> {
        Ok(self.run_drawing(arguments, None)?.0)
    }

    /// Runs the step with the random numbers of the run that began at this draw, or with new ones. Also returns the draw at which it began.
    pub(crate) fn run_drawing(&mut self, arguments: &[Tensor], draw: Option<u64>) -> Result<(Vec<Tensor>, u64)> {
        let device = self.device.clone();
        let Some(backend) = backend_of(&device) else { return Ok(((self.body)(arguments)?, 0)) };
        backend.trace.refuse("Step::run")?;
        if let Some(stray) = arguments.iter().find(|tensor| !tensor.device().same_device(&device)) {
            bail!(
                "an argument of a step on {backend:?} is on {:?}; move it with `to_device`",
                stray.device().location()
            );
        }
        let nodes = arguments.iter().map(node_of).collect::<Result<Vec<_>>>()?;
        let compiled = self.compiled(backend, forms_of(&nodes))?;
        let draw = draw.unwrap_or_else(|| backend.generator().advance(compiled.keys));
        if !anomaly::is_on() {
            return Ok((compiled.run(backend, &device, &nodes, draw)?, draw));
        }
        let before = Variables::of(compiled)?;
        let results = compiled.run(backend, &device, &nodes, draw)?;
        let after = Variables::of(compiled)?;
        if !after.are_finite_with(backend, &results)? {
            let again = Again::begin(backend, &before, draw);
            (self.body)(arguments)?;
            drop(again);
            // The values were not finite before the step, so the step is not the cause.
            after.put_back();
        }
        Ok((results, draw))
    }

    /// Compiles the step for such arguments, unless it is compiled. Returns the shape and type of each result; none on a device
    /// without a compiler.
    pub(crate) fn prepare(&mut self, signature: &Signature) -> Result<Option<Signature>> {
        let device = self.device.clone();
        let Some(backend) = backend_of(&device) else { return Ok(None) };
        backend.trace.refuse("Step::run")?;
        signature_of_forms(&self.compiled(backend, whole(signature)?)?.results).map(Some)
    }

    /// The program of the step for arguments of these shapes and types, as the text of a [StableHLO] module. This runs nothing:
    /// `%tpu_check` finds out with this text whether the step fits on a TPU that this machine does not have.
    ///
    /// ```no_run
    /// # use candle_core::Tensor;
    /// let device = ferrotune_xla::open("libpjrt_cpu.so".as_ref())?;
    /// let mut step = ferrotune_xla::Step::new(&device, |args: &[Tensor]| Ok(vec![args[0].sqr()?]));
    /// std::fs::write("step.mlir", step.stablehlo(&[Tensor::arange(0f32, 8f32, &device)?])?)?;
    /// # Ok::<(), candle_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of the function while it is traced, and if the device has no compiler.
    ///
    /// [StableHLO]: https://openxla.org/stablehlo/spec
    pub fn stablehlo(&mut self, arguments: &[Tensor]) -> Result<String> {
        let nodes = match backend_of(&self.device) {
            Some(_) => arguments.iter().map(node_of).collect::<Result<Vec<_>>>()?,
            None => Vec::new(),
        };
        Ok(self.text(&forms_of(&nodes))?.0)
    }

    /// The text of the program like [`Step::stablehlo`], for arguments that need not exist.
    ///
    /// # Errors
    /// The errors of [`Step::stablehlo`].
    pub fn stablehlo_of(&mut self, signature: &Signature) -> Result<String> {
        Ok(self.text(&whole(signature)?)?.0)
    }

    /// The text of the program, and the shape and type of each result.
    pub(crate) fn written(&mut self, signature: &Signature) -> Result<(String, Signature)> {
        let (text, results) = self.text(&whole(signature)?)?;
        Ok((text, signature_of_forms(&results)?))
    }

    fn text(&mut self, arguments: &[Form]) -> Result<(String, Vec<Form>)> {
        let device = self.device.clone();
        let Some(backend) = backend_of(&device) else {
            bail!("a step on {:?} is no program; connect a device with a compiler, such as xla:cpu", device.location())
        };
        let (recorded, program) = self.program(backend, arguments)?;
        Ok((stablehlo::text(&program), forms_of(&recorded.nodes)))
    }

    fn compiled(&mut self, backend: &Backend, arguments: Vec<Form>) -> Result<&Compiled> {
        if self.compiled.get(&arguments).is_none() {
            let compiled = self.compile(backend, &arguments)?;
            return Ok(self.compiled.insert(arguments, compiled));
        }
        match self.compiled.get(&arguments) {
            Some(compiled) => Ok(compiled),
            None => bail!("a step has lost its program; please report this"),
        }
    }

    /// The device on which the step runs.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The arguments for which [`Step::run`] or [`Step::stablehlo`] has traced the step, even without success, in the order
    /// of the first calls; only the last 256 of them. On a device without a compiler the list is empty.
    pub fn signatures(&self) -> &[Signature] {
        &self.signatures
    }

    fn compile(&mut self, backend: &Backend, arguments: &[Form]) -> Result<Compiled> {
        backend.compute(&[])?;
        let (recorded, program) = self.program(backend, arguments)?;
        instead_of_running(|| stablehlo::text(&program))?;
        if self.notes && program.has_indexes() {
            Checking::chosen()?.note();
        }
        // The program takes the values of these nodes, and computes none of them. Other processes compute them in the same order.
        backend.compute(&recorded.used_in_order(&program))?;
        let executable = backend.executable(&program)?;
        recorded.compiled(backend, &program, executable)
    }

    /// Traces the step until two calls make the same program. A function may keep a tensor that it makes in its first call, so
    /// that the second call makes another program; the third one must make the same program as the second.
    fn program(&mut self, backend: &Backend, arguments: &[Form]) -> Result<(Recorded, Program)> {
        let signature = signature_of_forms(arguments)?;
        if !self.signatures.contains(&signature) {
            if self.signatures.len() == MOST_RECENT {
                self.signatures.remove(0);
            }
            self.signatures.push(signature);
        }
        let checks = Checking::chosen()?.of_steps();
        let mut known = self.trace(backend, arguments)?.program(backend, checks);
        for _ in 0..2 {
            let recorded = self.trace(backend, arguments)?;
            let program = recorded.program(backend, checks);
            if program.is_same(&known) {
                let recorded = recorded.in_order_of_use(backend);
                let program = recorded.program(backend, checks);
                return Ok((recorded, program));
            }
            known = program;
        }
        bail!(
            "a compiled step depends on something that changes from call to call outside of the device, such as a step counter \
             or a learning rate in Rust; use ferrotune's optimisers, which keep them on the device, or pass it as an argument"
        )
    }

    /// Calls the function with arguments that have no values.
    fn trace(&mut self, backend: &Backend, arguments: &[Form]) -> Result<Recorded> {
        let start = next_id();
        let given: Vec<Arc<Node>> = arguments.iter().map(Node::described).collect();
        let arguments = given.iter().map(|node| tensor(&self.device, node)).collect::<Result<Vec<_>>>()?;
        let running = backend.trace.begin(start)?;
        let results = (self.body)(&arguments).and_then(|results| self.results(backend, &results));
        let (traced, after) = running.end()?;
        let nodes = results?;
        let used = traced.used()?;
        // A variable keeps its sharding, so that its new value fits the memory of the old one.
        let after = after.iter().zip(&traced.changed);
        let after = after.map(|(node, (_, old))| node.reshape(&old.dims).spread_as(old.sharding.as_ref())).collect();
        Ok(Recorded { given, traced, used, nodes, after })
    }

    /// The arrays that the function returns, while its variables have their new values.
    fn results(&self, backend: &Backend, tensors: &[Tensor]) -> Result<Vec<Arc<Node>>> {
        if let Some(stray) = tensors.iter().find(|tensor| !tensor.device().same_device(&self.device)) {
            let place = stray.device().location();
            bail!("a compiled step returns a tensor on {place:?}; keep it on the device of the step");
        }
        let node = |tensor: &Tensor| {
            let (storage, layout) = tensor.storage_and_layout();
            let Storage::Metal(storage) = &*storage else { bail!("a tensor of another device; please report this") };
            backend.trace.saw(&[Input { storage, layout }])?;
            dense(&Input { storage, layout })
        };
        tensors.iter().map(node).collect()
    }
}

/// The record of a traced step.
struct Recorded {
    given: Vec<Arc<Node>>,
    traced: Traced,
    /// The arrays from outside the function that the program takes, computed or not.
    used: Vec<Arc<Node>>,
    /// The arrays that the function returned.
    nodes: Vec<Arc<Node>>,
    /// The new values of the variables.
    after: Vec<Arc<Node>>,
}

impl Recorded {
    fn program(&self, backend: &Backend, checks: Checks) -> Program {
        let results: Vec<Arc<Node>> = self.nodes.iter().chain(&self.after).cloned().collect();
        let before = self.traced.changed.iter().map(|(_, before)| before.clone());
        let donors: Vec<(Arc<Node>, usize)> = before.zip(self.nodes.len()..).collect();
        Program::new(&results, &donors, &self.used, backend.cores(), checks, Numbers::Shared)
    }

    /// The arrays from outside the function: those that the program takes, in its order, and then the others.
    fn used_in_order(&self, program: &Program) -> Vec<Arc<Node>> {
        let places = program.places();
        let mut used = self.used.clone();
        used.sort_by_key(|node| (places.get(&node.id).copied().unwrap_or(usize::MAX), node.id));
        used
    }

    /// The record with its variables in the order in which the results need them, so that the program does not depend on the order in
    /// which an optimiser was given its variables. The order of `VarMap::all_vars` differs in each process, and executables are kept for
    /// later processes.
    fn in_order_of_use(mut self, backend: &Backend) -> Recorded {
        let mut states: Vec<_> = std::mem::take(&mut self.traced.changed).into_iter().zip(self.after).collect();
        states.sort_by_key(|((_, before), _)| before.id);
        // The first round finds the variables in the loss; the second round finds moments in the new values of the variables.
        for _ in 0..2 {
            let results: Vec<Arc<Node>> =
                self.nodes.iter().chain(states.iter().map(|(_, after)| after)).cloned().collect();
            let places =
                Program::new(&results, &[], &self.used, backend.cores(), Checks::LeftOut, Numbers::Shared).places();
            states.sort_by_key(|((_, before), _)| places.get(&before.id).copied());
        }
        (self.traced.changed, self.after) = states.into_iter().unzip();
        self
    }

    fn compiled(&self, backend: &Backend, program: &Program, executable: Arc<Executable>) -> Result<Compiled> {
        let from = |argument: &Argument| match argument {
            Argument::Key(node) => Ok(From::Key(random::place_of(&node.numbers))),
            Argument::Numbers(..) | Argument::Starts(_) => {
                Ok(From::Constant(backend.fresh(argument)?.unwrap_or_default()))
            }
            Argument::Node(node) => Ok(self.source(node)),
        };
        let arguments = program.arguments.iter().map(from).collect::<Result<Vec<_>>>()?;
        let state = |(slot, before): &(Arc<Slot>, Arc<Node>)| State { slot: slot.clone(), form: before.form() };
        let states = self.traced.changed.iter().map(state).collect();
        let keys = self.traced.keys;
        let (results, checks) = (forms_of(&self.nodes), program.checks.clone());
        Ok(Compiled { executable, arguments, states, results, checks, keys })
    }

    /// The source of a node's value when the step runs.
    fn source(&self, node: &Arc<Node>) -> From {
        if let Some(index) = self.given.iter().position(|given| Arc::ptr_eq(given, node)) {
            return From::Given(index);
        }
        if let Some(index) = self.traced.changed.iter().position(|(_, before)| Arc::ptr_eq(before, node)) {
            return From::State(index);
        }
        match self.traced.seen.get(&node.id).and_then(Weak::upgrade) {
            Some(slot) => From::Captured(slot, node.form()),
            None => From::Kept(node.clone()),
        }
    }
}

pub(crate) fn signature_of(arguments: &[Tensor]) -> Signature {
    arguments.iter().map(|tensor| (tensor.dims().to_vec(), tensor.dtype())).collect()
}

fn signature_of_forms(forms: &[Form]) -> Result<Signature> {
    forms.iter().map(|form| Ok((form.dims.clone(), to_dtype(form.element)?))).collect()
}

fn forms_of(nodes: &[Arc<Node>]) -> Vec<Form> {
    nodes.iter().map(|node| node.form()).collect()
}

/// The forms of arguments of these shapes and types, which each core has as a whole.
fn whole(signature: &Signature) -> Result<Vec<Form>> {
    let form = |(dims, dtype): &(Vec<usize>, DType)| {
        Ok(Form { dims: dims.clone(), element: element_of(*dtype)?, sharding: None })
    };
    signature.iter().map(form).collect()
}

/// A new tensor that refers to a node.
pub(crate) fn tensor(device: &Device, node: &Arc<Node>) -> Result<Tensor> {
    let metal = device.as_metal_device()?;
    let storage = metal.storage(Arc::new(Value::Node(node.clone())), to_dtype(node.element)?, node.count());
    Ok(Tensor::from_storage(Storage::Metal(storage), node.dims.as_slice(), BackpropOp::none(), false))
}
