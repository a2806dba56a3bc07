//! A protocol under test with its own clock, and short names for events and effects.

use super::super::{Effect, Event, MadeSnapshot, Phase, Protocol, Variables};
use ferrotune_link::{CellEnding, CellOrder, KernelFrame, SnapshotKey, SupervisorReply};
use std::time::Instant;

pub(super) const CRASH: CellEnding = CellEnding::Signalled { signal: 11 };
pub(super) const LATEST: SnapshotKey = SnapshotKey::Latest;

/// A protocol under test, with its own clock.
pub(super) struct Table {
    pub(super) protocol: Protocol,
    pub(super) now: Instant,
}

impl Table {
    /// A protocol in the first cell of a notebook, before the cell is compiled.
    pub(super) fn begun(cell: u64) -> Self {
        let mut table = Self { protocol: Protocol::new(), now: Instant::now() };
        table.check(Event::RelayConnected, []);
        table.check(made(1), [keep(1, None)]);
        table.check(Event::Begun { cell: Some(cell) }, []);
        table
    }

    /// A protocol while the first cell runs.
    pub(super) fn running(cell: u64) -> Self {
        let mut table = Self::begun(cell);
        table.check(Event::RunOrdered(order()), [Effect::Order(order())]);
        table
    }

    /// A protocol after the end of the first cell.
    pub(super) fn after(cell: u64) -> Self {
        let mut table = Self::running(cell);
        table.check(completed(0), []);
        table.check(made(2), [keep(2, Some(cell)), Effect::Complete]);
        assert_eq!(table.protocol.phase, Phase::Idle { variables: Variables::Held });
        table
    }

    #[track_caller]
    pub(super) fn check<const N: usize>(&mut self, event: Event, expected: [Effect; N]) {
        let text = format!("{event:?}");
        let (protocol, effects) = std::mem::replace(&mut self.protocol, Protocol::new()).step(event);
        self.protocol = protocol;
        assert_eq!(effects, expected, "after {text}");
    }

    /// Lets time pass up to the deadline.
    #[track_caller]
    pub(super) fn due<const N: usize>(&mut self, expected: [Effect; N]) {
        self.now = self.protocol.deadline().expect("something is to happen");
        self.check(Event::Due { now: self.now }, expected);
    }

    pub(super) fn interrupted(&self) -> Event {
        Event::Interrupted { now: self.now }
    }

    pub(super) fn ended(&self) -> Event {
        Event::Ended { ending: CRASH, now: self.now }
    }

    pub(super) fn return_to(&self, to: SnapshotKey) -> Event {
        Event::ReturnRequested { number: 7, to, now: self.now }
    }
}

pub(super) fn order() -> CellOrder {
    CellOrder::Run { library: "cell.so".to_owned(), function: "run".to_owned(), sample_ms: None }
}

pub(super) fn made(pid: i32) -> Event {
    Event::SnapshotMade(MadeSnapshot { pid, cost_us: 900 })
}

pub(super) fn keep(pid: i32, undo: Option<u64>) -> Effect {
    Effect::Keep { snapshot: MadeSnapshot { pid, cost_us: 900 }, undo }
}

pub(super) fn completed(missing: usize) -> Event {
    Event::Completed { missing, guarded: true }
}

pub(super) fn woken() -> Event {
    Event::Woken { threads: vec!["loader".to_owned()] }
}

pub(super) fn restored(ending: CellEnding, running: bool) -> Effect {
    Effect::Tell(KernelFrame::Restored { ending, threads: vec!["loader".to_owned()], running })
}

pub(super) fn died() -> Effect {
    Effect::Tell(KernelFrame::Died { ending: CRASH })
}

pub(super) fn reply(reply: SupervisorReply) -> Effect {
    Effect::Tell(KernelFrame::Reply { number: 7, reply })
}

pub(super) fn refused(reason: &str) -> Effect {
    reply(SupervisorReply::Refused { reason: reason.to_owned() })
}
