//! Scenarios of trials that share a worker.

use super::faults::leave_a_daemon;
use super::quick_parameter;
use ferrotune_trial::{Result, Trial};
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Each trial reports its process, the number of trials in that process, and the traces of earlier trials. Most trials then
/// end badly or leave something behind.
pub(crate) fn in_company(trial: &Trial) -> Result<Option<f64>> {
    static TRIALS: AtomicU64 = AtomicU64::new(0);
    let x = quick_parameter(trial)?;
    let trials = TRIALS.fetch_add(1, Ordering::Relaxed) + 1;
    let found = std::fs::read_dir(std::env::temp_dir())?.count() as u32;
    let is_moved = std::env::current_dir()? == Path::new("/");
    let metrics = [
        ("val_accuracy", x),
        ("process", f64::from(std::process::id())),
        ("trials", trials as f64),
        ("found", f64::from(found + u32::from(is_moved))),
    ];
    trial.report(0, metrics)?;
    writeln!(std::io::stdout(), "said by {}", trial.number())?;
    std::fs::write(std::env::temp_dir().join("left"), "x")?;
    std::env::set_current_dir("/")?;
    match trial.number() {
        1 => leave_a_daemon()?,
        2 => {
            std::panic::set_hook(Box::new(|_| {}));
            return Err("injected error".into());
        }
        3 => panic!("injected panic"),
        5 => std::process::abort(),
        7 => std::thread::sleep(Duration::from_secs(1000)),
        9 => std::mem::forget(std::hint::black_box(vec![1_u8; 300 << 20])),
        _ => {}
    }
    Ok(Some(x))
}

/// A scenario that reports steps until the trial is asked to stop, and prints that it was.
pub(crate) fn heed(trial: &Trial) -> Result<Option<f64>> {
    let x = quick_parameter(trial)?;
    for step in 0.. {
        std::thread::sleep(Duration::from_millis(10));
        if let Err(error) = trial.report(step, [("val_accuracy", x)]) {
            writeln!(std::io::stdout(), "trial {} leaves: {error}", trial.number())?;
            return Err(error);
        }
    }
    Ok(None)
}
