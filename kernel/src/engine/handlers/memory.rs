//! `%memory` and `%gc`: the memory that each part of the kernel holds, the limit on cells, and the return of freed memory.

use crate::engine::{Engine, Interrupts};
use crate::execution::LiveDisplay;
use crate::failure::{ErrorName, Failure};
use ferrotune_devices::runtime::{Running, running};
use ferrotune_display::{Bundle, table};
use ferrotune_journal::Journal;
use ferrotune_link::{MemoryReport, SnapshotKey, SupervisorReply, SupervisorRequest};
use ferrotune_machine::memory::{available_bytes, memory_limit, own_resident_bytes, private_bytes};
use ferrotune_machine::{format, process_tree};
use ferrotune_magics::Memory;
use ferrotune_space::record::{MemoryCheck, TrialRecord};
use rustix::process::Pid;
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

/// The time between two updates of the table of `%memory watch`.
const INTERVAL: Duration = Duration::from_secs(1);

/// The number of last trials in the table.
const TRIALS: usize = 5;

/// The size of snapshots above which `%gc` suggests `%gc all`.
const WORTH_A_HINT_BYTES: u64 = 64 << 20;

impl Engine {
    pub(in crate::engine) fn memory(&mut self, memory: Memory) -> Result<(), Failure> {
        if let Memory::Limit { bytes } = memory {
            self.supervisor.ask(SupervisorRequest::Limit { bytes })?;
            self.notebook.memory_limit = bytes;
            let text = match bytes {
                Some(bytes) => format!("a cell that holds more than {} is stopped from now on", format::bytes(bytes)),
                None => "a cell may hold all memory that the machine has available".to_owned(),
            };
            self.show_text(text);
            return Ok(());
        }
        let number = self.notebook.tables.fetch_add(1, Ordering::Relaxed) + 1;
        let mut display = LiveDisplay::new(format!("ferrotune-memory-{}-{number}", std::process::id()));
        let shown =
            shown(&self.supervisor.report()?, &self.interrupts, self.notebook.current_studies.last_study.as_deref());
        self.link.emit(display.show(shown));
        if memory == Memory::Watch {
            self.watch(number, display)?;
        }
        Ok(())
    }

    /// Carries out `%gc`, which makes the cell process return freed memory to the machine.
    pub(in crate::engine) fn gc(&mut self, all: bool) -> Result<(), Failure> {
        let before = self.supervisor.report()?;
        self.supervisor.ask(SupervisorRequest::Trim { forget: all })?;
        let after = self.supervisor.report()?;
        let back = format::bytes(before.held_bytes.saturating_sub(after.held_bytes));
        let variables = private_bytes(after.cells_pid).unwrap_or(0);
        let of_snapshots = after.held_bytes.saturating_sub(variables);
        let (variables, of_snapshots_text) = (format::bytes(variables), format::bytes(of_snapshots));
        let hint = if !all && of_snapshots > WORTH_A_HINT_BYTES { "; %gc all forgets those of %undo" } else { "" };
        let text = format!(
            "{back} came back; variables and cells hold {variables}, and snapshots {of_snapshots_text} beside that{hint}"
        );
        self.show_text(text);
        Ok(())
    }

    /// Updates the table until `%memory` shows a later table.
    fn watch(&self, number: u64, mut display: LiveDisplay) -> Result<(), Failure> {
        let (link, interrupts) = (self.link.clone(), self.interrupts.clone());
        let (last, study) = (self.notebook.tables.clone(), self.notebook.current_studies.last_study.clone());
        let Some(outputs) = link.outputs() else { return Ok(()) };
        let spawned = thread::Builder::new().name("memory".into()).spawn(move || {
            loop {
                thread::sleep(INTERVAL);
                if last.load(Ordering::Relaxed) != number {
                    return;
                }
                let Some(SupervisorReply::Report { report }) = link.request(SupervisorRequest::Report) else { return };
                if outputs.send(display.show(shown(&report, &interrupts, study.as_deref()))).is_err() {
                    return;
                }
            }
        });
        spawned.map(drop).map_err(|error| Failure::new(ErrorName::EngineError, error.to_string()))
    }
}

/// The table of `%memory`.
fn shown(report: &MemoryReport, interrupts: &Interrupts, study: Option<&Path>) -> Bundle {
    let held = |pid| private_bytes(pid).unwrap_or(0);
    let of_snapshots: u64 = report.snapshots.iter().map(|snapshot| snapshot.private_bytes).sum();
    let named = report.snapshots.iter().filter(|snapshot| matches!(snapshot.key, SnapshotKey::Named { .. })).count();
    let devices = running();
    let trials =
        interrupts.search().map_or(0, |search| memory_of_search(search, devices.as_deref().unwrap_or_default()));
    let rows = [
        ("variables and cells".to_owned(), held(report.cells_pid)),
        (format!("{} snapshots, {named} with a name, beside that", report.snapshots.len()), of_snapshots),
        ("search and trials".to_owned(), trials),
        ("kernel and compiler".to_owned(), own_resident_bytes()),
        ("supervisor of the cells".to_owned(), held(report.supervisor_pid)),
    ];
    let mut rows: Vec<Vec<String>> = rows.into_iter().map(|(who, bytes)| vec![who, format::bytes(bytes)]).collect();
    rows.extend(of_devices(devices, report.supervisor_pid));
    let limit = match report.limit_bytes {
        Some(bytes) => vec!["limit of a cell (%memory limit)".to_owned(), format::bytes(bytes)],
        None => memory_limit().map_or_else(
            |error| vec!["limit".to_owned(), format!("unknown: {error}")],
            |limit| vec![format!("limit of {}", limit.holder), format::bytes(limit.bytes)],
        ),
    };
    rows.push(limit);
    if let Ok(bytes) = available_bytes() {
        rows.push(vec!["still available".to_owned(), format::bytes(bytes)]);
    }
    rows.extend(study.map(of_trials).unwrap_or_default());
    table(&["memory", "held"], &rows)
}

/// The memory of a search and its trials, without that of a device process that the search has started.
fn memory_of_search(search: u32, devices: &[Running]) -> u64 {
    let pid = i32::try_from(search).ok().and_then(Pid::from_raw);
    let of_search: Vec<u32> =
        pid.map_or_else(Vec::new, process_tree::below).into_iter().map(process_tree::number).collect();
    let started = devices.iter().filter_map(|device| Some(device.report.as_ref().ok()?.process));
    let started = started.filter(|process| of_search.contains(process));
    process_tree::memory_bytes(search).saturating_sub(started.filter_map(private_bytes).sum())
}

/// A row for each device process that the notebook with this supervisor of its cells uses: what the process holds of the machine's memory,
/// and what the notebook and others have on the device.
fn of_devices(running: io::Result<Vec<Running>>, supervisor: u32) -> Vec<Vec<String>> {
    let running = match running {
        Ok(running) => running,
        Err(error) => return vec![vec!["device processes".to_owned(), format!("unknown: {error}")]],
    };
    let name = format!("notebook {supervisor}");
    let reports = running.iter().filter_map(|running| running.report.as_ref().ok());
    let rows = reports.filter_map(|report| {
        let own = report.named_clients().find(|client| client.name == name)?;
        let held = private_bytes(report.process).map_or_else(|| "unknown".to_owned(), format::bytes);
        let on_device = format::bytes(report.held_bytes);
        let (own, earlier) = (format::bytes(own.bytes), format::bytes(report.kept.1));
        let text =
            format!("{held}; on the device {on_device}, {own} of these this notebook's, {earlier} earlier states'");
        Some(vec![format!("device process {} of {}", report.process, report.device), text])
    });
    rows.collect()
}

/// A row for each of the last trials of a study: its peak memory, and the available memory before and after the trial.
fn of_trials(study: &Path) -> Vec<Vec<String>> {
    let trials = match Journal::read(study) {
        Ok(study) => study.trials,
        Err(error) => return vec![vec!["trials".to_owned(), format!("unknown: {error}")]],
    };
    let checked = trials.iter().filter_map(|trial| Some((trial, trial.memory.as_ref()?)));
    let checked: Vec<_> = checked.collect();
    let last = checked[checked.len().saturating_sub(TRIALS)..].iter();
    let line = |(trial, memory): &(&TrialRecord, &MemoryCheck)| {
        let before = format::bytes(memory.before_bytes);
        let (peak, after) = (format::bytes(trial.peak_bytes), format::bytes(memory.after_bytes));
        let left = if memory.left.is_empty() { String::new() } else { format!("; left {}", memory.left.join(", ")) };
        vec![format!("trial {}", trial.number), format!("{peak}; available before {before}, after {after}{left}")]
    };
    last.map(line).collect()
}
