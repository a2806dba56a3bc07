//! Devices by name, which this machine need not have, and compilation for them.
#![expect(unsafe_code, reason = "calls the plugin")]

use super::abi::{Arguments, Attributes, Compile, Function};
use super::compile_options::CompileOptions;
use super::description::Description;
use super::error::PjrtError;
use super::executable::Executable;
use super::named::{self, Named};
use super::object::{Object, View};
use super::program::MlirProgram;

/// Devices by name, such as a TPU `v5e:2x2`.
#[derive(Debug)]
pub struct Topology {
    object: Object,
}

impl Topology {
    pub(super) fn new(object: Object) -> Topology {
        Topology { object }
    }

    /// The platform's name, such as `tpu`.
    ///
    /// # Errors
    /// The errors of the plugin.
    pub fn platform(&self) -> Result<String, PjrtError> {
        self.object.view().text(Function::TopologyDescriptionPlatformName)
    }

    /// The platform's version, often of several lines.
    ///
    /// # Errors
    /// The errors of the plugin.
    pub fn version(&self) -> Result<String, PjrtError> {
        self.object.view().text(Function::TopologyDescriptionPlatformVersion)
    }

    /// The descriptions of the topology's devices.
    ///
    /// # Errors
    /// The errors of the plugin.
    pub fn devices(&self) -> Result<Vec<Description>, PjrtError> {
        let pointers = self.object.view().list(Function::TopologyDescriptionGetDeviceDescriptions)?;
        let api = self.object.api;
        pointers.into_iter().map(|pointer| Description::read(View { api, pointer })).collect()
    }

    /// The topology's attributes, such as `device_memory_bytes_limit`.
    ///
    /// # Errors
    /// The errors of the plugin.
    pub fn attributes(&self) -> Result<Vec<Named>, PjrtError> {
        let mut arguments = Arguments::<Attributes>::zeroed();
        arguments.fields.object = self.object.pointer;
        // SAFETY: the function takes this structure, and its list lives as long as the topology.
        unsafe {
            self.object.api.call(Function::TopologyDescriptionAttributes, &mut arguments)?;
            Ok(named::read(arguments.fields.values, arguments.fields.length))
        }
    }

    /// Compiles a StableHLO module, as text or bytecode, for these devices.
    ///
    /// # Errors
    /// The errors of the compiler; [`super::Code::RESOURCE_EXHAUSTED`] where the program does not fit the devices' memory.
    pub fn compile(&self, module: &[u8], options: &CompileOptions) -> Result<Executable, PjrtError> {
        let program = MlirProgram::new(module);
        let options = options.to_bytes()?;
        let mut arguments = Arguments::<Compile>::zeroed();
        arguments.fields.topology = self.object.pointer;
        arguments.fields.program = &raw const program.arguments;
        (arguments.fields.options, arguments.fields.options_length) = (options.as_ptr(), options.len());
        // SAFETY: the function takes this structure; program and options live until it returns.
        unsafe { self.object.api.call(Function::Compile, &mut arguments) }?;
        Object::new(self.object.api, arguments.fields.executable, Function::ExecutableDestroy).map(Executable::new)
    }
}
