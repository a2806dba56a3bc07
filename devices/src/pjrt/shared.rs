//! The functions that plugins call to exchange values with other processes: a [`Store`] behind PJRT's key-value interface.
#![expect(unsafe_code, reason = "is called by the plugin")]

use super::abi::{ClientCreate, Given, KeyValueGet, KeyValueGetNow, KeyValuePut, MakeError, Pointer};
use super::api::slice_of;
use super::error::Code;
use crate::{Store, StoreError};
use std::ptr::null_mut;
use std::sync::Arc;
use std::time::Duration;

/// The size of the length before each value. The length is needed to free the value, since a plugin gives back only its address.
const HEAD_BYTES: usize = size_of::<usize>();

/// Lets the plugin use the store for the client that is made with these arguments. The store must live as long as the client.
pub(super) fn offer(store: &Arc<Store>, fields: &mut ClientCreate) {
    let argument: Pointer = Arc::as_ptr(store).cast_mut().cast();
    fields.key_value_get = Some(get);
    fields.key_value_get_argument = argument;
    fields.key_value_get_now = Some(get_now);
    fields.key_value_get_now_argument = argument;
    fields.key_value_put = Some(put);
    fields.key_value_put_argument = argument;
}

/// # Safety
/// The plugin passes its structure, with the argument of [`offer`].
unsafe extern "C" fn get(given: *mut Given<KeyValueGet>) -> Pointer {
    // SAFETY: the plugin guarantees the structure; the key has its length, and the store lives as long as the client.
    let (fields, store, key) = unsafe {
        let fields = &mut (*given).fields;
        let (store, key) = (&*fields.argument.cast::<Store>(), slice_of(fields.key, fields.key_length));
        (fields, store, key)
    };
    let wait = Duration::from_millis(u64::try_from(fields.timeout_ms).unwrap_or(0));
    let answer = (&mut fields.value, &mut fields.value_length, &mut fields.free);
    // SAFETY: `make_error` is the plugin's own function.
    unsafe { answered(store.get(key, wait), answer, fields.make_error) }
}

/// # Safety
/// The plugin passes its structure, with the argument of [`offer`].
unsafe extern "C" fn get_now(given: *mut Given<KeyValueGetNow>) -> Pointer {
    // SAFETY: the plugin guarantees the structure, as in `get`.
    let (fields, store, key) = unsafe {
        let fields = &mut (*given).fields;
        let (store, key) = (&*fields.argument.cast::<Store>(), slice_of(fields.key, fields.key_length));
        (fields, store, key)
    };
    let answer = (&mut fields.value, &mut fields.value_length, &mut fields.free);
    // SAFETY: `make_error` is the plugin's own function.
    unsafe { answered(store.get_now(key), answer, fields.make_error) }
}

/// # Safety
/// The plugin passes its structure, with the argument of [`offer`].
unsafe extern "C" fn put(given: *mut Given<KeyValuePut>) -> Pointer {
    // SAFETY: the plugin guarantees the structure, as in `get`; the value has its length, too.
    let (fields, stored) = unsafe {
        let fields = &(*given).fields;
        let store = &*fields.argument.cast::<Store>();
        let (key, value) = (slice_of(fields.key, fields.key_length), slice_of(fields.value, fields.value_length));
        (fields, store.put(key, value))
    };
    match stored {
        Ok(()) => null_mut(),
        // SAFETY: `make_error` is the plugin's own function.
        Err(error) => unsafe { failed(fields.make_error, &error) },
    }
}

/// Writes the result of a look-up into the plugin's structure: the value, its length and the function that frees it; or makes an error.
///
/// # Safety
/// The same condition as for [`failed`].
unsafe fn answered(
    found: Result<Vec<u8>, StoreError>,
    (value, length, free_with): (&mut *mut u8, &mut usize, &mut Option<unsafe extern "C" fn(*mut u8)>),
    make_error: *const MakeError,
) -> Pointer {
    match found {
        Ok(bytes) => {
            (*value, *length) = (lent(&bytes), bytes.len());
            *free_with = Some(free);
            null_mut()
        }
        // SAFETY: the caller guarantees `make_error`.
        Err(error) => unsafe { failed(make_error, &error) },
    }
}

/// The address of a copy of the value, which the plugin uses until it calls [`free`].
fn lent(value: &[u8]) -> *mut u8 {
    let bytes: Box<[u8]> = [&value.len().to_ne_bytes(), value].concat().into();
    // SAFETY: the box has `HEAD_BYTES` bytes before the value, and the address may also be the one behind its last byte.
    unsafe { Box::into_raw(bytes).cast::<u8>().add(HEAD_BYTES) }
}

/// # Safety
/// The address comes from [`lent`], and is freed only once.
unsafe extern "C" fn free(value: *mut u8) {
    if value.is_null() {
        return;
    }
    // SAFETY: as the caller guarantees, the length is before the value, and both together are the box.
    unsafe {
        let begin = value.sub(HEAD_BYTES);
        let length = begin.cast::<[u8; HEAD_BYTES]>().read();
        let bytes = std::ptr::slice_from_raw_parts_mut(begin, HEAD_BYTES + usize::from_ne_bytes(length));
        drop(Box::from_raw(bytes));
    }
}

/// Makes one of the plugin's errors from an error of the store.
///
/// # Safety
/// `make_error` is null or points to the plugin's function.
unsafe fn failed(make_error: *const MakeError, error: &StoreError) -> Pointer {
    let code = match error {
        StoreError::Late { .. } => Code::DEADLINE_EXCEEDED,
        StoreError::Absent { .. } => Code::NOT_FOUND,
        StoreError::Taken { .. } => Code::ALREADY_EXISTS,
        StoreError::Unreachable { .. } => Code::UNAVAILABLE,
        StoreError::Differs { .. } => Code::FAILED_PRECONDITION,
    };
    let text = error.to_string();
    // SAFETY: the caller guarantees `make_error`; the plugin copies the text during the call.
    unsafe {
        match make_error.as_ref() {
            Some(make_error) => make_error(code.0, text.as_ptr(), text.len()),
            // Without `make_error`, the error cannot be reported, and the plugin would read a missing value as a value.
            None => {
                eprintln!("ferrotune: {text}");
                std::process::abort()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cluster;
    use std::ffi::c_int;

    /// A function that makes an error like a plugin's, from a code and a text.
    unsafe extern "C" fn make_error(code: c_int, text: *const u8, length: usize) -> Pointer {
        // SAFETY: `failed` passes a text of this length.
        let text = unsafe { slice_of(text, length) };
        Box::into_raw(Box::new((code, String::from_utf8_lossy(text).into_owned()))).cast()
    }

    fn taken(error: Pointer) -> Option<(c_int, String)> {
        // SAFETY: the error was made by `make_error`, and is taken only once.
        (!error.is_null()).then(|| unsafe { *Box::from_raw(error.cast::<(c_int, String)>()) })
    }

    fn given<T>(fields: T) -> Given<T> {
        Given { size: size_of::<Given<T>>(), extension: null_mut(), fields }
    }

    #[test]
    fn a_plugin_stores_and_finds_values_through_the_three_functions() -> Result<(), Box<dyn std::error::Error>> {
        let store = Arc::new(Store::open(&Cluster::new(["127.0.0.1:0"], 0)?)?);
        let argument: Pointer = Arc::as_ptr(&store).cast_mut().cast();
        let report: MakeError = make_error;
        let report = &raw const report;
        let put_as = |key: &[u8], value: &[u8]| {
            let (key, key_length) = (key.as_ptr(), key.len());
            let (value, value_length) = (value.as_ptr(), value.len());
            let mut given = given(KeyValuePut { key, key_length, value, value_length, make_error: report, argument });
            // SAFETY: all pointers in the structure are valid.
            taken(unsafe { put(&raw mut given) })
        };
        let get_as = |key: &[u8]| {
            let (key, key_length, value) = (key.as_ptr(), key.len(), null_mut());
            let (value_length, timeout_ms, make_error) = (0, 50, report);
            let mut given = given(KeyValueGet {
                key,
                key_length,
                timeout_ms,
                make_error,
                argument,
                value,
                value_length,
                free: None,
            });
            // SAFETY: all pointers in the structure are valid, and the value is freed once.
            unsafe {
                taken(get(&raw mut given)).map_or_else(
                    || {
                        let value = slice_of(given.fields.value, given.fields.value_length).to_vec();
                        given.fields.free.expect("a function")(given.fields.value);
                        Ok(value)
                    },
                    Err,
                )
            }
        };
        let bytes = [0, 7, 255, 0];
        assert_eq!(put_as(b"a/0", &bytes), None);
        assert_eq!(put_as(b"empty", b""), None);
        assert_eq!((get_as(b"a/0"), get_as(b"empty")), (Ok(bytes.to_vec()), Ok(Vec::new())));
        let (code, text) = put_as(b"a/0", b"again").expect("it is taken");
        assert_eq!(
            (code, text.as_str()),
            (6, "worker 0 cannot store `a/0`, which worker 0 has stored before; start all workers anew, together")
        );
        let (code, text) = get_as(b"nothing").expect_err("it is not there");
        assert!(code == 4 && text.contains("`nothing`, which no worker has stored"), "{code} {text}");
        Ok(())
    }
}
