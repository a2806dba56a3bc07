//! The succession of cell processes: handles the end of the process with the variables, and puts a snapshot in its place.

use super::cells::CellProcess;
use super::markers::Markers;
use super::memory::Watch;
use super::phase::{Event, Phase};
use super::{Supervisor, accept};
use anyhow::Result;
use ferrotune_link::{CellEnding, SnapshotKey};
use rustix::process::{Signal, WaitStatus};
use std::time::Instant;

impl Supervisor {
    /// Handles the end of the process: reads its last reports and output.
    pub(super) fn process_ended(&mut self) -> Result<()> {
        self.cells.kill()?; // its group may still have members
        let status = self.cells.reap()?;
        self.take_reports()?;
        self.drain_to_end()?;
        self.raise(Event::Ended { ending: ending(status, &self.watch), now: Instant::now() })
    }

    /// Puts a snapshot in the place of the process. A snapshot that has not connected yet is woken once it has.
    pub(super) fn wake(&mut self, key: &SnapshotKey) -> Result<Option<Event>> {
        if !self.cells.is_reaped() {
            self.drain_whole()?;
            self.drain_to_end()?;
            self.cells.kill()?;
            self.cells.reap()?;
        }
        self.connections.clear();
        self.streams.forget()?;
        if self.snapshots.is_awaited(key) {
            return Ok(None);
        }
        let Some(snapshot) = self.snapshots.take(key) else { return Ok(Some(Event::WakeFailed)) };
        match snapshot.wake() {
            Ok(process) => {
                self.cells = process;
                Ok(None)
            }
            Err(error) => {
                tracing::warn!("{error:#}");
                Ok(Some(Event::WakeFailed))
            }
        }
    }

    pub(super) fn accept_snapshots(&mut self) -> Result<()> {
        while let Some(stream) = accept(&self.snapshot_listener)? {
            self.snapshots.connect(stream)?;
        }
        let awaited = match &self.protocol.phase {
            Phase::Waking { key, .. } if self.cells.is_reaped() && !self.snapshots.is_awaited(key) => key.clone(),
            _ => return Ok(()),
        };
        self.wake(&awaited)?.map_or(Ok(()), |event| self.raise(event))
    }

    /// Puts a process without variables in the place of the present one.
    pub(super) fn start_anew(&mut self) -> Result<()> {
        self.cells.kill()?;
        self.cells.reap()?;
        self.streams.forget()?;
        self.cells = CellProcess::start(&self.places, &self.streams)?;
        self.connections.clear();
        self.snapshots.forget_latest();
        self.output.markers = Markers::default();
        Ok(())
    }
}

fn ending(status: WaitStatus, watch: &Watch) -> CellEnding {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => CellEnding::Exited { code },
        (None, Some(signal)) if signal == Signal::KILL.as_raw() => {
            watch.killed().unwrap_or(CellEnding::Signalled { signal })
        }
        (None, signal) => CellEnding::Signalled { signal: signal.unwrap_or(0) },
    }
}
