//! The process in which cells run: loads each cell's shared object and calls it.
//!
//! It owns the user's variables, through a pointer that only the cells understand, and leaves a sleeping copy of itself
//! after every cell. It links no candle; the prelude comes with the first library that it loads.
#![expect(unsafe_code, reason = "cells are loaded and called by name, over the C calling convention")]

use super::descriptors::Descriptors;
use super::snapshot::{self, Fork};
use super::{SNAPSHOTS_VARIABLE, SUPERVISOR_VARIABLE};
use anyhow::{Context, Result, bail};
use libloading::os::unix::{Library, RTLD_NOW};
use rustix::process::{Pid, Signal};
use std::ffi::c_void;
use std::fs::File;
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What the process answers when a cell has ended, with the number of variables that it took and did not give back.
pub(super) const COMPLETE: &str = "complete ";
/// What it answers, with the reason, where a cell could not be run.
pub(super) const REFUSED: &str = "refused ";
/// What it says, with a process id and the cost in microseconds, when a sleeping copy of it has been made.
pub(super) const SNAPSHOT: &str = "snapshot ";
/// What it is told to make another copy.
pub(super) const SNAPSHOT_ORDER: &[u8] = b"SNAPSHOT\n";
/// What it is told to give back the memory that it has freed, and what it says when it has, and has copied itself.
pub(super) const TRIM_ORDER: &[u8] = b"TRIM\n";
pub(super) const TRIMMED: &str = "trimmed";
/// What it says, with the reason, when there is no copy of its state.
pub(super) const UNGUARDED: &str = "unguarded ";
/// What a copy says when it has taken over, with the names of the threads that it could not keep.
pub(super) const RESTORED: &str = "restored ";
/// Between the names of threads.
pub(super) const SEPARATOR: char = '\u{1f}';

/// The likelihood, in the system's words, of being chosen when memory has run out: before everything but a trial.
const OOM_SCORE: &str = "900";

/// Runs cells until standard input, a socket to the supervisor, is closed.
pub(crate) fn run(prelude: &Path) -> Result<()> {
    end_with_supervisor()?;
    if let Err(error) = std::fs::write("/proc/self/oom_score_adj", OOM_SCORE) {
        tracing::debug!("the system may choose another process when memory runs out: {error}");
    }
    let snapshots = std::env::var_os(SNAPSHOTS_VARIABLE).map(PathBuf::from);
    let snapshots = snapshots.with_context(|| format!("{SNAPSHOTS_VARIABLE} is not set"))?;
    let descriptors = Descriptors::take_over()?;
    let (mut orders, mut answers) = descriptors.supervisor()?;
    // SAFETY: the prelude's initialisers are those of Rust's standard library and of our own crates.
    let prelude = unsafe { Library::open(Some(prelude), RTLD_NOW) }.context("cannot load the prelude")?;
    let hooks = Hooks::of(&prelude)?;
    (hooks.start)();
    let mut sleepers = Vec::new();
    let mut variables: *mut c_void = std::ptr::null_mut();
    let mut is_quiet = true;
    let mut has_trimmed = false;
    loop {
        if let Some(threads) = spread_net(&hooks, &snapshots, is_quiet, &mut sleepers, &mut answers)? {
            wait_for_adoption();
            end_with_supervisor()?;
            descriptors.mend()?;
            (hooks.restored)();
            sleepers.clear();
            say(&mut answers, &format!("{RESTORED}{}", threads.join(&SEPARATOR.to_string()).replace('\n', " ")))?;
            continue;
        }
        if std::mem::take(&mut has_trimmed) {
            say(&mut answers, TRIMMED)?;
        }
        let mut line = String::new();
        if orders.read_line(&mut line)? == 0 {
            return Ok(());
        }
        if line.as_bytes() == SNAPSHOT_ORDER {
            continue;
        }
        if line.as_bytes() == TRIM_ORDER {
            trim();
            has_trimmed = true;
            continue;
        }
        let mut words = line.split_whitespace();
        let (Some("LOAD_AND_RUN"), Some(path), Some(function)) = (words.next(), words.next(), words.next()) else {
            bail!("unexpected order {line:?}");
        };
        let answer = match load(Path::new(path), function) {
            Ok(entry) => {
                let own = std::process::id();
                (hooks.before_cell)();
                variables = (hooks.run)(entry, variables);
                if std::process::id() != own {
                    snapshot::leave();
                }
                is_quiet = (hooks.after_cell)();
                format!("{COMPLETE}{}", (hooks.missing)())
            }
            Err(error) => format!("{REFUSED}{}", format!("{error:#}").replace('\n', " ")),
        };
        descriptors.mend()?;
        say(&mut answers, &answer)?;
    }
}

/// Has malloc give back to the system what is free. Without glibc there is nothing that could be asked to.
fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim takes the allocator's own locks, and touches only what nobody has allocated.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Writes one line, whole: this process may be ended at any time.
fn say(answers: &mut File, line: &str) -> Result<()> {
    Ok(answers.write_all(format!("{line}\n").as_bytes())?)
}

/// Leaves a sleeping copy of this process; in the copy, once it has been woken, the threads that it is without.
fn spread_net(
    hooks: &Hooks,
    snapshots: &Path,
    is_quiet: bool,
    sleepers: &mut Vec<Pid>,
    answers: &mut File,
) -> Result<Option<Vec<String>>> {
    snapshot::reap(sleepers);
    let reason = if is_quiet {
        let mut attempt = Attempt { snapshots, result: None };
        (hooks.quietly)(Attempt::make, (&raw mut attempt).cast());
        match attempt.result.unwrap_or_else(|| Ok(Fork::Unguarded)) {
            Ok(Fork::Original { sleeper, cost }) => {
                say(answers, &format!("{SNAPSHOT}{} {}", sleeper.as_raw_nonzero(), cost.as_micros()))?;
                sleepers.push(sleeper);
                return Ok(None);
            }
            Ok(Fork::Woken { threads }) => return Ok(Some(threads)),
            Ok(Fork::Unguarded) => "there is too little memory".to_owned(),
            Err(error) => format!("{error:#}"),
        }
    } else {
        "a thread of an earlier cell holds the standard output locked".to_owned()
    };
    say(answers, &format!("{UNGUARDED}{}", reason.replace('\n', " ")))?;
    Ok(None)
}

/// A fork that is to be made while no thread can hold the standard streams locked; the copy could not unlock them.
struct Attempt<'a> {
    snapshots: &'a Path,
    result: Option<Result<Fork>>,
}

impl Attempt<'_> {
    extern "C" fn make(attempt: *mut c_void) {
        // SAFETY: `spread_net` passes the address of an `Attempt` that outlives the call, and nothing else uses it.
        let attempt = unsafe { &mut *attempt.cast::<Attempt<'_>>() };
        attempt.result = Some(snapshot::take(attempt.snapshots));
    }
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

/// Waits until a woken copy has the supervisor for its parent. It would be ended along with the original if it asked for
/// the death signal while that one is still ending.
fn wait_for_adoption() {
    let deadline = Instant::now() + super::WAKING;
    while !is_child_of_supervisor() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Functions of the prelude that surround a cell.
struct Hooks {
    start: extern "C" fn(),
    before_cell: extern "C" fn(),
    run: extern "C" fn(Entry, *mut c_void) -> *mut c_void,
    after_cell: extern "C" fn() -> bool,
    missing: extern "C" fn() -> usize,
    restored: extern "C" fn(),
    quietly: extern "C" fn(extern "C" fn(*mut c_void), *mut c_void),
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
                missing: find(prelude, "ferrotune_missing")?,
                restored: find(prelude, "ferrotune_restored")?,
                quietly: find(prelude, "ferrotune_quietly")?,
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
