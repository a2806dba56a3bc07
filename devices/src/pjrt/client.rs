//! The open devices of a plugin.
#![expect(unsafe_code, reason = "calls the plugin")]

use super::abi::{Arguments, Function, MemoryStats, Pointer};
use super::description::Description;
use super::error::PjrtError;
use super::event::Ends;
use super::object::{Object, View};
use crate::Store;
use crate::fork;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// The greatest number of runs on several devices that may wait or run at a time. XLA:CPU has one thread for each of its devices. A
/// run beyond the 32nd occupies one of these threads until an earlier run ends, but the earlier run may itself wait for that thread.
const MOST_JOINT_RUNS: usize = 8;

/// The open devices of a plugin. Copies refer to the same client. The devices are closed when the last copy, and the last
/// object made with it, is dropped.
#[derive(Clone, Debug)]
pub struct Client {
    /// The ends of the latest runs on several devices, the earliest first.
    joint_runs: Arc<Mutex<VecDeque<Ends>>>,
    pub(super) object: Arc<Object>,
    /// The store for the values of other processes. The plugin may use it as long as the client lives, so it is dropped after the client.
    store: Option<Arc<Store>>,
}

/// One device of a client.
#[derive(Clone, Debug)]
pub struct Device {
    client: Client,
    pub(super) pointer: DevicePointer,
}

/// A pointer to a device, which is valid as long as its client lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DevicePointer(pub(super) Pointer);

// SAFETY: PJRT's objects may be used from any thread.
unsafe impl Send for DevicePointer {}
// SAFETY: PJRT's objects may be used from any thread.
unsafe impl Sync for DevicePointer {}

/// The use of a device's memory, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceMemory {
    /// Memory in use.
    pub used_bytes: u64,
    /// The largest memory use so far; none if the plugin does not report it.
    pub peak_bytes: Option<u64>,
    /// The memory limit; none if the plugin does not report it.
    pub limit_bytes: Option<u64>,
}

impl Client {
    pub(super) fn new(object: Object, store: Option<Arc<Store>>) -> Client {
        fork::opened();
        Client { joint_runs: Arc::default(), object: Arc::new(object), store }
    }

    /// The store that the processes of this client share; none where the client was opened for this process alone.
    pub fn store(&self) -> Option<&Store> {
        self.store.as_deref()
    }

    /// Waits until the number of runs on several devices is below the limit.
    pub(super) fn wait_for_room(&self) {
        loop {
            let mut runs = self.joint_runs.lock().unwrap_or_else(PoisonError::into_inner);
            let earliest = if runs.len() < MOST_JOINT_RUNS { None } else { runs.pop_front() };
            drop(runs);
            let Some(ends) = earliest else { return };
            // An error of the run is reported to the readers of its outputs.
            ends.iter().for_each(|end| drop(end.wait()));
        }
    }

    /// Counts a run on several devices as running until these events.
    pub(super) fn count_run(&self, ends: Ends) {
        self.joint_runs.lock().unwrap_or_else(PoisonError::into_inner).push_back(ends);
    }

    fn view(&self) -> View {
        self.object.view()
    }

    /// The platform's name, such as `tpu` or `cuda`.
    ///
    /// # Errors
    /// The errors of the plugin.
    pub fn platform(&self) -> Result<String, PjrtError> {
        self.view().text(Function::ClientPlatformName)
    }

    /// The platform's version, often of several lines.
    ///
    /// # Errors
    /// The errors of the plugin.
    pub fn version(&self) -> Result<String, PjrtError> {
        self.view().text(Function::ClientPlatformVersion)
    }

    /// Whether the other client is a copy of this one.
    pub fn is_same(&self, other: &Client) -> bool {
        Arc::ptr_eq(&self.object, &other.object)
    }

    /// The devices that this process can use.
    ///
    /// # Errors
    /// The errors of the plugin.
    pub fn devices(&self) -> Result<Vec<Device>, PjrtError> {
        self.wrap(self.view().list(Function::ClientAddressableDevices)?)
    }

    /// The devices of all processes. For devices of other processes, only the description can be read here.
    ///
    /// # Errors
    /// The errors of the plugin.
    pub fn all_devices(&self) -> Result<Vec<Device>, PjrtError> {
        self.wrap(self.view().list(Function::ClientDevices)?)
    }

    /// This process' number among those that have opened the plugin together; 0 if it has opened it alone.
    ///
    /// # Errors
    /// The errors of the plugin.
    pub fn process(&self) -> Result<i32, PjrtError> {
        self.view().integer(Function::ClientProcessIndex)
    }

    pub(super) fn wrap(&self, devices: Vec<Pointer>) -> Result<Vec<Device>, PjrtError> {
        if devices.iter().any(|pointer| pointer.is_null()) {
            return Err(PjrtError::Mismatch { what: "the plugin lists a device that does not exist".into() });
        }
        let device = |pointer| Device { client: self.clone(), pointer: DevicePointer(pointer) };
        Ok(devices.into_iter().map(device).collect())
    }
}

impl Device {
    /// The device's pointer, for calls that use an array of this client.
    ///
    /// # Errors
    /// If the device belongs to another client, because the plugin would not know its pointer.
    pub(super) fn pointer_for(&self, client: &Client) -> Result<Pointer, PjrtError> {
        if !self.client.is_same(client) {
            return Err(PjrtError::Mismatch { what: "an array goes only to devices of its own client".to_owned() });
        }
        Ok(self.pointer.0)
    }

    /// The description of the device: its kind and its number.
    ///
    /// # Errors
    /// The errors of the plugin.
    pub fn description(&self) -> Result<Description, PjrtError> {
        let api = self.client.object.api;
        let pointer = View { api, pointer: self.pointer.0 }.other(Function::DeviceGetDescription)?;
        Description::read(View { api, pointer })
    }

    /// The device's memory use.
    ///
    /// # Errors
    /// The errors of the plugin; some do not report memory.
    pub fn memory(&self) -> Result<DeviceMemory, PjrtError> {
        let mut arguments = Arguments::<MemoryStats>::zeroed();
        arguments.fields.device = self.pointer.0;
        // SAFETY: the function takes this structure, with spare room for the fields that are not read.
        unsafe { self.client.object.api.call(Function::DeviceMemoryStats, &mut arguments) }?;
        let stats = &arguments.fields;
        let reported = |value: i64, is_set: u8| if is_set == 0 { None } else { u64::try_from(value).ok() };
        Ok(DeviceMemory {
            used_bytes: u64::try_from(stats.in_use).unwrap_or(0),
            peak_bytes: reported(stats.peak, stats.peak_is_set),
            limit_bytes: reported(stats.limit, stats.limit_is_set),
        })
    }
}
