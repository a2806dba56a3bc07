//! The device that cells and trials use: chosen once, named always.

mod candle;

use crate::interrupt::interrupted;
use candle::Candle;
use ferrotune_devices::probe::{Opened, Probe, ProbeError};
use ferrotune_devices::selftest::{self, Compute as _, SelfTest};
use ferrotune_devices::{Connection, Machine, Report, Support, connect as choose, detect, fork};
use ferrotune_display::{Bundle, show};
use ferrotune_link::{KernelFrame, connection};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// For opening the devices of a plugin: a TPU takes several seconds, a slice of many hosts longer.
const OPEN_DEADLINE: Duration = Duration::from_secs(120);
/// For compiling and running: large programs take minutes.
const WORK_DEADLINE: Duration = Duration::from_secs(600);

static CONNECTED: Mutex<Option<String>> = Mutex::new(None);

/// The device that is connected: `cpu`, `cuda:0`, …; `cpu` until `%tpu_connect` has run.
pub fn name() -> String {
    CONNECTED.lock().unwrap_or_else(PoisonError::into_inner).clone().unwrap_or_else(|| "cpu".to_owned())
}

/// The connected device, as candle knows it.
///
/// # Errors
/// Those of candle where the device cannot be opened; and if it was lost with the process that had opened it.
pub fn current() -> ferrotune_trial::Result<candle_core::Device> {
    ferrotune_trial::open_device(&name())
}

/// This process has taken the place of another one: memory came along, an accelerator's context did not.
pub(crate) fn lose() {
    if let Err(lost) = fork::check() {
        eprintln!("{lost}");
    }
}

/// What `%tpu_connect` runs: looks for accelerators, says what was found and why, and takes the best one that this
/// build can drive. With `require`, anything but the accelerator is an error. Whether there is a connection now.
#[doc(hidden)]
pub fn connect(tpu: Option<&str>, require: bool) -> bool {
    let report = detect(&Machine::this(), tpu);
    show(table(&report));
    // An attached TPU tells what it is whether or not this build can drive it.
    if let Some(libtpu) = driver(&report) {
        match with_probe(OPEN_DEADLINE, |probe| probe.open(libtpu)) {
            Ok(opened) => say(format!("the TPU opens: {opened}")),
            Err(error) => say(format!("the TPU does not open: {error}")),
        }
    }
    match usable(&report, require) {
        Ok(connection) => {
            *CONNECTED.lock().unwrap_or_else(PoisonError::into_inner) = Some(connection.device.clone());
            say(format!("connected to {}: {}", connection.device, connection.reason));
            true
        }
        Err(reason) => {
            fail(&reason);
            false
        }
    }
}

/// The choice, where this process can open it.
fn usable(report: &Report, require: bool) -> Result<Connection, String> {
    let connection = choose(report, support(), require).map_err(|error| error.to_string())?;
    if connection.device != "cpu" {
        fork::check().map_err(|lost| format!("{}: {lost}", connection.device))?;
    }
    Ok(connection)
}

/// The library that drives the attached TPU.
fn driver(report: &Report) -> Option<&Path> {
    report.tpu.as_ref()?.chips?;
    report.libtpu.as_deref()
}

/// Opens the attached TPU, in a process of its own, to say what it is.
pub(crate) fn opened_tpu() -> ferrotune_trial::Result<Opened> {
    let report = detect(&Machine::this(), None);
    let libtpu = driver(&report).ok_or("no TPU is attached that libtpu could open; %devices tells why")?;
    Ok(with_probe(OPEN_DEADLINE, |probe| probe.open(libtpu))?)
}

/// What `%device` runs: the connected device, and what else there is.
#[doc(hidden)]
pub fn describe() {
    show(table(&detect(&Machine::this(), None)));
    say(format!("connected to {}", name()));
}

/// What `%devices` runs: the CPU, the CUDA devices and the TPU, with their memory.
#[doc(hidden)]
pub fn list() {
    let mut report = detect(&Machine::this(), None);
    report.ask_cuda_memory();
    say(report.devices_text());
}

/// What `%tpu_check` runs: compiles the StableHLO module in a file for a TPU that need not be there.
#[doc(hidden)]
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

/// What `%tpu_connect --selftest` runs: computes on the attached TPU, or on the first device of another PJRT plugin, and
/// without either with candle on the connected device; then compares with candle on the CPU.
#[doc(hidden)]
pub fn self_test(plugin: Option<&str>) {
    let report = detect(&Machine::this(), None);
    let tested = match plugin.map(Path::new).or_else(|| driver(&report)) {
        Some(plugin) => test_plugin(plugin),
        None => test_candle(),
    };
    match tested {
        Ok(test) if test.passes() => say(test.to_string()),
        Ok(test) => {
            say(test.to_string());
            fail("the self-test failed: the device does not compute what it should; please report what is shown above");
        }
        Err(error) => fail(&error.to_string()),
    }
}

fn test_plugin(plugin: &Path) -> ferrotune_trial::Result<SelfTest> {
    let mut test = with_probe(WORK_DEADLINE, |probe| probe.self_test(plugin))?;
    test.compare_with_candle(&candle_losses()?);
    Ok(test)
}

fn test_candle() -> ferrotune_trial::Result<SelfTest> {
    let name = name();
    let mut test =
        selftest::run(&name, &format!("{name}, as candle computes on it"), &mut Candle { device: current()? })?;
    if name != "cpu" {
        test.compare_with_candle(&candle_losses()?);
    }
    Ok(test)
}

fn candle_losses() -> candle_core::Result<Vec<f32>> {
    Ok(Candle { device: candle_core::Device::Cpu }.train(&selftest::Network::default())?.values)
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
    if connection::send(&KernelFrame::Failed { message: message.to_owned() }).is_err() {
        eprintln!("error: {message}");
    }
}
