//! Devices that need not be here, and compiling for them.
#![expect(unsafe_code, reason = "calls the plugin")]

use super::abi::{Arguments, Attributes, Compile, CountedAttributes, Function};
use super::client::MlirProgram;
use super::compile_options::CompileOptions;
use super::error::PjrtError;
use super::executable::Executable;
use super::named::{self, Named};
use super::object::{Object, View};

/// Devices by name, such as a TPU `v5e:2x2`.
#[derive(Debug)]
pub struct Topology {
    object: Object,
}

/// What a device is, here or elsewhere.
#[derive(Clone, Debug, PartialEq)]
pub struct Description {
    /// Its number among all devices of all processes.
    pub id: i32,
    /// The process that it belongs to.
    pub process: i32,
    /// What the vendor calls it, such as `TPU v5 lite`.
    pub kind: String,
    /// A line about it, for logs.
    pub text: String,
    /// What else the plugin tells.
    pub attributes: Vec<Named>,
}

impl Topology {
    pub(super) fn new(object: Object) -> Topology {
        Topology { object }
    }

    /// What the platform is called, such as `tpu`.
    ///
    /// # Errors
    /// Those of the plugin.
    pub fn platform(&self) -> Result<String, PjrtError> {
        self.object.view().text(Function::TopologyDescriptionPlatformName)
    }

    /// The platform's version, in its own words and often of several lines.
    ///
    /// # Errors
    /// Those of the plugin.
    pub fn version(&self) -> Result<String, PjrtError> {
        self.object.view().text(Function::TopologyDescriptionPlatformVersion)
    }

    /// Its devices.
    ///
    /// # Errors
    /// Those of the plugin.
    pub fn devices(&self) -> Result<Vec<Description>, PjrtError> {
        let pointers = self.object.view().list(Function::TopologyDescriptionGetDeviceDescriptions)?;
        let api = self.object.api;
        pointers.into_iter().map(|pointer| Description::read(View { api, pointer })).collect()
    }

    /// What the plugin tells of it, such as `device_memory_bytes_limit`.
    ///
    /// # Errors
    /// Those of the plugin.
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
    /// Those of the compiler; [`super::Code::RESOURCE_EXHAUSTED`] where the program does not fit the devices' memory.
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

impl Description {
    /// Reads what is told of a device, which must be alive.
    pub(super) fn read(view: View) -> Result<Description, PjrtError> {
        let mut attributes = Arguments::<CountedAttributes>::zeroed();
        attributes.fields.object = view.pointer;
        // SAFETY: the function takes this structure, and its list lives as long as the description.
        let attributes = unsafe {
            view.api.call(Function::DeviceDescriptionAttributes, &mut attributes)?;
            named::read(attributes.fields.values, attributes.fields.length)
        };
        Ok(Description {
            id: view.integer(Function::DeviceDescriptionId)?,
            process: view.integer(Function::DeviceDescriptionProcessIndex)?,
            kind: view.text(Function::DeviceDescriptionKind)?,
            text: view.text(Function::DeviceDescriptionDebugString)?,
            attributes,
        })
    }
}
