//! Which process holds the variables: what happens when one ends, or is to give way to an earlier state.

use super::cells::CellProcess;
use super::markers::Markers;
use super::memory::Watch;
use super::streams::read_available;
use super::{Supervisor, WAKING, process};
use anyhow::Result;
use ferrotune_link::{CellEnding, KernelFrame, SnapshotKey};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Signal, WaitStatus};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

impl Supervisor {
    /// Brings the variables back to an earlier state; `false` if they are lost.
    pub(super) fn go_back(&mut self, to: &SnapshotKey) -> Result<bool> {
        self.await_sleeper(to)?;
        self.drain_whole()?;
        self.finish_streams()?;
        self.cells.kill()?;
        self.cells.reap()?;
        if let SnapshotKey::Named { name } = to {
            // It stays, and the state that is left can be had back with %undo.
            self.snapshots.shelve(self.cell.take());
            self.name_next = Some(name.clone());
        }
        self.relay_expected = true;
        if self.restore(to)?.is_some() {
            return Ok(true);
        }
        self.name_next = None;
        self.start_anew()?;
        Ok(false)
    }

    /// Has the process give back what it has freed, and make a copy that has not got it either; `false` where it does
    /// not answer in time.
    pub(super) fn trim(&mut self, forget: bool) -> Result<bool> {
        if forget {
            while self.snapshots.drop_oldest() {}
        }
        self.trimmed = false;
        self.order(process::TRIM_ORDER);
        let deadline = Instant::now() + WAKING;
        while !self.trimmed && wait_for(&[self.streams.control.as_fd()], deadline)? {
            self.take_control()?;
        }
        Ok(self.trimmed)
    }

    /// The process has ended: its snapshot takes over, or else a process without variables.
    pub(super) fn end(&mut self) -> Result<()> {
        self.cells.kill()?; // its group may still have members
        let status = self.cells.reap()?;
        self.take_control()?; // what it said before it ended
        self.drain()?;
        self.finish_streams()?;
        self.held = false;
        let ending = self.killed_for.take().unwrap_or_else(|| ending(status, &self.watch));
        let running = std::mem::take(&mut self.running);
        self.kill_at = None;
        self.await_sleeper(&SnapshotKey::Latest)?;
        match self.restore(&SnapshotKey::Latest)? {
            Some(threads) => {
                self.tell(&KernelFrame::Restored { ending, threads, running })?;
                if running {
                    self.refuse()?;
                }
            }
            None => {
                self.start_anew()?;
                self.tell(&KernelFrame::Died { ending })?;
                // evcxr learns it from its relay's end, and starts another one.
                self.relay = None;
            }
        }
        Ok(())
    }

    pub(super) fn await_sleeper(&mut self, place: &SnapshotKey) -> Result<()> {
        let deadline = Instant::now() + WAKING;
        while self.snapshots.is_awaited(place) && wait_for(&[self.listeners.snapshots.as_fd()], deadline)? {
            self.accept_sleepers()?;
        }
        Ok(())
    }

    /// Puts a copy in the place of the process, which has ended, if it is there and answers in time; then, the names of
    /// the threads that it is without.
    pub(super) fn restore(&mut self, place: &SnapshotKey) -> Result<Option<Vec<String>>> {
        self.links.clear();
        self.waiting = None;
        self.forget_words()?;
        let Some(sleeper) = self.snapshots.take(place) else { return Ok(None) };
        let mut copy = match sleeper.wake() {
            Ok(copy) => copy,
            Err(error) => {
                tracing::warn!("{error:#}");
                return Ok(None);
            }
        };
        let deadline = Instant::now() + WAKING;
        while wait_for(&[self.streams.control.as_fd(), copy.fd.as_fd()], deadline)? {
            self.take_control()?;
            if let Some(threads) = self.woken.take() {
                self.cells = copy;
                self.used = true;
                return Ok(Some(threads));
            }
            if wait_for(&[copy.fd.as_fd()], Instant::now())? {
                break;
            }
        }
        // Whatever it waits for will not come: a lock of a thread that did not come along, for example.
        copy.kill()?;
        copy.reap()?;
        Ok(None)
    }

    /// Starts a process without variables.
    pub(super) fn start_anew(&mut self) -> Result<()> {
        self.forget_words()?;
        self.cells = CellProcess::start(&self.places, &self.streams)?;
        self.links.clear();
        self.snapshots.forget_now();
        self.markers = Markers::default();
        self.used = false;
        self.running = false;
        self.held = false;
        self.kill_at = None;
        self.killed_for = None;
        Ok(())
    }

    /// What a process that is gone has left unread, or unheard, is not the next one's.
    fn forget_words(&mut self) -> Result<()> {
        self.streams.forget_orders()?;
        read_available(&self.streams.control, &mut self.control_bytes)?;
        self.control_bytes.clear();
        Ok(())
    }
}

/// Waits until something can be read from one of them; `false` where nothing comes in time.
fn wait_for(fds: &[BorrowedFd<'_>], deadline: Instant) -> Result<bool> {
    loop {
        let left = Timespec::try_from(deadline.saturating_duration_since(Instant::now()))?;
        let mut fds: Vec<_> = fds.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
        match poll(&mut fds, Some(&left)) {
            Ok(count) => return Ok(count > 0),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
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
