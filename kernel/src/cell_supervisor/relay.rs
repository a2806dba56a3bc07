//! The relay: passes lines between evcxr and the supervisor. evcxr takes the relay for the process in which cells run.
//!
//! evcxr may end and start relays at any time. The supervisor and the variables stay.

use super::{KERNEL_VARIABLE, RELAY_SOCKET};
use anyhow::{Context, Result};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;
use std::thread;

/// Passes lines on until evcxr or the supervisor has gone.
pub(crate) fn run() -> Result<ExitCode> {
    let kernel = std::env::var_os(KERNEL_VARIABLE).with_context(|| format!("{KERNEL_VARIABLE} is not set"))?;
    let supervisor = UnixStream::connect(Path::new(&kernel).with_file_name(RELAY_SOCKET))
        .context("the cell supervisor cannot be reached")?;
    let orders = supervisor.try_clone()?;
    thread::Builder::new().spawn(move || {
        let passed = pass(io::stdin().lock(), &orders).and_then(|()| orders.shutdown(Shutdown::Write));
        if let Err(error) = passed {
            tracing::debug!("the cell supervisor takes no more orders: {error}");
        }
    })?;
    if let Err(error) = pass(&supervisor, io::stdout().lock()) {
        tracing::debug!("evcxr reads no more: {error}");
    }
    Ok(ExitCode::FAILURE)
}

/// Copies bytes as they arrive. `io::copy` uses `splice`, which keeps the pipe locked while it waits for the socket; a
/// process that reads from the pipe could then not even be killed.
fn pass(mut from: impl Read, mut to: impl Write) -> io::Result<()> {
    let mut buffer = [0; 8192];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => {
                to.write_all(&buffer[..count])?;
                to.flush()?;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
