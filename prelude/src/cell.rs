//! The functions that the cell process calls around every cell.

pub mod memory;
mod output;
pub mod store;
pub mod timing;
pub mod value;
pub mod variables;

/// The compiler's own crates that need `extern crate`. The kernel replaces `extern crate alloc;` in a cell by an import from here.
pub mod sysroot {
    pub extern crate alloc;
    pub extern crate proc_macro;
}

use crate::{device, input, interrupt, widget};
use candle_core::anomaly;
use ferrotune_devices::runtime::Profiler;
use ferrotune_devices::{fork, runtime};
use ferrotune_link::{Answer, KernelFrame, connection};
use ferrotune_trial::threads;
use rayon::ThreadPool;
use std::any::Any;
use std::backtrace::Backtrace;
use std::cell::Cell;
use std::ffi::c_void;
use std::fmt;
use std::panic::{AssertUnwindSafe, Location, PanicHookInfo, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread::{Builder, ScopedJoinHandle, ThreadId};

/// The thread on which the cell runs.
static CELL_THREAD: Mutex<Option<ThreadId>> = Mutex::new(None);

/// The backtrace of the last panic on the cell's thread.
static BACKTRACE: Mutex<Option<Backtrace>> = Mutex::new(None);

/// The thread pool of a woken snapshot. The threads of rayon's own pool are not copied into a snapshot.
static POOL: Mutex<Option<ThreadPool>> = Mutex::new(None);

/// The error numbers of Linux for "Input/output error" and "Operation canceled".
const EIO: i32 = 5;
const ECANCELED: i32 = 125;

/// The usual stack size of a main thread, on which cells run at first.
const STACK_BYTES: usize = 8 << 20;

/// The name of a thread of rayon's pool. A woken snapshot restarts the threads whose names begin like this.
fn thread_name(index: usize) -> String {
    format!("ferrotune-{index}")
}

/// The line with which a cell says that it has panicked.
const PANIC: &str = "EVCXR_PANIC_NOTIFICATION";

/// The function of a cell, which takes the variables and returns them.
type Entry = extern "C-unwind" fn(*mut c_void) -> *mut c_void;

/// The imports of every cell for showing its last expression. The traits have no names there, because a notebook may use their names.
pub mod shown {
    pub use super::value::{ShowKnown as _, ShowText as _};
    pub use crate::display::Show as _;
}

/// Starts the library. The cell process calls this function once, before the first cell.
#[expect(unsafe_code, reason = "the cell process finds these functions by name")]
#[unsafe(no_mangle)]
pub extern "C" fn ferrotune_start() {
    std::panic::set_hook(Box::new(report_panic));
    ferrotune_xla::show_notes_with(show_note);
    ferrotune_trial::witness_errors();
    device::start();
    if let Err(error) = interrupt::listen() {
        eprintln!("cells cannot be asked to stop, only ended: {error}");
    }
    let pool = threads::pool_of_this_thread().thread_name(thread_name).stack_size(STACK_BYTES);
    match pool.build_global() {
        // A thread gets its name when it first runs.
        Ok(()) => drop(rayon::broadcast(|_| ())),
        Err(error) => eprintln!("cells compute on one thread: {error}"),
    }
    output::start();
}

/// Prepares for a cell. The cell process calls this function before every cell.
#[expect(unsafe_code, reason = "the cell process finds these functions by name")]
#[unsafe(no_mangle)]
pub extern "C" fn ferrotune_before_cell() {
    interrupt::reset();
    // The backtrace may be of a panic that an earlier cell has caught.
    BACKTRACE.lock().unwrap_or_else(PoisonError::into_inner).take();
    store::begin();
    output::begin();
}

/// Calls a cell.
#[expect(unsafe_code, reason = "the cell process finds these functions by name")]
#[unsafe(no_mangle)]
pub extern "C" fn ferrotune_run(entry: Entry, variables: *mut c_void) -> *mut c_void {
    // A pointer cannot be sent to a thread of the pool and back, but a number can.
    let address = variables.expose_provenance();
    let call = || {
        *CELL_THREAD.lock().unwrap_or_else(PoisonError::into_inner) = Some(std::thread::current().id());
        // A panic that `run` has not caught is of a destructor, which runs behind the cell's statements.
        let mut result = address;
        run(Box::new(|| result = entry(std::ptr::with_exposed_provenance_mut(address)).expose_provenance()));
        let address = result;
        write_device_profile();
        send_profile();
        address
    };
    let pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
    let address = match &*pool {
        Some(pool) => outside_of_pools(|| pool.install(call)),
        None => call(),
    };
    std::ptr::with_exposed_provenance_mut(address)
}

/// Calls a function on a new thread, which belongs to no pool. The main thread of a woken snapshot belongs to rayon's pool, of which nothing
/// else was copied: if it waited for another pool, it would take up what the threads of its own had begun.
fn outside_of_pools<T: Send>(call: impl FnOnce() -> T + Send) -> T {
    let ended = std::thread::scope(|scope| {
        // The name is one of those that a woken snapshot does not miss.
        let thread = Builder::new().name(thread_name(0)).stack_size(STACK_BYTES).spawn_scoped(scope, call);
        thread.map(ScopedJoinHandle::join)
    });
    match ended {
        Ok(result) => result.unwrap_or_else(|payload| resume_unwind(payload)),
        Err(error) => panic!("the cell process cannot start a thread: {error}"),
    }
}

/// Starts to record the times of up to `steps` steps. A cell under `%%profile` calls this function at its beginning.
pub fn profile(steps: usize) {
    ferrotune_profile::begin(steps);
}

/// The profiler of the connected device, and the file for its profile.
static DEVICE_PROFILE: Mutex<Option<(Profiler, PathBuf)>> = Mutex::new(None);

/// Starts the profiler of the connected device. A cell calls this function after [`profile`]. The profile goes into this file when
/// the cell ends.
///
/// # Errors
/// If the device cannot be opened, or has no profiler.
pub fn profile_device(file: &str) -> Result<(), String> {
    let device = device::current().map_err(|error| error.to_string())?;
    let profiler = ferrotune_xla::profile(&device).map_err(|error| {
        format!("the device {} cannot be profiled for TensorBoard: {error}; leave out --tensorboard", device::name())
    })?;
    *DEVICE_PROFILE.lock().unwrap_or_else(PoisonError::into_inner) = Some((profiler, file.into()));
    Ok(())
}

/// Writes the profile of the connected device, if its profiler was started.
fn write_device_profile() {
    let Some((profiler, file)) = DEVICE_PROFILE.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
    let written = profiler.finish().map_err(|error| error.to_string()).and_then(|bytes| {
        let folder = file.parent().unwrap_or(&file);
        let written = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&file, bytes));
        written.map_err(|error| format!("cannot write {}: {error}", file.display()))
    });
    if let Err(error) = connection::send(&KernelFrame::DeviceProfile { failure: written.err() }) {
        eprintln!("nobody hears of the profile in {}: {error}", file.display());
    }
}

/// Sends the profile of the cell that has just ended on this thread, if any.
fn send_profile() {
    let Some(profile) = ferrotune_profile::end(|location| location.to_string(), &device::name()) else { return };
    if let Err(error) = connection::send(&KernelFrame::Profile { trace: profile.trace().to_string() }) {
        eprintln!("the profile is lost: {error}");
    }
}

/// Calls a function while no other thread can hold the standard streams locked.
#[expect(unsafe_code, reason = "the cell process finds these functions by name")]
#[unsafe(no_mangle)]
pub extern "C" fn ferrotune_quietly(call: extern "C" fn(*mut c_void), data: *mut c_void) {
    let _stdout = std::io::stdout().lock();
    let _stderr = std::io::stderr().lock();
    // In a copy of this process that was woken, the clients of device processes have connected again.
    let joined = runtime::hold(|| call(data));
    *JOINED.lock().unwrap_or_else(PoisonError::into_inner) = joined;
}

/// The number of connections to device processes that a woken snapshot has made anew, and what is to be said of them.
static JOINED: Mutex<(usize, Vec<String>)> = Mutex::new((0, Vec::new()));

/// Asks the user for a line of the standard input, and passes its bytes to `take` with `data`. If that is not possible, prints the
/// reason to the standard error and returns an error number. Returns -1 if the user has ended the input.
#[expect(unsafe_code, reason = "the cell process finds these functions by name")]
#[unsafe(no_mangle)]
pub extern "C" fn ferrotune_read_line(take: extern "C" fn(*mut c_void, *const u8, usize), data: *mut c_void) -> i32 {
    let (error, reason) = match input::answer("", false) {
        // The user has typed Ctrl-D, as in IPython.
        Ok(Answer::Line { text: Some(line) }) if line == "\u{4}" => return -1,
        Ok(Answer::Line { text: Some(line) }) => {
            take(data, line.as_ptr(), line.len());
            return 0;
        }
        // After EINTR the standard library would ask again.
        Ok(Answer::Refused { reason }) => (ECANCELED, reason),
        Ok(_) => (EIO, input::NO_ONE.to_owned()),
        Err(error) => (EIO, error.to_string()),
    };
    eprintln!("the standard input cannot be read: {reason}");
    error
}

/// Prepares a woken snapshot, in which `closed` pipes and connections of the original process are closed. The cell process calls this
/// function once.
#[expect(unsafe_code, reason = "the cell process finds these functions by name")]
#[unsafe(no_mangle)]
pub extern "C" fn ferrotune_restored(closed: usize) {
    let (joined, said) = std::mem::take(&mut *JOINED.lock().unwrap_or_else(PoisonError::into_inner));
    let closed = closed.saturating_sub(usize::from(connection::forget()) + joined);
    if closed > 0 {
        eprintln!("pipes and connections of earlier cells that are closed in this copy of their process: {closed}");
    }
    said.iter().for_each(|line| eprintln!("{line}"));
    output::start();
    candle_core::utils::global_pool_is_gone();
    match threads::pool().thread_name(thread_name).stack_size(STACK_BYTES).build() {
        Ok(pool) => {
            outside_of_pools(|| pool.broadcast(|_| ())); // a thread gets its name when it first runs
            std::mem::forget(POOL.lock().unwrap_or_else(PoisonError::into_inner).replace(pool));
        }
        Err(error) => {
            eprintln!("the cell process cannot start its threads: {error}");
            std::process::abort();
        }
    }
}

/// Sends the last values of the cell's progress bars, and flushes its output without a line end. The cell process calls this
/// function after every cell. Returns `false` if a thread keeps the standard output locked; a snapshot of this process could then
/// not print.
#[expect(unsafe_code, reason = "the cell process finds these functions by name")]
#[unsafe(no_mangle)]
pub extern "C" fn ferrotune_after_cell() -> bool {
    if let Err(error) = widget::send_late() {
        eprintln!("a progress bar does not show its last value: {error}");
    }
    output::end()
}

/// The number of variables that the last cell has taken and not put back; 1 if there is none, but values on a device were lost. If a cell
/// fails, the process is restored for these variables. It is not where a cell has opened a plugin in this process itself, because all data
/// on its devices would be lost.
#[expect(unsafe_code, reason = "the cell process finds these functions by name")]
#[unsafe(no_mangle)]
pub extern "C" fn ferrotune_missing() -> usize {
    let has_lost = runtime::has_lost_values();
    if fork::is_open() { 0 } else { store::missing().max(usize::from(has_lost)) }
}

/// The message of a panic without one.
const NO_TEXT: &str = "a panic whose payload is no text";

/// Keeps the backtrace of a panic on the cell's thread, and prints a panic of another thread.
fn report_panic(info: &PanicHookInfo<'_>) {
    if IS_REPORTED.get() {
        return;
    }
    let message = info.payload_as_str().unwrap_or(NO_TEXT).to_owned();
    let location = info.location().map(ToString::to_string);
    let thread = std::thread::current();
    if *CELL_THREAD.lock().unwrap_or_else(PoisonError::into_inner) == Some(thread.id()) {
        *BACKTRACE.lock().unwrap_or_else(PoisonError::into_inner) = Some(Backtrace::force_capture());
        // The useful place is the line that called the operation, and the backtrace has it.
        let is_anomaly = anomaly::take().is_some_and(|anomaly| anomaly.to_string() == message);
        let location = location.clone().filter(|_| !is_anomaly);
        let frame = KernelFrame::Panic { message: message.clone(), location };
        if connection::send(&frame).is_ok() {
            return;
        }
    }
    let name = thread.name().unwrap_or("unnamed");
    let location = location.unwrap_or_else(|| "an unknown place".to_owned());
    print_located(format!("thread '{name}' panicked at "), location, format!(": {message}\n"));
}

/// Makes the kernel see panics again, after a cell has replaced the hook for them. The cell's own hook runs, too.
pub fn report_panics() {
    let own = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        report_panic(info);
        let is_reported = IS_REPORTED.replace(true);
        own(info);
        IS_REPORTED.set(is_reported);
    }));
}

thread_local! {
    /// Whether a hook of ours has seen the present panic of the thread. Another one may come behind the cell's own hook.
    static IS_REPORTED: Cell<bool> = const { Cell::new(false) };
}

/// Runs the code of a cell. Catches its panic, and reports it to the kernel.
pub fn run(code: Box<dyn FnOnce() + '_>) {
    let Err(payload) = std::panic::catch_unwind(AssertUnwindSafe(code)) else { return };
    panicked(&*payload);
    #[expect(clippy::print_stdout, reason = "the supervisor of cells finds the line in the output")]
    {
        println!("{PANIC}");
    }
}

/// Reports the places of cells through which a panic came to the kernel. If no hook of ours has seen the panic, reports its message.
fn panicked(payload: &(dyn Any + Send)) {
    let Some(backtrace) = BACKTRACE.lock().unwrap_or_else(PoisonError::into_inner).take() else {
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        let message = text.unwrap_or(NO_TEXT).to_owned();
        if let Err(error) = connection::send(&KernelFrame::Panic { message, location: None }) {
            eprintln!("the panic is shown without its message: {error}");
        }
        return;
    };
    // The standard library returns the frames only as text.
    let text = backtrace.to_string();
    let locations = text.lines().filter_map(|line| line.trim_start().strip_prefix("at ")).map(str::to_owned).collect();
    if let Err(error) = connection::send(&KernelFrame::Backtrace { locations }) {
        eprintln!("the panic is shown without its backtrace: {error}");
    }
}

/// Reports the error of a cell that ends at a `?` to the kernel, or prints it if there is no kernel. `type_name` is the name of the error's
/// type, `message` its text, and `shown` the same text with `{:#}`. It is not generic, since each cell with a `?` would compile it again.
#[track_caller]
pub fn failed(type_name: &str, message: fmt::Arguments<'_>, shown: fmt::Arguments<'_>) {
    let message = message.to_string();
    let location = Some(place_of(type_name, &shown.to_string()));
    if connection::send(&KernelFrame::Failed { message: message.clone(), location }).is_err() {
        eprintln!("{message}");
    }
}

/// The place of an error that ends a cell. For an error of candle, it is the innermost line of a cell that led to it. For a
/// [`ferrotune_trial::Error`], it is the error's own place. For any other error, it is the `?`.
#[track_caller]
fn place_of(type_name: &str, shown: &str) -> String {
    let here = Location::caller();
    // All cells have a folder in the same parent folder, also a cell whose closure is called here.
    let cells = |file: &str| Path::new(file).ancestors().nth(2).and_then(Path::file_name).map(ToOwned::to_owned);
    let is_of_cell = |call: &String| cells(call.rsplitn(3, ':').nth(2).unwrap_or_default()) == cells(here.file());
    let call = ferrotune_trial::calls_to(shown).into_iter().find(is_of_cell);
    call.or_else(|| ferrotune_trial::place_in(type_name, shown)).unwrap_or_else(|| here.to_string())
}

/// Prints to the standard error, with the location's place in the notebook. Without a kernel, prints the location unchanged.
#[doc(hidden)]
pub fn print_located(before: String, location: String, after: String) {
    let plain = format!("{before}{location}{after}");
    if connection::send(&KernelFrame::Located { before, location, after }).is_err() {
        eprint!("{plain}");
    }
}

/// Prints a note of the device with the innermost line of a cell among these calls.
fn show_note(calls: &[usize], note: &str) {
    let line = ferrotune_trial::lines_of(calls).into_iter().find(|line| ferrotune_xla::is_in_program(line));
    let line = line.unwrap_or_else(|| ferrotune_xla::UNKNOWN_PLACE.to_owned());
    print_located("ferrotune: ".to_owned(), line, format!(": {note}\n"));
}

/// The macro `dbg!` of the standard library, with the place in the notebook.
#[macro_export]
macro_rules! cell_dbg {
    () => {
        $crate::cell::print_located(::std::string::String::from("["), $crate::cell::here(), ::std::string::String::from("]\n"))
    };
    ($value:expr $(,)?) => {
        match $value {
            value => {
                let after = ::std::format!("] {} = {:#?}\n", ::std::stringify!($value), &value);
                $crate::cell::print_located(::std::string::String::from("["), $crate::cell::here(), after);
                value
            }
        }
    };
    ($($value:expr),+ $(,)?) => {
        ($($crate::cell_dbg!($value)),+,)
    };
}

pub use cell_dbg as dbg;

/// The caller's file, line and column.
#[doc(hidden)]
#[track_caller]
pub fn here() -> String {
    Location::caller().to_string()
}
