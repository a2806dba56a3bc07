//! Compiled programs: how they are compiled and loaded, and the memory that they need.
#![expect(unsafe_code, reason = "calls the plugin")]

use super::abi::{Arguments, ClientCompile, CompiledMemoryStats, CountedAttributes, Deserialize};
use super::abi::{Function, OutputDims, OutputTypes, Serialize};
use super::api::slice_of;
use super::client::Client;
use super::compile_options::CompileOptions;
use super::error::PjrtError;
use super::literal::{Element, byte_count};
use super::named::{self, Named};
use super::object::Object;
use super::program::MlirProgram;
use super::run::LoadedExecutable;

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
