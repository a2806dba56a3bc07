//! The backend of candle that records operations as a graph, and computes a value when it is read.

mod compute;

use crate::element::element_of;
use crate::executables::Executables;
use crate::graph::{Node, Op, next_id};
use crate::literal::{bytes_of, values_of};
use crate::lower;
use crate::mesh::Cores;
use crate::program::{Argument, Program};
use crate::random::{Generator, key_of};
use crate::trace::Trace;
use crate::traffic::Traffic;
use crate::value::Value;
use crate::work::Executable;
use candle_core::external::{self, Input, Slot};
use candle_core::{CpuStorage, DType, Device, Error, Result, Shape, bail};
pub(crate) use compute::{by_result, launch_or_return};
use ferrotune_devices::pjrt::Element;
use ferrotune_devices::runtime::{self, Buffer, Client, Transfer};
use ferrotune_profile::{self as profile, Part};
use std::any::Any;
use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The greatest depth of a node's graph. A deeper node is computed at once, so that the graph of a loop that carries a tensor
/// from step to step does not grow without limit.
const MOST_DEPTH: usize = 10_000;

/// The length of the list of all values from which on dropped values are removed, once the list has also doubled since the last removal.
const FEWEST_LIVE: usize = 4096;

/// A storage that refers to another value since the last computation.
pub(crate) struct Changed {
    slot: Weak<Slot>,
    /// Whether it is new, and holds a copy of other values, as after `contiguous`.
    is_copy: bool,
}

/// A PJRT device as a backend of candle ([`external::Backend`]).
pub struct Backend {
    name: String,
    client: Client,
    /// The devices of this process, in the order of replicas or of the mesh.
    devices: Vec<runtime::Device>,
    /// The number of devices of other processes that compute together with those of this process.
    elsewhere: usize,
    cores: Cores,
    generator: Generator,
    executables: Executables,
    /// Storages that refer to another value since the last computation.
    changed: Mutex<Vec<Changed>>,
    /// All values that storages may refer to, and the number of values that remained after the last removal of dropped ones.
    live: Mutex<(Vec<Weak<Value>>, usize)>,
    pub(crate) trace: Trace,
    traffic: Traffic,
}

impl Backend {
    /// A backend on these devices of an open plugin and so many devices of other processes. They may be fewer than `cores` only if no
    /// program is run. `name` is the device's name in messages.
    pub(crate) fn new(
        name: String,
        client: Client,
        (devices, elsewhere): (Vec<runtime::Device>, usize),
        cores: Cores,
        executables: Executables,
        generator: Generator,
    ) -> Backend {
        Backend {
            name,
            client,
            devices,
            elsewhere,
            cores,
            generator,
            executables,
            changed: Mutex::default(),
            live: Mutex::default(),
            trace: Trace::default(),
            traffic: Traffic::default(),
        }
    }

    /// The backends of the plugin's other cores, each with as many cores as this one; none if several processes compute together.
    pub(crate) fn others(&self) -> Result<Vec<Backend>> {
        if self.elsewhere > 0 {
            return Ok(Vec::new());
        }
        let (all, own) = (self.client.devices().map_err(Error::wrap)?, numbers_of(&self.devices)?);
        let numbered = numbers_of(&all)?.into_iter().zip(all).filter(|(number, _)| !own.contains(number));
        let (numbers, others): (Vec<i32>, Vec<runtime::Device>) = numbered.unzip();
        let group = |(numbers, devices): (&[i32], &[runtime::Device])| {
            let name = numbered_name(&self.name, numbers[0]);
            let executables = self.executables.on(numbers.to_vec());
            let generator = Generator::new(numbers);
            Backend::new(name, self.client.clone(), (devices.to_vec(), 0), self.cores.clone(), executables, generator)
        };
        let count = self.cores.count();
        Ok(numbers.chunks_exact(count).zip(others.chunks_exact(count)).map(group).collect())
    }

    /// Copies an array, whole or in parts, to the devices of this backend. Starts the copies and does not wait for them.
    pub(crate) fn copies(&self, buffers: &[Buffer]) -> Result<Vec<Buffer>> {
        if buffers.len() != self.devices.len() {
            let (from, to) = (buffers.len(), self.devices.len());
            bail!("an array on {from} devices cannot go to {self:?}, which has {to}");
        }
        let copies = buffers.iter().zip(&self.devices).map(|(buffer, device)| buffer.copy_to(device));
        copies.map(|copy| copy.map_err(Error::wrap)).collect()
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) fn generator(&self) -> &Generator {
        &self.generator
    }

    /// The executable of a program, compiled at most once.
    pub(crate) fn executable(&self, program: &Program) -> Result<Arc<Executable>> {
        self.executables.get(&self.client, program)
    }

    pub(crate) fn cores(&self) -> &Cores {
        &self.cores
    }

    /// The number of the cores that are devices of this process.
    pub(crate) fn here(&self) -> usize {
        self.devices.len()
    }

    fn is_complete(&self) -> bool {
        self.devices.len() + self.elsewhere == self.cores.count()
    }

    /// The copies between the host and this device.
    pub fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// The number of programs that the plugin has compiled since the device was opened.
    pub fn compilations(&self) -> u64 {
        self.executables.compilations()
    }

    /// Lines about programs whose compilation has taken much longer than their runs would take on the CPU; none on XLA:CPU.
    pub fn hints(&self) -> Vec<String> {
        const MOST: usize = 3;
        let is_cpu = matches!(self.client.platform().as_deref(), Ok("cpu"));
        if is_cpu { Vec::new() } else { self.executables.hints(MOST) }
    }

    /// Copies an array to each device of this process.
    fn upload_to_all(&self, element: Element, dims: &[i64], bytes: &[u8]) -> Result<Vec<Buffer>> {
        self.client.upload_to_all(element, dims, bytes, &self.devices).map_err(Error::wrap)
    }

    /// Uploads a key for random numbers.
    pub(crate) fn upload_key(&self, key: [u64; 2]) -> Result<Vec<Buffer>> {
        self.upload_to_all(Element::U64, &[2], bytemuck::cast_slice(&key))
    }

    /// Uploads an argument that is new in each run; none for a node, which has its own value.
    pub(crate) fn fresh(&self, argument: &Argument) -> Result<Option<Vec<Buffer>>> {
        let list = |element: Element, bytes: &[u8]| {
            let count = i64::try_from(bytes.len() / element.bytes()).map_err(Error::wrap)?;
            self.upload_to_all(element, &[count], bytes).map(Some)
        };
        match argument {
            Argument::Node(_) => Ok(None),
            Argument::Key(node) => self.upload_key(key_of(&node.numbers)).map(Some),
            Argument::Numbers(numbers, Element::F64) => list(Element::F64, bytemuck::cast_slice(numbers)),
            Argument::Numbers(numbers, _) => {
                let singles: Vec<f32> = numbers.iter().map(|number| *number as f32).collect();
                list(Element::F32, bytemuck::cast_slice(&singles))
            }
            Argument::Starts(starts) => list(Element::S32, bytemuck::cast_slice(starts)),
        }
    }

    fn changed(&self) -> MutexGuard<'_, Vec<Changed>> {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a new value. `first` is the number of the first node that was made for it.
    fn noted(&self, value: Value, first: u64) -> Result<external::Value> {
        let value = Arc::new(value.of_its_own(first));
        if !self.trace.is_running() {
            if let Value::Node(node) = &*value
                && node.depth > MOST_DEPTH
            {
                self.compute(std::slice::from_ref(node))?;
            }
            if let Value::Node(node) = &*value
                && is_of_uploaded(node)
                && self.is_complete()
            {
                self.compute_only(std::slice::from_ref(node), None)?;
            }
            self.keep_watch(&value);
        }
        Ok(value)
    }

    fn keep_watch(&self, value: &Arc<Value>) {
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        if live.0.len() >= FEWEST_LIVE.max(2 * live.1) {
            live.0.retain(|value| value.strong_count() > 0);
            live.1 = live.0.len();
        }
        live.0.push(Arc::downgrade(value));
    }

    /// The arrays that a storage refers to and that are not computed yet.
    fn pending(&self) -> Vec<Arc<Node>> {
        let live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        let nodes = live.0.iter().filter_map(Weak::upgrade).map(|value| value.node());
        nodes.filter(|node| node.value().is_none()).collect()
    }
}

/// The backend of a device that this crate has made.
pub fn backend_of(device: &Device) -> Option<&Backend> {
    let backend: &dyn Any = device.as_external()?.as_ref();
    backend.downcast_ref()
}

/// The numbers by which a program identifies these devices.
pub(crate) fn numbers_of(devices: &[runtime::Device]) -> Result<Vec<i32>> {
    devices.iter().map(|device| Ok(device.description().map_err(Error::wrap)?.id)).collect()
}

/// The computed node with the same elements in the same order, if this one only has another shape; otherwise the node itself.
fn computed_before(node: Arc<Node>) -> Arc<Node> {
    let mut before = node.clone();
    while before.value().is_none() && before.op == Op::Reshape {
        let Some(input) = before.inputs().first().cloned() else { break };
        before = input;
    }
    if before.value().is_some() { before } else { node }
}

/// Whether the node only spreads an uploaded array, which each core has as a whole until the node is computed.
fn is_of_uploaded(node: &Node) -> bool {
    let mut inputs = if matches!(node.op, Op::Sharding) { node.inputs() } else { Vec::new() };
    while let [input] = inputs.as_slice() {
        if input.value().is_some() {
            return true;
        }
        inputs = if input.op == Op::Reshape { input.inputs() } else { Vec::new() };
    }
    false
}

/// The name of another device of the plugin that has the device `name`: `cuda:1` beside `cuda`, and `cuda` beside `cuda:1`.
fn numbered_name(name: &str, number: i32) -> String {
    let plugin = name.rsplit_once(':').filter(|(_, number)| number.parse::<u32>().is_ok());
    let plugin = plugin.map_or(name, |(plugin, _)| plugin);
    if number == 0 { plugin.to_owned() } else { format!("{plugin}:{number}") }
}

impl fmt::Debug for Backend {
    /// Writes the device's name.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.name)
    }
}

impl external::Backend for Backend {
    fn apply(
        &self,
        kernel: external::Op,
        inputs: &[Input<'_>],
        shape: &Shape,
        dtype: DType,
    ) -> Result<external::Value> {
        self.trace.saw(inputs)?;
        let first = next_id();
        let key = || match self.trace.next_key() {
            Some(before) => self.generator.traced_key(before),
            None => self.generator.key(),
        };
        self.noted(lower::apply(&key, kernel, inputs, shape, dtype)?, first)
    }

    fn custom(&self, name: &str, attributes: &[f64], inputs: &[Input<'_>]) -> Result<(external::Value, Shape, DType)> {
        self.trace.saw(inputs)?;
        let first = next_id();
        let (value, shape, dtype) = lower::custom(name, attributes, inputs, self.cores.replicas())?;
        Ok((self.noted(value, first)?, shape, dtype))
    }

    fn upload(&self, values: &CpuStorage, shape: &Shape) -> Result<external::Value> {
        let (element, bytes) = bytes_of(values)?;
        let node = match (shape.elem_count(), number_of(values)) {
            // The number is an argument of the program, so that another number needs no other program.
            (1, Some(number)) => Node::number(number, &[1], element),
            _ => {
                let _copying = profile::span(Part::Copy);
                self.traffic.to_device(bytes.len());
                let hash = if self.trace.is_running() { vec![hash_of(bytes)] } else { Vec::new() };
                let dims =
                    shape.dims().iter().map(|dim| i64::try_from(*dim)).collect::<std::result::Result<Vec<_>, _>>();
                let dims = dims.map_err(Error::wrap)?;
                Node::hashed_data(self.upload_to_all(element, &dims, bytes)?, shape.dims(), element, hash)
            }
        };
        self.noted(Value::Node(node), 0)
    }

    fn download(&self, value: &external::Value, dtype: DType) -> Result<CpuStorage> {
        let _reading = profile::span(Part::ReadBack);
        let node = computed_before(Value::of(value)?.node()).spread_as(None);
        self.trace.refuse_read(&node)?;
        let read = self.compute_and_read(std::slice::from_ref(&node), Some(&node))?;
        node.sound()?;
        let Some([buffer, ..]) = node.value() else { bail!("{self:?} has computed nothing; please report this") };
        let again = || buffer.download().and_then(Transfer::wait).map_err(Error::wrap);
        let literal = read.map_or_else(again, Ok)?;
        self.traffic.to_host(&node.dims, element_of(dtype)?, literal.bytes().len());
        values_of(&literal, dtype)
    }

    fn stored(&self, slot: &Arc<Slot>) {
        // Only values of this backend are stored on its device.
        if let Ok(value) = Value::of(&slot.value()) {
            value.set_storage(slot);
        }
    }

    fn assigned(&self, slot: &Arc<Slot>, before: &external::Value) {
        self.stored(slot);
        if !self.trace.assigned(slot, before) {
            // candle makes a storage without elements for a copy.
            let is_copy = Value::of(before).is_ok_and(Value::is_uninit);
            self.changed().push(Changed { slot: Arc::downgrade(slot), is_copy });
        }
    }

    fn set_seed(&self, seed: u64) -> Result<()> {
        self.trace.refuse("set_seed")?;
        self.generator.set_seed(seed);
        Ok(())
    }

    fn seed(&self) -> u64 {
        self.generator.seed()
    }

    /// Cores of a mesh and devices of programs that are not run have arrays for which no copy from the host is needed.
    fn draws_variables_on_host(&self) -> bool {
        !self.trace.is_running() && self.is_complete() && self.cores.count() == 1
    }

    fn synchronize(&self) -> Result<()> {
        self.trace.refuse("synchronize")?;
        let pending = self.pending();
        self.compute(&pending)?;
        pending.iter().try_for_each(|node| node.sound())
    }
}

/// A hash of bytes, as a number.
fn hash_of(bytes: &[u8]) -> f64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    f64::from_bits(hasher.finish())
}

/// The floating-point number of an array of one element.
fn number_of(values: &CpuStorage) -> Option<f64> {
    match values {
        CpuStorage::BF16(v) => v.first().map(|number| number.to_f64()),
        CpuStorage::F16(v) => v.first().map(|number| number.to_f64()),
        CpuStorage::F32(v) => v.first().map(|number| f64::from(*number)),
        CpuStorage::F64(v) => v.first().copied(),
        _ => None,
    }
}
