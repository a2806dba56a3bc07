//! The device that cells and trials use.

mod candle;

use crate::interrupt::interrupted;
use candle::Candle;
use ferrotune_devices::probe::{Opened, Probe, ProbeError};
use ferrotune_devices::runtime::{self, Client};
use ferrotune_devices::selftest::{self, Compute as _, SelfTest};
use ferrotune_devices::{
    DeviceName, Machine, NoPlugin, Report, connect as choose, detect, find_plugin, name_of_plugin,
};
use ferrotune_display::{Bundle, show};
use ferrotune_link::{KernelFrame, connection};
use ferrotune_machine::own;
use ferrotune_trial::{BoxError, located};
use std::path::Path;
use std::time::Duration;

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

/// Makes the device process open the plugins of this process, so that what is on a device outlives it, and lets an interrupt end waits for
/// a device.
pub(crate) fn start() {
    // The program of the cell process has a subcommand that is the device process. The parent is the supervisor of the notebook's cells,
    // which lives as long as the notebook.
    let notebook = format!("notebook {}", std::os::unix::process::parent_id());
    ferrotune_trial::use_device_process(Path::new(own::PROGRAM), notebook);
    runtime::interrupt_waits_with(interrupted);
}

/// Detects accelerators, prints what it finds, and connects to the best device that can be
/// used. `%tpu_connect` runs it. With `require`, a device that is not an accelerator is an error. Returns whether a device is connected.
#[doc(hidden)]
pub fn connect(tpu: Option<&str>, require: bool) -> bool {
    let mut report = detect(&Machine::this(), tpu);
    show(table(&report));
    for (device, _) in report.drivers() {
        if require && device != "tpu" {
            continue;
        }
        match opened(&device) {
            Ok(text) => {
                text.into_iter().for_each(say);
                break;
            }
            Err(failure) => report.note_failure(&device, &failure.to_string()),
        }
    }
    match choose(&report, require) {
        Ok(connection) => connected(&connection.device, &connection.reason),
        Err(reason) => failed(&reason.to_string()),
    }
}

/// Connects to a device of a PJRT plugin. `plugin` is `cuda`, `cuda:1`, `rocm`, `oneapi`, `tpu`, `cpu` for XLA's own plugin of the CPU,
/// or the path of a plugin's library. `%tpu_connect --plugin` runs it. Returns whether a device is connected.
#[doc(hidden)]
pub fn connect_plugin(plugin: &str) -> bool {
    let name = match name_of_plugin(&Machine::this(), plugin) {
        Ok(name) => name.to_string(),
        Err(missing) => return failed(&missing.to_string()),
    };
    match opened(&name) {
        Ok(text) => {
            text.into_iter().for_each(say);
            connected(&name, "chosen by --plugin")
        }
        Err(failure) => failed(&failure.to_string()),
    }
}

/// Opens the plugin of a device in the device process, where it may hang or crash. Describes it unless this process has opened it before.
fn opened(device: &str) -> Result<Option<String>, BoxError> {
    let was_open = find_plugin(&Machine::this(), device).is_ok_and(|plugin| ferrotune_trial::is_open(&plugin));
    let client = client_of(device)?;
    Ok(client.opened().filter(|_| !was_open).map(|opened| format!("{device} opens: {opened}")))
}

/// The client of the plugin of a device, by the device's name.
fn client_of(device: &str) -> Result<Client, BoxError> {
    ferrotune_trial::client_of(&parsed(device)?)
}

fn parsed(device: &str) -> Result<DeviceName, NoPlugin> {
    DeviceName::parse(device).ok_or_else(|| NoPlugin::NotOfAPlugin { device: device.to_owned() })
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

/// Opens the attached TPU, and describes it.
pub(crate) fn opened_tpu() -> Result<Opened, BoxError> {
    let report = detect(&Machine::this(), None);
    let has_driver = report.tpu.as_ref().is_some_and(|tpu| tpu.chips.is_some()) && report.libtpu.is_some();
    let missing = "no TPU is attached that libtpu could open; %devices tells why";
    let opened = if has_driver { client_of("tpu")?.opened().cloned() } else { None };
    opened.ok_or_else(|| missing.into())
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
        Ok(device) => say(traffic(&name, &device) + &held(&name, client_of(&name))),
        Err(error) => fail(&error.to_string()),
    }
}

/// Ends the device process of the connected device, and frees what this notebook has there. `%device close` runs it.
#[doc(hidden)]
pub fn close() {
    match closed() {
        Ok(text) => say(text),
        Err(error) => fail(&error.to_string()),
    }
}

fn closed() -> Result<String, BoxError> {
    let name = name();
    let nothing = || format!("nothing of {name} is open; %tpu_connect opens a device");
    let Some(client) = open_client()? else { return Err(nothing().into()) };
    let Some(report) = client.report()? else { return Ok(nothing()) };
    let users = report.named_clients().map(|client| client.name.as_str());
    let others: Vec<&str> = users.filter(|user| Some(*user) != client.name()).collect();
    if !others.is_empty() {
        return Err(format!("{name} is also used by {}; stop these first", others.join(", ")).into());
    }
    client.close()?;
    Ok(format!("closed {name}; the values that were there are gone, and the next use opens it again"))
}

/// The client of the connected device's plugin, if this process has opened it.
fn open_client() -> Result<Option<Client>, BoxError> {
    let Ok(plugin) = find_plugin(&Machine::this(), &name()) else { return Ok(None) };
    if ferrotune_trial::is_open(&plugin) { client_of(&name()).map(Some) } else { Ok(None) }
}

/// What the device process holds, and for whom.
fn held(name: &str, client: Result<Client, BoxError>) -> String {
    let report = client.ok().and_then(|client| client.report().ok().flatten());
    report.map_or_else(String::new, |report| format!("\nthe device process {} of {name} {report}", report.process))
}

fn traffic(name: &str, device: &candle_core::Device) -> String {
    match ferrotune_xla::backend_of(device) {
        Some(backend) => {
            let lines =
                format!("connected to {name}\nprograms compiled: {}\n{}", backend.compilations(), backend.traffic());
            backend.hints().into_iter().fold(lines, |lines, hint| lines + "\n" + &hint)
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

/// Computes on the connected device and compares the results with candle's on the CPU. `%tpu_connect --selftest` runs it.
#[doc(hidden)]
pub fn self_test() {
    let is_first = DeviceName::parse(&name()).is_some_and(|name| name.number() == 0);
    let tested = if is_first { test_plugin() } else { test_candle() };
    match tested {
        Ok(test) if test.passes() => say(test.to_string()),
        Ok(test) => {
            say(test.to_string());
            fail("the self-test failed: the device does not compute what it should; please report what is shown above");
        }
        Err(error) => fail(&error.to_string()),
    }
}

fn test_plugin() -> Result<SelfTest, BoxError> {
    let client = client_of(&name())?;
    let opened = client.opened().cloned().ok_or("the plugin was not opened by the device process")?;
    let mut test = selftest::run_plugin(&client, &opened)?;
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
    ask(Probe { program: Path::new(own::PROGRAM), deadline, stop: &interrupted })
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
