//! A loaded plugin.
#![expect(unsafe_code, reason = "loads a plugin and calls it")]

use super::abi::{Arguments, ClientCreate, Function, Header, Nothing, PluginAttributes, TopologyCreate};
use super::api::Api;
use super::client::Client;
use super::error::PjrtError;
use super::named::{self, Named, Options, Value};
use super::object::Object;
use super::shared;
use super::topology::Topology;
use crate::Store;
use std::error::Error as _;
use std::path::Path;
use std::sync::Arc;

/// A plugin that has been loaded and initialised. Copies refer to the same plugin.
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
    pub(super) api: Api,
}

impl Plugin {
    /// Loads a plugin into this process, until the process exits. The plugin may hang or abort: [`crate::probe`] tries it in a child
    /// process first.
    ///
    /// # Errors
    /// If the file is not a plugin, has an unknown version, or fails to initialise.
    pub fn load(path: &Path) -> Result<Plugin, PjrtError> {
        let not_a_plugin = |reason: &str| PjrtError::NotAPlugin { path: path.to_owned(), reason: reason.to_owned() };
        // SAFETY: runs the initialisers of a library that the user chose as a plugin.
        let library = unsafe { libloading::Library::new(path) }.map_err(|error| PjrtError::Load {
            path: path.to_owned(),
            reason: error.source().map_or_else(|| error.to_string(), ToString::to_string),
        })?;
        // SAFETY: plugins export the function with this signature.
        let get_api = unsafe { library.get::<unsafe extern "C" fn() -> *const Header>(b"GetPjrtApi\0") };
        let get_api = *get_api.map_err(|_| not_a_plugin("it does not export GetPjrtApi"))?;
        // The library's threads and tables must stay until the process exits.
        std::mem::forget(library);
        // SAFETY: the library stays loaded, and the table is static in it.
        let header = unsafe { get_api().as_ref() }.ok_or_else(|| not_a_plugin("GetPjrtApi gives no table"))?;
        if header.major != 0 {
            return Err(PjrtError::Version { path: path.to_owned(), major: header.major, minor: header.minor });
        }
        let api = Api::new(header);
        // SAFETY: the structure is the function's own, and empty.
        unsafe { api.call(Function::PluginInitialize, &mut Arguments::<Nothing>::zeroed()) }?;
        Ok(Plugin { api })
    }

    /// The version of PJRT's interface that the plugin has, such as `(0, 116)`.
    pub fn api_version(self) -> (i32, i32) {
        self.api.version()
    }

    /// The plugin's attributes, such as the versions of StableHLO that it accepts.
    ///
    /// # Errors
    /// The errors of the plugin.
    pub fn attributes(self) -> Result<Vec<Named>, PjrtError> {
        let mut arguments = Arguments::<PluginAttributes>::zeroed();
        // SAFETY: the structure is the function's own; the attributes that it points to live as long as the process.
        unsafe {
            self.api.call(Function::PluginAttributes, &mut arguments)?;
            Ok(named::read(arguments.fields.values, arguments.fields.length))
        }
    }

    /// Opens the devices. Only one process at a time can open a TPU.
    ///
    /// # Errors
    /// The errors of the plugin, and [`PjrtError::Forked`] where a device was open before a fork.
    pub fn client(self, options: &[(&str, Value)]) -> Result<Client, PjrtError> {
        self.create(options, None)
    }

    /// Opens the devices of several processes, each of which calls this at the same time: [`Client::all_devices`] are the devices of all
    /// these processes. The plugin finds the other processes through the store.
    ///
    /// Most plugins read the number of this process and the number of processes from the options `node_id` and `num_nodes`, and libtpu
    /// reads them from its environment: [`crate::open_jointly`] sets the options.
    ///
    /// # Errors
    /// The errors of [`Plugin::client`], and the errors of the store as the plugin reports them.
    pub fn client_across(self, options: &[(&str, Value)], store: Arc<Store>) -> Result<Client, PjrtError> {
        self.create(options, Some(store))
    }

    fn create(self, options: &[(&str, Value)], store: Option<Arc<Store>>) -> Result<Client, PjrtError> {
        let options = Options::new(options);
        let mut arguments = Arguments::<ClientCreate>::zeroed();
        (arguments.fields.options, arguments.fields.option_count) = options.parts();
        if let Some(store) = &store {
            shared::offer(store, &mut arguments.fields);
        }
        // SAFETY: the structure is the function's own, and the options live until it returns. The client keeps the store; if there
        // is none, the plugin does not use the store after it has returned.
        unsafe { self.api.call(Function::ClientCreate, &mut arguments) }?;
        let object = Object::new(self.api, arguments.fields.client, Function::ClientDestroy)?;
        Ok(Client::new(object, store))
    }

    /// Describes devices by name, such as `v5e:2x2`, to compile for them. This machine need not have the devices.
    ///
    /// # Errors
    /// The errors of the plugin, for example for an unknown name.
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

impl Client {
    /// The plugin that the devices belong to.
    pub fn plugin(&self) -> Plugin {
        Plugin { api: self.object.api }
    }
}
