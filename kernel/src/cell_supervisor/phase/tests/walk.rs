//! Tests with random walks through the phases: after any events in any order, evcxr and the kernel get exactly one answer to
//! each order and request, and nothing waits for ever.

use super::super::{Effect, Event, MadeSnapshot, Phase, Protocol};
use super::table::CRASH;
use ferrotune_link::{CellOrder, KernelFrame, SnapshotKey};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use std::collections::{HashSet, VecDeque};
use std::mem::{Discriminant, discriminant};
use std::time::Instant;

const WALKS: u64 = 3_000;
const STEPS: usize = 120;
/// The number of phases that a walk reaches: all but the end, because the kernel does not end in a walk.
const PHASES: usize = 9;

/// A task that the cell process still has to do.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Duty {
    Run,
    Snapshot,
    Trim,
}

/// The process in which cells run.
#[derive(Debug, PartialEq)]
enum Process {
    /// A living process, which does its duties in their order.
    Alive(VecDeque<Duty>),
    /// A snapshot that has not answered yet.
    Waking,
    /// A killed process whose end the supervisor has not noticed.
    Killed,
    /// A process whose end the supervisor has noticed.
    Ended,
}

/// A model of the cell process, evcxr and the kernel, with the protocol under test.
struct World {
    protocol: Protocol,
    now: Instant,
    random: Pcg64,
    process: Process,
    /// Whether evcxr waits for the end of a run.
    evcxr_waits: bool,
    /// Whether the connection to evcxr is open.
    is_connected: bool,
    /// The number of the request to which the kernel has no reply yet.
    request: Option<u64>,
    phases: HashSet<Discriminant<Phase>>,
    /// The seed and all events, for the message of a test that fails.
    history: Vec<String>,
}

impl World {
    fn new(seed: u64) -> Self {
        Self {
            protocol: Protocol::new(),
            now: Instant::now(),
            random: Pcg64::seed_from_u64(seed),
            process: Process::Alive([Duty::Snapshot].into()),
            evcxr_waits: false,
            is_connected: false,
            request: None,
            phases: HashSet::new(),
            history: vec![format!("seed {seed}")],
        }
    }

    /// Sends an event to the protocol, and carries out the effects.
    fn send(&mut self, event: Event) {
        self.history.push(format!("{event:?}"));
        let (protocol, effects) = std::mem::replace(&mut self.protocol, Protocol::new()).step(event);
        self.phases.insert(discriminant(&protocol.phase));
        self.protocol = protocol;
        for effect in effects {
            self.history.push(format!("    {effect:?}"));
            self.perform(effect);
        }
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Order(order) => match &mut self.process {
                Process::Alive(duties) => duties.push_back(match order {
                    CellOrder::Trim => Duty::Trim,
                    _ => Duty::Run,
                }),
                process => panic!("an order to a process that is {process:?}:\n{}", self.history.join("\n")),
            },
            Effect::Kill if self.process != Process::Ended => self.process = Process::Killed,
            Effect::Wake(_) => self.process = Process::Waking,
            Effect::StartAnew => self.process = Process::Alive([Duty::Snapshot].into()),
            Effect::Name(_) => {
                if let Process::Alive(duties) = &mut self.process {
                    duties.push_back(Duty::Snapshot);
                }
            }
            Effect::Complete | Effect::Refuse => {
                assert!(self.evcxr_waits, "evcxr gets an answer twice:\n{}", self.history.join("\n"));
                self.evcxr_waits = false;
            }
            Effect::HangUp => (self.evcxr_waits, self.is_connected) = (false, false),
            Effect::Tell(KernelFrame::Reply { number, .. }) => {
                let asked = self.request.take();
                assert_eq!(asked, Some(number), "the kernel gets a reply twice:\n{}", self.history.join("\n"));
            }
            _ => {}
        }
    }

    /// Sends a random one of the events that can happen now.
    fn step(&mut self) {
        let event = match self.random.random_range(0..4) {
            0 => self.of_process(),
            1 if !self.protocol.is_busy() => self.of_evcxr(),
            2 if !self.protocol.is_busy() => self.of_kernel(),
            _ => self.of_time(),
        };
        if let Some(event) = event {
            self.send(event);
        }
    }

    fn of_process(&mut self) -> Option<Event> {
        let choice = self.random.random_range(0..8);
        let ended = |now| Event::Ended { ending: CRASH, now };
        match &mut self.process {
            Process::Ended => None,
            Process::Killed => {
                self.process = Process::Ended;
                Some(ended(self.now))
            }
            Process::Waking => match choice {
                0 => Some(Event::WakeFailed),
                1 => {
                    self.process = Process::Ended;
                    Some(ended(self.now))
                }
                _ => {
                    self.process = Process::Alive([Duty::Snapshot].into());
                    Some(Event::Woken { threads: Vec::new() })
                }
            },
            Process::Alive(_) if choice == 0 => {
                self.process = Process::Ended;
                Some(ended(self.now))
            }
            Process::Alive(duties) => {
                let duty = *duties.front()?;
                if duty == Duty::Run && choice < 4 {
                    return Some(match choice {
                        1 => Event::CellFailed,
                        2 => Event::TypeChanged("a".to_owned()),
                        _ => Event::OutOfMemory(CRASH),
                    });
                }
                duties.pop_front();
                Some(match duty {
                    Duty::Trim => Event::Trimmed,
                    Duty::Snapshot if choice < 3 => Event::Unguarded { reason: String::new() },
                    Duty::Snapshot => Event::SnapshotMade(MadeSnapshot { pid: 1, cost_us: 1 }),
                    Duty::Run => {
                        duties.push_front(Duty::Snapshot);
                        match choice {
                            4 => Event::LoadFailed { reason: String::new() },
                            _ => Event::Completed { missing: choice % 2, guarded: choice < 7 },
                        }
                    }
                })
            }
        }
    }

    fn of_evcxr(&mut self) -> Option<Event> {
        if self.is_connected && !self.evcxr_waits && self.random.random_range(0..8) > 0 {
            self.evcxr_waits = true;
            return Some(Event::RunOrdered(CellOrder::Run {
                library: String::new(),
                function: String::new(),
                sample_ms: None,
            }));
        }
        // evcxr starts another relay, because it has forgotten its variables or its relay has died.
        if !self.is_connected || self.random.random_range(0..8) == 0 {
            (self.is_connected, self.evcxr_waits) = (true, false);
            return Some(Event::RelayConnected);
        }
        None
    }

    fn of_kernel(&mut self) -> Option<Event> {
        let choice = self.random.random_range(0..6);
        if choice == 0 {
            return Some(Event::Interrupted { now: self.now });
        }
        // The kernel's engine waits for evcxr and for the reply to its request.
        if self.evcxr_waits || self.request.is_some() {
            return None;
        }
        let number = self.history.len() as u64;
        self.request = (choice >= 2).then_some(number);
        Some(match choice {
            1 => Event::Begun { cell: Some(number) },
            2 => Event::TrimRequested { number, forget: false, now: self.now },
            choice => {
                let named = || SnapshotKey::Named { name: "a".to_owned() };
                let to = [SnapshotKey::Latest, SnapshotKey::Before { cell: 1 }, named()][choice - 3].clone();
                Event::ReturnRequested { number, to, now: self.now }
            }
        })
    }

    fn of_time(&mut self) -> Option<Event> {
        self.now = self.protocol.deadline()?;
        Some(Event::Due { now: self.now })
    }

    /// Checks that evcxr and the kernel get their answers although the process hangs until it is killed, if the user interrupts twice.
    fn stop_answering(&mut self) {
        for _ in 0..2 {
            if !self.protocol.is_busy() {
                self.send(Event::Interrupted { now: self.now });
            }
        }
        for _ in 0..100 {
            if !self.evcxr_waits && self.request.is_none() {
                return;
            }
            let event = match self.process {
                Process::Killed => self.of_process(),
                _ => self.of_time(),
            };
            match event {
                Some(event) => self.send(event),
                None => break,
            }
        }
        panic!("evcxr or the kernel waits for ever in {:?}:\n{}", self.protocol, self.history.join("\n"));
    }
}

#[test]
fn everybody_gets_one_answer_whatever_happens_and_in_whatever_order() {
    let mut phases = HashSet::new();
    for seed in 0..WALKS {
        let mut world = World::new(seed);
        let steps = world.random.random_range(1..STEPS);
        (0..steps).for_each(|_| world.step());
        world.stop_answering();
        phases.extend(world.phases);
    }
    assert_eq!(phases.len(), PHASES, "the phases that the walks have reached");
}
