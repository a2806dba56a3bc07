//! What evcxr takes for its runtime: passes lines between evcxr and the supervisor, and has no more to do.
//!
//! evcxr ends and starts it as it likes; the supervisor, and the variables with it, stay.

use super::{KERNEL_VARIABLE, RELAY_SOCKET};
use anyhow::{Context, Result};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;
use std::thread;

/// Passes lines on until one of the two sides is gone.
pub(crate) fn run() -> Result<ExitCode> {
    let kernel = std::env::var_os(KERNEL_VARIABLE).with_context(|| format!("{KERNEL_VARIABLE} is not set"))?;
    let supervisor = UnixStream::connect(Path::new(&kernel).with_file_name(RELAY_SOCKET))
        .context("the supervisor of the cells cannot be reached")?;
    let orders = supervisor.try_clone()?;
    thread::Builder::new().spawn(move || {
        let passed = pass(io::stdin().lock(), &orders).and_then(|()| orders.shutdown(Shutdown::Write));
        if let Err(error) = passed {
            tracing::debug!("the supervisor of the cells takes no more orders: {error}");
        }
    })?;
    if let Err(error) = pass(&supervisor, io::stdout().lock()) {
        tracing::debug!("evcxr reads no more: {error}");
    }
    Ok(ExitCode::FAILURE)
}

/// Copies what comes, as it comes. `io::copy` would have the system do it, by `splice`, which keeps the pipe locked
/// while it waits for the socket: a reader of the pipe could then not even be killed.
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
