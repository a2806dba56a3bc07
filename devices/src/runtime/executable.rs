//! Compiled programs on the devices of a client, and their runs.

use super::buffer::{Buffer, Event, EventForm, Form as BufferForm};
use super::client::{Device, wrap};
use super::handle::Handle;
use crate::pjrt::{self, MemoryUse, Named, OutputShape, PjrtError};
use crate::process::protocol::{Answer, Compiled, Id, Question, Request};

/// A compiled program on the devices of a client.
#[derive(Debug)]
pub struct LoadedExecutable(Form);

#[derive(Debug)]
enum Form {
    Here(pjrt::LoadedExecutable),
    Far(Handle, Compiled),
}

/// An argument of a run.
pub type Input<'a> = pjrt::Input<'a, Buffer>;

/// A run that has been started.
#[derive(Debug)]
pub struct Launch {
    /// The outputs of each device. They can be used at once: a computation that uses them waits for the run.
    pub outputs: Vec<Vec<Buffer>>,
    /// The event of the run's end on all devices.
    pub done: Event<'static>,
}

/// The error and the inputs of a run that was not started. [`Buffer::is_deleted`] tells whether the plugin has nevertheless consumed a
/// donated input.
pub type Refused<'a> = pjrt::Refused<'a, Buffer>;

impl Launch {
    /// Waits until all devices have ended the run, and returns the outputs of each device.
    ///
    /// # Errors
    /// The error of the first device that failed.
    pub fn wait(self) -> Result<Vec<Vec<Buffer>>, PjrtError> {
        self.done.wait()?;
        Ok(self.outputs)
    }
}

impl From<pjrt::LoadedExecutable> for LoadedExecutable {
    fn from(executable: pjrt::LoadedExecutable) -> LoadedExecutable {
        LoadedExecutable(Form::Here(executable))
    }
}

impl LoadedExecutable {
    pub(super) fn far(handle: Handle, facts: Compiled) -> LoadedExecutable {
        LoadedExecutable(Form::Far(handle, facts))
    }

    /// Whether the program can run: a device process that has ended has taken its programs with it.
    pub fn is_loaded(&self) -> bool {
        match &self.0 {
            Form::Here(_) => true,
            Form::Far(handle, _) => handle.is_alive(),
        }
    }

    /// The name of the program's module.
    ///
    /// # Errors
    /// The errors of the plugin.
    pub fn name(&self) -> Result<String, PjrtError> {
        match &self.0 {
            Form::Here(executable) => executable.executable().name(),
            Form::Far(_, facts) => Ok(facts.name.clone()),
        }
    }

    /// The number of copies of the program, and the number of devices over which each copy is spread.
    ///
    /// # Errors
    /// The errors of the plugin.
    pub fn replicas_and_partitions(&self) -> Result<(usize, usize), PjrtError> {
        match &self.0 {
            Form::Here(executable) => executable.executable().replicas_and_partitions(),
            Form::Far(_, facts) => Ok(facts.replicas_and_partitions),
        }
    }

    /// Type and dimensions of each output.
    ///
    /// # Errors
    /// The errors of the plugin, or an element type that is unknown to [`pjrt::Element`].
    pub fn outputs(&self) -> Result<Vec<OutputShape>, PjrtError> {
        match &self.0 {
            Form::Here(executable) => executable.executable().outputs(),
            Form::Far(handle, _) => match handle.ask(Question::Outputs { executable: handle.id })? {
                Answer::Outputs(outputs) => Ok(outputs),
                other => Err(handle.far.odd(&other)),
            },
        }
    }

    /// The memory that the program needs on a device.
    ///
    /// # Errors
    /// The errors of the plugin.
    pub fn memory(&self) -> Result<MemoryUse, PjrtError> {
        match &self.0 {
            Form::Here(executable) => executable.executable().memory(),
            Form::Far(_, facts) => facts.memory.clone(),
        }
    }

    /// The compiler's estimate of the cost of a run, such as `flops` and `bytes accessed`.
    ///
    /// # Errors
    /// The errors of the plugin.
    pub fn cost(&self) -> Result<Vec<Named>, PjrtError> {
        match &self.0 {
            Form::Here(executable) => executable.executable().cost(),
            Form::Far(handle, _) => {
                let bytes = handle.bytes(Question::Cost { executable: handle.id })?;
                serde_json::from_slice(&bytes).map_err(|error| handle.far.garbled(&error.into()))
            }
        }
    }

    /// The serialized program, which [`Client::load`](super::Client::load) can load.
    ///
    /// # Errors
    /// The errors of the plugin.
    pub fn serialize(&self) -> Result<Vec<u8>, PjrtError> {
        match &self.0 {
            Form::Here(executable) => executable.executable().serialize(),
            Form::Far(handle, _) => handle.bytes(Question::Serialize { executable: handle.id }),
        }
    }

    /// The devices on which the program runs, in the order of a run's inputs.
    ///
    /// # Errors
    /// The errors of the plugin.
    pub fn devices(&self) -> Result<Vec<Device>, PjrtError> {
        match &self.0 {
            Form::Here(executable) => Ok(wrap(executable.devices()?)),
            Form::Far(handle, facts) => {
                Ok(facts.devices.iter().map(|place| Device::far(&handle.far, *place)).collect())
            }
        }
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
    /// The errors of [`LoadedExecutable::launch`]. Those of the device process come with the first output that is read, and the
    /// donated inputs are lost then.
    pub fn launch_or_return<'a>(&self, inputs: Vec<Vec<Input<'a>>>) -> Result<Launch, Refused<'a>> {
        match &self.0 {
            Form::Here(executable) => launch_here(executable, inputs),
            Form::Far(handle, facts) => match send(handle, facts, &inputs) {
                Ok(launch) => {
                    for buffer in inputs.into_iter().flatten() {
                        if let Input::Donate(Buffer(BufferForm::Far(handle))) = buffer {
                            handle.give_away();
                        }
                    }
                    Ok(launch)
                }
                Err(error) => Err(Refused { error, inputs }),
            },
        }
    }
}

fn send(program: &Handle, facts: &Compiled, inputs: &[Vec<Input<'_>>]) -> Result<Launch, PjrtError> {
    pjrt::check_inputs(inputs.iter().map(Vec::len), facts.devices.len())?;
    let far = &program.far;
    if !program.is_alive() {
        return Err(far.lost());
    }
    let input = |input: &Input<'_>| {
        let (buffer, is_donated) = input.parts();
        match &buffer.0 {
            BufferForm::Far(handle) if handle.is_of(program) => Ok((handle.id, is_donated)),
            BufferForm::Far(handle) if !handle.is_alive() => Err(far.lost()),
            _ => Err(super::client::other_client()),
        }
    };
    let inputs = inputs.iter().map(|row| row.iter().map(input).collect()).collect::<Result<_, PjrtError>>()?;
    let row = || (0..facts.outputs).map(|_| program.beside()).collect::<Vec<Handle>>();
    let outputs: Vec<Vec<Handle>> = facts.devices.iter().map(|_| row()).collect();
    let run = program.beside();
    let ids: Vec<Vec<Id>> = outputs.iter().map(|row| row.iter().map(|handle| handle.id).collect()).collect();
    let request = Request::Execute { executable: program.id, inputs, outputs: ids, run: run.id };
    let sent = far.send_now(program.epoch, &request);
    let wrap = |row: Vec<Handle>| row.into_iter().map(|handle| Buffer(BufferForm::Far(handle))).collect();
    let launch = Launch { outputs: outputs.into_iter().map(wrap).collect(), done: Event(EventForm::FarRun(run)) };
    sent.map(|()| launch)
}

impl pjrt::Wrapped for Buffer {
    fn here(&self) -> Option<&pjrt::Buffer> {
        if let BufferForm::Here(buffer) = &self.0 { Some(buffer) } else { None }
    }

    fn into_here(self) -> Option<pjrt::Buffer> {
        if let BufferForm::Here(buffer) = self.0 { Some(buffer) } else { None }
    }
}

fn launch_here<'a>(executable: &pjrt::LoadedExecutable, inputs: Vec<Vec<Input<'a>>>) -> Result<Launch, Refused<'a>> {
    let pjrt::Launch { outputs, done } = executable.start(inputs)?;
    let wrap = |row: Vec<pjrt::Buffer>| row.into_iter().map(Buffer::from).collect();
    Ok(Launch { outputs: outputs.into_iter().map(wrap).collect(), done: Event(EventForm::Run(done)) })
}
