//! The transitions of the state machine: a phase and an event give the next phase and the effects.

use super::{Course, Effect, Event, Interrupt, PATIENCE, Phase, Purpose, Variables, WAKING};
use ferrotune_link::{CellEnding, CellOrder, KernelFrame, SnapshotKey, SupervisorReply};
use std::time::{Duration, Instant};

/// How long an interrupted cell may take to stop before it is killed.
pub(super) const GRACE: Duration = Duration::from_millis(1500);

/// The time between two signals to an interrupted cell: the first signal may come before the cell can handle it.
pub(super) const SIGNAL_AGAIN: Duration = Duration::from_millis(100);

/// What the supervisor does with the next run that evcxr orders.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Next {
    /// The run takes place, but it is not the user's: the kernel has begun no cell yet, so there is nothing to interrupt.
    Startup,
    Run,
    /// The user has stopped the cell while it was compiled.
    Cancel,
}

type Step = (Phase, Vec<Effect>);

/// The state machine: the phase, and what the kernel has announced of evcxr's next run.
#[derive(Debug, PartialEq)]
pub(in crate::cell_supervisor) struct Protocol {
    pub(in crate::cell_supervisor) phase: Phase,
    next: Next,
    /// The user's cell whose first run has not ended. Only the first run of a cell can be undone.
    cell: Option<u64>,
    /// The name that the next snapshot gets, if the process did not make the snapshot in time.
    late_name: Option<String>,
}

impl Protocol {
    pub(in crate::cell_supervisor) fn new() -> Self {
        Self { phase: Phase::Idle { variables: Variables::None }, next: Next::Startup, cell: None, late_name: None }
    }

    /// Whether a cell runs, or has run and its snapshot is not made yet.
    pub(in crate::cell_supervisor) fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Running { .. } | Phase::Settling { .. })
    }

    /// Whether evcxr waits for lines of a cell. At other times evcxr does not read, and lines could fill the socket.
    pub(in crate::cell_supervisor) fn evcxr_listens(&self) -> bool {
        self.is_running() || matches!(self.phase, Phase::Killed { .. })
    }

    /// Whether the kernel and evcxr have to wait, because the supervisor waits for the process.
    pub(in crate::cell_supervisor) fn is_busy(&self) -> bool {
        self.phase.is_busy()
    }

    /// When the driver has to raise [`Event::Due`].
    pub(in crate::cell_supervisor) fn deadline(&self) -> Option<Instant> {
        match &self.phase {
            Phase::Running { interrupt, .. }
            | Phase::Settling { interrupt, .. }
            | Phase::Refusing { interrupt, .. } => {
                interrupt.map(|interrupt| interrupt.kill_at.min(interrupt.signal_at))
            }
            Phase::Waking { deadline, .. }
            | Phase::Replaced { deadline }
            | Phase::Naming { deadline, .. }
            | Phase::Trimming { deadline, .. } => Some(*deadline),
            Phase::Idle { .. } | Phase::Killed { .. } | Phase::Over => None,
        }
    }

    /// Returns the protocol after an event, and the effects of the event.
    pub(in crate::cell_supervisor) fn step(mut self, event: Event) -> (Self, Vec<Effect>) {
        let phase = std::mem::replace(&mut self.phase, Phase::Over);
        let (phase, effects) = match event {
            Event::KernelGone => (Phase::Over, vec![Effect::Kill]),
            Event::Begun { cell } => {
                (self.next, self.cell) = (Next::Run, cell);
                (phase, Vec::new())
            }
            event => match phase {
                Phase::Idle { variables } => self.idle(variables, event),
                Phase::Running { course, interrupt } => self.running(course, interrupt, event),
                Phase::Settling { undo, interrupt } => self.settling(undo, interrupt, event),
                Phase::Refusing { undo, interrupt } => self.refusing(undo, interrupt, event),
                Phase::Killed { why } => self.killed(why, event),
                Phase::Waking { key, purpose, deadline } => self.waking(key, purpose, deadline, event),
                Phase::Replaced { deadline } => self.replaced(deadline, event),
                Phase::Naming { number, name, deadline } => self.naming(number, name, deadline, event),
                Phase::Trimming { number, variables, deadline } => self.trimming(number, variables, deadline, event),
                Phase::Over => (Phase::Over, Vec::new()),
            },
        };
        self.phase = phase;
        (self, effects)
    }

    fn idle(&mut self, variables: Variables, event: Event) -> Step {
        let phase = Phase::Idle { variables };
        match event {
            Event::RelayConnected => match variables {
                Variables::Held => self.start_anew(),
                Variables::Returned => (Phase::Idle { variables: Variables::Held }, Vec::new()),
                Variables::None => (phase, Vec::new()),
            },
            Event::RunOrdered(order) => self.run(order, phase),
            Event::Interrupted { .. } => self.cancel(phase),
            Event::ReturnRequested { number, to, now } => self.go_back(number, to, now),
            Event::TrimRequested { number, forget, now } => {
                let forget = forget.then_some(Effect::ForgetUndo);
                let effects = forget.into_iter().chain([Effect::Order(CellOrder::Trim)]).collect();
                (Phase::Trimming { number, variables, deadline: now + PATIENCE }, effects)
            }
            Event::Ended { ending, now } => self.replace(ending, false, variables, now),
            event => self.settle_or_decline(phase, event),
        }
    }

    fn run(&mut self, order: CellOrder, phase: Phase) -> Step {
        match self.next {
            Next::Cancel => (phase, vec![Effect::Tell(KernelFrame::Cancelled), Effect::Refuse]),
            Next::Startup | Next::Run => {
                (Phase::Running { course: Course::Normal, interrupt: None }, vec![Effect::Order(order)])
            }
        }
    }

    fn cancel(&mut self, phase: Phase) -> Step {
        if self.next != Next::Startup {
            self.next = Next::Cancel;
        }
        (phase, Vec::new())
    }

    fn go_back(&mut self, number: u64, to: SnapshotKey, now: Instant) -> Step {
        let mut effects = Vec::new();
        if matches!(to, SnapshotKey::Named { .. }) {
            // %undo can return to the state that is left.
            effects.push(Effect::Shelve { undo: self.cell.take() });
        }
        effects.push(Effect::Wake(to.clone()));
        (Phase::Waking { key: to, purpose: Purpose::Return { number }, deadline: now + WAKING }, effects)
    }

    /// Starts a process without variables, because evcxr has given the variables up.
    fn start_anew(&mut self) -> Step {
        let effects = vec![Effect::Shelve { undo: self.cell.take() }, Effect::StartAnew];
        (Phase::Idle { variables: Variables::None }, effects)
    }

    fn running(&mut self, course: Course, interrupt: Option<Interrupt>, event: Event) -> Step {
        match event {
            Event::CellFailed if course == Course::Normal => {
                (Phase::Running { course: Course::Failed, interrupt }, Vec::new())
            }
            Event::TypeChanged(name) => {
                let mut names = if let Course::Changed(names) = course { names } else { Vec::new() };
                names.push(name);
                (Phase::Running { course: Course::Changed(names), interrupt }, Vec::new())
            }
            Event::Completed { missing, guarded } => self.conclude(course, missing > 0 && guarded),
            Event::LoadFailed { reason } => {
                let phase = Phase::Refusing { undo: None, interrupt: None };
                (phase, vec![Effect::Tell(KernelFrame::Failed { message: reason, location: None })])
            }
            event @ (Event::SnapshotMade(_) | Event::Unguarded { .. }) => {
                self.settle_or_decline(Phase::Running { course, interrupt }, event)
            }
            event => self.may_stop(interrupt, event, |interrupt| Phase::Running { course, interrupt }),
        }
    }

    fn conclude(&mut self, course: Course, is_restorable: bool) -> Step {
        match course {
            Course::Changed(names) => {
                // The snapshot from before the cell still has the changed variables.
                let undo = self.cell.take();
                (Phase::Refusing { undo, interrupt: None }, vec![Effect::Tell(KernelFrame::Changed { names })])
            }
            // The variables that the cell has moved would be lost; the snapshot has them.
            Course::Failed if is_restorable => kill(CellEnding::TakenBack),
            Course::Failed | Course::Normal => {
                (Phase::Settling { undo: self.cell.take(), interrupt: None }, Vec::new())
            }
        }
    }

    fn settling(&mut self, undo: Option<u64>, interrupt: Option<Interrupt>, event: Event) -> Step {
        match settle(undo, event) {
            Ok(mut effects) => {
                effects.push(Effect::Complete);
                (Phase::Idle { variables: Variables::Held }, effects)
            }
            Err(event) => self.may_stop(interrupt, event, |interrupt| Phase::Settling { undo, interrupt }),
        }
    }

    /// Handles the events that may stop a cell that runs, or that has run and whose snapshot is not made yet.
    fn may_stop(
        &mut self,
        interrupt: Option<Interrupt>,
        event: Event,
        phase: impl FnOnce(Option<Interrupt>) -> Phase,
    ) -> Step {
        match (event, interrupt) {
            (Event::Interrupted { now }, None) => {
                let interrupt = Interrupt { signal_at: now + SIGNAL_AGAIN, kill_at: now + GRACE };
                (phase(Some(interrupt)), vec![Effect::RefuseInput, Effect::Signal])
            }
            (Event::Interrupted { .. }, Some(_)) => kill(CellEnding::Stopped),
            (Event::Due { now }, Some(Interrupt { kill_at, .. })) if kill_at <= now => kill(CellEnding::Stopped),
            (Event::Due { now }, Some(Interrupt { kill_at, .. })) => {
                (phase(Some(Interrupt { signal_at: now + SIGNAL_AGAIN, kill_at })), vec![Effect::Signal])
            }
            (Event::OutOfMemory(ending), _) => kill(ending),
            (Event::Ended { ending, now }, _) => self.replace(ending, true, Variables::Held, now),
            (event, interrupt) => self.decline(phase(interrupt), event),
        }
    }

    fn refusing(&mut self, undo: Option<u64>, interrupt: Option<Interrupt>, event: Event) -> Step {
        match settle(undo, event) {
            Ok(mut effects) => {
                effects.push(Effect::Refuse);
                (Phase::Idle { variables: Variables::Held }, effects)
            }
            Err(event) => {
                if matches!(event, Event::Interrupted { .. }) && self.next != Next::Startup {
                    // The kernel runs the cell again without the variables that have changed.
                    self.next = Next::Cancel;
                }
                self.may_stop(interrupt, event, |interrupt| Phase::Refusing { undo, interrupt })
            }
        }
    }

    fn killed(&mut self, why: CellEnding, event: Event) -> Step {
        match event {
            Event::Ended { now, .. } => self.replace(why, true, Variables::Held, now),
            event => self.decline(Phase::Killed { why }, event),
        }
    }

    fn waking(&mut self, key: SnapshotKey, purpose: Purpose, deadline: Instant, event: Event) -> Step {
        match (event, purpose) {
            (Event::Woken { threads }, Purpose::Replace { ending, running, variables }) => {
                let phase = if running { Phase::Replaced { deadline } } else { Phase::Idle { variables } };
                (phase, vec![Effect::Tell(KernelFrame::Restored { ending, threads, running })])
            }
            (Event::Woken { .. }, Purpose::Return { number }) => match key {
                SnapshotKey::Named { name } => (Phase::Naming { number, name, deadline }, Vec::new()),
                SnapshotKey::Latest | SnapshotKey::Before { .. } => returned(number),
            },
            // The snapshot may wait for ever: for a lock of a thread that was not copied, for example.
            (Event::WakeFailed | Event::Ended { .. } | Event::Due { .. }, purpose) => {
                let effects = match purpose {
                    Purpose::Replace { ending, .. } => {
                        vec![Effect::StartAnew, Effect::Tell(KernelFrame::Died { ending }), Effect::HangUp]
                    }
                    Purpose::Return { number } => vec![Effect::StartAnew, reply(number, SupervisorReply::Lost)],
                };
                (Phase::Idle { variables: Variables::None }, effects)
            }
            (event, purpose) => self.decline(Phase::Waking { key, purpose, deadline }, event),
        }
    }

    fn replaced(&mut self, deadline: Instant, event: Event) -> Step {
        let idle = Phase::Idle { variables: Variables::Held };
        match settle(None, event) {
            Ok(mut effects) => {
                effects.push(Effect::Refuse);
                (idle, effects)
            }
            Err(Event::Due { .. }) => (idle, vec![Effect::Refuse]),
            // No other process has the variables, so this one must not be killed.
            Err(Event::Interrupted { .. }) => self.cancel(Phase::Replaced { deadline }),
            Err(Event::Ended { ending, now }) => self.replace(ending, true, Variables::Held, now),
            Err(event) => self.decline(Phase::Replaced { deadline }, event),
        }
    }

    fn naming(&mut self, number: u64, name: String, deadline: Instant, event: Event) -> Step {
        match settle(None, event) {
            Ok(effects) => {
                let mut effects = named(effects, Some(name));
                effects.push(reply(number, SupervisorReply::Done));
                (Phase::Idle { variables: Variables::Returned }, effects)
            }
            Err(Event::Due { .. }) => {
                self.late_name = Some(name);
                returned(number)
            }
            Err(Event::Ended { .. }) => {
                let effects = vec![Effect::StartAnew, reply(number, SupervisorReply::Lost)];
                (Phase::Idle { variables: Variables::None }, effects)
            }
            Err(event) => self.decline(Phase::Naming { number, name, deadline }, event),
        }
    }

    fn trimming(&mut self, number: u64, variables: Variables, deadline: Instant, event: Event) -> Step {
        let refused = || refused(number, "the process of the cells does not answer; run it again");
        match event {
            Event::Trimmed => (Phase::Idle { variables }, vec![reply(number, SupervisorReply::Done)]),
            Event::Due { .. } => (Phase::Idle { variables }, vec![refused()]),
            Event::Ended { ending, now } => {
                let (phase, effects) = self.replace(ending, false, variables, now);
                (phase, [refused()].into_iter().chain(effects).collect())
            }
            event => self.settle_or_decline(Phase::Trimming { number, variables, deadline }, event),
        }
    }

    /// Keeps a snapshot that belongs to no cell, because it is the first one of a process or was made anew; declines other events.
    fn settle_or_decline(&mut self, phase: Phase, event: Event) -> Step {
        match settle(None, event) {
            Ok(effects) => (phase, named(effects, self.late_name.take())),
            Err(event) => self.decline(phase, event),
        }
    }

    /// Wakes the latest snapshot in the place of a process that has ended.
    fn replace(&mut self, ending: CellEnding, running: bool, variables: Variables, now: Instant) -> Step {
        self.late_name = None;
        let key = SnapshotKey::Latest;
        let purpose = Purpose::Replace { ending, running, variables };
        (Phase::Waking { key: key.clone(), purpose, deadline: now + WAKING }, vec![Effect::Wake(key)])
    }

    /// Refuses what evcxr and the kernel ask for in a phase in which it cannot be done.
    fn decline(&mut self, phase: Phase, event: Event) -> Step {
        match event {
            Event::RelayConnected if !phase.is_busy() => self.start_anew(),
            Event::RunOrdered(_) => (phase, vec![Effect::Refuse]),
            Event::ReturnRequested { number, .. } | Event::TrimRequested { number, .. } => {
                (phase, vec![refused(number, "a cell is running")])
            }
            _ => (phase, Vec::new()),
        }
    }
}

/// Kills the process while a cell runs.
fn kill(why: CellEnding) -> Step {
    (Phase::Killed { why }, vec![Effect::Kill])
}

fn returned(number: u64) -> Step {
    (Phase::Idle { variables: Variables::Returned }, vec![reply(number, SupervisorReply::Done)])
}

/// The effects if the process has made its snapshot or could not make one; any other event is returned as the error.
fn settle(undo: Option<u64>, event: Event) -> Result<Vec<Effect>, Event> {
    match event {
        Event::SnapshotMade(snapshot) => Ok(vec![Effect::Keep { snapshot, undo }]),
        Event::Unguarded { reason } => {
            Ok(vec![Effect::Shelve { undo }, Effect::Tell(KernelFrame::Unguarded { reason })])
        }
        event => Err(event),
    }
}

/// Adds [`Effect::Name`] if there is a name and the effects keep a snapshot: a process that made no snapshot has nothing to name.
fn named(mut effects: Vec<Effect>, name: Option<String>) -> Vec<Effect> {
    let name = name.filter(|_| matches!(effects[..], [Effect::Keep { .. }]));
    effects.extend(name.map(Effect::Name));
    effects
}

fn reply(number: u64, reply: SupervisorReply) -> Effect {
    Effect::Tell(KernelFrame::Reply { number, reply })
}

fn refused(number: u64, reason: &str) -> Effect {
    reply(number, SupervisorReply::Refused { reason: reason.to_owned() })
}
