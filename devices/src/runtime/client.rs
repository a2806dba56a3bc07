//! The open devices of a plugin.

use super::far::{Far, Route};
use super::{Buffer, LoadedExecutable};
use crate::Store;
use crate::opened::Opened;
use crate::pjrt::{self, CompileOptions, Description, DeviceMemory, Element, Literal, PjrtError};
use crate::process::ProcessReport;
use crate::process::protocol::{Answer, Question};
use std::io;
use std::sync::Arc;

/// The open devices of a plugin. Copies refer to the same client.
///
/// ```no_run
/// use ferrotune_devices::pjrt::{Literal, Plugin};
/// use ferrotune_devices::runtime::Client;
///
/// let client = Client::from(Plugin::load("/opt/libtpu.so".as_ref())?.client(&[])?);
/// let devices = client.devices()?;
/// let buffer = client.upload(&Literal::f32(&[2], &[1.0, 2.0])?, &devices[0])?;
/// assert_eq!(buffer.download()?.wait()?.to_f32()?, [1.0, 2.0]);
/// # Ok::<(), ferrotune_devices::pjrt::PjrtError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Client(pub(super) Form);

#[derive(Clone, Debug)]
pub(super) enum Form {
    Here(pjrt::Client),
    Far(Arc<Far>),
}

/// One device of a client.
#[derive(Clone, Debug)]
pub struct Device(pub(super) DeviceForm);

#[derive(Clone, Debug)]
pub(super) enum DeviceForm {
    Here(pjrt::Device),
    /// The device with this place in the list of devices.
    Far(Arc<Far>, u32),
}

impl From<pjrt::Client> for Client {
    fn from(client: pjrt::Client) -> Client {
        Client(Form::Here(client))
    }
}

impl Client {
    /// The client of the device process of this route, which is started if it does not run.
    ///
    /// # Errors
    /// If the process cannot be started, or the plugin does not open.
    pub fn far(route: Route) -> Result<Client, PjrtError> {
        Far::open(route).map(|far| Client(Form::Far(far)))
    }

    /// The client of the device process of this route; none if it does not run.
    pub fn join(route: Route) -> Option<Client> {
        Far::join(route).map(|far| Client(Form::Far(far)))
    }

    /// What the device process holds, and for whom; none if it does not run, or where this process has opened the plugin itself.
    ///
    /// # Errors
    /// If the device process does not answer.
    pub fn report(&self) -> io::Result<Option<ProcessReport>> {
        if let Form::Far(far) = &self.0 { far.report() } else { Ok(None) }
    }

    /// Ends the device process, and returns whether there was one.
    ///
    /// # Errors
    /// If the device process does not answer.
    pub fn close(&self) -> io::Result<bool> {
        if let Form::Far(far) = &self.0 { far.close() } else { Ok(false) }
    }

    /// Makes sure that the device process runs and that this client is connected to it. Starts it again if it has ended. Does nothing
    /// where this process has opened the plugin itself.
    ///
    /// # Errors
    /// If the process cannot be started, or the plugin does not open.
    pub fn reach(&self) -> Result<(), PjrtError> {
        if let Form::Far(far) = &self.0 { far.reach() } else { Ok(()) }
    }

    /// The name of this client in reports; none where this process has opened the plugin itself.
    pub fn name(&self) -> Option<&str> {
        if let Form::Far(far) = &self.0 { Some(far.name()) } else { None }
    }

    /// The greatest number of bytes that this client has had on its devices; none where this process has opened the plugin itself.
    ///
    /// # Errors
    /// If the device process does not answer.
    pub fn peak_bytes(&self) -> io::Result<Option<u64>> {
        let clients = self.report()?.map(|report| report.clients).unwrap_or_default();
        let own = clients.into_iter().filter(|client| Some(client.name.as_str()) == self.name());
        Ok(own.map(|client| client.peak_bytes).max())
    }

    /// The plugin and its devices, if the device process has opened them.
    pub fn opened(&self) -> Option<&Opened> {
        match &self.0 {
            Form::Here(_) => None,
            Form::Far(far) => Some(&far.facts.opened),
        }
    }

    /// The store that the processes of this client share; none where the client was opened for this process alone.
    pub fn store(&self) -> Option<&Store> {
        match &self.0 {
            Form::Here(client) => client.store(),
            Form::Far(_) => None,
        }
    }

    /// The platform's name, such as `tpu` or `cuda`.
    ///
    /// # Errors
    /// The errors of the plugin.
    pub fn platform(&self) -> Result<String, PjrtError> {
        match &self.0 {
            Form::Here(client) => client.platform(),
            Form::Far(far) => Ok(far.facts.opened.platform.clone()),
        }
    }

    /// The platform's version, often of several lines.
    ///
    /// # Errors
    /// The errors of the plugin.
    pub fn version(&self) -> Result<String, PjrtError> {
        match &self.0 {
            Form::Here(client) => client.version(),
            Form::Far(far) => Ok(far.facts.version.clone()),
        }
    }

    /// Whether the other client is a copy of this one.
    pub fn is_same(&self, other: &Client) -> bool {
        match (&self.0, &other.0) {
            (Form::Here(one), Form::Here(other)) => one.is_same(other),
            (Form::Far(one), Form::Far(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    /// The devices that this client can use.
    ///
    /// # Errors
    /// The errors of the plugin.
    pub fn devices(&self) -> Result<Vec<Device>, PjrtError> {
        match &self.0 {
            Form::Here(client) => Ok(wrap(client.devices()?)),
            Form::Far(far) => {
                Ok((0..).zip(&far.facts.descriptions).map(|(place, _)| Device::far(far, place)).collect())
            }
        }
    }

    /// The devices of all processes that have opened the plugin together.
    ///
    /// # Errors
    /// The errors of the plugin.
    pub fn all_devices(&self) -> Result<Vec<Device>, PjrtError> {
        match &self.0 {
            Form::Here(client) => Ok(wrap(client.all_devices()?)),
            Form::Far(_) => self.devices(),
        }
    }

    /// Copies an array to a device. The copy may continue after the call has returned.
    ///
    /// # Errors
    /// If the device belongs to another client; and the errors of the plugin, such as a lack of memory. Those of the device process come
    /// with the first read.
    pub fn upload(&self, literal: &Literal, device: &Device) -> Result<Buffer, PjrtError> {
        let mut buffers =
            self.upload_to_all(literal.element(), literal.dims(), literal.bytes(), std::slice::from_ref(device))?;
        Ok(buffers.remove(0))
    }

    /// Copies an array of bytes, in the machine's byte order, to each of these devices, as [`Client::upload`] does.
    ///
    /// # Errors
    /// If the number of bytes does not match the dimensions, if there is no memory for them, and the errors of [`Client::upload`].
    pub fn upload_to_all(
        &self,
        element: Element,
        dims: &[i64],
        bytes: &[u8],
        devices: &[Device],
    ) -> Result<Vec<Buffer>, PjrtError> {
        match &self.0 {
            Form::Here(client) => {
                let upload = |device: &Device| match &device.0 {
                    DeviceForm::Here(device) => client.upload_bytes(element, dims, bytes, device).map(Buffer::from),
                    DeviceForm::Far(..) => Err(other_client()),
                };
                devices.iter().map(upload).collect()
            }
            Form::Far(far) => {
                let place = |device: &Device| match &device.0 {
                    DeviceForm::Far(other, place) if Arc::ptr_eq(far, other) => Ok(*place),
                    _ => Err(other_client()),
                };
                far.upload(element, dims, bytes, devices.iter().map(place).collect::<Result<_, _>>()?)
            }
        }
    }

    /// Compiles a StableHLO module, as text or bytecode, and loads it onto the devices.
    ///
    /// # Errors
    /// The errors of the compiler.
    pub fn compile(&self, module: &[u8], options: &CompileOptions) -> Result<LoadedExecutable, PjrtError> {
        match &self.0 {
            Form::Here(client) => client.compile(module, options).map(LoadedExecutable::from),
            Form::Far(far) => far.compile(module, options),
        }
    }

    /// Loads the bytes of [`LoadedExecutable::serialize`], which the same version of the same plugin must have written.
    ///
    /// # Errors
    /// The errors of the plugin, for example for bytes that another version has written.
    pub fn load(&self, serialized: &[u8]) -> Result<LoadedExecutable, PjrtError> {
        match &self.0 {
            Form::Here(client) => client.load(serialized).map(LoadedExecutable::from),
            Form::Far(far) => far.load(serialized),
        }
    }

    /// Begins to record the activity of the plugin's devices.
    ///
    /// # Errors
    /// If the plugin has no profiler, and the errors of the plugin.
    pub fn profile(&self) -> Result<Profiler, PjrtError> {
        match &self.0 {
            Form::Here(client) => client.plugin().profile().map(Profiler::Here),
            Form::Far(far) => far.ask(Question::BeginProfile).map(|_| Profiler::Far(far.clone())),
        }
    }
}

impl Device {
    pub(super) fn far(far: &Arc<Far>, place: u32) -> Device {
        Device(DeviceForm::Far(far.clone(), place))
    }

    /// The description of the device: its kind and its number.
    ///
    /// # Errors
    /// The errors of the plugin.
    pub fn description(&self) -> Result<Description, PjrtError> {
        match &self.0 {
            DeviceForm::Here(device) => device.description(),
            DeviceForm::Far(far, place) => {
                far.facts.descriptions.get(*place as usize).cloned().ok_or_else(other_client)
            }
        }
    }

    /// The device's memory use, for all clients of its device process together.
    ///
    /// # Errors
    /// The errors of the plugin; some do not report memory.
    pub fn memory(&self) -> Result<DeviceMemory, PjrtError> {
        match &self.0 {
            DeviceForm::Here(device) => device.memory(),
            DeviceForm::Far(far, place) => match far.ask(Question::Memory { device: *place })? {
                Answer::Memory(memory) => Ok(memory),
                other => Err(far.odd(&other)),
            },
        }
    }
}

pub(super) fn wrap(devices: Vec<pjrt::Device>) -> Vec<Device> {
    devices.into_iter().map(|device| Device(DeviceForm::Here(device))).collect()
}

pub(super) fn other_client() -> PjrtError {
    PjrtError::Mismatch { what: "an array goes only to devices of its own client".to_owned() }
}

/// A recording of the activity of a plugin's devices.
#[derive(Debug)]
pub enum Profiler {
    /// The plugin was opened by this process.
    Here(pjrt::Profiler),
    /// The plugin was opened by the device process.
    #[doc(hidden)]
    Far(Arc<Far>),
}

impl Profiler {
    /// Stops recording, and returns the profile; see [`pjrt::Profiler::finish`].
    ///
    /// # Errors
    /// The errors of the plugin.
    pub fn finish(self) -> Result<Vec<u8>, PjrtError> {
        match self {
            Profiler::Here(profiler) => profiler.finish(),
            Profiler::Far(far) => far.bytes(Question::EndProfile),
        }
    }
}
