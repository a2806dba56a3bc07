//! The checks that cannot wait for a database that does not answer: requests to stop, the trials' deadlines, and memory.
//! The supervisor has one thread, which waits in the journal's calls; those calls run these checks again and again.

use crate::process::{Budget, MOST_TASKS, Reach, Shortage, SignalReader};
use ferrotune_machine::process_tree::Held;
use ferrotune_space::record::Ending;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The longest wait for a database after the first request to stop, and after a second request.
const LONGEST_STOP: Duration = Duration::from_secs(60);
const LONGEST_URGENT_STOP: Duration = Duration::from_secs(10);
/// The number of checks for each reading of the machine's memory.
const MACHINE_LOOKS: u64 = 4;

/// The reason why the supervisor ends a worker.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kill {
    /// The trial has exceeded a limit, and ends with this ending.
    Trial(Ending),
    /// The search is stopping.
    Stop,
    /// A process other than a trial uses the machine's memory. The trial continues later, and so does the search.
    Shortage {
        /// The memory that the machine has left, in bytes.
        available_bytes: u64,
    },
}

/// The limits of a running trial.
#[derive(Debug)]
pub(super) struct Limits {
    /// The time at which the trial will have run too long, and the time limit in seconds.
    pub(super) deadline: Option<(Instant, u64)>,
}

impl Limits {
    /// The reason to end a trial that holds `held`, if there is one; `machine_bytes` is the available memory of a machine that is
    /// short of memory.
    pub(super) fn broken(&self, held: Held, budget: &Budget, machine_bytes: Option<u64>) -> Option<Kill> {
        match budget.shortage(held.memory_bytes, machine_bytes) {
            Some(Shortage::OfTrial) => {
                let (peak_bytes, budget_bytes) = (held.memory_bytes, budget.trial_bytes);
                return Some(Kill::Trial(Ending::OutOfMemory { peak_bytes, budget_bytes }));
            }
            Some(Shortage::Elsewhere { available_bytes }) => return Some(Kill::Shortage { available_bytes }),
            None => {}
        }
        if held.tasks > MOST_TASKS {
            let tasks = held.tasks;
            let reason = format!("it ran {tasks} threads and processes at once; a trial may have {MOST_TASKS}");
            return Some(Kill::Trial(Ending::Failed { reason }));
        }
        let (_, after_s) = self.deadline.filter(|(deadline, _)| Instant::now() >= *deadline)?;
        Some(Kill::Trial(Ending::TimedOut { after_s }))
    }
}

/// A running trial, with the state that the checks need.
#[derive(Debug)]
pub(super) struct Ward {
    pub(super) number: u64,
    pub(super) reach: Reach,
    pub(super) limits: Limits,
    /// The time that its worker may take to exit, if the worker has a device that must not be left busy.
    pub(super) grace: Option<Duration>,
    pub(super) killed: Option<Kill>,
    pub(super) peak_bytes: u64,
    /// The child processes that its worker had when the worker was killed.
    pub(super) below: Vec<u32>,
    /// The time at which a worker that was asked to exit is killed.
    kill_at: Option<Instant>,
}

impl Ward {
    pub(super) fn new(number: u64, reach: Reach, limits: Limits, grace: Option<Duration>) -> Ward {
        Ward { number, reach, limits, grace, killed: None, peak_bytes: 0, below: Vec::new(), kill_at: None }
    }

    fn end(&mut self, reason: Kill) {
        self.killed = Some(reason);
        match self.grace {
            Some(grace) => {
                self.reach.ask_to_leave();
                self.kill_at = Some(Instant::now() + grace);
            }
            None => self.kill(),
        }
    }

    fn kill(&mut self) {
        self.kill_at = None;
        self.below.extend(self.reach.kill());
    }
}

/// The running trials, and the requests to stop.
#[derive(Debug)]
pub(super) struct Guard {
    signals: SignalReader,
    budget: Budget,
    wards: Vec<Ward>,
    /// The number of requests that the supervisor has not received yet.
    not_taken: usize,
    /// The number of all requests.
    stops: usize,
    looks: u64,
}

/// A guard that the supervisor and its journal share.
#[derive(Clone, Debug)]
pub(super) struct Shared(Arc<Mutex<Guard>>);

impl Shared {
    pub(super) fn new(signals: SignalReader, budget: Budget) -> Shared {
        let guard = Guard { signals, budget, wards: Vec::new(), not_taken: 0, stops: 0, looks: 0 };
        Shared(Arc::new(Mutex::new(guard)))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Guard> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Guard {
    pub(super) fn add(&mut self, ward: Ward) {
        self.wards.push(ward);
    }

    /// Removes a trial that is over, and returns its state.
    pub(super) fn remove(&mut self, number: u64) -> Option<Ward> {
        let index = self.wards.iter().position(|ward| ward.number == number)?;
        Some(self.wards.swap_remove(index))
    }

    /// The reason why the trial was ended while the supervisor waited, if it was ended.
    pub(super) fn killed(&self, number: u64) -> Option<Kill> {
        self.wards.iter().find(|ward| ward.number == number)?.killed.clone()
    }

    /// Adds the requests to stop that the supervisor received itself. Returns the number of requests that came while it
    /// waited.
    pub(super) fn exchange_stops(&mut self, interrupts: usize) -> usize {
        self.stops += interrupts;
        std::mem::take(&mut self.not_taken)
    }

    /// Runs all checks, and ends all trials after a second request to stop. Returns the longest wait for the database, if that
    /// is shorter than usual.
    pub(super) fn look(&mut self) -> Option<Duration> {
        match self.signals.take() {
            Ok(new) => (self.not_taken, self.stops) = (self.not_taken + new, self.stops + new),
            Err(error) => tracing::warn!(%error, "a request to stop cannot be read"),
        }
        self.watch();
        match self.stops {
            0 => None,
            1 => Some(LONGEST_STOP),
            _ => {
                for ward in self.wards.iter_mut().filter(|ward| ward.killed.is_none()) {
                    ward.end(Kill::Stop);
                }
                Some(LONGEST_URGENT_STOP)
            }
        }
    }

    fn watch(&mut self) {
        let held: Vec<Held> = self.wards.iter().map(|ward| ward.reach.held()).collect();
        self.looks += 1;
        let shortage = if self.looks.is_multiple_of(MACHINE_LOOKS) { self.budget.machine_shortage() } else { Ok(None) };
        let machine_bytes = shortage.unwrap_or_else(|error| {
            tracing::warn!(%error, "the machine's memory cannot be read");
            None
        });
        let largest = (0..held.len()).max_by_key(|index| held[*index].memory_bytes);
        for (index, ward) in self.wards.iter_mut().enumerate() {
            ward.peak_bytes = ward.peak_bytes.max(held[index].memory_bytes);
            if ward.kill_at.is_some_and(|kill_at| Instant::now() >= kill_at) {
                ward.kill();
            }
            let machine_bytes = machine_bytes.filter(|_| largest == Some(index));
            if ward.killed.is_none()
                && let Some(reason) = ward.limits.broken(held[index], &self.budget, machine_bytes)
            {
                ward.end(reason);
            }
        }
    }
}
