//! The device that cells and trials use.

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

/// How long opening the devices of a plugin may take: a TPU takes several seconds, a slice of many hosts longer.
const OPEN_DEADLINE: Duration = Duration::from_secs(120);
/// How long compiling and running may take: large programs take minutes.
const WORK_DEADLINE: Duration = Duration::from_secs(600);

static CONNECTED: Mutex<Option<String>> = Mutex::new(None);

/// The device that is connected: `cpu`, `cuda:0`, …; `cpu` until `%tpu_connect` has run.
pub fn name() -> String {
    CONNECTED.lock().unwrap_or_else(PoisonError::into_inner).clone().unwrap_or_else(|| "cpu".to_owned())
}

/// The connected device, as candle knows it.
///
/// # Errors
/// Those of candle if the device cannot be opened; and if the process that had opened it has died.
pub fn current() -> ferrotune_trial::Result<candle_core::Device> {
    ferrotune_trial::open_device(&name())
}

/// This process is a woken snapshot: memory was copied, the context of an accelerator was not.
pub(crate) fn lose() {
    if let Err(lost) = fork::check() {
        eprintln!("{lost}");
    }
}

/// What `%tpu_connect` runs: looks for accelerators, says what it found, and connects to the best one that this build can
/// drive. With `require`, it is an error if that is no accelerator. Returns whether there is a connection.
#[doc(hidden)]
pub fn connect(tpu: Option<&str>, require: bool) -> bool {
    let report = detect(&Machine::this(), tpu);
    show(table(&report));
    // An attached TPU is described even if this build cannot drive it.
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

/// The best device, if this process can open it.
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

/// What `%device` runs: shows the connected device and all others.
#[doc(hidden)]
pub fn describe() {
    show(table(&detect(&Machine::this(), None)));
    say(format!("connected to {}", name()));
}

/// What `%devices` runs: shows the CPU, the CUDA devices and the TPU, with their memory.
#[doc(hidden)]
pub fn list() {
    let mut report = detect(&Machine::this(), None);
    report.ask_cuda_memory();
    say(report.devices_text());
}

/// What `%tpu_check` runs: compiles the StableHLO module in a file for a TPU, which need not be attached.
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

/// Tries a plugin in a child process, so that cells and the devices that they use stay as they are.
fn with_probe<T>(deadline: Duration, ask: impl FnOnce(Probe<'_>) -> Result<T, ProbeError>) -> Result<T, ProbeError> {
    // The program in which cells run has a subcommand that tries plugins.
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

/// Fails the running cell with this message; prints it where there is no kernel.
pub(crate) fn fail(message: &str) {
    if connection::send(&KernelFrame::Failed { message: message.to_owned() }).is_err() {
        eprintln!("error: {message}");
    }
}
