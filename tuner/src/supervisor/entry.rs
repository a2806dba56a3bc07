//! The entry points of supervisor processes. They send the reason why a search has failed as an event.

use super::backlog::Backlog;
use super::elsewhere::Engine;
use super::events::Watcher;
use super::{Devices, Objects, SupervisorError, Trust, Workers, supervise};
use ferrotune_machine::own;
use ferrotune_space::event::{Event, Finish};
use ferrotune_space::spec::StudySpec;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::process::ExitCode;

/// A function that returns the engine for the workers of a search, if the search uses one; or a line that says why there is
/// none.
pub type FindEngine = dyn Fn(&StudySpec) -> Result<Option<Box<dyn Engine>>, String>;

/// Runs the hidden subcommand `supervise SPEC.json`: the search, with [`Event`]s on standard output and the limits of
/// `trust`.
pub fn main(
    spec_path: &Path,
    trust: &Trust,
    find_engine: &FindEngine,
    objects: &dyn Objects,
    devices: Option<&'static dyn Devices>,
    listener: &mut dyn FnMut(&Event),
) -> ExitCode {
    // Writes bypass Rust's own buffer, which cannot handle a line that was written only in part.
    let stdout = io::stdout().as_fd().try_clone_to_owned().map(File::from);
    let mut events = match stdout.and_then(Backlog::new) {
        Ok(events) => events,
        Err(error) => {
            eprintln!("ferrotune supervise: cannot write to standard output: {error}");
            return ExitCode::FAILURE;
        }
    };
    let searched = read_spec(spec_path).and_then(|spec| {
        let mut engine = find_engine(&spec).map_err(|reason| SupervisorError::Engine { reason })?;
        let workers = match &mut engine {
            Some(engine) => Workers::Elsewhere { engine: engine.as_mut(), trust, objects, devices },
            None => Workers::Program { program: Path::new(own::PROGRAM), trust, objects, devices },
        };
        supervise(spec, workers, &mut events, listener)
    });
    exit_code(searched, &mut events, listener)
}

/// Runs a supervisor in a program that contains the objective: it runs the search of `spec_path`, sends [`Event`]s to
/// `watcher`, and uses the program itself as its trials' worker.
pub fn main_of_program(spec_path: &Path, watcher: OwnedFd) -> ExitCode {
    match Backlog::new(File::from(watcher)) {
        Ok(mut events) => {
            let searched =
                read_spec(spec_path).and_then(|spec| supervise(spec, Workers::Itself, &mut events, &mut |_| {}));
            exit_code(searched, &mut events, &mut |_| {})
        }
        Err(error) => {
            tracing::error!(%error, "the search's events cannot be written");
            ExitCode::FAILURE
        }
    }
}

/// Sends the reason why a search has failed to the watcher, and returns the exit code.
fn exit_code(
    searched: Result<Finish, SupervisorError>,
    events: &mut dyn Write,
    listener: &mut dyn FnMut(&Event),
) -> ExitCode {
    let Err(error) = searched else { return ExitCode::SUCCESS };
    Watcher::new(events, listener).send(&Event::Error { message: error.to_string() });
    ExitCode::FAILURE
}

fn read_spec(path: &Path) -> Result<StudySpec, SupervisorError> {
    let read = || Ok(serde_json::from_slice(&fs::read(path)?)?);
    read().map_err(|source| SupervisorError::Spec { path: path.to_path_buf(), source })
}
