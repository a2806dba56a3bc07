//! Compiled programs: how they are compiled and loaded, the memory that they need, and their runs.
#![expect(unsafe_code, reason = "calls the plugin")]

use super::abi::{Arguments, ClientCompile, CompiledMemoryStats, CountedAttributes, Deserialize, Execute};
use super::abi::{ExecuteOptions, Function, OutputDims, OutputTypes, Pointer, Serialize};
use super::api::slice_of;
use super::buffer::Buffer;
use super::client::{Client, Device};
use super::compile_options::CompileOptions;
use super::error::PjrtError;
use super::event::{Ends, Event};
use super::literal::{Element, byte_count};
use super::named::{self, Named};
use super::object::Object;
use super::program::MlirProgram;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A compiled program that need not be on a device.
#[derive(Debug)]
pub struct Executable {
    object: Object,
}

/// The memory that a program needs on each device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct MemoryUse {
    /// Bytes of the program's arguments.
    pub argument_bytes: u64,
    /// Bytes of the program's outputs.
    pub output_bytes: u64,
    /// Bytes of the outputs that use the memory of donated arguments.
    pub alias_bytes: u64,
    /// Bytes that the program needs only while it runs.
    pub temporary_bytes: u64,
    /// Bytes of the program's code.
    pub code_bytes: u64,
    /// The peak of all bytes during a run; none if the plugin is too old to report it.
    pub peak_bytes: Option<u64>,
}

impl MemoryUse {
    /// The peak of all bytes during a run. If the plugin does not report the peak: the bytes of arguments, outputs and temporaries,
    /// where an output in the memory of a donated argument is counted once.
    pub fn needed_bytes(&self) -> u64 {
        let all = self.argument_bytes + self.output_bytes + self.temporary_bytes;
        self.peak_bytes.unwrap_or(all.saturating_sub(self.alias_bytes))
    }
}

/// Type and dimensions of one output.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct OutputShape {
    /// The element type of the output.
    pub element: Element,
    /// The dimensions of the output; none for a scalar.
    pub dims: Vec<i64>,
}

impl OutputShape {
    /// The number of bytes of the output in dense form; a device may need more for it.
    pub(crate) fn bytes(&self) -> u64 {
        byte_count(self.element, &self.dims).map_or(u64::MAX, |bytes| bytes as u64)
    }
}

impl Executable {
    pub(super) fn new(object: Object) -> Executable {
        Executable { object }
    }

    /// The name of the program's module.
    ///
    /// # Errors
    /// The errors of the plugin.
    pub fn name(&self) -> Result<String, PjrtError> {
        self.object.view().text(Function::ExecutableName)
    }

    /// The number of copies of the program, and the number of devices over which each copy is spread.
    ///
    /// # Errors
    /// The errors of the plugin.
    pub fn replicas_and_partitions(&self) -> Result<(usize, usize), PjrtError> {
        let view = self.object.view();
        Ok((view.number(Function::ExecutableNumReplicas)?, view.number(Function::ExecutableNumPartitions)?))
    }

    /// The number of arrays that the program returns on each device.
    ///
    /// # Errors
    /// The errors of the plugin.
    pub fn output_count(&self) -> Result<usize, PjrtError> {
        self.object.view().number(Function::ExecutableNumOutputs)
    }

    /// Type and dimensions of each output.
    ///
    /// # Errors
    /// The errors of the plugin, or an element type that is unknown to [`Element`].
    pub fn outputs(&self) -> Result<Vec<OutputShape>, PjrtError> {
        let mut types = Arguments::<OutputTypes>::zeroed();
        let mut dims = Arguments::<OutputDims>::zeroed();
        (types.fields.executable, dims.fields.executable) = (self.object.pointer, self.object.pointer);
        // SAFETY: the functions take these structures; their lists live as long as the executable, and the number of dimensions
        // is the sum of all ranks.
        let (types, ranks, mut rest) = unsafe {
            self.object.api.call(Function::ExecutableOutputElementTypes, &mut types)?;
            self.object.api.call(Function::ExecutableOutputDimensions, &mut dims)?;
            let ranks = slice_of(dims.fields.ranks, dims.fields.length);
            let all = slice_of(dims.fields.dims, ranks.iter().sum());
            (slice_of(types.fields.types, types.fields.length), ranks, all)
        };
        let shape = |(number, rank): (&i32, &usize)| {
            let (own, others) = rest.split_at(*rank);
            rest = others;
            Ok(OutputShape { element: Element::of_number(*number)?, dims: own.to_vec() })
        };
        types.iter().zip(ranks).map(shape).collect()
    }

    /// The memory that the program needs on a device.
    ///
    /// # Errors
    /// The errors of the plugin.
    pub fn memory(&self) -> Result<MemoryUse, PjrtError> {
        let mut arguments = Arguments::<CompiledMemoryStats>::zeroed();
        arguments.fields.executable = self.object.pointer;
        // SAFETY: the function takes this structure, with spare room for the fields that are not read.
        unsafe { self.object.api.call(Function::ExecutableGetCompiledMemoryStats, &mut arguments) }?;
        let bytes = |value: i64| u64::try_from(value).unwrap_or(0);
        let stats = &arguments.fields;
        Ok(MemoryUse {
            argument_bytes: bytes(stats.arguments),
            output_bytes: bytes(stats.outputs),
            alias_bytes: bytes(stats.aliases),
            temporary_bytes: bytes(stats.temporaries),
            code_bytes: bytes(stats.code),
            peak_bytes: Some(bytes(stats.peak)).filter(|peak| *peak > 0),
        })
    }

    /// The compiler's estimate of the cost of a run, such as `flops` and `bytes accessed`.
    ///
    /// # Errors
    /// The errors of the plugin.
    pub fn cost(&self) -> Result<Vec<Named>, PjrtError> {
        let mut arguments = Arguments::<CountedAttributes>::zeroed();
        arguments.fields.object = self.object.pointer;
        // SAFETY: the function takes this structure, and its list lives as long as the executable.
        unsafe {
            self.object.api.call(Function::ExecutableGetCostAnalysis, &mut arguments)?;
            Ok(named::read(arguments.fields.values, arguments.fields.length))
        }
    }

    /// The serialized program, which [`Client::load`] can load.
    ///
    /// # Errors
    /// The errors of the plugin.
    pub fn serialize(&self) -> Result<Vec<u8>, PjrtError> {
        let mut arguments = Arguments::<Serialize>::zeroed();
        arguments.fields.executable = self.object.pointer;
        // SAFETY: the function takes this structure; the bytes live until their owner is freed, once.
        unsafe {
            self.object.api.call(Function::ExecutableSerialize, &mut arguments)?;
            let bytes = slice_of(arguments.fields.bytes, arguments.fields.length).to_vec();
            if let Some(free) = arguments.fields.free {
                free(arguments.fields.owner);
            }
            Ok(bytes)
        }
    }
}

/// A compiled program on the devices of a client.
#[derive(Debug)]
pub struct LoadedExecutable {
    object: Object,
    executable: Executable,
    device_count: usize,
    output_count: usize,
    /// Buffers that were donated to runs, and the events of these runs' ends. The buffers are freed later, because a plugin may wait for
    /// the run when such a buffer is freed, and the host would wait for the device in each run.
    donated: Mutex<Vec<(Vec<Buffer>, Ends)>>,
    client: Client,
}

/// An argument of a run.
#[derive(Debug)]
pub enum Input<'a> {
    /// A buffer that the caller keeps, even if the program could use its memory.
    Keep(&'a Buffer),
    /// A buffer that the caller no longer needs, so that the program may use its memory for an output.
    Donate(Buffer),
}

/// An argument of a run, whose buffer may be wrapped.
pub(crate) trait Argument {
    /// The buffer; none if it is of another client.
    fn buffer(&self) -> Option<&Buffer>;

    /// Whether the caller keeps the buffer.
    fn is_kept(&self) -> bool;

    /// The buffer, if the program may use its memory.
    fn into_donated(self) -> Option<Buffer>;
}

impl Argument for Input<'_> {
    fn buffer(&self) -> Option<&Buffer> {
        match self {
            Input::Keep(buffer) => Some(buffer),
            Input::Donate(buffer) => Some(buffer),
        }
    }

    fn is_kept(&self) -> bool {
        matches!(self, Input::Keep(_))
    }

    fn into_donated(self) -> Option<Buffer> {
        if let Input::Donate(buffer) = self { Some(buffer) } else { None }
    }
}

/// A run that has been started.
#[derive(Debug)]
pub struct Launch {
    /// The outputs of each device. They can be used at once: a computation that uses them waits for the run.
    pub outputs: Vec<Vec<Buffer>>,
    /// The events of the run's end, one for each device.
    pub done: Arc<[Event]>,
}

/// The error and the inputs of a run that was not started. [`Buffer::is_deleted`] tells whether the plugin has nevertheless consumed a
/// donated input.
#[derive(Debug)]
pub struct Refused<'a> {
    /// The reason why the run was not started.
    pub error: PjrtError,
    /// The inputs of each device.
    pub inputs: Vec<Vec<Input<'a>>>,
}

impl Launch {
    /// Waits until all devices have ended the run, and returns the outputs of each device.
    ///
    /// # Errors
    /// The error of the first device that failed.
    pub fn wait(self) -> Result<Vec<Vec<Buffer>>, PjrtError> {
        self.done.iter().try_for_each(Event::wait)?;
        Ok(self.outputs)
    }
}

impl Client {
    /// Compiles a StableHLO module, as text or bytecode, and loads it onto the devices.
    ///
    /// # Errors
    /// The errors of the compiler.
    pub fn compile(&self, module: &[u8], options: &CompileOptions) -> Result<LoadedExecutable, PjrtError> {
        let program = MlirProgram::new(module);
        let options = options.to_bytes()?;
        let mut arguments = Arguments::<ClientCompile>::zeroed();
        arguments.fields.client = self.object.pointer;
        arguments.fields.program = &raw const program.arguments;
        (arguments.fields.options, arguments.fields.options_length) = (options.as_ptr(), options.len());
        // SAFETY: the function takes this structure; program and options live until it returns.
        unsafe { self.object.api.call(Function::ClientCompile, &mut arguments) }?;
        LoadedExecutable::new(self, arguments.fields.executable)
    }

    /// Loads the bytes of [`Executable::serialize`], which the same version of the same plugin must have written.
    ///
    /// # Errors
    /// The errors of the plugin, for example for bytes that another version has written.
    pub fn load(&self, serialized: &[u8]) -> Result<LoadedExecutable, PjrtError> {
        let mut arguments = Arguments::<Deserialize>::zeroed();
        arguments.fields.client = self.object.pointer;
        (arguments.fields.bytes, arguments.fields.length) = (serialized.as_ptr(), serialized.len());
        // SAFETY: the function takes this structure; the bytes live until it returns.
        unsafe { self.object.api.call(Function::ExecutableDeserializeAndLoad, &mut arguments) }?;
        LoadedExecutable::new(self, arguments.fields.executable)
    }
}

impl LoadedExecutable {
    pub(super) fn new(client: &Client, pointer: Pointer) -> Result<LoadedExecutable, PjrtError> {
        let api = client.object.api;
        let object = Object::new(api, pointer, Function::LoadedExecutableDestroy)?;
        let executable = object.view().other(Function::LoadedExecutableGetExecutable)?;
        let executable = Executable::new(Object::new(api, executable, Function::ExecutableDestroy)?);
        let device_count = object.view().list(Function::LoadedExecutableAddressableDevices)?.len();
        let output_count = executable.output_count()?;
        Ok(LoadedExecutable {
            object,
            executable,
            device_count,
            output_count,
            donated: Mutex::default(),
            client: client.clone(),
        })
    }

    /// The compiled program, without its devices.
    pub fn executable(&self) -> &Executable {
        &self.executable
    }

    /// The devices on which the program runs, in the order of a run's inputs.
    ///
    /// # Errors
    /// The errors of the plugin.
    pub fn devices(&self) -> Result<Vec<Device>, PjrtError> {
        self.client.wrap(self.object.view().list(Function::LoadedExecutableAddressableDevices)?)
    }

    /// Starts a program that runs on one device.
    ///
    /// # Errors
    /// The errors of [`LoadedExecutable::launch`].
    pub fn run(&self, inputs: &[&Buffer]) -> Result<Launch, PjrtError> {
        self.launch(vec![inputs.iter().map(|buffer| Input::Keep(buffer)).collect()])
    }

    /// Starts the program, with the inputs of each device. An input is donated only if it is donated on every device.
    ///
    /// # Errors
    /// If the number of input lists differs from the number of devices, or the lists differ in length; and the errors of the plugin.
    pub fn launch(&self, inputs: Vec<Vec<Input<'_>>>) -> Result<Launch, PjrtError> {
        self.launch_or_return(inputs).map_err(|refused| refused.error)
    }

    /// Starts the program like [`LoadedExecutable::launch`], and returns the inputs if the run is not started.
    ///
    /// # Errors
    /// The errors of [`LoadedExecutable::launch`].
    pub fn launch_or_return<'a>(&self, inputs: Vec<Vec<Input<'a>>>) -> Result<Launch, Refused<'a>> {
        match self.start(inputs) {
            Ok((outputs, done)) => Ok(Launch { outputs, done }),
            Err((error, inputs)) => Err(Refused { error, inputs }),
        }
    }

    /// Starts the program, and returns the outputs of each device and the events of the run's end. If the run is not started, returns
    /// the error and the inputs.
    #[expect(clippy::type_complexity, reason = "each caller has its own types for these")]
    pub(crate) fn start<A: Argument>(
        &self,
        inputs: Vec<Vec<A>>,
    ) -> Result<(Vec<Vec<Buffer>>, Ends), (PjrtError, Vec<Vec<A>>)> {
        match self.execute(&inputs) {
            Ok((outputs, done)) => {
                self.free_later(inputs, &done);
                Ok((outputs, done))
            }
            Err(error) => Err((error, inputs)),
        }
    }

    fn execute<A: Argument>(&self, inputs: &[Vec<A>]) -> Result<(Vec<Vec<Buffer>>, Ends), PjrtError> {
        let input_count = check_inputs(inputs.iter().map(Vec::len), self.device_count)?;
        let pointer = |input: &A| input.buffer().map(|buffer| buffer.object.pointer);
        let rows: Option<Vec<Vec<Pointer>>> = inputs.iter().map(|row| row.iter().map(pointer).collect()).collect();
        let other = || PjrtError::Mismatch { what: "a program runs only on arrays of its own client".to_owned() };
        let rows = rows.ok_or_else(other)?;
        let kept = kept(inputs, input_count);
        let mut options = Arguments::<ExecuteOptions>::zeroed();
        (options.fields.kept, options.fields.kept_count) = (kept.as_ptr(), kept.len());
        options.fields.launch = next_launch();

        let mut outputs = vec![vec![null_mut(); self.output_count]; rows.len()];
        let mut events = vec![null_mut(); rows.len()];
        let input_rows: Vec<*const Pointer> = rows.iter().map(Vec::as_ptr).collect();
        let output_rows: Vec<*mut Pointer> = outputs.iter_mut().map(Vec::as_mut_ptr).collect();
        let mut arguments = Arguments::<Execute>::zeroed();
        let fields = &mut arguments.fields;
        fields.executable = self.object.pointer;
        fields.options = &raw mut options;
        (fields.inputs, fields.outputs) = (input_rows.as_ptr(), output_rows.as_ptr());
        (fields.device_count, fields.input_count) = (rows.len(), input_count);
        fields.events = events.as_mut_ptr();
        let is_joint = self.device_count > 1;
        if is_joint {
            self.client.wait_for_room();
        }
        // SAFETY: the function takes this structure. Inputs, lists and options live until it returns; the table of outputs has a row for
        // each of the program's devices, and each row has room for all of the program's outputs.
        unsafe { self.object.api.call(Function::LoadedExecutableExecute, &mut arguments) }?;
        let done: Ends = events.into_iter().filter_map(|event| Event::new(self.object.api, event)).collect();
        if is_joint {
            self.client.count_run(done.clone());
        }
        let wrap = |row: Vec<Pointer>| row.into_iter().map(|buffer| Buffer::new(&self.client, buffer)).collect();
        let outputs: Vec<Vec<Buffer>> = outputs.into_iter().map(wrap).collect::<Result<_, _>>()?;
        Ok((outputs, done))
    }

    /// Keeps donated buffers until their run has ended, and frees the buffers of runs that have ended.
    fn free_later<A: Argument>(&self, inputs: Vec<Vec<A>>, ends: &Ends) {
        let buffers: Vec<Buffer> = inputs.into_iter().flatten().filter_map(A::into_donated).collect();
        let mut donated = self.donated.lock().unwrap_or_else(PoisonError::into_inner);
        // An event that cannot be read counts as over; freeing a buffer may then wait for its run.
        let is_over = |events: &[Event]| events.iter().all(|event| event.is_ready().unwrap_or(true));
        donated.retain(|(_, events)| !is_over(events));
        if !buffers.is_empty() {
            donated.push((buffers, ends.clone()));
        }
    }
}

/// Checks that all devices have the same number of inputs, and returns that number.
pub(crate) fn check_inputs(
    mut counts: impl ExactSizeIterator<Item = usize>,
    devices: usize,
) -> Result<usize, PjrtError> {
    let rows = counts.len();
    if rows != devices {
        let what = format!("the program runs on {devices} devices, but there are inputs for {rows}");
        return Err(PjrtError::Mismatch { what });
    }
    let first = counts.next().unwrap_or_default();
    if counts.any(|count| count != first) {
        return Err(PjrtError::Mismatch { what: "the devices have different numbers of inputs".into() });
    }
    Ok(first)
}

/// A number that no other run of this process has had. XLA:CPU matches the devices of a run by this number: the devices of two runs
/// with the same number would exchange each other's values.
fn next_launch() -> i32 {
    static NEXT: AtomicI32 = AtomicI32::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The indices of inputs that some device keeps.
fn kept<A: Argument>(inputs: &[Vec<A>], count: usize) -> Vec<i64> {
    let is_kept = |index: usize| inputs.iter().any(|row| row[index].is_kept());
    (0_i64..).zip(0..count).filter(|(_, index)| is_kept(*index)).map(|(number, _)| number).collect()
}
