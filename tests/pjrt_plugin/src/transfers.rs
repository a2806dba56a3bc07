//! Arrays, to the device and back.

use crate::abi::{Arguments, Function, made};
use crate::error::{Failure, answer};
use crate::fault;
use crate::helper::{Helper, number};
use crate::objects::{Client, Device, Event};
use serde_json::json;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Places in the table.
pub(crate) const FUNCTIONS: &[(usize, Function)] = &[
    (22, buffer_from_host),
    (58, buffer_destroy),
    (59, buffer_element),
    (60, buffer_dims),
    (64, buffer_bytes),
    (67, buffer_delete),
    (68, buffer_is_deleted),
    (70, buffer_to_host),
    (72, buffer_ready),
];

/// Bytes of an element by PJRT's number of its type.
const ELEMENT_BYTES: [usize; 23] = [0, 1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 4, 8, 2, 8, 16, 1, 1, 1, 1, 1, 1, 1];

pub(crate) struct Buffer {
    helper: Arc<Helper>,
    /// The helper's number of it.
    pub(crate) array: i64,
    element: i32,
    dims: Vec<i64>,
    deleted: AtomicBool,
}

impl Buffer {
    pub(crate) fn new(helper: &Arc<Helper>, array: i64, element: i32, dims: Vec<i64>) -> Buffer {
        fault::allocated(byte_count(element, &dims));
        Buffer { helper: helper.clone(), array, element, dims, deleted: AtomicBool::new(false) }
    }

    pub(crate) fn is_deleted(&self) -> bool {
        self.deleted.load(Ordering::SeqCst)
    }

    pub(crate) fn mark_deleted(&self) {
        if !self.deleted.swap(true, Ordering::SeqCst) {
            fault::freed(self.bytes());
        }
    }

    fn bytes(&self) -> usize {
        byte_count(self.element, &self.dims)
    }
}

fn byte_count(element: i32, dims: &[i64]) -> usize {
    let element = usize::try_from(element).ok().and_then(|element| ELEMENT_BYTES.get(element));
    element.copied().unwrap_or(0) * dims.iter().map(|dim| usize::try_from(*dim).unwrap_or(0)).product::<usize>()
}

/// Fields: client, data, type, dims, their count, strides, their count, semantics, device, memory, layout, and the
/// outputs event and buffer.
unsafe extern "C" fn buffer_from_host(arguments: Arguments) -> *mut c_void {
    let client: &Client = arguments.object(0);
    let (element, dims): (i32, &[i64]) = (arguments.get(2), arguments.list(3, 4));
    if arguments.get::<usize>(6) != 0 {
        return answer(Err(Failure::invalid("only dense arrays are taken")));
    }
    let device = arguments.object::<Device>(8).index;
    let data = crate::abi::slice(arguments.get::<*const u8>(1), byte_count(element, dims));
    let request = json!({"op": "put", "type": element, "dims": dims, "device": device});
    answer(client.helper.ask(request, &[data]).map(|(put, _)| {
        arguments.set(11, made(Event::done()));
        arguments.set(12, made(Buffer::new(&client.helper, number(&put["array"]), element, dims.to_vec())));
    }))
}

unsafe extern "C" fn buffer_destroy(arguments: Arguments) -> *mut c_void {
    let buffer: &Buffer = arguments.object(0);
    buffer.mark_deleted();
    let freed = buffer.helper.ask(json!({"op": "free", "array": buffer.array}), &[]);
    arguments.free::<Buffer>(0);
    answer(freed.map(drop))
}

unsafe extern "C" fn buffer_element(arguments: Arguments) -> *mut c_void {
    arguments.set(1, arguments.object::<Buffer>(0).element);
    null_mut()
}

unsafe extern "C" fn buffer_dims(arguments: Arguments) -> *mut c_void {
    let dims = &arguments.object::<Buffer>(0).dims;
    arguments.set(1, dims.as_ptr());
    arguments.set(2, dims.len());
    null_mut()
}

unsafe extern "C" fn buffer_bytes(arguments: Arguments) -> *mut c_void {
    arguments.set(1, arguments.object::<Buffer>(0).bytes());
    null_mut()
}

unsafe extern "C" fn buffer_delete(arguments: Arguments) -> *mut c_void {
    arguments.object::<Buffer>(0).mark_deleted();
    null_mut()
}

unsafe extern "C" fn buffer_is_deleted(arguments: Arguments) -> *mut c_void {
    arguments.set(1, u8::from(arguments.object::<Buffer>(0).is_deleted()));
    null_mut()
}

unsafe extern "C" fn buffer_ready(arguments: Arguments) -> *mut c_void {
    arguments.set(1, made(Event::done()));
    null_mut()
}

/// Where a thread writes an array to.
struct Target(*mut u8);

// SAFETY: the caller leaves the target alone until the event.
unsafe impl Send for Target {}

/// Fields: buffer, layout, target, its length, and the output event.
unsafe extern "C" fn buffer_to_host(arguments: Arguments) -> *mut c_void {
    let buffer: &Buffer = arguments.object(0);
    if buffer.is_deleted() {
        return answer(Err(Failure::invalid("the buffer has been deleted or donated")));
    }
    let layout: *const u8 = arguments.get(1);
    if let Err(failure) = check_layout(layout, buffer.dims.len()) {
        return answer(Err(failure));
    }
    if arguments.get::<usize>(3) < buffer.bytes() {
        return answer(Err(Failure::invalid("the target is too small")));
    }
    let (event, target) = (Event::default(), Target(arguments.get(2)));
    let (helper, array, end, length) = (buffer.helper.clone(), buffer.array, event.clone(), buffer.bytes());
    std::thread::spawn(move || {
        let target = target;
        let got = helper.ask(json!({"op": "get", "array": array}), &[]).and_then(|(_, raw)| {
            if raw.len() != length {
                return Err(Failure::internal(format!("{} bytes came for {length}", raw.len())));
            }
            // SAFETY: the target has room for so many bytes, and is the caller's until the event.
            unsafe { std::ptr::copy_nonoverlapping(raw.as_ptr(), target.0, raw.len()) };
            Ok(())
        });
        end.end(got);
    });
    arguments.set(4, made(event));
    null_mut()
}

/// A tiled layout without tiles, the last dimension varying fastest. Its fields: size, extension, the tiled form (size,
/// extension, minor to major, count, tile dimensions, tile ranks, tile count) and the kind.
fn check_layout(layout: *const u8, rank: usize) -> Result<(), Failure> {
    if layout.is_null() {
        return Ok(());
    }
    let words = crate::abi::slice(layout.cast::<usize>(), 10);
    let order: Vec<i64> = crate::abi::slice(words[4] as *const i64, words[5]).to_vec();
    let expected: Vec<i64> = (0..).take(rank).collect();
    let is_dense = order.iter().rev().eq(expected.iter()) && words[8] == 0 && words[9] as u32 == 0;
    let has_sizes = words[0] == 80 && words[2] == 56;
    if is_dense && has_sizes { Ok(()) } else { Err(Failure::invalid(format!("the layout {words:?} is not dense"))) }
}
