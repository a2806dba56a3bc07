//! The profiler, an extension of the table: a trace has an event for each run of a program.

use crate::abi::{Function, made};
use crate::error::{ERRORS, Failure, answer};
use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::{Mutex, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// The extension's kind, after its size and before the next one.
#[repr(C)]
pub(crate) struct Extension {
    size: usize,
    kind: i32,
    next: *const c_void,
    table: *const Table,
    context: i64,
}

// SAFETY: both are constant.
unsafe impl Sync for Extension {}
// SAFETY: as above.
unsafe impl Sync for Table {}

#[repr(C)]
struct Table {
    size: usize,
    private: *const c_void,
    errors: [Function; 3],
    functions: [unsafe extern "C" fn(*mut Request) -> *mut c_void; 5],
}

/// The longest structure of the five functions, of which `create` has its options in the place of the profiler.
#[repr(C)]
struct Request {
    size: usize,
    profiler: *mut Profiler,
    buffer: *const u8,
    last: usize,
}

static TABLE: Table = Table {
    size: size_of::<Table>(),
    private: null(),
    errors: ERRORS,
    functions: [create, destroy, start, stop, collect],
};

pub(crate) static EXTENSION: Extension =
    Extension { size: size_of::<Extension>(), kind: 1, next: null(), table: &raw const TABLE, context: -1 };

/// The runs since the profiler was started, unless it is stopped.
static RUNS: Mutex<Option<Vec<(SystemTime, u64)>>> = Mutex::new(None);

fn runs() -> std::sync::MutexGuard<'static, Option<Vec<(SystemTime, u64)>>> {
    RUNS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A program runs.
pub(crate) fn during<T>(run: impl FnOnce() -> T) -> T {
    let (begun, clock) = (SystemTime::now(), Instant::now());
    let done = run();
    if let Some(runs) = &mut *runs() {
        runs.push((begun, clock.elapsed().as_nanos() as u64));
    }
    done
}

#[derive(Default)]
struct Profiler {
    trace: Vec<u8>,
}

unsafe extern "C" fn create(request: *mut Request) -> *mut c_void {
    // SAFETY: the caller gives the structure of `create`, whose options live until it returns.
    let (request, options) = unsafe {
        let length = (*request).buffer as usize;
        (&mut *request, std::slice::from_raw_parts((*request).profiler.cast::<u8>(), length))
    };
    if request.size != 32 || !options.windows(2).any(|pair| pair == [5 << 3, 1]) {
        return answer(Err(Failure::invalid("the options have no version, or the structure has another size")));
    }
    request.last = made(Profiler::default()) as usize;
    null_mut()
}

unsafe extern "C" fn destroy(request: *mut Request) -> *mut c_void {
    *runs() = None;
    // SAFETY: `create` has made it, and it is freed once.
    drop(unsafe { Box::from_raw((*request).profiler) });
    null_mut()
}

unsafe extern "C" fn start(_: *mut Request) -> *mut c_void {
    let mut runs = runs();
    if std::env::var("FERROTUNE_PJRT_FAULT").is_ok_and(|fault| fault == "profile:refuse") || runs.is_some() {
        return answer(Err(Failure { code: 9, message: "Another profiling session is active.".to_owned() }));
    }
    *runs = Some(Vec::new());
    null_mut()
}

unsafe extern "C" fn stop(request: *mut Request) -> *mut c_void {
    let Some(runs) = runs().take() else { return answer(Err(Failure::invalid("it is not started"))) };
    // SAFETY: the caller gives a profiler that `create` has made.
    unsafe { (*(*request).profiler).trace = trace(&runs) };
    null_mut()
}

/// Gives its own buffer, as libtpu does; or copies, as OpenXLA describes it, with `FERROTUNE_PJRT_FAULT=profile:copy`.
unsafe extern "C" fn collect(request: *mut Request) -> *mut c_void {
    // SAFETY: the caller gives the structure of `collect` and a profiler that `create` has made.
    let (request, trace) = unsafe { (&mut *request, &(*(*request).profiler).trace) };
    request.last = trace.len();
    if !request.buffer.is_null() {
        // SAFETY: the caller has room for as many bytes as it was told.
        unsafe { request.buffer.cast_mut().copy_from_nonoverlapping(trace.as_ptr(), trace.len()) };
    } else if std::env::var("FERROTUNE_PJRT_FAULT").as_deref() != Ok("profile:copy") {
        request.buffer = trace.as_ptr();
    }
    null_mut()
}

/// An `XSpace` with one plane, and on its one line the runs.
fn trace(runs: &[(SystemTime, u64)]) -> Vec<u8> {
    let nanoseconds = |time: SystemTime| time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
    let first = runs.first().map_or(0, |(begun, _)| nanoseconds(*begun));
    let mut line = [bytes(2, b"XLA Modules"), number(3, first)].concat();
    for (begun, duration) in runs {
        let offset = number(2, 1000 * (nanoseconds(*begun) - first));
        line.extend(bytes(4, &[number(1, 7), offset, number(3, 1000 * duration)].concat()));
    }
    let metadata = bytes(2, &[number(1, 7), bytes(2, b"a program")].concat());
    let plane = [bytes(2, b"/device:EMULATED:0"), bytes(3, &line), bytes(4, &[number(1, 7), metadata].concat())];
    bytes(1, &plane.concat())
}

/// A field of a protocol buffer that has a number.
fn number(field: u8, value: u64) -> Vec<u8> {
    [vec![field << 3], varint(value)].concat()
}

/// A field of a protocol buffer that has bytes.
fn bytes(field: u8, value: &[u8]) -> Vec<u8> {
    [vec![field << 3 | 2], varint(value.len() as u64), value.to_vec()].concat()
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}
