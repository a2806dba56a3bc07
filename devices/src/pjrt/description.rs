//! The description of a device, which may be on this machine or elsewhere.
#![expect(unsafe_code, reason = "calls the plugin")]

use super::abi::{Arguments, CountedAttributes, Function};
use super::error::PjrtError;
use super::named::{self, Named};
use super::object::View;
use serde::{Deserialize, Serialize};

/// The description of a device, which may be on this machine or elsewhere.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Description {
    /// The device's number among all devices of all processes.
    pub id: i32,
    /// The number of the process that the device belongs to.
    pub process: i32,
    /// The vendor's name for the kind of device, such as `TPU v5 lite`.
    pub kind: String,
    /// The plugin's own description on one line, for logs.
    pub text: String,
    /// The device's other attributes.
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
