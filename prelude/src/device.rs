//! The device that cells and trials use.

mod candle;

use crate::interrupt::interrupted;
use candle::Candle;
use ferrotune_devices::fork::{self, Forked};
use ferrotune_devices::probe::{Opened, Probe, ProbeError};
use ferrotune_devices::selftest::{self, Compute as _, SelfTest};
use ferrotune_devices::{
    Connection, DeviceName, Machine, NoPlugin, Report, connect as choose, detect, find_plugin, name_of_plugin,
};
use ferrotune_display::{Bundle, show};
use ferrotune_link::{KernelFrame, connection};
use ferrotune_trial::{BoxError, located};
use std::path::Path;
use std::time::Duration;

/// The time limit for opening a plugin's devices: a TPU takes several seconds, a slice of many hosts longer.
const OPEN_DEADLINE: Duration = Duration::from_secs(120);
/// The time limit for compiling and running: large programs take minutes.
const WORK_DEADLINE: Duration = Duration::from_secs(600);

/// The name of the connected device: `cpu`, `tpu`, `cuda`, `cuda:1`, `xla:cpu`, `xla:/opt/plugin.so`. It is `cpu` until `%tpu_connect`
/// has run.
/// In a `%%tune` body it is the device of the trial.
pub fn name() -> String {
    ferrotune_trial::connected()
}

/// The name of a device: `cpu`, or the name of a plugin's device, such as `cuda:1`.
pub(crate) fn place(device: &candle_core::Device) -> String {
    match ferrotune_xla::backend_of(device) {
        Some(backend) => format!("{backend:?}"),
        None => "cpu".to_owned(),
    }
}

/// The connected device as a device of candle. It is opened once: a second call returns the same device.
///
/// # Errors
/// The errors of candle if the device cannot be opened, and an error if the process that had opened it has died.
#[track_caller]
pub fn current() -> ferrotune_trial::Result<candle_core::Device> {
    located(ferrotune_trial::open_device(&name()))
}

/// Prints an error if this process is a woken snapshot of a process that had opened an accelerator. A snapshot copies the memory,
/// but not the context of the accelerator.
pub(crate) fn lose() {
    if let Err(lost) = fork::check() {
        eprintln!("{lost}");
    }
}

/// Detects accelerators, prints what it finds, and connects to the best device that can be
/// used. `%tpu_connect` runs it. With `require`, a device that is not an accelerator is an error. Returns whether a device is connected.
#[doc(hidden)]
pub fn connect(tpu: Option<&str>, require: bool) -> bool {
    let mut report = detect(&Machine::this(), tpu);
    show(table(&report));
    for (device, plugin) in report.drivers() {
        if require && device != "tpu" {
            continue;
        }
        match try_opening(&device, &plugin) {
            Ok(opened) => {
                say_all(opened);
                break;
            }
            Err(Unopened::Lost(lost)) => return failed(&format!("{device}: {lost}")),
            Err(Unopened::Probe(failure)) => report.note_failure(&device, &failure),
        }
    }
    match usable(&report, require) {
        Ok(connection) => connected(&connection.device, &connection.reason),
        Err(reason) => failed(&reason),
    }
}

/// Connects to a device of a PJRT plugin. `plugin` is `cuda`, `cuda:1`, `rocm`, `oneapi`, `tpu`, `cpu` for XLA's own plugin of the CPU,
/// or the path of a plugin's library. `%tpu_connect --plugin` runs it. Returns whether a device is connected.
#[doc(hidden)]
pub fn connect_plugin(plugin: &str) -> bool {
    let machine = Machine::this();
    let found = name_of_plugin(&machine, plugin).and_then(|name| Ok((name.find_plugin(&machine)?, name)));
    let (path, name) = match found {
        Ok((path, name)) => (path, name.to_string()),
        Err(missing) => return failed(&missing.to_string()),
    };
    match try_opening(&name, &path) {
        Ok(opened) => {
            say_all(opened);
            connected(&name, "chosen by --plugin")
        }
        Err(Unopened::Lost(lost)) => failed(&format!("{name}: {lost}")),
        Err(Unopened::Probe(failure)) => failed(&failure.to_string()),
    }
}

/// The reason why a plugin was not opened.
enum Unopened {
    Lost(Forked),
    Probe(ProbeError),
}

/// Opens a plugin in a separate process, where it may hang or crash, unless this process has opened it already. Returns a
/// text about the opened plugin.
fn try_opening(name: &str, plugin: &Path) -> Result<Option<String>, Unopened> {
    fork::check().map_err(Unopened::Lost)?;
    if ferrotune_trial::is_open(plugin) {
        return Ok(None);
    }
    let opened = with_probe(OPEN_DEADLINE, |probe| probe.open(plugin)).map_err(Unopened::Probe)?;
    Ok(Some(format!("{name} opens: {opened}")))
}

fn say_all(text: Option<String>) {
    text.into_iter().for_each(say);
}

fn connected(name: &str, reason: &str) -> bool {
    ferrotune_trial::connect(name);
    say(format!("connected to {name}: {reason}"));
    true
}

fn failed(message: &str) -> bool {
    fail(message);
    false
}

/// The best device, or an error if this process cannot open it.
fn usable(report: &Report, require: bool) -> Result<Connection, String> {
    let connection = choose(report, require).map_err(|error| error.to_string())?;
    if connection.device != "cpu" {
        fork::check().map_err(|lost| format!("{}: {lost}", connection.device))?;
    }
    Ok(connection)
}

/// The library of the attached TPU.
fn driver(report: &Report) -> Option<&Path> {
    report.tpu.as_ref()?.chips?;
    report.libtpu.as_deref()
}

/// Opens the attached TPU in a separate process, and describes it.
pub(crate) fn opened_tpu() -> Result<Opened, BoxError> {
    let report = detect(&Machine::this(), None);
    let libtpu = driver(&report).ok_or("no TPU is attached that libtpu could open; %devices tells why")?;
    if ferrotune_trial::is_open(libtpu) {
        return Err("the TPU is open in this process already; call strategy::tpu() before device::current()".into());
    }
    Ok(with_probe(OPEN_DEADLINE, |probe| probe.open(libtpu))?)
}

/// Shows the connected device and all others. `%device` runs it.
#[doc(hidden)]
pub fn describe() {
    show(table(&detect(&Machine::this(), None)));
    say(format!("connected to {}", name()));
}

/// Shows the connected device's compilations, and its traffic with the host. `%device --report` runs it.
#[doc(hidden)]
pub fn report() {
    if let Err(lost) = fork::check() {
        return fail(&lost.to_string());
    }
    let name = name();
    let plugin = match find_plugin(&Machine::this(), &name) {
        Ok(plugin) => plugin,
        Err(NoPlugin::NotOfAPlugin { .. }) => {
            return say(format!("connected to {name}, which computes at once and compiles nothing"));
        }
        Err(missing) => return fail(&missing.to_string()),
    };
    if !ferrotune_trial::is_open(&plugin) {
        return say(format!("connected to {name}, and nothing was computed there yet"));
    }
    match current() {
        Ok(device) => say(traffic(&name, &device)),
        Err(error) => fail(&error.to_string()),
    }
}

fn traffic(name: &str, device: &candle_core::Device) -> String {
    match ferrotune_xla::backend_of(device) {
        Some(backend) => {
            format!("connected to {name}\nprograms compiled: {}\n{}", backend.compilations(), backend.traffic())
        }
        None => format!("connected to {name}"),
    }
}

/// Shows the CPU, the cards and the TPU, with their memory. `%devices` runs it.
#[doc(hidden)]
pub fn list() {
    let mut report = detect(&Machine::this(), None);
    report.ask_cuda_memory();
    say(report.devices_text());
}

/// Computes on the connected device and compares the results with candle's on the CPU. For the first device of a PJRT
/// plugin, such as a TPU, that this process has not opened, a separate process computes. `%tpu_connect --selftest` runs it.
#[doc(hidden)]
pub fn self_test() {
    if let Err(lost) = fork::check() {
        return fail(&lost.to_string());
    }
    // The separate process computes on the plugin's first device.
    let is_first = DeviceName::parse(&name()).is_some_and(|name| name.number() == 0);
    let tested = match find_plugin(&Machine::this(), &name()) {
        Ok(plugin) if is_first && !ferrotune_trial::is_open(&plugin) => test_plugin(&plugin),
        _ => test_candle(),
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

fn test_plugin(plugin: &Path) -> Result<SelfTest, BoxError> {
    let mut test = with_probe(WORK_DEADLINE, |probe| probe.self_test(plugin))?;
    test.compare_with_candle(&candle_losses()?);
    Ok(test)
}

fn test_candle() -> Result<SelfTest, BoxError> {
    let name = name();
    let mut test = selftest::run(
        &name,
        &format!("{name}, as candle computes on it"),
        &mut Candle { device: ferrotune_trial::open_device(&name)? },
    )?;
    if name != "cpu" {
        test.compare_with_candle(&candle_losses()?);
    }
    Ok(test)
}

fn candle_losses() -> candle_core::Result<Vec<f32>> {
    Ok(Candle { device: candle_core::Device::Cpu }.train(&selftest::Network::default())?.values)
}

/// Tries a plugin in a child process, so that cells and their devices are not affected.
pub(crate) fn with_probe<T>(
    deadline: Duration,
    ask: impl FnOnce(Probe<'_>) -> Result<T, ProbeError>,
) -> Result<T, ProbeError> {
    // The program of the cell process has a subcommand that tries plugins.
    ask(Probe { program: Path::new("/proc/self/exe"), deadline, stop: &interrupted })
}

pub(crate) fn say(text: String) {
    show(Bundle::text(text));
}

fn table(report: &Report) -> Bundle {
    Bundle::text(report.table_text()).with("text/html", report.table_html())
}

/// Fails the running cell with this message, or prints it if there is no kernel.
pub(crate) fn fail(message: &str) {
    if connection::send(&KernelFrame::Failed { message: message.to_owned(), location: None }).is_err() {
        eprintln!("error: {message}");
    }
}
