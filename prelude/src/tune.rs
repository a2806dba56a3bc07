//! The code to which `%%tune` expands: an objective's entry point, and the launch of a search from a cell.

use crate::device;
use ferrotune_link::{Answer, KernelFrame, connection};
use ferrotune_machine::mappings;
use ferrotune_trial::shared::{Pack, ShareError};
use ferrotune_trial::{Result, Share, Trial, given_seed};
use std::os::fd::AsRawFd;
use std::panic::Location;

pub use ferrotune_trial::{Shared, in_cell, run_objective};

/// Calls the objective. With this function, the compiler knows the type of the closure's argument.
///
/// # Errors
/// The errors of the objective.
pub fn objective<R>(trial: &Trial, body: impl FnOnce(&Trial) -> Result<R>) -> Result<R> {
    body(trial)
}

/// Sends a search to the kernel. `entry` is a function of the calling cell, and `share` shares variables with the trials. If the
/// launch fails, the cell fails.
#[track_caller]
pub fn start(entry: extern "C" fn() -> i32, share: &mut dyn FnMut(&mut Launch)) {
    let location = Location::caller().to_string();
    let mut launch = Launch { entry: entry as usize, pack: Pack::new(), shared: 0, error: None };
    share(&mut launch);
    if let Err(reason) = launch.hand_over(location) {
        device::fail(&reason);
    }
}

/// A search about to begin: its objective, and the variables that its trials need.
#[derive(Debug)]
pub struct Launch {
    entry: usize,
    pack: Pack,
    shared: u64,
    error: Option<ShareError>,
}

impl Launch {
    /// Shares a variable with every trial.
    pub fn share(&mut self, name: &str, value: &impl Share) {
        self.shared += 1;
        if self.error.is_none() {
            self.error = value.pack(name, &mut self.pack).err();
        }
    }

    fn hand_over(self, location: String) -> std::result::Result<(), String> {
        if let Some(error) = self.error {
            return Err(error.to_string());
        }
        let library =
            library_of(self.entry).map_err(|error| format!("cannot find the objective's library: {error}"))?;
        let shared =
            if self.shared > 0 { Some(self.pack.into_memfd().map_err(|error| error.to_string())?) } else { None };
        let frame = KernelFrame::Tune {
            pid: std::process::id(),
            library,
            symbol: "ferrotune_objective".to_owned(),
            shared_fd: shared.as_ref().map(AsRawFd::as_raw_fd),
            device: device::name(),
            seed: given_seed(),
            location,
        };
        // When the answer arrives, the search's supervisor holds the shared data, and this process may close them.
        match connection::send(&frame) {
            Ok(Answer::Refused { reason }) => Err(reason),
            Ok(_) => Ok(()),
            Err(error) => Err(format!("the kernel cannot be reached: {error}")),
        }
    }
}

/// The path of the shared object at an address, from the process' own list of mappings.
fn library_of(address: usize) -> std::io::Result<String> {
    let library = mappings::own()?.into_iter().find(|mapping| mapping.addresses.contains(&address));
    let path = library.and_then(|library| library.path.into_os_string().into_string().ok());
    path.ok_or_else(|| std::io::Error::other("its address is in no file"))
}
