//! Open devices.
#![expect(unsafe_code, reason = "calls the plugin")]

use super::abi::{Arguments, BufferFromHost, ClientCompile, Deserialize, Function, MemoryStats, Pointer, Program};
use super::buffer::Buffer;
use super::compile_options::CompileOptions;
use super::error::PjrtError;
use super::event::Event;
use super::executable::LoadedExecutable;
use super::literal::Literal;
use super::object::{Object, View};
use super::topology::Description;
use crate::fork;
use std::sync::Arc;

/// The plugin copies the array before the call returns.
const COPIED_DURING_CALL: i32 = 0;

/// The open devices of a plugin. Copies are the same client; the devices are closed with the last of them and of what
/// was made with it.
#[derive(Clone, Debug)]
pub struct Client {
    pub(super) object: Arc<Object>,
}

/// One device of a client.
#[derive(Clone, Debug)]
pub struct Device {
    client: Client,
    pub(super) pointer: DevicePointer,
}

/// A device, which lives as long as its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DevicePointer(pub(super) Pointer);

// SAFETY: PJRT's objects may be used from any thread.
unsafe impl Send for DevicePointer {}
// SAFETY: as above.
unsafe impl Sync for DevicePointer {}

/// Memory of a device, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceMemory {
    /// What is in use.
    pub used_bytes: u64,
    /// The most that was in use; none if the plugin does not tell.
    pub peak_bytes: Option<u64>,
    /// What can be in use; none if the plugin does not tell.
    pub limit_bytes: Option<u64>,
}

impl Client {
    pub(super) fn new(object: Object) -> Client {
        fork::opened();
        Client { object: Arc::new(object) }
    }

    fn view(&self) -> View {
        self.object.view()
    }

    /// What the platform is called, such as `tpu` or `cuda`.
    ///
    /// # Errors
    /// Those of the plugin.
    pub fn platform(&self) -> Result<String, PjrtError> {
        self.view().text(Function::ClientPlatformName)
    }

    /// The platform's version, in its own words and often of several lines.
    ///
    /// # Errors
    /// Those of the plugin.
    pub fn version(&self) -> Result<String, PjrtError> {
        self.view().text(Function::ClientPlatformVersion)
    }

    /// The devices that this process can use.
    ///
    /// # Errors
    /// Those of the plugin.
    pub fn devices(&self) -> Result<Vec<Device>, PjrtError> {
        self.wrap(self.view().list(Function::ClientAddressableDevices)?)
    }

    /// How many devices there are, in this process and others.
    ///
    /// # Errors
    /// Those of the plugin.
    pub fn global_device_count(&self) -> Result<usize, PjrtError> {
        Ok(self.view().list(Function::ClientDevices)?.len())
    }

    pub(super) fn wrap(&self, devices: Vec<Pointer>) -> Result<Vec<Device>, PjrtError> {
        if devices.iter().any(|pointer| pointer.is_null()) {
            return Err(PjrtError::Mismatch { what: "the plugin lists a device that does not exist".into() });
        }
        let device = |pointer| Device { client: self.clone(), pointer: DevicePointer(pointer) };
        Ok(devices.into_iter().map(device).collect())
    }

    /// Copies an array to a device. The copy may go on after this has returned; [`Buffer::ready`] tells.
    ///
    /// # Errors
    /// Those of the plugin, such as a lack of memory.
    pub fn upload(&self, literal: &Literal, device: &Device) -> Result<Buffer, PjrtError> {
        let mut arguments = Arguments::<BufferFromHost>::zeroed();
        let fields = &mut arguments.fields;
        fields.client = self.object.pointer;
        fields.data = literal.bytes().as_ptr();
        fields.element = literal.element().number();
        (fields.dims, fields.dim_count) = (literal.dims().as_ptr(), literal.dims().len());
        fields.semantics = COPIED_DURING_CALL;
        fields.device = device.pointer.0;
        // SAFETY: the function takes this structure; array and dimensions live until it returns, and the array is as
        // long as its dimensions say.
        unsafe { self.object.api.call(Function::ClientBufferFromHostBuffer, &mut arguments) }?;
        // With these semantics the event says nothing that the return has not said, but it is ours to free.
        drop(Event::new(self.object.api, arguments.fields.done_with_host));
        Buffer::new(self, arguments.fields.buffer)
    }

    /// Compiles a StableHLO module, as text or bytecode, and loads it onto the devices.
    ///
    /// # Errors
    /// Those of the compiler.
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

    /// Loads what [`super::Executable::serialize`] gave, with the same version of the same plugin.
    ///
    /// # Errors
    /// Those of the plugin: it refuses what another version has made.
    pub fn load(&self, serialized: &[u8]) -> Result<LoadedExecutable, PjrtError> {
        let mut arguments = Arguments::<Deserialize>::zeroed();
        arguments.fields.client = self.object.pointer;
        (arguments.fields.bytes, arguments.fields.length) = (serialized.as_ptr(), serialized.len());
        // SAFETY: the function takes this structure; the bytes live until it returns.
        unsafe { self.object.api.call(Function::ExecutableDeserializeAndLoad, &mut arguments) }?;
        LoadedExecutable::new(self, arguments.fields.executable)
    }
}

/// A module as the plugin takes it.
pub(super) struct MlirProgram {
    pub(super) arguments: Arguments<Program>,
    _code: Vec<u8>,
}

impl MlirProgram {
    pub(super) fn new(module: &[u8]) -> MlirProgram {
        const FORMAT: &str = "mlir";
        // Older plugins look for the text's end by a NUL that its length does not count.
        let code = [module, b"\0"].concat();
        let mut arguments = Arguments::<Program>::zeroed();
        (arguments.fields.code, arguments.fields.code_length) = (code.as_ptr(), module.len());
        (arguments.fields.format, arguments.fields.format_length) = (FORMAT.as_ptr(), FORMAT.len());
        MlirProgram { arguments, _code: code }
    }
}

impl Device {
    /// What kind of device it is, and its number.
    ///
    /// # Errors
    /// Those of the plugin.
    pub fn description(&self) -> Result<Description, PjrtError> {
        let api = self.client.object.api;
        let pointer = View { api, pointer: self.pointer.0 }.other(Function::DeviceGetDescription)?;
        Description::read(View { api, pointer })
    }

    /// Its memory.
    ///
    /// # Errors
    /// Those of the plugin; some have no figures for their devices.
    pub fn memory(&self) -> Result<DeviceMemory, PjrtError> {
        let mut arguments = Arguments::<MemoryStats>::zeroed();
        arguments.fields.device = self.pointer.0;
        // SAFETY: the function takes this structure, with spare room for the figures that are not read.
        unsafe { self.client.object.api.call(Function::DeviceMemoryStats, &mut arguments) }?;
        let stats = &arguments.fields;
        let told = |value: i64, is_set: u8| if is_set == 0 { None } else { u64::try_from(value).ok() };
        Ok(DeviceMemory {
            used_bytes: u64::try_from(stats.in_use).unwrap_or(0),
            peak_bytes: told(stats.peak, stats.peak_is_set),
            limit_bytes: told(stats.limit, stats.limit_is_set),
        })
    }
}
