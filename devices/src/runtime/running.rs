//! The device processes of this user that run now.

use super::far::Route;
use super::start;
use crate::process::ProcessReport;
use crate::process::protocol::Question;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The longest time in which a process that was asked to end still listens.
const END: Duration = Duration::from_secs(5);

/// The pause between two looks whether the process has ended.
const TICK: Duration = Duration::from_millis(5);

/// A device process that runs.
#[derive(Debug)]
pub struct Running {
    socket: PathBuf,
    /// What it holds, and for whom; the reason if it does not say that, such as another version of Ferrotune.
    pub report: io::Result<ProcessReport>,
}

/// The device processes of this user. Starts none.
///
/// # Errors
/// If the folder of their sockets cannot be read.
///
/// # Examples
/// ```
/// for process in ferrotune_devices::runtime::running()? {
///     println!("{process}");
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn running() -> io::Result<Vec<Running>> {
    let asked = start::sockets()?.into_iter().filter_map(|socket| {
        let report = start::reported(&socket).transpose()?;
        Some(Running { socket, report })
    });
    Ok(asked.collect())
}

/// The device process that a client of this route would have; none if it does not run, or does not answer.
pub fn process_of(route: &Route) -> Option<u32> {
    Some(start::reported(&start::path(route)).ok()??.process)
}

impl Running {
    /// The names of the clients, such as `notebook 4711`.
    pub fn users(&self) -> Vec<&str> {
        let named = self.report.iter().flat_map(ProcessReport::named_clients);
        named.map(|client| client.name.as_str()).collect()
    }

    /// Ends the process, and returns when no client can reach it any more.
    ///
    /// # Errors
    /// If the process does not answer, or does not end.
    pub fn close(&self) -> io::Result<()> {
        start::asked(&self.socket, Question::Close)?;
        let begin = Instant::now();
        while start::listens(&self.socket)? {
            if begin.elapsed() > END {
                return Err(io::Error::other("the device process does not end"));
            }
            std::thread::sleep(TICK);
        }
        Ok(())
    }
}

impl std::fmt::Display for Running {
    /// Writes a text such as `process 4711 of cuda holds 1.2 GiB: notebook 4700 1 GiB (1.1 GiB at most)`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.report {
            Ok(report) => write!(f, "process {} of {} {report}", report.process, report.device),
            Err(error) => write!(f, "process at {}: {error}", self.socket.display()),
        }
    }
}
