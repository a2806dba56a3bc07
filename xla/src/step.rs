//! Compiled steps: a function of tensors that is traced once for each shape of its arguments, and then only executed.

use crate::backend::{Backend, by_result};
use crate::device::backend_of;
use crate::element::element_of;
use crate::graph::{Array as _, Node, Op, next_id};
use crate::program::{Argument, Program};
use crate::random::state;
use crate::stablehlo;
use crate::trace::Traced;
use crate::value::Value;
use crate::view::dense;
use candle_core::external::{Input, Slot};
use candle_core::op::BackpropOp;
use candle_core::{DType, Device, Error, Result, Storage, Tensor, bail};
use ferrotune_devices::pjrt::{self, Buffer, Element, LoadedExecutable};
use std::collections::HashMap;
use std::sync::{Arc, Weak};

/// Shape and type of each argument.
type Key = Vec<(Vec<usize>, DType)>;

/// A compiled step; see [`Step::new`].
pub struct Step<F> {
    device: Device,
    body: F,
    compiled: HashMap<Key, Compiled>,
}

/// A step for arguments of certain shapes.
struct Compiled {
    executable: Arc<LoadedExecutable>,
    arguments: Vec<From>,
    states: Vec<State>,
    results: Key,
    keys: u64,
}

/// Where an argument of the program comes from when the step runs.
enum From {
    /// An argument of the step.
    Given(usize),
    /// A variable that the step changes.
    State(usize),
    /// A tensor from outside that the step uses: what its storage refers to; if it is gone, what it was when the step was traced.
    Captured(Weak<Slot>, Arc<Node>),
    /// A number in a formula.
    Constant(Vec<Buffer>),
    /// A new key for random numbers.
    Key,
}

/// A variable that the step changes.
struct State {
    slot: Arc<Slot>,
    dims: Vec<usize>,
    element: Element,
}

impl<F: FnMut(&[Tensor]) -> Result<Vec<Tensor>>> Step<F> {
    /// A step on this device. On a device without a compiler (the CPU, CUDA) it calls the function each time.
    ///
    /// The function is called when the step runs for the first time with arguments of certain shapes and types, twice or three
    /// times: what candle is asked for becomes a program, and the other calls show that it does not depend on anything that
    /// changes from one call to the next in the program's own memory, such as a step counter. What changes later, such as a
    /// learning rate in Rust, is not noticed: it belongs on the device, as in ferrotune's optimisers, or among the arguments. Variables that the
    /// function changes (`Var::set`, an optimiser) stay on the device from run to run. Random numbers are new in each run.
    pub fn new(device: &Device, body: F) -> Step<F> {
        Step { device: device.clone(), body, compiled: HashMap::new() }
    }

    /// Runs the step: its variables change, and what the function returned is returned.
    ///
    /// # Errors
    /// Those of the function while it is traced; if it reads a value that it computes; if it depends on something that
    /// changes from call to call; and those of the device.
    pub fn run(&mut self, arguments: &[Tensor]) -> Result<Vec<Tensor>> {
        let device = self.device.clone();
        let Some(backend) = backend_of(&device) else { return (self.body)(arguments) };
        backend.trace.refuse("Step::run")?;
        let key = key_of(arguments);
        if let Some(stray) = arguments.iter().find(|tensor| !tensor.device().same_device(&device)) {
            bail!(
                "an argument of a step on {backend:?} is on {:?}; move it with `to_device`",
                stray.device().location()
            );
        }
        if !self.compiled.contains_key(&key) {
            let compiled = self.compile(backend, &key)?;
            self.compiled.insert(key.clone(), compiled);
        }
        self.compiled[&key].run(backend, &device, arguments)
    }

    /// The program of the step for arguments of these shapes and types, as the text of a [StableHLO] module. Runs nothing:
    /// `%tpu_check` tells from it whether the step fits on a TPU that this machine does not have.
    ///
    /// ```no_run
    /// # use candle_core::Tensor;
    /// let device = ferrotune_xla::open("xla_cpu_pjrt.so".as_ref())?;
    /// let mut step = ferrotune_xla::Step::new(&device, |args: &[Tensor]| Ok(vec![args[0].sqr()?]));
    /// std::fs::write("step.mlir", step.stablehlo(&[Tensor::arange(0f32, 8f32, &device)?])?)?;
    /// # Ok::<(), candle_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of the function while it is traced, and if the device has no compiler.
    ///
    /// [StableHLO]: https://openxla.org/stablehlo/spec
    pub fn stablehlo(&mut self, arguments: &[Tensor]) -> Result<String> {
        let device = self.device.clone();
        let Some(backend) = backend_of(&device) else {
            bail!("a step on {:?} is no program; connect a device with a compiler, such as xla:cpu", device.location())
        };
        Ok(stablehlo::text(&self.program(backend, &key_of(arguments))?.1))
    }

    fn compile(&mut self, backend: &Backend, key: &Key) -> Result<Compiled> {
        let (recorded, program) = self.program(backend, key)?;
        let executable = backend.executables().get(backend.client(), &program)?;
        recorded.compiled(backend, &program, executable)
    }

    /// Traces the step until two calls make the same program. A function may keep a tensor that it makes in its first call, so
    /// that the second one makes another program; the third one must make the same.
    fn program(&mut self, backend: &Backend, key: &Key) -> Result<(Recorded, Program)> {
        backend.compute(&[])?;
        let draws = backend.generator().draws();
        let traced = self.traced(backend, key);
        backend.generator().rewind(draws);
        traced
    }

    fn traced(&mut self, backend: &Backend, key: &Key) -> Result<(Recorded, Program)> {
        let first = self.trace(backend, key)?;
        let mut known = first.program(backend);
        for _ in 0..2 {
            let recorded = self.trace(backend, key)?;
            let program = recorded.program(backend);
            if program.is_same(&known) {
                return Ok((recorded, program));
            }
            known = program;
        }
        bail!(
            "a compiled step depends on something that changes from call to call outside of the device, such as a step counter \
             or a learning rate in Rust; use ferrotune's optimisers, which keep them on the device, or pass it as an argument"
        )
    }

    /// Calls the function with arguments whose values are not there.
    fn trace(&mut self, backend: &Backend, key: &Key) -> Result<Recorded> {
        let start = next_id();
        let given = key.iter().map(|(dims, dtype)| described(dims, *dtype)).collect::<Result<Vec<_>>>()?;
        let arguments: Vec<Tensor> = given
            .iter()
            .zip(key)
            .map(|(node, (dims, dtype))| tensor(&self.device, node, dims, *dtype))
            .collect::<Result<_>>()?;
        let running = backend.trace.begin(start)?;
        let results = (self.body)(&arguments).and_then(|results| self.results(backend, &results));
        let (traced, after) = running.end()?;
        let (nodes, results) = results?;
        // What has a value is an argument of the program; anything else would be computed in it, the same in each run.
        backend.compute(&traced.used()?)?;
        let after = after.iter().zip(&traced.changed).map(|(node, (_, before))| node.reshape(&before.dims)).collect();
        Ok(Recorded { given, traced, nodes, after, results })
    }

    /// The arrays that the function returns, with their shapes and types, while its variables have their new values.
    fn results(&self, backend: &Backend, tensors: &[Tensor]) -> Result<(Vec<Arc<Node>>, Key)> {
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
        Ok((tensors.iter().map(node).collect::<Result<_>>()?, key_of(tensors)))
    }
}

/// A step that was traced.
struct Recorded {
    given: Vec<Arc<Node>>,
    traced: Traced,
    /// What the function returned.
    nodes: Vec<Arc<Node>>,
    /// The new values of the variables.
    after: Vec<Arc<Node>>,
    results: Key,
}

impl Recorded {
    fn program(&self, backend: &Backend) -> Program {
        let results: Vec<Arc<Node>> = self.nodes.iter().chain(&self.after).cloned().collect();
        let before = self.traced.changed.iter().map(|(_, before)| before.clone());
        let donors: Vec<(Arc<Node>, usize)> = before.zip(self.nodes.len()..).collect();
        Program::new(&results, &donors, backend.replicas())
    }

    fn compiled(&self, backend: &Backend, program: &Program, executable: Arc<LoadedExecutable>) -> Result<Compiled> {
        let from = |argument: &Argument| match argument {
            Argument::Key(_) => Ok(From::Key),
            Argument::Numbers(..) => Ok(From::Constant(backend.fresh(argument)?.unwrap_or_default())),
            Argument::Node(node) => Ok(self.source(node)),
        };
        let arguments = program.arguments.iter().map(from).collect::<Result<Vec<_>>>()?;
        let state = |(slot, before): &(Arc<Slot>, Arc<Node>)| State {
            slot: slot.clone(),
            dims: before.dims.clone(),
            element: before.element,
        };
        let states = self.traced.changed.iter().map(state).collect();
        let keys = arguments.iter().filter(|from| matches!(from, From::Key)).count() as u64;
        Ok(Compiled { executable, arguments, states, results: self.results.clone(), keys })
    }

    /// Where a node's value comes from when the step runs.
    fn source(&self, node: &Arc<Node>) -> From {
        if let Some(index) = self.given.iter().position(|given| Arc::ptr_eq(given, node)) {
            return From::Given(index);
        }
        if let Some(index) = self.traced.changed.iter().position(|(_, before)| Arc::ptr_eq(before, node)) {
            return From::State(index);
        }
        From::Captured(self.traced.seen.get(&node.id).cloned().unwrap_or_default(), node.clone())
    }
}

impl Compiled {
    fn run(&self, backend: &Backend, device: &Device, arguments: &[Tensor]) -> Result<Vec<Tensor>> {
        // What can fail before the device is asked comes before the variables are given away.
        let given = arguments
            .iter()
            .map(|tensor| computed(backend, node_of(tensor)?, tensor.dims()))
            .collect::<Result<Vec<_>>>()?;
        let captured = self.arguments.iter().map(|from| self.captured(backend, from)).collect::<Result<Vec<_>>>()?;
        let keys = self.keys(backend)?;
        self.states.iter().try_for_each(|state| state.compute(backend))?;
        let taken = self.states.iter().map(State::take).collect::<Result<Vec<_>>>()?;
        let (own, lent): (Vec<_>, Vec<_>) = taken.into_iter().unzip();
        let outputs = self.launch(backend, &given, &captured, keys, own, &lent).inspect_err(|_| {
            for (state, node) in self.states.iter().zip(&lent) {
                if let Some(node) = node {
                    state.put(node.clone());
                }
            }
        })?;
        let mut outputs = outputs.into_iter();
        let results = self.results.iter().zip(outputs.by_ref());
        let results = results
            .map(|((dims, dtype), value)| tensor(device, &Node::data(value, dims, element_of(*dtype)?), dims, *dtype))
            .collect();
        for (state, value) in self.states.iter().zip(outputs) {
            state.put(Node::data(value, &state.dims, state.element));
        }
        results
    }

    fn captured(&self, backend: &Backend, from: &From) -> Result<Option<Arc<Node>>> {
        let From::Captured(slot, known) = from else { return Ok(None) };
        let node = match slot.upgrade() {
            Some(slot) => Value::node_in(&slot)?,
            None => known.clone(),
        };
        computed(backend, node, &known.dims).map(Some)
    }

    /// The keys of this run.
    fn keys(&self, backend: &Backend) -> Result<Vec<Vec<Buffer>>> {
        let first = backend.generator().advance(self.keys);
        let seed = backend.generator().seed();
        (first..first + self.keys).map(|draw| backend.upload_key(state(seed, draw))).collect()
    }

    fn launch(
        &self,
        backend: &Backend,
        given: &[Arc<Node>],
        captured: &[Option<Arc<Node>>],
        keys: Vec<Vec<Buffer>>,
        mut own: Vec<Option<Vec<Buffer>>>,
        lent: &[Option<Arc<Node>>],
    ) -> Result<Vec<Vec<Buffer>>> {
        let mut rows: Vec<Vec<pjrt::Input<'_>>> = Vec::new();
        rows.resize_with(backend.replicas(), Vec::new);
        let mut keys = keys.into_iter();
        for (from, captured) in self.arguments.iter().zip(captured) {
            match from {
                From::Given(index) => keep(&mut rows, given[*index].value()),
                From::Constant(buffers) => keep(&mut rows, Some(buffers)),
                From::Captured(..) => keep(&mut rows, captured.as_ref().and_then(|node| node.value())),
                From::Key => donate(&mut rows, keys.next().unwrap_or_default()),
                From::State(index) => match own[*index].take() {
                    Some(buffers) => donate(&mut rows, buffers),
                    None => keep(&mut rows, lent[*index].as_ref().and_then(|node| node.value())),
                },
            }
        }
        Ok(by_result(self.executable.launch(rows).map_err(Error::wrap)?.outputs))
    }
}

/// The value of a variable for one run: its buffers, whose memory becomes that of the new value, or its node, if something else
/// refers to it, such as a copy that is not computed yet.
type Taken = (Option<Vec<Buffer>>, Option<Arc<Node>>);

impl State {
    /// Makes sure that the variable has a value in the shape that the program takes.
    fn compute(&self, backend: &Backend) -> Result<()> {
        let node = Value::node_in(&self.slot)?;
        let ready = computed(backend, node.clone(), &self.dims)?;
        if !Arc::ptr_eq(&ready, &node) {
            self.put(ready);
        }
        Ok(())
    }

    fn take(&self) -> Result<Taken> {
        let nothing = Arc::new(Value::Node(Node::new(Op::Described, Vec::new(), &self.dims, self.element)));
        let value = self.slot.replace(nothing);
        let Ok(value) = Arc::downcast::<Value>(value) else { bail!("a variable of the step is of another device") };
        let node = match Arc::try_unwrap(value) {
            Ok(value) => value.into_node(),
            Err(shared) => shared.node(),
        };
        Ok(node.into_value().map_or_else(|node| (None, Some(node)), |buffers| (Some(buffers), None)))
    }

    fn put(&self, node: Arc<Node>) {
        self.slot.replace(Arc::new(Value::Node(node)));
    }
}

fn keep<'a>(rows: &mut [Vec<pjrt::Input<'a>>], buffers: Option<&'a [Buffer]>) {
    for (row, buffer) in rows.iter_mut().zip(buffers.unwrap_or_default()) {
        row.push(pjrt::Input::Keep(buffer));
    }
}

fn donate(rows: &mut [Vec<pjrt::Input<'_>>], buffers: Vec<Buffer>) {
    for (row, buffer) in rows.iter_mut().zip(buffers) {
        row.push(pjrt::Input::Donate(buffer));
    }
}

/// The node in this shape, with its value.
fn computed(backend: &Backend, node: Arc<Node>, dims: &[usize]) -> Result<Arc<Node>> {
    let node = node.reshape(dims);
    if node.value().is_none() {
        backend.compute(std::slice::from_ref(&node))?;
    }
    Ok(node)
}

fn key_of(arguments: &[Tensor]) -> Key {
    arguments.iter().map(|tensor| (tensor.dims().to_vec(), tensor.dtype())).collect()
}

fn described(dims: &[usize], dtype: DType) -> Result<Arc<Node>> {
    Ok(Node::new(Op::Described, Vec::new(), dims, element_of(dtype)?))
}

/// A tensor of its own that refers to a node.
fn tensor(device: &Device, node: &Arc<Node>, dims: &[usize], dtype: DType) -> Result<Tensor> {
    let metal = device.as_metal_device()?;
    let storage = metal.storage(Arc::new(Value::Node(node.clone())), dtype, node.count());
    Ok(Tensor::from_storage(Storage::Metal(storage), dims, BackpropOp::none(), false))
}

/// The array that a tensor shows.
fn node_of(tensor: &Tensor) -> Result<Arc<Node>> {
    let (storage, layout) = tensor.storage_and_layout();
    let Storage::Metal(storage) = &*storage else {
        bail!("a compiled step returns a tensor on {:?}; keep it on the device of the step", tensor.device().location())
    };
    dense(&Input { storage, layout })
}
