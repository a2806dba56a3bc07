//! Misbehaviour on request: `FERROTUNE_PJRT_FAULT=PLACE:DEED`, where PLACE is `load`, `initialize`, `client` or `execute`; and
//! the device's memory.

use crate::error::Failure;
use std::fs::File;
use std::io::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What all arrays of this process take, in bytes.
static LIVE_BYTES: AtomicUsize = AtomicUsize::new(0);

pub(crate) fn allocated(bytes: usize) {
    LIVE_BYTES.fetch_add(bytes, Ordering::Relaxed);
}

pub(crate) fn freed(bytes: usize) {
    LIVE_BYTES.fetch_sub(bytes, Ordering::Relaxed);
}

pub(crate) fn live_bytes() -> usize {
    LIVE_BYTES.load(Ordering::Relaxed)
}

/// Fails as a device does that has too little memory, where `FERROTUNE_PJRT_FAULT=execute:full`.
pub(crate) fn refuse_if_full() -> Result<(), Failure> {
    if std::env::var("FERROTUNE_PJRT_FAULT").is_ok_and(|fault| fault == "execute:full") {
        let message = "Attempting to allocate 20.00G. That was not possible. There are 15.48G free.; (0x0x0_HBM0)";
        return Err(Failure { code: 8, message: message.to_owned() });
    }
    Ok(())
}

/// Locks the file that `FERROTUNE_TPU_LOCKFILE` names, as libtpu locks its own, so that one process at a time has the device; adds
/// a line to it. The lock is given back when the file is dropped.
pub(crate) fn lock() -> Result<Option<File>, Failure> {
    let Some(path) = std::env::var_os("FERROTUNE_TPU_LOCKFILE") else { return Ok(None) };
    let failed = |error: &dyn std::fmt::Display| Failure::internal(format!("cannot use {}: {error}", path.display()));
    let mut file = File::options().create(true).append(true).open(&path).map_err(|error| failed(&error))?;
    if file.try_lock().is_err() {
        let message = "The TPU is already in use by another process; libtpu_lockfile is locked".to_owned();
        return Err(Failure { code: 10, message });
    }
    writeln!(file, "opened by {}", std::process::id()).map_err(|error| failed(&error))?;
    Ok(Some(file))
}

/// Does what the environment asks for at this place.
#[expect(clippy::print_stdout, reason = "some plugins do print there, and it must not matter")]
pub(crate) fn strike(place: &str) {
    let Ok(fault) = std::env::var("FERROTUNE_PJRT_FAULT") else { return };
    match fault.strip_prefix(place).and_then(|rest| rest.strip_prefix(':')) {
        Some("abort") => {
            eprintln!("F0000 libtpu lockfile: the TPU is already in use by process 42");
            std::process::abort();
        }
        Some("exit") => std::process::exit(3),
        Some("hang") => loop {
            std::thread::park();
        },
        Some("noise") => {
            println!("WARNING: could not determine TPU accelerator type");
            println!("{{\"Failed\":\"a plugin that prints what looks like an answer\"}}");
        }
        _ => {}
    }
}
