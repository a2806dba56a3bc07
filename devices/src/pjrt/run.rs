//! Compiled programs on the devices of a client, and their runs.
#![expect(unsafe_code, reason = "calls the plugin")]

use super::abi::{Arguments, Execute, ExecuteOptions, Function, Pointer};
use super::buffer::Buffer;
use super::client::{Client, Device};
use super::error::PjrtError;
use super::event::{Ends, Event};
use super::executable::Executable;
use super::object::Object;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

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
pub enum Input<'a, B = Buffer> {
    /// A buffer that the caller keeps, even if the program could use its memory.
    Keep(&'a B),
    /// A buffer that the caller no longer needs, so that the program may use its memory for an output.
    Donate(B),
}

impl<B> Input<'_, B> {
    /// The buffer, and whether the caller gives it away.
    pub(crate) fn parts(&self) -> (&B, bool) {
        match self {
            Input::Keep(buffer) => (buffer, false),
            Input::Donate(buffer) => (buffer, true),
        }
    }
}

/// A buffer that may be one of a plugin that this process has opened.
pub(crate) trait Wrapped {
    /// The buffer; none if it is of another client.
    fn here(&self) -> Option<&Buffer>;

    /// The buffer; none if it is of another client.
    fn into_here(self) -> Option<Buffer>;
}

impl Wrapped for Buffer {
    fn here(&self) -> Option<&Buffer> {
        Some(self)
    }

    fn into_here(self) -> Option<Buffer> {
        Some(self)
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
pub struct Refused<'a, B = Buffer> {
    /// The reason why the run was not started.
    pub error: PjrtError,
    /// The inputs of each device.
    pub inputs: Vec<Vec<Input<'a, B>>>,
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
        self.launch(vec![inputs.iter().copied().map(Input::Keep).collect()])
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
        self.start(inputs)
    }

    /// Starts the program with buffers that may be wrapped, and returns the inputs if the run is not started.
    pub(crate) fn start<'a, B: Wrapped>(&self, inputs: Vec<Vec<Input<'a, B>>>) -> Result<Launch, Refused<'a, B>> {
        match self.execute(&inputs) {
            Ok(launch) => {
                self.free_later(inputs, &launch.done);
                Ok(launch)
            }
            Err(error) => Err(Refused { error, inputs }),
        }
    }

    fn execute<B: Wrapped>(&self, inputs: &[Vec<Input<'_, B>>]) -> Result<Launch, PjrtError> {
        let input_count = check_inputs(inputs.iter().map(Vec::len), self.device_count)?;
        let pointer = |input: &Input<'_, B>| input.parts().0.here().map(|buffer| buffer.object.pointer);
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
        Ok(Launch { outputs, done })
    }

    /// Keeps donated buffers until their run has ended, and frees the buffers of runs that have ended.
    fn free_later<B: Wrapped>(&self, inputs: Vec<Vec<Input<'_, B>>>, ends: &Ends) {
        let donated = |input| if let Input::Donate(buffer) = input { B::into_here(buffer) } else { None };
        let buffers: Vec<Buffer> = inputs.into_iter().flatten().filter_map(donated).collect();
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
fn kept<B>(inputs: &[Vec<Input<'_, B>>], count: usize) -> Vec<i64> {
    let is_kept = |index: usize| inputs.iter().any(|row| matches!(row[index], Input::Keep(_)));
    (0_i64..).zip(0..count).filter(|(_, index)| is_kept(*index)).map(|(number, _)| number).collect()
}
