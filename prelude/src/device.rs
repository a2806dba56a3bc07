//! The device that cells and trials use: chosen once, named always.

use crate::interrupt::interrupted;
use ferrotune_devices::probe::{Probe, ProbeError};
use ferrotune_devices::{Machine, Report, Support, connect as choose, detect};
use ferrotune_display::frame::Frame;
use ferrotune_display::{Bundle, link, show};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// For opening the devices of a plugin: a TPU takes several seconds, a slice of many hosts longer.
const OPEN_DEADLINE: Duration = Duration::from_secs(120);
/// For compiling and running: large programs take minutes.
const WORK_DEADLINE: Duration = Duration::from_secs(600);

static CONNECTED: Mutex<Option<String>> = Mutex::new(None);

/// The device's context was in a process that has ended.
static LOST: AtomicBool = AtomicBool::new(false);

/// The device that is connected: `cpu`, `cuda:0`, …; `cpu` until `%tpu_connect` has run.
pub fn name() -> String {
    CONNECTED.lock().unwrap_or_else(PoisonError::into_inner).clone().unwrap_or_else(|| "cpu".to_owned())
}

/// The connected device, as candle knows it.
///
/// # Errors
/// Those of candle where the device cannot be opened; and if it was lost with the process that had opened it.
pub fn current() -> ferrotune_trial::Result<candle_core::Device> {
    if LOST.load(Ordering::Relaxed) {
        return Err(format!("{} was lost with the process that had opened it; run %tpu_connect again", name()).into());
    }
    ferrotune_trial::open_device(&name())
}

/// This process has taken the place of another one: memory came along, an accelerator's context did not.
pub(crate) fn lose() {
    let name = name();
    if name != "cpu" {
        LOST.store(true, Ordering::Relaxed);
        eprintln!("{name} was lost with the process that had opened it; run %tpu_connect again");
    }
}

/// What `%tpu_connect` runs: looks for accelerators, says what was found and why, and takes the best one that this
/// build can drive. With `require`, anything but the accelerator is an error. Whether there is a connection now.
pub fn connect(tpu: Option<&str>, require: bool) -> bool {
    let report = detect(&Machine::this(), tpu);
    show(table(&report));
    // An attached TPU tells what it is whether or not this build can drive it.
    if let (Some(libtpu), Some(_)) = (&report.libtpu, report.tpu.as_ref().and_then(|tpu| tpu.chips)) {
        match with_probe(OPEN_DEADLINE, |probe| probe.open(libtpu)) {
            Ok(opened) => say(format!("the TPU opens: {opened}")),
            Err(error) => say(format!("the TPU does not open: {error}")),
        }
    }
    match choose(&report, support(), require) {
        Ok(connection) => {
            *CONNECTED.lock().unwrap_or_else(PoisonError::into_inner) = Some(connection.device.clone());
            LOST.store(false, Ordering::Relaxed);
            say(format!("connected to {}: {}", connection.device, connection.reason));
            true
        }
        Err(error) => {
            fail(&error.to_string());
            false
        }
    }
}

/// What `%device` runs: the connected device, and what else there is.
pub fn describe() {
    show(table(&detect(&Machine::this(), None)));
    say(format!("connected to {}", name()));
}

/// What `%devices` runs: the CPU, the CUDA devices and the TPU, with their memory.
pub fn list() {
    let mut report = detect(&Machine::this(), None);
    report.ask_cuda_memory();
    say(report.devices_text());
}

/// What `%tpu_check` runs: compiles the StableHLO module in a file for a TPU that need not be there.
pub fn check(tpu: &str, file: &str) {
    let Some(libtpu) = detect(&Machine::this(), None).libtpu else {
        return fail(
            "libtpu is not installed, and it is what compiles for TPUs; pip install libtpu, or set TPU_LIBRARY_PATH",
        );
    };
    match with_probe(WORK_DEADLINE, |probe| probe.check(&libtpu, tpu, Path::new(file))) {
        Ok(check) => say(check.to_string()),
        Err(error) => fail(&error.to_string()),
    }
}

/// What `%tpu_connect --selftest` runs: computes on the TPU, or on the first device of another PJRT plugin.
pub fn self_test(plugin: Option<&str>) {
    let report = detect(&Machine::this(), None);
    let libtpu = report.libtpu.filter(|_| report.tpu.is_some_and(|tpu| tpu.chips.is_some()));
    let Some(plugin) = plugin.map(Into::into).or(libtpu) else {
        return fail("no TPU is attached that libtpu could open; name another PJRT plugin to test with --plugin FILE");
    };
    match with_probe(WORK_DEADLINE, |probe| probe.self_test(&plugin)) {
        Ok(test) if test.passes() => say(test.to_string()),
        Ok(test) => {
            say(test.to_string());
            fail("the self-test failed: the device does not compute what it should; please report what is shown above");
        }
        Err(error) => fail(&error.to_string()),
    }
}

/// Tries a plugin in a child of this process: the cells, and the devices that they use, stay as they are.
fn with_probe<T>(deadline: Duration, ask: impl FnOnce(Probe<'_>) -> Result<T, ProbeError>) -> Result<T, ProbeError> {
    // Cells run in the one program, which tries plugins, too.
    ask(Probe { program: Path::new("/proc/self/exe"), deadline, stop: &interrupted })
}

fn say(text: String) {
    show(Bundle::text(text));
}

fn table(report: &Report) -> Bundle {
    Bundle::text(report.table_text()).with("text/html", report.table_html())
}

/// What this build of the prelude can drive.
fn support() -> Support {
    Support { cuda: candle_core::utils::cuda_is_available(), tpu: false }
}

/// Makes an error of the running cell, or a line of the standard error where no kernel listens.
pub(crate) fn fail(message: &str) {
    if link::send(&Frame::Failed { message: message.to_owned() }).is_err() {
        eprintln!("error: {message}");
    }
}
