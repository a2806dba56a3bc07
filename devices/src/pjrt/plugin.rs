//! A loaded plugin, and how its functions are called.
#![expect(unsafe_code, reason = "loads a plugin and calls it")]

use super::abi::{Arguments, Entry, Function, Header, Integer, Nothing, One, Pointer, Text, Zeroable};
use super::abi::{ClientCreate, PluginAttributes, TopologyCreate};
use super::client::Client;
use super::error::{Code, PjrtError};
use super::named::{self, Named, Options, Value};
use super::object::{Object, text_of};
use super::topology::Topology;
use crate::fork;
use std::error::Error as _;
use std::path::Path;

/// A plugin that has been loaded and initialised. Copies are the same plugin.
///
/// ```no_run
/// use ferrotune_devices::pjrt::{Literal, Plugin};
///
/// let client = Plugin::load("/opt/libtpu.so".as_ref())?.client(&[])?;
/// let devices = client.devices()?;
/// let buffer = client.upload(&Literal::f32(&[2], &[1.0, 2.0])?, &devices[0])?;
/// assert_eq!(buffer.download()?.wait()?.to_f32()?, [1.0, 2.0]);
/// # Ok::<(), ferrotune_devices::pjrt::PjrtError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Plugin {
    api: Api,
}

impl Plugin {
    /// Loads a plugin into this process, for good. May hang or abort: [`crate::probe`] tries it in a child first.
    ///
    /// # Errors
    /// If the file is no plugin, is of an unknown version, or fails to initialise.
    pub fn load(path: &Path) -> Result<Plugin, PjrtError> {
        let not_a_plugin = |reason| PjrtError::NotAPlugin { path: path.to_owned(), reason };
        // SAFETY: runs the initialisers of a library that the user chose as a plugin.
        let library = unsafe { libloading::Library::new(path) }.map_err(|error| PjrtError::Load {
            path: path.to_owned(),
            reason: error.source().map_or_else(|| error.to_string(), ToString::to_string),
        })?;
        // SAFETY: plugins export the function with this signature.
        let get_api = unsafe { library.get::<unsafe extern "C" fn() -> *const Header>(b"GetPjrtApi\0") };
        let get_api = *get_api.map_err(|_| not_a_plugin("it does not export GetPjrtApi"))?;
        // Its threads and tables must stay for as long as the process does.
        std::mem::forget(library);
        // SAFETY: the library stays loaded, and the table is static in it.
        let header = unsafe { get_api().as_ref() }.ok_or_else(|| not_a_plugin("GetPjrtApi gives no table"))?;
        if header.major != 0 {
            return Err(PjrtError::Version { path: path.to_owned(), major: header.major, minor: header.minor });
        }
        let api = Api { header };
        // SAFETY: the structure is the function's own, and empty.
        unsafe { api.call(Function::PluginInitialize, &mut Arguments::<Nothing>::zeroed()) }?;
        Ok(Plugin { api })
    }

    /// Version of the interface that the plugin speaks, such as `(0, 116)`.
    pub fn api_version(self) -> (i32, i32) {
        (self.api.header.major, self.api.header.minor)
    }

    /// What the plugin says of itself, such as the versions of StableHLO that it reads.
    ///
    /// # Errors
    /// Those of the plugin.
    pub fn attributes(self) -> Result<Vec<Named>, PjrtError> {
        let mut arguments = Arguments::<PluginAttributes>::zeroed();
        // SAFETY: the structure is the function's own; what it points to lives as long as the process.
        unsafe {
            self.api.call(Function::PluginAttributes, &mut arguments)?;
            Ok(named::read(arguments.fields.values, arguments.fields.length))
        }
    }

    /// Opens the devices. On a TPU only one process at a time can.
    ///
    /// # Errors
    /// Those of the plugin, and [`PjrtError::Forked`] where a device was open before a fork.
    pub fn client(self, options: &[(&str, Value)]) -> Result<Client, PjrtError> {
        let options = Options::new(options);
        let mut arguments = Arguments::<ClientCreate>::zeroed();
        (arguments.fields.options, arguments.fields.option_count) = options.parts();
        // SAFETY: the structure is the function's own, and the options live until it returns.
        unsafe { self.api.call(Function::ClientCreate, &mut arguments) }?;
        let object = Object::new(self.api, arguments.fields.client, Function::ClientDestroy)?;
        Ok(Client::new(object))
    }

    /// Describes devices that need not be here, such as `v5e:2x2`, to compile for them.
    ///
    /// # Errors
    /// Those of the plugin: it may know no such name.
    pub fn topology(self, name: &str, options: &[(&str, Value)]) -> Result<Topology, PjrtError> {
        let options = Options::new(options);
        let mut arguments = Arguments::<TopologyCreate>::zeroed();
        (arguments.fields.name, arguments.fields.name_length) = (name.as_ptr(), name.len());
        (arguments.fields.options, arguments.fields.option_count) = options.parts();
        // SAFETY: the structure is the function's own, and name and options live until it returns.
        unsafe { self.api.call(Function::TopologyDescriptionCreate, &mut arguments) }?;
        Object::new(self.api, arguments.fields.topology, Function::TopologyDescriptionDestroy).map(Topology::new)
    }
}

/// The table of functions.
#[derive(Clone, Copy)]
pub(super) struct Api {
    header: &'static Header,
}

// SAFETY: the table is constant, and PJRT lets its functions be called from any thread.
unsafe impl Send for Api {}
// SAFETY: as above.
unsafe impl Sync for Api {}

impl std::fmt::Debug for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PJRT {}.{}", self.header.major, self.header.minor)
    }
}

impl Api {
    fn entry(self, function: Function) -> Result<Entry, PjrtError> {
        let offset = size_of::<Header>() + function as usize * size_of::<Option<Entry>>();
        let entry = if offset + size_of::<Option<Entry>>() <= self.header.size {
            let table: *const Header = self.header;
            // SAFETY: the table says that it is long enough, and holds functions or null behind its head.
            unsafe { table.byte_add(offset).cast::<Option<Entry>>().read() }
        } else {
            None
        };
        entry.ok_or_else(|| PjrtError::Missing {
            function: name(function),
            major: self.header.major,
            minor: self.header.minor,
        })
    }

    /// Calls a function; in a process that has forked from one with open devices it is an error.
    ///
    /// # Safety
    /// `T` is what the function takes, and its pointers are valid for what the function does with them.
    pub(super) unsafe fn call<T: Zeroable>(
        self,
        function: Function,
        arguments: &mut Arguments<T>,
    ) -> Result<(), PjrtError> {
        // A plugin waits for its threads, which a fork leaves behind.
        fork::check()?;
        let entry = self.entry(function)?;
        // SAFETY: the caller's promise.
        let error = unsafe { entry((&raw mut *arguments).cast()) };
        if error.is_null() { Ok(()) } else { Err(self.take_error(function, error)) }
    }

    /// The text and code of an error, which is freed.
    fn take_error(self, function: Function, error: Pointer) -> PjrtError {
        let mut message = Arguments::<Text>::zeroed();
        let mut code = Arguments::<Integer>::zeroed();
        let mut destroy = Arguments::<One>::zeroed();
        (message.fields.object, code.fields.object, destroy.fields.object) = (error, error, error);
        // SAFETY: the three functions take these structures, the error is alive until the last of them, and its text
        // is copied before. They fail only by being absent; two of them return nothing, and what the third returns is
        // not looked at.
        unsafe {
            if let Ok(get_message) = self.entry(Function::ErrorMessage) {
                get_message((&raw mut message).cast());
            }
            if let Ok(get_code) = self.entry(Function::ErrorGetCode) {
                get_code((&raw mut code).cast());
            }
            let text = text_of(message.fields.text.cast(), message.fields.length);
            if let Ok(destroy_error) = self.entry(Function::ErrorDestroy) {
                destroy_error((&raw mut destroy).cast());
            }
            PjrtError::Refused { function: name(function), code: Code(code.fields.value), message: text }
        }
    }
}

fn name(function: Function) -> String {
    format!("PJRT_{function:?}")
}
