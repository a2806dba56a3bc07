//! What a device is, whether it is here or elsewhere.
#![expect(unsafe_code, reason = "calls the plugin")]

use super::abi::{Arguments, CountedAttributes, Function};
use super::error::PjrtError;
use super::named::{self, Named};
use super::object::View;

/// What a device is, here or elsewhere.
#[derive(Clone, Debug, PartialEq)]
pub struct Description {
    /// Its number among all devices of all processes.
    pub id: i32,
    /// The process that it belongs to.
    pub process: i32,
    /// The vendor's name for it, such as `TPU v5 lite`.
    pub kind: String,
    /// A line about it, for logs.
    pub text: String,
    /// Its other attributes.
    pub attributes: Vec<Named>,
}

impl Description {
    /// Reads the description of a device, which must be alive.
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
