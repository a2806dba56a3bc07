//! Arrays on a device, and their transfers from and to the host.
#![expect(unsafe_code, reason = "calls the plugin")]

use super::abi::{Arguments, BufferCopy, BufferFromHost, BufferToHost, Dims, Flag, Function, Layout, One, Pointer};
use super::api::slice_of;
use super::client::{Client, Device};
use super::error::PjrtError;
use super::event::Event;
use super::literal::{Element, Literal, byte_count, check_length};
use super::object::Object;
use crate::memory::Bytes;
use std::io;
use std::ops::DerefMut;
use std::ptr::{null, null_mut};

/// PJRT's host buffer semantics in which the plugin copies the array before the call returns.
const COPIED_DURING_CALL: i32 = 0;

/// PJRT's host buffer semantics in which the plugin may use the array of the host as the device's. A client of the device process does not
/// write to an array's file while the array is there.
const ZERO_COPY: i32 = 2;

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
        self.upload_bytes(literal.element(), literal.dims(), literal.bytes(), device)
    }

    /// Copies an array of bytes in the machine's byte order to a device, as [`Client::upload`] does.
    ///
    /// # Errors
    /// If the number of bytes does not match the dimensions, and the errors of [`Client::upload`].
    pub(crate) fn upload_bytes(
        &self,
        element: Element,
        dims: &[i64],
        bytes: &[u8],
        device: &Device,
    ) -> Result<Buffer, PjrtError> {
        // With these semantics the array is copied by now. The event is not needed, but must be freed.
        self.make_buffer(element, dims, bytes, device, COPIED_DURING_CALL).map(|(buffer, _)| buffer)
    }

    /// Makes an array on a device of bytes that are mapped, whose pages may become those of the array. They stay until the plugin
    /// needs them no more.
    ///
    /// # Errors
    /// The errors of [`Client::upload_bytes`].
    pub(crate) fn upload_mapped(
        &self,
        element: Element,
        dims: &[i64],
        mapped: Bytes,
        device: &Device,
    ) -> Result<Buffer, PjrtError> {
        let (buffer, done) = self.make_buffer(element, dims, &mapped, device, ZERO_COPY)?;
        match done {
            Some(done) => done.keep_until(mapped)?,
            // Without an event nobody knows until when the plugin uses the bytes.
            None => std::mem::forget(mapped),
        }
        Ok(buffer)
    }

    /// The array, and the event from which on the plugin does not need the host's bytes any more; none if it has none.
    fn make_buffer(
        &self,
        element: Element,
        dims: &[i64],
        bytes: &[u8],
        device: &Device,
        semantics: i32,
    ) -> Result<(Buffer, Option<Event>), PjrtError> {
        check_length(element, dims, bytes)?;
        let device = device.pointer_for(self)?;
        let mut arguments = Arguments::<BufferFromHost>::zeroed();
        let fields = &mut arguments.fields;
        fields.client = self.object.pointer;
        fields.data = bytes.as_ptr();
        fields.element = element.number();
        (fields.dims, fields.dim_count) = (dims.as_ptr(), dims.len());
        fields.semantics = semantics;
        fields.device = device;
        // SAFETY: the function takes this structure; array and dimensions live until it returns, and the array is as
        // long as its dimensions say. With other semantics than these, the caller keeps the array until the event.
        unsafe { self.object.api.call(Function::ClientBufferFromHostBuffer, &mut arguments) }?;
        let done = Event::new(self.object.api, arguments.fields.done_with_host);
        Ok((Buffer::new(self, arguments.fields.buffer)?, done))
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
        self.download_into(|length| Ok(vec![0; length]))
    }

    /// Starts to copy the array into room of this length in bytes.
    pub(crate) fn download_into<R: DerefMut<Target = [u8]>>(
        &self,
        room: impl FnOnce(usize) -> io::Result<R>,
    ) -> Result<Transfer<R>, PjrtError> {
        let (element, dims) = (self.element()?, self.dims()?);
        let length = byte_count(element, &dims)
            .ok_or_else(|| PjrtError::Mismatch { what: format!("an array {dims:?} is too large for this host") })?;
        let no_room =
            |error| PjrtError::Mismatch { what: format!("there is no memory for an array {dims:?}: {error}") };
        let mut room = room(length).map_err(no_room)?;
        let mut minor_to_major: Vec<i64> = (0..).take(dims.len()).collect();
        minor_to_major.reverse();
        let layout = dense(&minor_to_major);
        let mut arguments = Arguments::<BufferToHost>::zeroed();
        let fields = &mut arguments.fields;
        (fields.buffer, fields.layout) = (self.object.pointer, &raw const layout);
        (fields.target, fields.target_length) = (room.as_mut_ptr(), room.len());
        // SAFETY: the function takes this structure; the layout lives until it returns, and the room until the
        // transfer's event, for which `Transfer` waits before it frees them.
        unsafe { self.object.api.call(Function::BufferToHostBuffer, &mut arguments) }?;
        let event = Event::new(self.object.api, arguments.fields.event);
        Ok(Transfer { event, element, dims, room: Some(room) })
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
pub struct Transfer<R = Vec<u8>> {
    /// The event of the copy's end; none if the plugin has copied the array before the call returned.
    event: Option<Event>,
    element: Element,
    dims: Vec<i64>,
    room: Option<R>,
}

impl<R> Transfer<R> {
    /// Whether the copy has ended or failed.
    ///
    /// # Errors
    /// The errors of the plugin.
    pub fn is_ready(&self) -> Result<bool, PjrtError> {
        self.event.as_ref().map_or(Ok(true), Event::is_ready)
    }

    /// Waits for the array: its type, its dimensions, and the room with its bytes.
    ///
    /// # Errors
    /// The errors of the copy, and of the computation that makes the array.
    pub(crate) fn filled(mut self) -> Result<(Element, Vec<i64>, R), PjrtError> {
        self.event.take().map_or(Ok(()), |event| event.wait())?;
        let room = self.room.take().expect("only this function, which consumes the transfer, takes the room");
        Ok((self.element, std::mem::take(&mut self.dims), room))
    }
}

impl Transfer {
    /// Waits for the array.
    ///
    /// # Errors
    /// The errors of the copy, and of the computation that makes the array.
    pub fn wait(self) -> Result<Literal, PjrtError> {
        let (element, dims, bytes) = self.filled()?;
        Literal::new(element, &dims, bytes)
    }
}

impl<R> Drop for Transfer<R> {
    /// Waits for the event, because the plugin writes into the room until then.
    fn drop(&mut self) {
        if let Some(event) = self.event.take()
            && let Err(error) = event.wait()
        {
            eprintln!("ferrotune: a transfer that was dropped has failed: {error}");
        }
    }
}
