//! The sleeping copies that a supervisor keeps: the net under the next cell, the last few states for `%undo`, and those
//! with a name.

use super::cells::CellProcess;
use super::snapshot::WAKE;
use anyhow::{Context, Result};
use ferrotune_link::{SnapshotKey, SnapshotReport};
use ferrotune_machine::memory::private_bytes;
use rustix::net::sockopt::socket_peercred;
use rustix::process::Pid;
use std::collections::VecDeque;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// How many cells can be undone.
const UNDO_CELLS: usize = 5;

/// One sleeping copy. It goes when this is dropped.
pub(super) struct Snapshot {
    pub(super) pid: Pid,
    made_at: Instant,
    cost: Duration,
    /// The copy waits at the other end; none until it has connected.
    stream: Option<UnixStream>,
    memory: Memory,
}

impl Snapshot {
    pub(super) fn new(pid: Pid, cost: Duration) -> Self {
        Self { pid, made_at: Instant::now(), cost, stream: None, memory: Memory::default() }
    }

    /// Wakes the copy, which has connected.
    pub(super) fn wake(mut self) -> Result<CellProcess> {
        let process = CellProcess::of(self.pid).context("the snapshot is gone")?;
        let mut stream = self.stream.take().context("the snapshot has not reported")?;
        stream.write_all(&[WAKE]).context("the snapshot is gone")?;
        Ok(process)
    }

    pub(super) fn is_connected(&self) -> bool {
        self.stream.is_some()
    }

    fn number(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    fn report(&self, key: SnapshotKey) -> SnapshotReport {
        SnapshotReport {
            key,
            pid: self.number(),
            age_s: self.made_at.elapsed().as_secs_f64(),
            cost_us: u64::try_from(self.cost.as_micros()).unwrap_or(u64::MAX),
            private_bytes: self.memory.private,
            share_bytes: self.memory.share,
        }
    }
}

/// What a process' memory costs, from `smaps_rollup`, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Memory {
    /// What would come back if it ended.
    private: u64,
    /// Its share of the anonymous memory that it has in common with others.
    share: u64,
    /// The anonymous memory that it sees.
    anonymous: u64,
}

impl Memory {
    /// Takes some 30 ms for a process of 1.5 GB; zero for one that is gone.
    pub(super) fn of(pid: Pid) -> Self {
        let path = format!("/proc/{}/smaps_rollup", pid.as_raw_nonzero());
        Self::parse(&std::fs::read_to_string(path).unwrap_or_default())
    }

    fn parse(text: &str) -> Self {
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next());
            line.and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) * 1024
        };
        let private = field("Private_Clean:") + field("Private_Dirty:");
        Self { private, share: field("Pss_Anon:"), anonymous: field("Anonymous:") }
    }
}

/// All copies that are kept.
#[derive(Default)]
pub(super) struct Snapshots {
    /// Of the state as it is now.
    now: Option<Snapshot>,
    /// Of the states before the last cells, oldest first.
    before: VecDeque<(u64, Snapshot)>,
    named: Vec<(String, Snapshot)>,
    /// Copies that have connected before the process that they were made of has said so.
    early: Vec<(Pid, UnixStream)>,
}

impl Snapshots {
    /// A copy of the state that the last cell has left. The one before it is kept if `cell` can be undone with it.
    pub(super) fn put(&mut self, mut sleeper: Snapshot, cell: Option<u64>) {
        if let Some(position) = self.early.iter().position(|(pid, _)| *pid == sleeper.pid) {
            sleeper.stream = Some(self.early.swap_remove(position).1);
        }
        // Copies are made one after the other: what else has connected was made by a process that is gone.
        self.early.clear();
        self.shelve(cell);
        self.now = Some(sleeper);
    }

    /// The state is not the copied one any more: the copy is kept if `cell` can be undone with it.
    pub(super) fn shelve(&mut self, cell: Option<u64>) {
        if let (Some(last), Some(cell)) = (self.now.take(), cell) {
            self.before.push_back((cell, last));
            while self.before.len() > UNDO_CELLS {
                self.before.pop_front();
            }
        }
    }

    /// A copy has connected.
    pub(super) fn connect(&mut self, stream: UnixStream) -> Result<()> {
        let pid = socket_peercred(&stream)?.pid;
        if let Some(sleeper) = self.sleepers().find(|sleeper| sleeper.pid == pid) {
            sleeper.stream = Some(stream);
            return Ok(());
        }
        self.early.push((pid, stream));
        Ok(())
    }

    /// Whether the copy of the state as it is now has yet to connect.
    pub(super) fn is_awaited(&self, place: &SnapshotKey) -> bool {
        self.find(place).is_some_and(|sleeper| !sleeper.is_connected())
    }

    fn find(&self, place: &SnapshotKey) -> Option<&Snapshot> {
        match place {
            SnapshotKey::Latest => self.now.as_ref(),
            SnapshotKey::Before { cell } => {
                self.before.iter().find(|(number, _)| number == cell).map(|(_, sleeper)| sleeper)
            }
            SnapshotKey::Named { name } => {
                self.named.iter().find(|(known, _)| known == name).map(|(_, sleeper)| sleeper)
            }
        }
    }

    pub(super) fn has(&self, place: &SnapshotKey) -> bool {
        self.find(place).is_some()
    }

    /// Takes out the copy of an earlier state, and drops those of the states after it. A named one is to be made anew.
    pub(super) fn take(&mut self, place: &SnapshotKey) -> Option<Snapshot> {
        match place {
            SnapshotKey::Latest => self.now.take(),
            SnapshotKey::Before { cell } => {
                let position = self.before.iter().position(|(number, _)| number == cell)?;
                self.before.truncate(position + 1);
                self.now = None;
                self.before.pop_back().map(|(_, sleeper)| sleeper)
            }
            SnapshotKey::Named { name } => {
                let position = self.named.iter().position(|(known, _)| known == name)?;
                Some(self.named.remove(position).1)
            }
        }
    }

    /// Gives the copy of the state as it is now a name, so that another one is to be made; `false` where there is none.
    pub(super) fn name(&mut self, name: &str) -> bool {
        let Some(sleeper) = self.now.take() else { return false };
        self.named.retain(|(known, _)| known != name);
        self.named.push((name.to_owned(), sleeper));
        true
    }

    /// Drops the oldest state that `%undo` could go back to; `false` where there is none.
    pub(super) fn drop_oldest(&mut self) -> bool {
        self.before.pop_front().is_some()
    }

    /// The variables have begun anew; earlier states stay.
    pub(super) fn forget_now(&mut self) {
        self.now = None;
        self.early.clear();
    }

    fn sleepers(&mut self) -> impl Iterator<Item = &mut Snapshot> {
        let before = self.before.iter_mut().map(|(_, sleeper)| sleeper);
        before.chain(self.named.iter_mut().map(|(_, sleeper)| sleeper)).chain(&mut self.now)
    }

    /// Measures all copies, and drops the oldest for `%undo` as long as all together hold more than `budget_bytes`
    /// beside what `cells` holds itself.
    pub(super) fn keep_within(&mut self, budget_bytes: u64, cells: Pid) {
        // Cheap to know, and mostly enough: none costs more than it sees.
        let seen = self.sleepers().filter_map(|sleeper| private_bytes(sleeper.number())).sum::<u64>();
        if seen <= budget_bytes {
            return;
        }
        loop {
            self.measure();
            let own = Memory::of(cells);
            // What is left of all shares, once the process itself has had what it sees.
            let extra = (self.share() + own.share).saturating_sub(own.anonymous);
            if extra <= budget_bytes || !self.drop_oldest() {
                return;
            }
        }
    }

    fn measure(&mut self) {
        for sleeper in self.sleepers() {
            sleeper.memory = Memory::of(sleeper.pid);
        }
    }

    /// The shares of all copies as they were measured last, in bytes.
    fn share(&mut self) -> u64 {
        self.sleepers().map(|sleeper| sleeper.memory.share).sum()
    }

    /// What is kept, oldest first; and what all that and `cells` hold in the machine's memory, each page counted once, in
    /// bytes.
    pub(super) fn report(&mut self, cells: Pid) -> (Vec<SnapshotReport>, u64) {
        self.measure();
        let held_bytes = self.share() + Memory::of(cells).share;
        let named = self.named.iter().map(|(name, sleeper)| sleeper.report(SnapshotKey::Named { name: name.clone() }));
        let before = self.before.iter().map(|(cell, sleeper)| sleeper.report(SnapshotKey::Before { cell: *cell }));
        let now = self.now.iter().map(|sleeper| sleeper.report(SnapshotKey::Latest));
        let mut reports: Vec<_> = named.chain(before).chain(now).collect();
        reports.sort_by(|one, other| other.age_s.total_cmp(&one.age_s));
        (reports, held_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleeper(pid: i32) -> Snapshot {
        Snapshot::new(Pid::from_raw(pid).unwrap(), Duration::ZERO)
    }

    fn pids(kept: &mut Snapshots) -> Vec<i32> {
        kept.sleepers().map(|sleeper| sleeper.pid.as_raw_nonzero().get()).collect()
    }

    #[test]
    fn the_last_cells_can_be_undone_and_the_oldest_goes_first() {
        let mut kept = Snapshots::default();
        kept.put(sleeper(100), None);
        for cell in 1..=7 {
            kept.put(sleeper(100 + i32::try_from(cell).unwrap()), Some(cell));
        }
        assert_eq!(pids(&mut kept), [102, 103, 104, 105, 106, 107]);
        assert!(!kept.has(&SnapshotKey::Before { cell: 2 }));
        assert!(kept.drop_oldest());
        assert!(!kept.has(&SnapshotKey::Before { cell: 3 }));
    }

    #[test]
    fn going_back_drops_the_states_that_came_after() {
        let mut kept = Snapshots::default();
        kept.put(sleeper(100), None);
        for cell in 1..=4 {
            kept.put(sleeper(100 + i32::try_from(cell).unwrap()), Some(cell));
        }
        let taken = kept.take(&SnapshotKey::Before { cell: 3 }).unwrap();
        assert_eq!(taken.pid.as_raw_nonzero().get(), 102);
        assert_eq!(pids(&mut kept), [100, 101]);
        assert!(kept.take(&SnapshotKey::Before { cell: 4 }).is_none());
    }

    #[test]
    fn a_name_holds_one_state() {
        let mut kept = Snapshots::default();
        assert!(!kept.name("trained"));
        kept.put(sleeper(100), None);
        assert!(kept.name("trained"));
        kept.put(sleeper(101), None);
        assert!(kept.name("trained"));
        assert_eq!(pids(&mut kept), [101]);
    }

    #[test]
    fn memory_is_read_from_a_rollup() {
        let text = "55 rollup\nRss: 900 kB\nPss: 500 kB\nPss_Anon: 300 kB\nPrivate_Clean: 1 kB\nPrivate_Dirty: 2 kB\n\
                    Anonymous: 400 kB\n";
        let memory = Memory::parse(text);
        assert_eq!((memory.private, memory.share, memory.anonymous), (3 << 10, 300 << 10, 400 << 10));
    }
}
