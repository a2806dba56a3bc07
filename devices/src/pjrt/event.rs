//! Events, which report that asynchronous work is done or has failed.
#![expect(unsafe_code, reason = "calls the plugin")]

use super::abi::{Arguments, Flag, Function, One, Pointer};
use super::api::Api;
use super::error::PjrtError;
use super::object::Object;
use std::sync::Arc;

/// The end of a run on each of its devices.
pub(super) type Ends = Arc<[Event]>;

/// The end of some asynchronous work.
#[derive(Debug)]
pub struct Event {
    object: Object,
}

impl Event {
    /// Takes ownership of an event. Null stands for one that has already happened.
    pub(super) fn new(api: Api, pointer: Pointer) -> Option<Event> {
        Object::new(api, pointer, Function::EventDestroy).ok().map(|object| Event { object })
    }

    /// Whether the work is done or has failed.
    ///
    /// # Errors
    /// If the plugin cannot tell.
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
    /// That of the work.
    pub fn wait(&self) -> Result<(), PjrtError> {
        let mut arguments = Arguments::<One>::zeroed();
        arguments.fields.object = self.object.pointer;
        // SAFETY: the function takes this structure.
        unsafe { self.object.api.call(Function::EventAwait, &mut arguments) }
    }
}
