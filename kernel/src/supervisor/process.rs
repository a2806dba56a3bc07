//! The process in which cells run: loads each cell's shared object and calls it, with a snapshot to fall back on.
//!
//! It owns the user's variables, through a pointer that only the cells understand. It links no candle; the prelude
//! comes with the first library that it loads.
#![expect(unsafe_code, reason = "cells are loaded and called by name, over the C calling convention")]

use super::SUPERVISOR_VARIABLE;
use super::snapshot::{self, Fork};
use anyhow::{Context, Result, bail};
use libloading::os::unix::{Library, RTLD_NOW};
use rustix::process::Signal;
use std::ffi::c_void;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::time::{Duration, Instant};

/// What the process answers when a cell has ended.
const COMPLETE: &str = "complete";
/// What it says, with a process id, when a sleeping copy of it has been made.
pub(super) const SNAPSHOT: &str = "snapshot ";
/// What the copy says when it has taken over.
pub(super) const RESTORED: &str = "restored";
/// What it says when a cell runs without a copy, for want of memory.
pub(super) const UNGUARDED: &str = "unguarded";
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
    let mut gone = Vec::new();
    for line in orders.lines() {
        let line = line?;
        let mut words = line.split(' ');
        let (Some("LOAD_AND_RUN"), Some(path), Some(function)) = (words.next(), words.next(), words.next()) else {
            bail!("unexpected order {line:?}");
        };
        snapshot::reap(&mut gone);
        let fork = snapshot::take().unwrap_or_else(|error| {
            tracing::warn!("no snapshot can be made: {error:#}");
            Fork::Unguarded
        });
        let guard = match fork {
            Fork::Cell(guard) => {
                writeln!(answers, "{SNAPSHOT}{}", guard.pid().as_raw_nonzero())?;
                Some(guard)
            }
            Fork::Unguarded => {
                writeln!(answers, "{UNGUARDED}")?;
                None
            }
            Fork::Woken => {
                wait_for_adoption();
                end_with_supervisor()?;
                (hooks.restored)();
                gone.clear();
                writeln!(answers, "{RESTORED}")?;
                continue;
            }
        };
        let answer = match load(Path::new(path), function) {
            Ok(entry) => {
                (hooks.before_cell)();
                variables = (hooks.run)(entry, variables);
                (hooks.after_cell)();
                COMPLETE.to_owned()
            }
            Err(error) => format!("{REFUSED} {}", format!("{error:#}").replace('\n', " ")),
        };
        if let Some(guard) = guard {
            gone.push(guard.discard());
        }
        writeln!(answers, "{answer}")?;
    }
    Ok(())
}

/// Asks the system to end this process when its supervisor ends, however that happens.
fn end_with_supervisor() -> Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    if !is_child_of_supervisor() {
        bail!("the supervisor has ended");
    }
    Ok(())
}

fn is_child_of_supervisor() -> bool {
    let parent = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().to_string());
    std::env::var(SUPERVISOR_VARIABLE).ok() == parent
}

/// Waits until a woken snapshot has the supervisor for its parent. It wakes while its own parent is still ending, and
/// would be ended along with that one if it asked for the death signal now.
fn wait_for_adoption() {
    let deadline = Instant::now() + super::WAKING;
    while !is_child_of_supervisor() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
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
    run: extern "C" fn(Entry, *mut c_void) -> *mut c_void,
    after_cell: extern "C" fn(),
    restored: extern "C" fn(),
}

impl Hooks {
    fn of(prelude: &Library) -> Result<Self> {
        // SAFETY: `prelude/src/cell.rs` defines these functions with these signatures, and both come from one version.
        unsafe {
            Ok(Self {
                start: find(prelude, "ferrotune_start")?,
                before_cell: find(prelude, "ferrotune_before_cell")?,
                run: find(prelude, "ferrotune_run")?,
                after_cell: find(prelude, "ferrotune_after_cell")?,
                restored: find(prelude, "ferrotune_restored")?,
            })
        }
    }
}

/// A function of a library, by its name.
///
/// # Safety
/// The function must be of type `F`.
unsafe fn find<F: Copy>(library: &Library, name: &str) -> Result<F> {
    // SAFETY: as the caller promises.
    let function = unsafe { library.get::<F>(name.as_bytes()) };
    Ok(*function.with_context(|| format!("the library has no {name}"))?)
}

/// A cell's function: takes the variables and gives them back.
type Entry = extern "C" fn(*mut c_void) -> *mut c_void;

fn load(path: &Path, function: &str) -> Result<Entry> {
    // SAFETY: evcxr has just compiled this file; what its code does is the user's.
    let library = unsafe { Library::open(Some(path), RTLD_NOW) }.context("the cell cannot be loaded")?;
    // SAFETY: evcxr defines the function with this signature.
    let entry = unsafe { find::<Entry>(&library, function) }?;
    // Variables hold pointers into the library, and threads may still run in it: it is never closed.
    std::mem::forget(library);
    Ok(entry)
}
