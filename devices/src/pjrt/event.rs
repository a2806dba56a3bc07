//! Events, which report that asynchronous work is done or has failed.
#![expect(unsafe_code, reason = "calls the plugin")]

use super::abi::{Arguments, Flag, Function, One, Pointer};
use super::api::Api;
use super::error::PjrtError;
use super::object::Object;
use std::sync::Arc;

/// The events of the end of a run, one for each of its devices.
pub(crate) type Ends = Arc<[Event]>;

/// The event of the end of asynchronous work.
#[derive(Debug)]
pub struct Event {
    object: Object,
}

impl Event {
    /// Takes ownership of an event. Null stands for an event that has already happened.
    pub(super) fn new(api: Api, pointer: Pointer) -> Option<Event> {
        Object::new(api, pointer, Function::EventDestroy).ok().map(|object| Event { object })
    }

    /// Whether the work is done or has failed.
    ///
    /// # Errors
    /// The errors of the plugin.
    pub fn is_ready(&self) -> Result<bool, PjrtError> {
        let mut arguments = Arguments::<Flag>::zeroed();
        arguments.fields.object = self.object.pointer;
        // SAFETY: the function takes this structure.
        unsafe { self.object.api.call(Function::EventIsReady, &mut arguments) }?;
        Ok(arguments.fields.value != 0)
    }

    /// Waits for the end of the work.
    ///
    /// # Errors
    /// The error of the work.
    pub fn wait(&self) -> Result<(), PjrtError> {
        let mut arguments = Arguments::<One>::zeroed();
        arguments.fields.object = self.object.pointer;
        // SAFETY: the function takes this structure.
        unsafe { self.object.api.call(Function::EventAwait, &mut arguments) }
    }
}
