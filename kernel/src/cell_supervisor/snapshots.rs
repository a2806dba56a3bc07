//! The snapshots that a supervisor keeps: the latest, to which a crash returns, the last few states for `%undo`, and those
//! with a name.

use super::cells::CellProcess;
use super::snapshot::WAKE;
use anyhow::{Context, Result};
use ferrotune_link::{SnapshotKey, SnapshotReport};
use ferrotune_machine::memory::{Rollup, private_bytes};
use ferrotune_machine::process_tree::number;
use rustix::net::sockopt::socket_peercred;
use rustix::process::Pid;
use std::collections::VecDeque;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// How many cells can be undone.
const UNDO_CELLS: usize = 5;

/// One sleeping snapshot. The snapshot's process ends when this value is dropped.
pub(super) struct Snapshot {
    pub(super) pid: Pid,
    made_at: Instant,
    cost: Duration,
    /// The connection at whose other end the snapshot waits; none until the snapshot has connected.
    stream: Option<UnixStream>,
    memory: Rollup,
}

impl Snapshot {
    pub(super) fn new(pid: Pid, cost: Duration) -> Self {
        Self { pid, made_at: Instant::now(), cost, stream: None, memory: Rollup::default() }
    }

    /// Wakes the snapshot, which must have connected.
    pub(super) fn wake(mut self) -> Result<CellProcess> {
        let process = CellProcess::of(self.pid).context("the snapshot is gone")?;
        let mut stream = self.stream.take().context("the snapshot has not connected")?;
        stream.write_all(&[WAKE]).context("the snapshot is gone")?;
        Ok(process)
    }

    pub(super) fn is_connected(&self) -> bool {
        self.stream.is_some()
    }

    fn report(&self, key: SnapshotKey) -> SnapshotReport {
        SnapshotReport {
            key,
            pid: number(self.pid),
            age_s: self.made_at.elapsed().as_secs_f64(),
            cost_us: u64::try_from(self.cost.as_micros()).unwrap_or(u64::MAX),
            private_bytes: self.memory.private_bytes,
            share_bytes: self.memory.share_bytes,
        }
    }
}

/// All snapshots that the supervisor keeps.
#[derive(Default)]
pub(super) struct Snapshots {
    /// The snapshot of the present state.
    latest: Option<Snapshot>,
    /// The snapshots of the states before the last cells, each with the number of its cell, oldest first.
    before: VecDeque<(u64, Snapshot)>,
    named: Vec<(String, Snapshot)>,
    /// Snapshots that have connected before the process that made them has reported them.
    early: Vec<(Pid, UnixStream)>,
}

impl Snapshots {
    /// Keeps `snapshot` as the latest one. The previous snapshot stays for `%undo` if `cell` is given, and is dropped otherwise.
    pub(super) fn put(&mut self, mut snapshot: Snapshot, cell: Option<u64>) {
        if let Some(position) = self.early.iter().position(|(pid, _)| *pid == snapshot.pid) {
            snapshot.stream = Some(self.early.swap_remove(position).1);
        }
        // Snapshots are made one after the other: the other early connections are those of snapshots of a process that is gone.
        self.early.clear();
        self.shelve(cell);
        self.latest = Some(snapshot);
    }

    /// Removes the latest snapshot, which is not of the present state any more. The snapshot stays for `%undo` of `cell`, if given.
    pub(super) fn shelve(&mut self, cell: Option<u64>) {
        if let (Some(last), Some(cell)) = (self.latest.take(), cell) {
            self.before.push_back((cell, last));
            while self.before.len() > UNDO_CELLS {
                self.before.pop_front();
            }
        }
    }

    /// Assigns a new connection to its snapshot, by the process id of the other side.
    pub(super) fn connect(&mut self, stream: UnixStream) -> Result<()> {
        let pid = socket_peercred(&stream)?.pid;
        if let Some(snapshot) = self.all().find(|snapshot| snapshot.pid == pid) {
            snapshot.stream = Some(stream);
            return Ok(());
        }
        self.early.push((pid, stream));
        Ok(())
    }

    /// Whether the snapshot exists and has yet to connect.
    pub(super) fn is_awaited(&self, key: &SnapshotKey) -> bool {
        self.find(key).is_some_and(|snapshot| !snapshot.is_connected())
    }

    fn find(&self, key: &SnapshotKey) -> Option<&Snapshot> {
        match key {
            SnapshotKey::Latest => self.latest.as_ref(),
            SnapshotKey::Before { cell } => {
                self.before.iter().find(|(number, _)| number == cell).map(|(_, snapshot)| snapshot)
            }
            SnapshotKey::Named { name } => {
                self.named.iter().find(|(known, _)| known == name).map(|(_, snapshot)| snapshot)
            }
        }
    }

    pub(super) fn has(&self, key: &SnapshotKey) -> bool {
        self.find(key).is_some()
    }

    /// Takes out a snapshot. Those for `%undo` of later states are dropped, because these states are left.
    pub(super) fn take(&mut self, key: &SnapshotKey) -> Option<Snapshot> {
        match key {
            SnapshotKey::Latest => self.latest.take(),
            SnapshotKey::Before { cell } => {
                let position = self.before.iter().position(|(number, _)| number == cell)?;
                self.before.truncate(position + 1);
                self.latest = None;
                self.before.pop_back().map(|(_, snapshot)| snapshot)
            }
            SnapshotKey::Named { name } => {
                let position = self.named.iter().position(|(known, _)| known == name)?;
                Some(self.named.remove(position).1)
            }
        }
    }

    /// Gives the latest snapshot a name; `false` if there is no latest snapshot. The caller orders the process to make another one.
    pub(super) fn name(&mut self, name: &str) -> bool {
        let Some(snapshot) = self.latest.take() else { return false };
        self.named.retain(|(known, _)| known != name);
        self.named.push((name.to_owned(), snapshot));
        true
    }

    /// Drops the oldest state to which `%undo` could go back; `false` if there is no such state.
    pub(super) fn drop_oldest(&mut self) -> bool {
        self.before.pop_front().is_some()
    }

    /// Forgets the latest snapshot, because a process without variables has been started. Snapshots of earlier states stay.
    pub(super) fn forget_latest(&mut self) {
        self.latest = None;
        self.early.clear();
    }

    fn all(&mut self) -> impl Iterator<Item = &mut Snapshot> {
        let before = self.before.iter_mut().map(|(_, snapshot)| snapshot);
        before.chain(self.named.iter_mut().map(|(_, snapshot)| snapshot)).chain(&mut self.latest)
    }

    /// Measures all snapshots, and drops the oldest ones for `%undo` as long as all snapshots together hold more than
    /// `budget_bytes` in addition to the memory of the cell process `cells`.
    pub(super) fn keep_within(&mut self, budget_bytes: u64, cells: Pid) {
        // This measurement is cheap, and mostly enough: no snapshot costs more than its private pages.
        let seen = self.all().filter_map(|snapshot| private_bytes(number(snapshot.pid))).sum::<u64>();
        if seen <= budget_bytes {
            return;
        }
        loop {
            self.measure();
            let own = Rollup::of(number(cells));
            // All shares, less the anonymous memory of the cell process itself.
            let extra = (self.share() + own.share_bytes).saturating_sub(own.anonymous_bytes);
            if extra <= budget_bytes || !self.drop_oldest() {
                return;
            }
        }
    }

    fn measure(&mut self) {
        for snapshot in self.all() {
            snapshot.memory = Rollup::of(number(snapshot.pid));
        }
    }

    /// The sum of the snapshots' memory shares at the last measurement, in bytes.
    fn share(&mut self) -> u64 {
        self.all().map(|snapshot| snapshot.memory.share_bytes).sum()
    }

    /// Reports on the snapshots, oldest first, and how many bytes of the machine's memory they and `cells` hold together,
    /// each page counted once.
    pub(super) fn report(&mut self, cells: Pid) -> (Vec<SnapshotReport>, u64) {
        self.measure();
        let held_bytes = self.share() + Rollup::of(number(cells)).share_bytes;
        let named =
            self.named.iter().map(|(name, snapshot)| snapshot.report(SnapshotKey::Named { name: name.clone() }));
        let before = self.before.iter().map(|(cell, snapshot)| snapshot.report(SnapshotKey::Before { cell: *cell }));
        let latest = self.latest.iter().map(|snapshot| snapshot.report(SnapshotKey::Latest));
        let mut reports: Vec<_> = named.chain(before).chain(latest).collect();
        reports.sort_by(|one, other| other.age_s.total_cmp(&one.age_s));
        (reports, held_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(pid: i32) -> Snapshot {
        Snapshot::new(Pid::from_raw(pid).unwrap(), Duration::ZERO)
    }

    fn pids(snapshots: &mut Snapshots) -> Vec<i32> {
        snapshots.all().map(|snapshot| snapshot.pid.as_raw_nonzero().get()).collect()
    }

    #[test]
    fn the_last_cells_can_be_undone_and_the_oldest_goes_first() {
        let mut snapshots = Snapshots::default();
        snapshots.put(snapshot(100), None);
        for cell in 1..=7 {
            snapshots.put(snapshot(100 + i32::try_from(cell).unwrap()), Some(cell));
        }
        assert_eq!(pids(&mut snapshots), [102, 103, 104, 105, 106, 107]);
        assert!(!snapshots.has(&SnapshotKey::Before { cell: 2 }));
        assert!(snapshots.drop_oldest());
        assert!(!snapshots.has(&SnapshotKey::Before { cell: 3 }));
    }

    #[test]
    fn going_back_drops_the_states_that_came_after() {
        let mut snapshots = Snapshots::default();
        snapshots.put(snapshot(100), None);
        for cell in 1..=4 {
            snapshots.put(snapshot(100 + i32::try_from(cell).unwrap()), Some(cell));
        }
        let taken = snapshots.take(&SnapshotKey::Before { cell: 3 }).unwrap();
        assert_eq!(taken.pid.as_raw_nonzero().get(), 102);
        assert_eq!(pids(&mut snapshots), [100, 101]);
        assert!(snapshots.take(&SnapshotKey::Before { cell: 4 }).is_none());
    }

    #[test]
    fn a_name_holds_one_state() {
        let mut snapshots = Snapshots::default();
        assert!(!snapshots.name("trained"));
        snapshots.put(snapshot(100), None);
        assert!(snapshots.name("trained"));
        snapshots.put(snapshot(101), None);
        assert!(snapshots.name("trained"));
        assert_eq!(pids(&mut snapshots), [101]);
    }
}
