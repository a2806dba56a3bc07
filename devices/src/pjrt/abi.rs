//! PJRT's functions by their index in the table, and the structures that they take.
#![expect(unsafe_code, reason = "declares which structures may be made of zeros")]

use std::ffi::{c_char, c_int, c_void};

/// A pointer to an object of the plugin.
pub(super) type Pointer = *mut c_void;

/// A function of the table: it takes a pointer to its structure, and returns an error or null.
pub(super) type Entry = unsafe extern "C" fn(*mut c_void) -> Pointer;

/// A function of this crate that the plugin calls: it takes the plugin's structure, and returns an error or null.
pub(super) type Callback<T> = unsafe extern "C" fn(*mut Given<T>) -> Pointer;

/// A function of this crate that the plugin calls at the end of work, with an error that is to be freed, or null, and an argument.
pub(super) type OnReadyCallback = unsafe extern "C" fn(Pointer, Pointer);

/// A function of the plugin that makes an error with a code and a text.
pub(super) type MakeError = unsafe extern "C" fn(c_int, *const u8, usize) -> Pointer;

/// A structure that the plugin passes, which ends with the last field that the plugin's version knows.
#[repr(C)]
pub(super) struct Given<T> {
    pub(super) size: usize,
    pub(super) extension: Pointer,
    pub(super) fields: T,
}

/// The number of spare words that every structure has after its known fields.
const SPARE_WORDS: usize = 32;

/// The head of PJRT's table of functions.
#[repr(C)]
pub(super) struct Header {
    pub(super) size: usize,
    pub(super) extension: Pointer,
    pub(super) version_size: usize,
    pub(super) version_extension: Pointer,
    pub(super) major: c_int,
    pub(super) minor: c_int,
}

/// A function, by its index in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(super) enum Function {
    ErrorDestroy = 0,
    ErrorMessage = 1,
    ErrorGetCode = 2,
    PluginInitialize = 3,
    PluginAttributes = 4,
    EventDestroy = 5,
    EventIsReady = 6,
    EventAwait = 8,
    EventOnReady = 9,
    ClientCreate = 10,
    ClientDestroy = 11,
    ClientPlatformName = 12,
    ClientProcessIndex = 13,
    ClientPlatformVersion = 14,
    ClientDevices = 15,
    ClientAddressableDevices = 16,
    ClientCompile = 20,
    ClientBufferFromHostBuffer = 22,
    DeviceDescriptionId = 23,
    DeviceDescriptionProcessIndex = 24,
    DeviceDescriptionAttributes = 25,
    DeviceDescriptionKind = 26,
    DeviceDescriptionDebugString = 27,
    DeviceGetDescription = 29,
    DeviceMemoryStats = 34,
    ExecutableDestroy = 40,
    ExecutableName = 41,
    ExecutableNumReplicas = 42,
    ExecutableNumPartitions = 43,
    ExecutableNumOutputs = 44,
    ExecutableGetCostAnalysis = 46,
    ExecutableSerialize = 49,
    LoadedExecutableDestroy = 50,
    LoadedExecutableGetExecutable = 51,
    LoadedExecutableAddressableDevices = 52,
    LoadedExecutableExecute = 55,
    ExecutableDeserializeAndLoad = 56,
    BufferDestroy = 58,
    BufferElementType = 59,
    BufferDimensions = 60,
    BufferOnDeviceSizeInBytes = 64,
    BufferDelete = 67,
    BufferIsDeleted = 68,
    BufferCopyToDevice = 69,
    BufferToHostBuffer = 70,
    BufferReadyEvent = 72,
    TopologyDescriptionCreate = 82,
    TopologyDescriptionDestroy = 83,
    TopologyDescriptionPlatformName = 84,
    TopologyDescriptionPlatformVersion = 85,
    TopologyDescriptionGetDeviceDescriptions = 86,
    TopologyDescriptionAttributes = 88,
    Compile = 89,
    ExecutableOutputElementTypes = 90,
    ExecutableOutputDimensions = 91,
    ExecutableGetCompiledMemoryStats = 96,
}

/// A structure of arguments: size and extension, with which all structures begin, then the fields, then zeros, which a newer
/// plugin reads as defaults.
#[repr(C)]
pub(super) struct Arguments<T> {
    size: usize,
    extension: Pointer,
    pub(super) fields: T,
    spare: [u64; SPARE_WORDS],
}

impl<T: Zeroable> Arguments<T> {
    pub(super) fn zeroed() -> Arguments<T> {
        // SAFETY: T is Zeroable; the rest is integers and a raw pointer.
        let mut arguments: Arguments<T> = unsafe { std::mem::zeroed() };
        arguments.size = size_of::<Arguments<T>>();
        arguments
    }
}

/// A type of fields for which all-zero bytes are a valid value.
///
/// # Safety
/// The type has only integers, raw pointers and optional functions.
pub(super) unsafe trait Zeroable {}

macro_rules! structures {
    ($($(#[$attribute:meta])* $name:ident { $($field:ident: $kind:ty),* $(,)? })*) => {$(
        $(#[$attribute])*
        #[repr(C)]
        pub(super) struct $name { $(pub(super) $field: $kind),* }
        // SAFETY: the list below has integers, raw pointers, optional functions and structures of these.
        unsafe impl Zeroable for $name {}
    )*};
}

structures! {
    Nothing {}
    One { object: Pointer }
    Number { object: Pointer, value: usize }
    Integer { object: Pointer, value: c_int }
    /// C's `bool`, read as a byte so that no value of it can be invalid.
    Flag { object: Pointer, value: u8 }
    Other { object: Pointer, other: Pointer }
    OnReady { event: Pointer, callback: Option<OnReadyCallback>, argument: Pointer }
    Text { object: Pointer, text: *const c_char, length: usize }
    List { object: Pointer, items: *const Pointer, length: usize }
    PluginAttributes { values: *const NamedValue, length: usize }
    Attributes { object: Pointer, values: *const NamedValue, length: usize }
    /// A list of attributes whose count comes before the pointer.
    CountedAttributes { object: Pointer, length: usize, values: *const NamedValue }
    /// The arguments for a new client; older plugins do not read the last two fields.
    ClientCreate {
        options: *const NamedValue,
        option_count: usize,
        key_value_get: Option<Callback<KeyValueGet>>,
        key_value_get_argument: Pointer,
        key_value_put: Option<Callback<KeyValuePut>>,
        key_value_put_argument: Pointer,
        client: Pointer,
        key_value_get_now: Option<Callback<KeyValueGetNow>>,
        key_value_get_now_argument: Pointer,
    }
    KeyValueGet {
        key: *const u8,
        key_length: usize,
        timeout_ms: c_int,
        make_error: *const MakeError,
        argument: Pointer,
        value: *mut u8,
        value_length: usize,
        free: Option<unsafe extern "C" fn(*mut u8)>,
    }
    KeyValueGetNow {
        key: *const u8,
        key_length: usize,
        make_error: *const MakeError,
        argument: Pointer,
        value: *mut u8,
        value_length: usize,
        free: Option<unsafe extern "C" fn(*mut u8)>,
    }
    KeyValuePut {
        key: *const u8,
        key_length: usize,
        value: *const u8,
        value_length: usize,
        make_error: *const MakeError,
        argument: Pointer,
    }
    ClientCompile {
        client: Pointer,
        program: *const Arguments<Program>,
        options: *const u8,
        options_length: usize,
        executable: Pointer,
    }
    Program { code: *const u8, code_length: usize, format: *const u8, format_length: usize }
    Compile {
        topology: Pointer,
        program: *const Arguments<Program>,
        options: *const u8,
        options_length: usize,
        client: Pointer,
        executable: Pointer,
    }
    TopologyCreate {
        name: *const u8,
        name_length: usize,
        options: *const NamedValue,
        option_count: usize,
        topology: Pointer,
    }
    BufferFromHost {
        client: Pointer,
        data: *const u8,
        element: c_int,
        dims: *const i64,
        dim_count: usize,
        strides: *const i64,
        stride_count: usize,
        semantics: c_int,
        device: Pointer,
        memory: Pointer,
        layout: Pointer,
        done_with_host: Pointer,
        buffer: Pointer,
    }
    BufferToHost {
        buffer: Pointer,
        layout: *const Layout,
        target: *mut u8,
        target_length: usize,
        event: Pointer,
    }
    BufferCopy { buffer: Pointer, device: Pointer, copy: Pointer }
    Dims { object: Pointer, dims: *const i64, length: usize }
    OutputTypes { executable: Pointer, types: *const c_int, length: usize }
    OutputDims { executable: Pointer, length: usize, dims: *const i64, ranks: *const usize }
    Serialize {
        executable: Pointer,
        bytes: *const u8,
        length: usize,
        owner: Pointer,
        free: Option<unsafe extern "C" fn(Pointer)>,
    }
    Deserialize { client: Pointer, bytes: *const u8, length: usize, executable: Pointer }
    ExecuteOptions {
        send_callbacks: Pointer,
        receive_callbacks: Pointer,
        send_count: usize,
        receive_count: usize,
        launch: c_int,
        kept: *const i64,
        kept_count: usize,
    }
    Execute {
        executable: Pointer,
        options: *mut Arguments<ExecuteOptions>,
        inputs: *const *const Pointer,
        device_count: usize,
        input_count: usize,
        outputs: *const *mut Pointer,
        events: *mut Pointer,
        device: Pointer,
    }
    /// A device's memory statistics; after each optional value comes a word that says whether the value is set.
    MemoryStats {
        device: Pointer,
        in_use: i64,
        peak: i64,
        peak_is_set: u8,
        allocations: i64,
        allocations_is_set: u8,
        largest: i64,
        largest_is_set: u8,
        limit: i64,
        limit_is_set: u8,
    }
    /// A program's memory statistics, with zero for a statistic that the plugin's version does not have.
    CompiledMemoryStats {
        executable: Pointer,
        code: i64,
        arguments: i64,
        outputs: i64,
        aliases: i64,
        temporaries: i64,
        host_code: i64,
        host_arguments: i64,
        host_outputs: i64,
        host_aliases: i64,
        host_temporaries: i64,
        peak: i64,
    }
}

/// One option or attribute. It has no spare words, because it is an element of arrays.
#[repr(C)]
pub(super) struct NamedValue {
    pub(super) size: usize,
    pub(super) extension: Pointer,
    pub(super) name: *const u8,
    pub(super) name_length: usize,
    pub(super) kind: c_int,
    /// A pointer, an `i64`, or an `f32` or a `bool` in the lowest bytes.
    pub(super) value: u64,
    pub(super) value_length: usize,
}

/// A dense layout of an array. C's union is declared as its tiled form, which is the larger one.
#[repr(C)]
pub(super) struct Layout {
    pub(super) size: usize,
    pub(super) extension: Pointer,
    pub(super) tiled_size: usize,
    pub(super) tiled_extension: Pointer,
    pub(super) minor_to_major: *const i64,
    pub(super) minor_to_major_length: usize,
    pub(super) tile_dims: *const i64,
    pub(super) tile_ranks: *const usize,
    pub(super) tile_count: usize,
    pub(super) kind: c_int,
}
