//! Arrays on a device, and their transfers from and to the host.
#![expect(unsafe_code, reason = "calls the plugin")]

use super::abi::{Arguments, BufferCopy, BufferFromHost, BufferToHost, Dims, Flag, Function, Layout, One, Pointer};
use super::api::slice_of;
use super::client::{Client, Device};
use super::error::PjrtError;
use super::event::Event;
use super::literal::{Element, Literal, byte_count};
use super::object::Object;
use crate::memory::Room;
use std::io;
use std::ptr::{null, null_mut};

/// PJRT's host buffer semantics in which the plugin copies the array before the call returns.
const COPIED_DURING_CALL: i32 = 0;

/// An array in the memory of a device.
#[derive(Debug)]
pub struct Buffer {
    pub(super) object: Object,
    // The client is dropped after the buffer, which must not outlive it.
    client: Client,
}

impl Client {
    /// Copies an array to a device. The copy may continue after the call has returned; [`Buffer::ready`] gives the event of its end.
    ///
    /// # Errors
    /// The errors of the plugin, such as a lack of memory.
    pub fn upload(&self, literal: &Literal, device: &Device) -> Result<Buffer, PjrtError> {
        let device = device.pointer_for(self)?;
        let mut arguments = Arguments::<BufferFromHost>::zeroed();
        let fields = &mut arguments.fields;
        fields.client = self.object.pointer;
        fields.data = literal.bytes().as_ptr();
        fields.element = literal.element().number();
        (fields.dims, fields.dim_count) = (literal.dims().as_ptr(), literal.dims().len());
        fields.semantics = COPIED_DURING_CALL;
        fields.device = device;
        // SAFETY: the function takes this structure; array and dimensions live until it returns, and the array is as
        // long as its dimensions say.
        unsafe { self.object.api.call(Function::ClientBufferFromHostBuffer, &mut arguments) }?;
        // With these semantics the array is copied by now. The event is not needed, but must be freed.
        drop(Event::new(self.object.api, arguments.fields.done_with_host));
        Buffer::new(self, arguments.fields.buffer)
    }
}

impl Buffer {
    pub(super) fn new(client: &Client, pointer: Pointer) -> Result<Buffer, PjrtError> {
        let object = Object::new(client.object.api, pointer, Function::BufferDestroy)?;
        Ok(Buffer { object, client: client.clone() })
    }

    /// The element type of the array.
    ///
    /// # Errors
    /// The errors of the plugin, or an element type that is unknown to [`Element`].
    pub fn element(&self) -> Result<Element, PjrtError> {
        Element::of_number(self.object.view().integer(Function::BufferElementType)?)
    }

    /// The dimensions of the array; none for a scalar.
    ///
    /// # Errors
    /// The errors of the plugin.
    pub fn dims(&self) -> Result<Vec<i64>, PjrtError> {
        let mut arguments = Arguments::<Dims>::zeroed();
        arguments.fields.object = self.object.pointer;
        // SAFETY: the function takes this structure, and the dimensions live as long as the buffer.
        unsafe {
            self.object.api.call(Function::BufferDimensions, &mut arguments)?;
            Ok(slice_of(arguments.fields.dims, arguments.fields.length).to_vec())
        }
    }

    /// The number of bytes that the array takes on the device, padding included.
    ///
    /// # Errors
    /// The errors of the plugin.
    pub fn device_bytes(&self) -> Result<usize, PjrtError> {
        self.object.view().number(Function::BufferOnDeviceSizeInBytes)
    }

    /// The event of the moment from which the array's content is on the device, or its computation has failed.
    ///
    /// # Errors
    /// The errors of the plugin.
    pub fn ready(&self) -> Result<Event, PjrtError> {
        let pointer = self.object.view().other(Function::BufferReadyEvent)?;
        Event::new(self.object.api, pointer)
            .ok_or_else(|| PjrtError::Mismatch { what: "the plugin returned no event for a buffer".into() })
    }

    /// Whether the buffer's memory was freed, by [`Buffer::delete`] or because the buffer was donated.
    ///
    /// # Errors
    /// The errors of the plugin.
    pub fn is_deleted(&self) -> Result<bool, PjrtError> {
        let mut arguments = Arguments::<Flag>::zeroed();
        arguments.fields.object = self.object.pointer;
        // SAFETY: the function takes this structure.
        unsafe { self.object.api.call(Function::BufferIsDeleted, &mut arguments) }?;
        Ok(arguments.fields.value != 0)
    }

    /// Frees the buffer's memory as soon as no started computation needs it. Dropping the buffer does the same.
    ///
    /// # Errors
    /// The errors of the plugin.
    pub fn delete(&self) -> Result<(), PjrtError> {
        let mut arguments = Arguments::<One>::zeroed();
        arguments.fields.object = self.object.pointer;
        // SAFETY: the function takes this structure; the object of a deleted buffer stays valid until it is freed.
        unsafe { self.object.api.call(Function::BufferDelete, &mut arguments) }
    }

    /// Copies the array to another device of its client. The copy may continue after the call has returned, and it waits for the
    /// computation that makes the array. The copy blocks no caller and needs no memory of the host.
    ///
    /// # Errors
    /// If the device belongs to another client or already has the array; and the errors of the plugin, such as a lack of memory.
    pub fn copy_to(&self, device: &Device) -> Result<Buffer, PjrtError> {
        let device = device.pointer_for(&self.client)?;
        let mut arguments = Arguments::<BufferCopy>::zeroed();
        (arguments.fields.buffer, arguments.fields.device) = (self.object.pointer, device);
        // SAFETY: the function takes this structure, and buffer and device live until it returns.
        unsafe { self.object.api.call(Function::BufferCopyToDevice, &mut arguments) }?;
        Buffer::new(&self.client, arguments.fields.copy)
    }

    /// Starts to copy the array to the host, in row-major order.
    ///
    /// # Errors
    /// The errors of the plugin.
    pub fn download(&self) -> Result<Transfer, PjrtError> {
        self.download_into(|length| Ok(Room::own(length)))
    }

    /// Starts to copy the array into room of this length in bytes.
    pub(crate) fn download_into(&self, room: impl FnOnce(usize) -> io::Result<Room>) -> Result<Transfer, PjrtError> {
        let (element, dims) = (self.element()?, self.dims()?);
        let length = byte_count(element, &dims)
            .ok_or_else(|| PjrtError::Mismatch { what: format!("an array {dims:?} is too large for this host") })?;
        let mut bytes = room(length).map_err(|error| no_room(&dims, &error))?;
        let mut minor_to_major: Vec<i64> = (0..).take(dims.len()).collect();
        minor_to_major.reverse();
        let layout = dense(&minor_to_major);
        let mut arguments = Arguments::<BufferToHost>::zeroed();
        let fields = &mut arguments.fields;
        (fields.buffer, fields.layout) = (self.object.pointer, &raw const layout);
        (fields.target, fields.target_length) = (bytes.as_mut_ptr(), bytes.len());
        // SAFETY: the function takes this structure; the layout lives until it returns, and the bytes until the
        // transfer's event, for which `Transfer` waits before it frees them.
        unsafe { self.object.api.call(Function::BufferToHostBuffer, &mut arguments) }?;
        let event = Event::new(self.object.api, arguments.fields.event);
        Ok(Transfer { event, element, dims, bytes })
    }
}

fn dense(minor_to_major: &[i64]) -> Layout {
    Layout {
        size: size_of::<Layout>(),
        extension: null_mut(),
        // The tiled form consists of all fields from this one up to `kind`.
        tiled_size: std::mem::offset_of!(Layout, kind) - std::mem::offset_of!(Layout, tiled_size),
        tiled_extension: null_mut(),
        minor_to_major: minor_to_major.as_ptr(),
        minor_to_major_length: minor_to_major.len(),
        tile_dims: null(),
        tile_ranks: null(),
        tile_count: 0,
        kind: 0,
    }
}

/// An array that is being copied to the host.
#[derive(Debug)]
pub struct Transfer {
    /// The event of the copy's end; none if the plugin has copied the array before the call returned.
    event: Option<Event>,
    element: Element,
    dims: Vec<i64>,
    bytes: Room,
}

fn no_room(dims: &[i64], error: &io::Error) -> PjrtError {
    PjrtError::Mismatch { what: format!("there is no memory for an array {dims:?}: {error}") }
}

impl Transfer {
    /// Whether the copy has ended or failed.
    ///
    /// # Errors
    /// The errors of the plugin.
    pub fn is_ready(&self) -> Result<bool, PjrtError> {
        self.event.as_ref().map_or(Ok(true), Event::is_ready)
    }

    /// Waits for the array.
    ///
    /// # Errors
    /// The errors of the copy, and of the computation that makes the array.
    pub fn wait(mut self) -> Result<Literal, PjrtError> {
        self.event.take().map_or(Ok(()), |event| event.wait())?;
        let bytes = std::mem::replace(&mut self.bytes, Room::own(0));
        let bytes = bytes.filled().map_err(|error| no_room(&self.dims, &error))?;
        Literal::of(self.element, &self.dims, bytes)
    }
}

impl Drop for Transfer {
    /// Waits for the event, because the plugin writes into the bytes until then.
    fn drop(&mut self) {
        if let Some(event) = self.event.take()
            && let Err(error) = event.wait()
        {
            eprintln!("ferrotune: a transfer that was dropped has failed: {error}");
        }
    }
}
