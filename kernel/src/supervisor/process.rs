//! The process in which cells run: loads each cell's shared object and calls it.
//!
//! It owns the user's variables, through a pointer that only the cells understand. It links no candle; the prelude
//! comes with the first library that it loads.
#![expect(unsafe_code, reason = "cells are loaded and called by name, over the C calling convention")]

use super::SUPERVISOR_VARIABLE;
use anyhow::{Context, Result, bail};
use libloading::os::unix::{Library, RTLD_NOW};
use rustix::process::Signal;
use std::ffi::c_void;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;

/// What the process answers when a cell has ended.
const COMPLETE: &str = "complete";
/// What it answers, with the reason, where a cell could not be run.
pub(super) const REFUSED: &str = "refused";

/// Runs cells until standard input, a socket to the supervisor, is closed.
pub(crate) fn run(prelude: &Path) -> Result<()> {
    end_with_supervisor()?;
    let (orders, mut answers) = take_over_stdin()?;
    // SAFETY: the prelude's initialisers are those of Rust's standard library and of our own crates.
    let prelude = unsafe { Library::open(Some(prelude), RTLD_NOW) }.context("cannot load the prelude")?;
    let hooks = Hooks::of(&prelude)?;
    (hooks.start)();
    let mut variables: *mut c_void = std::ptr::null_mut();
    for line in orders.lines() {
        let line = line?;
        let mut words = line.split(' ');
        let (Some("LOAD_AND_RUN"), Some(path), Some(function)) = (words.next(), words.next(), words.next()) else {
            bail!("unexpected order {line:?}");
        };
        let entry = match load(Path::new(path), function) {
            Ok(entry) => entry,
            Err(error) => {
                let reason = format!("{error:#}").replace('\n', " ");
                writeln!(answers, "{REFUSED} {reason}")?;
                continue;
            }
        };
        (hooks.before_cell)();
        variables = entry(variables);
        (hooks.after_cell)();
        writeln!(answers, "{COMPLETE}")?;
    }
    Ok(())
}

/// Asks the system to end this process when its supervisor ends, however that happens.
fn end_with_supervisor() -> Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    let parent = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().to_string());
    if std::env::var(SUPERVISOR_VARIABLE).ok() != parent {
        bail!("the supervisor has ended");
    }
    Ok(())
}

/// Moves the socket away from descriptor 0, so that a cell that reads its standard input finds it empty.
fn take_over_stdin() -> Result<(BufReader<File>, File)> {
    let socket = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    let nothing = File::open("/dev/null")?;
    rustix::stdio::dup2_stdin(&nothing)?;
    let socket = File::from(socket);
    Ok((BufReader::new(socket.try_clone()?), socket))
}

/// Functions of the prelude that surround a cell.
struct Hooks {
    start: extern "C" fn(),
    before_cell: extern "C" fn(),
    after_cell: extern "C" fn(),
}

impl Hooks {
    fn of(prelude: &Library) -> Result<Self> {
        let find = |name: &str| -> Result<extern "C" fn()> {
            // SAFETY: `prelude/src/cell.rs` defines these functions with this signature, and both come from one version.
            let function = unsafe { prelude.get::<extern "C" fn()>(name.as_bytes()) };
            Ok(*function.with_context(|| format!("the prelude has no {name}"))?)
        };
        Ok(Self {
            start: find("ferrotune_start")?,
            before_cell: find("ferrotune_before_cell")?,
            after_cell: find("ferrotune_after_cell")?,
        })
    }
}

/// A cell's function: takes the variables and gives them back.
type Entry = extern "C" fn(*mut c_void) -> *mut c_void;

fn load(path: &Path, function: &str) -> Result<Entry> {
    // SAFETY: evcxr has just compiled this file; what its code does is the user's.
    let library = unsafe { Library::open(Some(path), RTLD_NOW) }.context("the cell cannot be loaded")?;
    // SAFETY: evcxr defines the function with this signature; it is given back the pointer that it returned last.
    let entry = unsafe { library.get::<Entry>(function.as_bytes()) };
    let entry = *entry.with_context(|| format!("the cell has no {function}"))?;
    // Variables hold pointers into the library, and threads may still run in it: it is never closed.
    std::mem::forget(library);
    Ok(entry)
}
