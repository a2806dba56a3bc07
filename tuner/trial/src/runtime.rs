//! Runs an objective inside a worker, and reports its result to the supervisor. Catches panics; never exits the
//! process.

use crate::connection::{Connection, SupervisorClient};
use crate::error::TrialError;
use crate::place::{has_items, line_of_cell, place};
use crate::plugins::{detect_anomalies, line_of_error, shortage_of, take_anomaly, witness_errors, write_first_program};
use crate::seed::{begin, in_thread};
use crate::threads;
use crate::trial::Trial;
use ferrotune_devices::Shortage;
use ferrotune_devices::pjrt::Code;
use ferrotune_profile::{self as profile, Profile};
use ferrotune_space::record::Ending;
use ferrotune_space::wire::{PROFILE_FILE, PROGRAM_VARIABLE, Request, SHARED_VARIABLE};
use ferrotune_state::{Result, Shared};
use std::error::Error;
use std::fs;
use std::io::{self, ErrorKind, Write as _};
use std::panic::{self, AssertUnwindSafe, PanicHookInfo};
use std::path::Path;
use std::sync::{Mutex, Once, OnceLock, PoisonError};

/// The largest number of characters in a reason, which is one line.
const LONGEST_REASON_CHARS: usize = 2000;

/// The name of a profile's file while the file is being written.
const PARTIAL_PROFILE_FILE: &str = "profile.json.partial";

/// The last panic of any thread. If a panic crosses from a thread pool into the objective, the hook runs only on the
/// pool's thread.
static LAST_PANIC: Mutex<Option<String>> = Mutex::new(None);

type PanicHook = Box<dyn Fn(&PanicHookInfo<'_>) + Sync + Send>;

/// The types that an objective may return: values, or nothing if it has reported them.
#[diagnostic::on_unimplemented(
    message = "an objective cannot return `{Self}`",
    label = "not a value to optimise",
    note = "return `Ok(value)` with an f64 or f32, `trial.best(\"metric\")`, or `Ok(())` after `trial.report`",
    note = "of several objectives, a tuple or an array of them in the order of --objective: `Ok((accuracy, size))`"
)]
pub trait ObjectiveValue {
    /// The values of the objectives, in the order of `--objective`. `None` means that the value comes from the reports, and an
    /// empty list means this for all objectives.
    fn values(self) -> Vec<Option<f64>>;
}

impl ObjectiveValue for f64 {
    fn values(self) -> Vec<Option<f64>> {
        vec![Some(self)]
    }
}

impl ObjectiveValue for f32 {
    fn values(self) -> Vec<Option<f64>> {
        f64::from(self).values()
    }
}

impl<T: ObjectiveValue> ObjectiveValue for Option<T> {
    fn values(self) -> Vec<Option<f64>> {
        self.map_or_else(|| vec![None], ObjectiveValue::values)
    }
}

impl ObjectiveValue for () {
    fn values(self) -> Vec<Option<f64>> {
        Vec::new()
    }
}

impl<T: ObjectiveValue, const N: usize> ObjectiveValue for [T; N] {
    fn values(self) -> Vec<Option<f64>> {
        self.into_iter().flat_map(ObjectiveValue::values).collect()
    }
}

impl<T: ObjectiveValue> ObjectiveValue for Vec<T> {
    fn values(self) -> Vec<Option<f64>> {
        self.into_iter().flat_map(ObjectiveValue::values).collect()
    }
}

macro_rules! tuples {
    ($(($($kind:ident $index:tt),+))*) => {$(
        impl<$($kind: ObjectiveValue),+> ObjectiveValue for ($($kind,)+) {
            fn values(self) -> Vec<Option<f64>> {
                [$(self.$index.values()),+].concat()
            }
        }
    )*};
}

tuples! {
    (A 0, B 1)
    (A 0, B 1, C 2)
    (A 0, B 1, C 2, D 3)
}

/// Runs `body` as the objective of the trial that this worker was started for, and returns the worker's exit status.
///
/// The status is 0 when the objective returned a value or was stopped, and 1 otherwise. Call it from the entry point that the
/// worker calls for each of its trials.
pub fn run_objective<R: ObjectiveValue>(body: impl FnOnce(&Trial, &Shared) -> Result<R>) -> i32 {
    run_in_worker(Box::new(|trial, shared| Ok(body(trial, shared)?.values())))
}

/// An objective of any type. It is boxed so that the code that runs it is compiled here and not in each cell.
type Body<'a> = Box<dyn FnOnce(&Trial, &Shared) -> Result<Vec<Option<f64>>> + 'a>;

fn run_in_worker(body: Body<'_>) -> i32 {
    record_panics();
    share_work();
    let result = Connection::from_stdin().and_then(|connection| run_over(Box::new(connection), body, Uses::Device));
    // The process exits without destructors, which would otherwise flush standard output.
    let flushed = std::io::stdout().flush().map_err(|source| TrialError::Connection { source });
    match result.and_then(|status| flushed.map(|()| status)) {
        Ok(status) => status,
        Err(error) => {
            eprintln!("ferrotune: {error}");
            1
        }
    }
}

/// Runs `body` as the objective of a trial in this process, and sends its result to `client`.
///
/// Catches a panic. Everything else that ends a process ends this process. Fails only if the result cannot be sent.
#[doc(hidden)]
pub fn run_in_process<R: ObjectiveValue>(
    client: Box<dyn SupervisorClient>,
    body: impl FnOnce(&Trial) -> Result<R>,
) -> Result<(), TrialError> {
    static RECORDS: Once = Once::new();
    RECORDS.call_once(record_panics);
    run_over(client, Box::new(|trial, _| Ok(body(trial)?.values())), Uses::Nothing).map(drop)
}

/// The resources of its process that a trial has for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Uses {
    /// The process' device, which is the device of the trial.
    Device,
    /// Only the random numbers of its thread, as one of several trials in a program.
    Nothing,
}

fn run_over(mut client: Box<dyn SupervisorClient>, body: Body<'_>, uses: Uses) -> Result<i32, TrialError> {
    let request = match client.hello() {
        Ok(mut assignment) => {
            has_items(std::mem::take(&mut assignment.items));
            let trial = Trial::new(client, assignment);
            let request = match uses {
                Uses::Device => on_device(&trial, body)?,
                Uses::Nothing => in_thread(trial.seed(), || outcome(&trial, body)),
            };
            trial.tell(&request)?;
            request
        }
        Err(error) => {
            let request = failed(&error);
            client.tell(&request)?;
            request
        }
    };
    Ok(i32::from(matches!(request, Request::Fail { .. } | Request::Postpone { .. })))
}

/// Runs the objective on the trial's device, and reports the device to the supervisor before and after.
fn on_device(trial: &Trial, body: Body<'_>) -> Result<Request, TrialError> {
    witness_errors();
    // An earlier trial of this process may have turned NaN detection on.
    if let Err(error) = detect_anomalies(trial.debugs_nans()) {
        return Ok(failed(error.as_ref()));
    }
    if let Some(file) = std::env::var_os(PROGRAM_VARIABLE) {
        write_first_program(Path::new(&file));
    }
    let device = crate::device::enter_trial(trial.device_name());
    if let Err(error) = begin(trial.seed()) {
        return Ok(failed(error.as_ref()));
    }
    if let Some(device) = &device {
        trial.tell(&Request::Device { device: device.clone() })?;
    }
    let request = outcome(trial, body);
    if let Some(device) = crate::device::leave_trial(trial.device_name(), device) {
        trial.tell(&Request::Device { device })?;
    }
    Ok(request)
}

fn outcome(trial: &Trial, body: Body<'_>) -> Request {
    let shared = match std::env::var_os(SHARED_VARIABLE) {
        Some(path) => Shared::open(Path::new(&path)),
        None => Ok(Shared::empty()),
    };
    let result = match shared {
        Ok(shared) => profiled(trial, || panic::catch_unwind(AssertUnwindSafe(|| body(trial, &shared)))),
        Err(error) => Ok(Err(error.into())),
    };
    match (result, trial.take_refusal()) {
        // This comes before the objective's own result: the checkpoint exists and may be readable later.
        (_, Some(refusal @ TrialError::Unreadable { .. })) => Request::Postpone { reason: refusal.to_string() },
        (Err(_), _) => Request::Fail { ending: panicked(last_panic()) },
        // An error after the trial was asked to stop is not a failure of the objective.
        (Ok(Err(_)), _) if trial.is_stopped() => Request::Finish { values: Vec::new() },
        (Ok(Err(error)), _) if is_of_full_disk(error.as_ref()) => {
            Request::DiskFull { reason: reason_of(error.as_ref()) }
        }
        (Ok(Err(error)), _) if is_of_full_device(error.as_ref()) => {
            let device = trial.device_name().to_owned();
            Request::Fail { ending: Ending::DeviceOutOfMemory { device, reason: reason_of(error.as_ref()) } }
        }
        (Ok(Err(error)), _) => match shortage_of(&reason_of(error.as_ref())) {
            Some(shortage) => refused(shortage),
            None => failed_at(&error),
        },
        (Ok(Ok(_)), Some(refusal)) => failed(&refusal),
        (Ok(Ok(values)), None) => Request::Finish { values },
    }
}

/// The ending for a panic with this message: a panic, or a failure if NaN detection caused it.
fn panicked(message: String) -> Ending {
    match take_anomaly(&message) {
        Some(reason) => Ending::Failed { reason },
        None => Ending::Panicked { message },
    }
}

/// Runs the objective, and writes a profile of its first steps into the trial's folder if the search wants one.
fn profiled<T>(trial: &Trial, body: impl FnOnce() -> T) -> T {
    let Some(steps) = trial.profiled_steps() else { return body() };
    profile::begin(usize::try_from(steps).unwrap_or(usize::MAX));
    let result = body();
    if let Some(profile) = profile::end(place, trial.device_name())
        && let Err(error) = write_profile(trial.folder(), &profile)
    {
        eprintln!("ferrotune: the profile of trial {} cannot be written: {error}", trial.number());
    }
    result
}

/// Writes a profile under another name first, so that a reader never finds a part of it.
fn write_profile(folder: &Path, profile: &Profile) -> io::Result<()> {
    // Only a worker has its folder from the start.
    fs::create_dir_all(folder)?;
    let partial = folder.join(PARTIAL_PROFILE_FILE);
    fs::write(&partial, profile.trace().to_string())?;
    fs::rename(partial, folder.join(PROFILE_FILE))
}

/// Whether a checkpoint could not be written because the disk or the user's quota is full.
fn is_of_full_disk(error: &(dyn Error + 'static)) -> bool {
    let (mut is_checkpoint, mut is_full) = (false, false);
    let mut cause = Some(error);
    while let Some(error) = cause {
        is_checkpoint |= matches!(error.downcast_ref(), Some(TrialError::Checkpoint { .. }));
        let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
        is_full |= matches!(kind, Some(ErrorKind::StorageFull | ErrorKind::QuotaExceeded));
        cause = error.source();
    }
    is_checkpoint && is_full
}

/// The result of an objective whose last program does not fit into the device's memory.
fn refused(Shortage { device, needed_bytes, available_bytes }: Shortage) -> Request {
    let (estimate_bytes, budget_bytes) = (needed_bytes, available_bytes);
    Request::Fail { ending: Ending::Refused { estimate_bytes, budget_bytes, device: Some(device) } }
}

/// Whether the device had too little memory. candle keeps only the text of a plugin's error, which contains PJRT's error code.
fn is_of_full_device(error: &(dyn Error + 'static)) -> bool {
    let code = Code::RESOURCE_EXHAUSTED.to_string();
    reason_of(error).contains(&format!(": {code}: "))
}

fn failed(error: &(dyn Error + 'static)) -> Request {
    Request::Fail { ending: Ending::Failed { reason: reason_of(error) } }
}

/// The result of an objective that returned an error, with the error's place.
fn failed_at(error: &crate::Error) -> Request {
    let mut reason = reason_of(error.as_ref());
    let place = line_of_error(&reason).unwrap_or_else(|| place(error.place()));
    // The reason may already contain the place, such as that of a parameter.
    if !reason.contains(&place) {
        reason = format!("{reason} ({place})");
    }
    Request::Fail { ending: Ending::Failed { reason } }
}

/// The text of an error and of its causes, in one line.
fn reason_of(error: &(dyn Error + 'static)) -> String {
    let mut reason = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let text = error.to_string();
        // Many errors include their source in their text.
        if !reason.contains(&text) {
            reason = format!("{reason}: {text}");
        }
        source = error.source();
    }
    let words: Vec<&str> = reason.split_whitespace().collect();
    words.join(" ").chars().take(LONGEST_REASON_CHARS).collect()
}

/// Makes this thread one of those that compute, before the worker's first trial.
fn share_work() {
    static FIRST: Once = Once::new();
    // A program that has started rayon's threads itself keeps them.
    FIRST.call_once(|| drop(threads::pool_of_this_thread().build_global()));
}

/// Sets the panic hook for the next trial. Replaces the hook that an earlier trial in this process may have set.
fn record_panics() {
    static FIRST_HOOK: OnceLock<PanicHook> = OnceLock::new();
    let hook = panic::take_hook();
    let first_hook = FIRST_HOOK.get_or_init(|| hook);
    LAST_PANIC.lock().unwrap_or_else(PoisonError::into_inner).take();
    panic::set_hook(Box::new(move |info| {
        if let Ok(mut last) = LAST_PANIC.lock() {
            *last = Some(describe(info));
        }
        first_hook(info);
    }));
}

fn describe(info: &PanicHookInfo<'_>) -> String {
    let message = info.payload_as_str().unwrap_or("a panic without a message");
    let message: String = message.chars().take(LONGEST_REASON_CHARS).collect();
    let place = info.location().map(|location| line_of_cell(location).unwrap_or_else(|| location.to_string()));
    place.map_or_else(|| message.clone(), |place| format!("{message} ({place})"))
}

fn last_panic() -> String {
    let last = LAST_PANIC.lock().ok().and_then(|mut last| last.take());
    // `resume_unwind` runs no hook.
    last.unwrap_or_else(|| "a panic without a message".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_returned_is_the_value_and_nothing_is_none() {
        assert_eq!(0.5_f32.values(), [Some(0.5)]);
        assert!(matches!(f64::NAN.values().as_slice(), [Some(value)] if value.is_nan()));
        assert_eq!(Some(f64::INFINITY).values(), [Some(f64::INFINITY)]);
        assert_eq!(None::<f64>.values(), [None]);
        assert!(().values().is_empty());
    }

    #[test]
    fn several_values_keep_their_order() {
        assert_eq!((0.5, 2.0_f32, None::<f64>).values(), [Some(0.5), Some(2.0), None]);
        assert_eq!([1.0, f64::NEG_INFINITY].values(), [Some(1.0), Some(f64::NEG_INFINITY)]);
        assert_eq!(vec![3.0, 4.0].values(), [Some(3.0), Some(4.0)]);
    }

    #[test]
    fn reason_is_one_line_with_its_sources() {
        let error = TrialError::Checkpoint { what: "write", path: "a".into(), source: "the disk\n  is full".into() };
        let Request::Fail { ending } = failed(&error) else { panic!("not a failure") };
        assert_eq!(ending, Ending::Failed { reason: "cannot write the checkpoint a: the disk is full".to_owned() });
    }
}
