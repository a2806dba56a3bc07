//! Arrays on a device, their transfers, and the ends of asynchronous work.

use super::client::{Device, DeviceForm, other_client};
use super::handle::{Handle, Ticket};
use crate::pjrt::{self, Element, Ends, Literal, PjrtError};
use crate::process::protocol::{Answer, Question, Request};
use std::sync::Arc;

/// An array in the memory of a device.
#[derive(Debug)]
pub struct Buffer(pub(super) Form);

#[derive(Debug)]
pub(super) enum Form {
    Here(pjrt::Buffer),
    Far(Handle),
}

impl From<pjrt::Buffer> for Buffer {
    fn from(buffer: pjrt::Buffer) -> Buffer {
        Buffer(Form::Here(buffer))
    }
}

impl Buffer {
    /// The element type of the array.
    ///
    /// # Errors
    /// The errors of the plugin, or an element type that is unknown to [`Element`].
    pub fn element(&self) -> Result<Element, PjrtError> {
        match &self.0 {
            Form::Here(buffer) => buffer.element(),
            Form::Far(handle) => Ok(shape(handle)?.0),
        }
    }

    /// The dimensions of the array; none for a scalar.
    ///
    /// # Errors
    /// The errors of the plugin.
    pub fn dims(&self) -> Result<Vec<i64>, PjrtError> {
        match &self.0 {
            Form::Here(buffer) => buffer.dims(),
            Form::Far(handle) => Ok(shape(handle)?.1),
        }
    }

    /// The number of bytes that the array takes on the device, padding included.
    ///
    /// # Errors
    /// The errors of the plugin.
    pub fn device_bytes(&self) -> Result<usize, PjrtError> {
        match &self.0 {
            Form::Here(buffer) => buffer.device_bytes(),
            Form::Far(handle) => Ok(usize::try_from(shape(handle)?.2).unwrap_or(usize::MAX)),
        }
    }

    /// The event of the moment from which the array's content is on the device, or its computation has failed.
    ///
    /// # Errors
    /// The errors of the plugin.
    pub fn ready(&self) -> Result<Event<'_>, PjrtError> {
        match &self.0 {
            Form::Here(buffer) => buffer.ready().map(|event| Event(EventForm::Here(event))),
            Form::Far(handle) => Ok(Event(EventForm::Far(handle))),
        }
    }

    /// Whether the buffer's memory was freed, by [`Buffer::delete`] or because the buffer was donated.
    ///
    /// # Errors
    /// The errors of the plugin.
    pub fn is_deleted(&self) -> Result<bool, PjrtError> {
        match &self.0 {
            Form::Here(buffer) => buffer.is_deleted(),
            Form::Far(handle) => handle.is(Question::IsDeleted { buffer: handle.id }),
        }
    }

    /// Whether the array went with its device process, which has ended.
    pub fn is_lost(&self) -> bool {
        match &self.0 {
            Form::Here(_) => false,
            Form::Far(handle) => !handle.is_alive(),
        }
    }

    /// Frees the buffer's memory as soon as no started computation needs it. Dropping the buffer does the same.
    ///
    /// # Errors
    /// The errors of the plugin.
    pub fn delete(&self) -> Result<(), PjrtError> {
        match &self.0 {
            Form::Here(buffer) => buffer.delete(),
            Form::Far(handle) => handle.far.send(handle.epoch, &Request::Delete { buffer: handle.id }),
        }
    }

    /// Copies the array to another device of its client. The copy may continue after the call has returned, and it waits for the
    /// computation that makes the array.
    ///
    /// # Errors
    /// If the device belongs to another client or already has the array; and the errors of the plugin, such as a lack of memory.
    pub fn copy_to(&self, device: &Device) -> Result<Buffer, PjrtError> {
        match (&self.0, &device.0) {
            (Form::Here(buffer), DeviceForm::Here(device)) => buffer.copy_to(device).map(Buffer::from),
            (Form::Far(handle), DeviceForm::Far(far, place)) if Arc::ptr_eq(far, &handle.far) => {
                let copy = handle.beside();
                let request = Request::Copy { buffer: copy.id, source: handle.id, device: *place };
                handle.far.send(handle.epoch, &request)?;
                Ok(Buffer(Form::Far(copy)))
            }
            _ => Err(other_client()),
        }
    }

    /// Starts to copy the array to the host, in row-major order.
    ///
    /// # Errors
    /// The errors of the plugin.
    pub fn download(&self) -> Result<Transfer, PjrtError> {
        match &self.0 {
            Form::Here(buffer) => buffer.download().map(|transfer| Transfer(TransferForm::Here(transfer))),
            Form::Far(handle) => {
                let ticket = handle.far.begin(handle.epoch, Question::Download { buffer: handle.id })?;
                Ok(Transfer(TransferForm::Far(ticket)))
            }
        }
    }
}

fn shape(handle: &Handle) -> Result<(Element, Vec<i64>, u64), PjrtError> {
    match handle.ask(Question::Shape { buffer: handle.id })? {
        Answer::Shape { element, dims, device_bytes } => Ok((element, dims, device_bytes)),
        other => Err(handle.far.odd(&other)),
    }
}

/// An array that is being copied to the host.
#[derive(Debug)]
pub struct Transfer(TransferForm);

#[derive(Debug)]
enum TransferForm {
    Here(pjrt::Transfer),
    Far(Ticket),
}

impl Transfer {
    /// Whether the copy has ended or failed.
    ///
    /// # Errors
    /// The errors of the plugin.
    pub fn is_ready(&self) -> Result<bool, PjrtError> {
        match &self.0 {
            TransferForm::Here(transfer) => transfer.is_ready(),
            TransferForm::Far(ticket) => ticket.is_answered(),
        }
    }

    /// Waits for the array.
    ///
    /// # Errors
    /// The errors of the copy, and of the computation that makes the array.
    pub fn wait(self) -> Result<Literal, PjrtError> {
        let ticket = match self.0 {
            TransferForm::Here(transfer) => return transfer.wait(),
            TransferForm::Far(ticket) => ticket,
        };
        let (answer, bytes) = ticket.wait()?;
        match answer {
            Answer::Array { element, dims, .. } => {
                Literal::of(element, &dims, bytes.map_err(|error| ticket.far.garbled(&error))?)
            }
            other => Err(ticket.far.odd(&other)),
        }
    }
}

/// The end of asynchronous work.
#[derive(Debug)]
pub struct Event<'a>(pub(super) EventForm<'a>);

#[derive(Debug)]
pub(super) enum EventForm<'a> {
    Here(pjrt::Event),
    Run(Ends),
    Far(&'a Handle),
    FarRun(Handle),
}

impl Event<'_> {
    /// Whether the work is done or has failed.
    ///
    /// # Errors
    /// The errors of the plugin.
    pub fn is_ready(&self) -> Result<bool, PjrtError> {
        match &self.0 {
            EventForm::Here(event) => event.is_ready(),
            EventForm::Run(ends) => ends.iter().try_fold(true, |over, end| Ok(over & end.is_ready()?)),
            EventForm::Far(handle) => handle.is(Question::IsOver { of: handle.id }),
            EventForm::FarRun(handle) => handle.is(Question::IsOver { of: handle.id }),
        }
    }

    /// Waits for the end of the work.
    ///
    /// # Errors
    /// The error of the work; of work on several devices, that of the first device that failed.
    pub fn wait(&self) -> Result<(), PjrtError> {
        match &self.0 {
            EventForm::Here(event) => event.wait(),
            EventForm::Run(ends) => ends.iter().try_for_each(pjrt::Event::wait),
            EventForm::Far(handle) => handle.ask(Question::End { of: handle.id }).map(drop),
            EventForm::FarRun(handle) => handle.ask(Question::End { of: handle.id }).map(drop),
        }
    }
}
