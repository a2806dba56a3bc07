//! Events, which report that asynchronous work is done or has failed.
#![expect(unsafe_code, reason = "calls the plugin")]

use super::abi::{Arguments, Flag, Function, OnReady, One, Pointer};
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

    /// Keeps a value until the work has ended or has failed, and drops it then, on a thread of the plugin.
    ///
    /// # Errors
    /// The errors of the plugin. The value is not dropped then, because the work may need it.
    pub(super) fn keep_until<T: Send + 'static>(self, value: T) -> Result<(), PjrtError> {
        let api = self.object.api;
        let kept: *mut Kept<T> = Box::into_raw(Box::new(Kept { api, value }));
        let mut arguments = Arguments::<OnReady>::zeroed();
        arguments.fields.event = self.object.pointer;
        arguments.fields.callback = Some(drop_kept::<T>);
        arguments.fields.argument = kept.cast();
        // SAFETY: the function takes this structure, and the plugin calls the callback once, with the argument that belongs to it.
        unsafe { api.call(Function::EventOnReady, &mut arguments) }
    }
}

/// A value that is kept until an event, and the plugin whose event it is.
struct Kept<T> {
    api: Api,
    value: T,
}

/// Drops a [`Kept`], and frees the error of its work: whoever uses the result of the work gets that error, too.
///
/// # Safety
/// `argument` is of `Box::<Kept<T>>::into_raw`, and is not used again. `error` is an error of its plugin, or null.
unsafe extern "C" fn drop_kept<T>(error: Pointer, argument: Pointer) {
    // SAFETY: the caller guarantees the argument.
    let Kept { api, value } = *unsafe { Box::from_raw(argument.cast::<Kept<T>>()) };
    drop(value);
    if !error.is_null() {
        drop(api.take_error(Function::EventOnReady, error));
    }
}
