//! The process in which cells run: loads each cell's shared object and calls it.
//!
//! The process owns the user's variables, through a pointer that only the cells understand, and makes a snapshot of itself
//! after every cell. The program links no candle: candle comes with the prelude, which the process loads.
#![expect(unsafe_code, reason = "cells are loaded and called by name, over the C calling convention")]

use super::dead_ends::{Cut, Identity};
use super::descriptors::Descriptors;
use super::settings::Settings;
use super::snapshot::{self, Fork};
use super::standard_input::{self, ReadLine};
use super::{SNAPSHOTS_VARIABLE, SUPERVISOR_VARIABLE};
use crate::chain;
use anyhow::{Context, Result, bail};
use ferrotune_link::{CellOrder, CellReport, Surroundings, wire};
use ferrotune_machine::own;
use ferrotune_sampler::{Sampler, SamplerError};
use ferrotune_tuner::process::keep_freed_memory;
use libloading::os::unix::{Library, RTLD_NOW};
use rustix::process::Pid;
use std::collections::BTreeMap;
use std::ffi::{OsString, c_void};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The `oom_score_adj` of this process: when memory runs out, the system kills it before every other process but a trial.
const OOM_SCORE: u32 = 900;

/// Runs cells until standard input, a socket to the supervisor, is closed.
pub(crate) fn run([standard_library, prelude]: &[PathBuf; 2]) -> Result<()> {
    end_with_supervisor()?;
    keep_freed_memory();
    if let Err(error) = ferrotune_machine::own::set_oom_score(OOM_SCORE) {
        tracing::debug!("the system may choose another process when memory runs out: {error}");
    }
    let snapshots = std::env::var_os(SNAPSHOTS_VARIABLE).map(PathBuf::from);
    let snapshots = snapshots.with_context(|| format!("{SNAPSHOTS_VARIABLE} is not set"))?;
    let descriptors = Descriptors::take_over()?;
    // The environment without the settings of `%env`: those count as changes, which the kernel's other programs get as well.
    let environment = std::env::vars_os().collect();
    let settings = Settings::of(&snapshots);
    settings.apply_beyond(&Settings::default());
    let (orders, reports) = descriptors.supervisor()?;
    // The prelude has no path to Rust's standard library. Cells have one, to this same library.
    // SAFETY: it is Rust's standard library.
    let standard_library = unsafe { Library::open(Some(standard_library), RTLD_NOW) };
    std::mem::forget(standard_library.context("cannot load Rust's standard library")?);
    // SAFETY: the prelude's initialisers are those of Rust's standard library and of our own crates.
    let prelude = unsafe { Library::open(Some(prelude), RTLD_NOW) }.context("cannot load the prelude")?;
    let hooks = Hooks::of(&prelude)?;
    standard_input::ask_with(hooks.read_line, descriptors.nothing()?);
    (hooks.start)();
    let variables = std::ptr::null_mut();
    let made = Vec::new();
    let (is_quiet, surroundings) = (true, None);
    Process { hooks, descriptors, snapshots, settings, reports, variables, made, is_quiet, environment, surroundings }
        .serve(orders)
}

/// The process in which cells run.
struct Process {
    hooks: Hooks,
    descriptors: Descriptors,
    /// The socket at which snapshots wait.
    snapshots: PathBuf,
    /// The settings at the time of this process's last snapshot.
    settings: Settings,
    reports: File,
    /// The pointer to the user's variables. Only the cells know its type.
    variables: *mut c_void,
    /// The snapshots of this process that may still live.
    made: Vec<Pid>,
    /// Whether no thread holds the standard output locked.
    is_quiet: bool,
    /// The environment that this process was started with.
    environment: BTreeMap<OsString, OsString>,
    /// The environment and folder that were reported last.
    surroundings: Option<Surroundings>,
}

impl Process {
    /// Follows the supervisor's orders until the socket is closed. The orders are read unbuffered: a snapshot must not hold an order
    /// that this process has yet to follow.
    fn serve(&mut self, mut orders: File) -> Result<()> {
        self.report_surroundings()?;
        self.make_snapshot()?;
        while let Some(order) = wire::read(&mut orders)? {
            match order {
                CellOrder::Run { library, function, sample_ms } => {
                    let report = self.run(Path::new(&library), &function, sample_ms)?;
                    self.descriptors.mend()?;
                    self.report_surroundings()?;
                    self.report(&report)?;
                    self.make_snapshot()?;
                }
                CellOrder::Snapshot => {
                    self.make_snapshot()?;
                }
                CellOrder::Trim => {
                    if self.make_snapshot()? == Side::Original {
                        self.report(&CellReport::Trimmed)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn run(&mut self, library: &Path, function: &str, sample_ms: Option<u64>) -> Result<CellReport> {
        let entry = match load(library, function) {
            Ok(entry) => entry,
            Err(error) => return Ok(CellReport::Refused { reason: chain::in_one_line(&error) }),
        };
        let own = std::process::id();
        standard_input::begin_cell();
        (self.hooks.before_cell)();
        let sampler = sample_ms.map(|period| Sampler::start(Duration::from_millis(period)));
        self.variables = (self.hooks.run)(entry, self.variables);
        if std::process::id() != own {
            snapshot::leave();
        }
        if let Some(sampler) = sampler {
            self.report(&sampled(sampler))?;
        }
        self.is_quiet = (self.hooks.after_cell)();
        Ok(CellReport::Completed { missing: (self.hooks.missing)() })
    }

    /// Sends a report at once and whole, because this process may be killed at any time.
    fn report(&mut self, report: &CellReport) -> Result<()> {
        Ok(wire::write(&mut self.reports, report)?)
    }

    /// Reports the working directory and the changes to the environment, if they differ from the last report.
    fn report_surroundings(&mut self) -> Result<()> {
        let now: BTreeMap<OsString, OsString> = std::env::vars_os().collect();
        let text = |value: &OsString| value.to_string_lossy().into_owned();
        let removed = self.environment.keys().filter(|name| !now.contains_key(*name)).map(|name| (text(name), None));
        let set = now.iter().filter(|(name, value)| self.environment.get(*name) != Some(*value));
        let changed = set.map(|(name, value)| (text(name), Some(text(value)))).chain(removed).collect();
        let folder = std::env::current_dir().ok().map(|folder| folder.to_string_lossy().into_owned());
        let surroundings = Surroundings { folder, changed };
        if self.surroundings.as_ref() != Some(&surroundings) {
            self.report(&CellReport::Surroundings { surroundings: surroundings.clone() })?;
            self.surroundings = Some(surroundings);
        }
        Ok(())
    }

    /// Makes a snapshot of this process, which holds no memory that cells have freed. A snapshot that is woken returns from this
    /// function, too, after it has made a snapshot of itself.
    fn make_snapshot(&mut self) -> Result<Side> {
        let mut side = Side::Original;
        self.settings = Settings::of(&self.snapshots);
        loop {
            snapshot::reap(&mut self.made);
            // Otherwise the fork would copy the page table entries of freed memory, and the next cell each freed page that it writes.
            trim();
            let report = match self.fork() {
                Ok(Fork::Original { snapshot, cost }) => {
                    self.made.push(snapshot);
                    let cost_us = u64::try_from(cost.as_micros()).unwrap_or(u64::MAX);
                    CellReport::SnapshotMade { pid: snapshot.as_raw_nonzero().get(), cost_us }
                }
                Ok(Fork::Woken { threads, cut }) => {
                    self.take_over(threads, &cut)?;
                    side = Side::Woken;
                    continue;
                }
                Ok(Fork::Unguarded) => CellReport::Unguarded { reason: "there is too little memory".to_owned() },
                Err(error) => CellReport::Unguarded { reason: chain::in_one_line(&error) },
            };
            self.report(&report)?;
            return Ok(side);
        }
    }

    /// Forks while no thread can hold the standard streams locked.
    fn fork(&self) -> Result<Fork> {
        if !self.is_quiet {
            bail!("a thread of an earlier cell holds the standard output locked");
        }
        let own = self.descriptors.own()?;
        let mut attempt = Attempt { snapshots: &self.snapshots, own: &own, result: None };
        (self.hooks.quietly)(Attempt::make, (&raw mut attempt).cast());
        attempt.result.context("the prelude did not call back")?
    }

    /// Puts this process, a woken snapshot, in the place of the process that it was copied from.
    fn take_over(&mut self, threads: Vec<String>, cut: &Cut) -> Result<()> {
        wait_for_adoption();
        end_with_supervisor()?;
        self.descriptors.mend()?;
        let lost = cut.lock_again();
        if lost > 0 {
            eprintln!("files of earlier cells whose locks another program has taken meanwhile: {lost}");
        }
        let settings = Settings::of(&self.snapshots);
        settings.apply_beyond(&self.settings);
        self.settings = settings;
        (self.hooks.restored)(cut.closed);
        self.made.clear();
        self.surroundings = None;
        self.report_surroundings()?;
        self.report(&CellReport::Restored { threads })
    }
}

/// Ends the sampling, and reports its samples or why there are none.
fn sampled(sampler: Result<Sampler, SamplerError>) -> CellReport {
    let samples = sampler.and_then(Sampler::finish).map_err(anyhow::Error::from);
    match samples.and_then(|samples| Ok(serde_json::to_string(&samples)?)) {
        Ok(samples) => CellReport::Sampled { samples },
        Err(error) => CellReport::Unsampled { reason: chain::in_one_line(&error) },
    }
}

/// The process in which a call of [`Process::make_snapshot`] has returned.
#[derive(PartialEq)]
enum Side {
    Original,
    Woken,
}

/// Makes malloc give freed memory back to the system. Only glibc has a function for this.
fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim takes the allocator's own locks, and touches only what nobody has allocated.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// A fork that is made while no thread can hold the standard streams locked; the copy could not unlock them.
struct Attempt<'a> {
    snapshots: &'a Path,
    own: &'a [Identity],
    result: Option<Result<Fork>>,
}

impl Attempt<'_> {
    extern "C" fn make(attempt: *mut c_void) {
        // SAFETY: `Process::fork` passes the address of an `Attempt` that outlives the call, and nothing else uses it.
        let attempt = unsafe { &mut *attempt.cast::<Attempt<'_>>() };
        attempt.result = Some(snapshot::take(attempt.snapshots, attempt.own));
    }
}

/// Asks the system to kill this process when its supervisor ends.
fn end_with_supervisor() -> Result<()> {
    own::end_with_parent()?;
    if !is_child_of_supervisor() {
        bail!("the supervisor has ended");
    }
    Ok(())
}

fn is_child_of_supervisor() -> bool {
    let parent = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().to_string());
    std::env::var(SUPERVISOR_VARIABLE).ok() == parent
}

/// Waits until the supervisor is the parent of this woken snapshot. If the snapshot asked for the death signal while the
/// original is still ending, it would be killed with the original.
fn wait_for_adoption() {
    let deadline = Instant::now() + super::phase::PATIENCE;
    while !is_child_of_supervisor() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The prelude's functions that the process calls before, during and after a cell.
struct Hooks {
    start: extern "C" fn(),
    before_cell: extern "C" fn(),
    run: extern "C" fn(Entry, *mut c_void) -> *mut c_void,
    after_cell: extern "C" fn() -> bool,
    missing: extern "C" fn() -> usize,
    restored: extern "C" fn(usize),
    quietly: extern "C" fn(extern "C" fn(*mut c_void), *mut c_void),
    read_line: ReadLine,
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
                read_line: find(prelude, "ferrotune_read_line")?,
            })
        }
    }
}

/// Finds a function of a library by its name.
///
/// # Safety
/// The function must be of type `F`.
unsafe fn find<F: Copy>(library: &Library, name: &str) -> Result<F> {
    // SAFETY: as the caller promises.
    let function = unsafe { library.get::<F>(name.as_bytes()) };
    Ok(*function.with_context(|| format!("the library has no {name}"))?)
}

/// A cell's function: takes the pointer to the variables and returns the new one.
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
