//! The device that cells and trials use: chosen once, named always.

use ferrotune_devices::{Machine, Report, Support, connect as choose, detect};
use ferrotune_display::frame::Frame;
use ferrotune_display::{Bundle, link, show};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

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
/// build can drive. With `require`, anything but the accelerator is an error.
pub fn connect(tpu: Option<&str>, require: bool) {
    let report = detect(&Machine::this(), tpu);
    show(table(&report));
    match choose(&report, support(), require) {
        Ok(connection) => {
            *CONNECTED.lock().unwrap_or_else(PoisonError::into_inner) = Some(connection.device.clone());
            LOST.store(false, Ordering::Relaxed);
            show(Bundle::text(format!("connected to {}: {}", connection.device, connection.reason)));
        }
        Err(error) => fail(&error.to_string()),
    }
}

/// What `%device` runs: the connected device, and what else there is.
pub fn describe() {
    show(table(&detect(&Machine::this(), None)));
    show(Bundle::text(format!("connected to {}", name())));
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
