//! The worker that stays from trial to trial, for a device that takes one process at a time: who waits for the device, when the
//! worker is replaced, and how it is asked to leave. Runs no trial itself.

use super::session::Session;
use super::{Supervisor, SupervisorError};
use crate::process::{self, ExclusiveDevice, Settled, Worker};
use crate::search::Outcome;
use ferrotune_machine::format::bytes;
use ferrotune_space::record::{DeviceUse, Ending};
use ferrotune_space::spec::Supervision;
use ferrotune_space::wire::{Reply, Request, Verdict};
use std::time::{Duration, Instant};

/// A device that has more memory in use than this beyond what it had before the worker's first trial has a leak.
const TOLERATED_DEVICE_BYTES: u64 = 64 << 20;
/// A worker may hold half as much again as after its first trial, and at least this much more.
const TOLERATED_BYTES: u64 = 256 << 20;
/// The first and the longest pause between two looks at a device that somebody else uses.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How often a worker that leaves is looked at.
const TICK: Duration = Duration::from_millis(10);

/// The device's turn, and the worker that has stayed after its last trial.
#[derive(Debug)]
pub(super) struct Residence {
    device: ExclusiveDevice,
    pub(super) idle: Option<(Worker, Tenure)>,
}

impl Residence {
    pub(super) fn new() -> Residence {
        Residence { device: ExclusiveDevice::of_this_machine(), idle: None }
    }
}

/// What is kept of a worker that stays, over its trials.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tenure {
    /// Trials that it has run.
    trials: u64,
    /// What it held after the first one, in bytes.
    first_bytes: Option<u64>,
    /// The device's memory in use before the first one, in bytes.
    device_bytes: Option<u64>,
}

/// Why a worker is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Replacement {
    /// Its trial ended in a way that may have left the device, or the library's own state, unclear.
    Failure,
    /// It has run as many trials as a worker may.
    Age,
    /// It holds so many bytes more than after its first trial.
    Growth(u64),
    /// The device has so many bytes more in use than before its first trial.
    DeviceGrowth(u64),
}

impl Tenure {
    /// Takes in a trial that has returned, after which the worker holds `held_bytes`; says why the worker cannot stay.
    fn add(
        &mut self,
        outcome: &Outcome,
        held_bytes: u64,
        device: Option<&DeviceUse>,
        most_trials: u64,
    ) -> Option<Replacement> {
        self.trials += 1;
        let first_bytes = *self.first_bytes.get_or_insert(held_bytes);
        self.device_bytes = self.device_bytes.or(device.and_then(|device| device.before_bytes));
        let device_bytes = device.and_then(|device| device.after_bytes).zip(self.device_bytes);
        let device_growth = device_bytes.map_or(0, |(after, before)| after.saturating_sub(before));
        let growth = held_bytes.saturating_sub(first_bytes);
        if is_unclear(outcome) {
            Some(Replacement::Failure)
        } else if device_growth > TOLERATED_DEVICE_BYTES {
            Some(Replacement::DeviceGrowth(device_growth))
        } else if growth > TOLERATED_BYTES.max(first_bytes / 2) {
            Some(Replacement::Growth(growth))
        } else {
            (self.trials >= most_trials.max(1)).then_some(Replacement::Age)
        }
    }
}

/// Whether later trials might suffer from this end of one: a panic may have left a lock or a trace of the library half done. An
/// error that the objective has returned has not.
fn is_unclear(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Ended { ending, .. } => {
            !matches!(ending, Ending::Finished | Ending::Pruned | Ending::Failed { .. } | Ending::Refused { .. })
        }
        Outcome::Paused { .. } | Outcome::Executed | Outcome::Interrupted | Outcome::Postponed(_) => false,
    }
}

impl Replacement {
    /// What the trial has left behind, for its record.
    fn line(self, device: &str) -> Option<String> {
        match self {
            Replacement::Growth(growth) => Some(format!("{} in its worker, which is replaced", bytes(growth))),
            Replacement::DeviceGrowth(growth) => {
                Some(format!("{} of the memory of {device}, whose worker is replaced", bytes(growth)))
            }
            Replacement::Failure | Replacement::Age => None,
        }
    }
}

impl Supervisor<'_> {
    /// Waits until a worker can use the device; says whether one may begin, which is not so where the search stops meanwhile.
    pub(super) fn wait_for_device(&mut self) -> Result<bool, SupervisorError> {
        let wait_s = self.search.spec.supervision.device_wait_s;
        let deadline = Instant::now() + Duration::from_secs(wait_s.min(u32::MAX.into()));
        let mut pause = FIRST_PAUSE;
        self.dismiss_if_gone()?;
        loop {
            let Some(residence) = self.residence.as_mut().filter(|residence| residence.idle.is_none()) else {
                return Ok(true);
            };
            let Some(holder) = residence.device.take()? else { return Ok(true) };
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let device = self.search.spec.device.clone();
                return Err(SupervisorError::DeviceInUse { device, holder, wait_s });
            }
            let interrupts = process::wait([], &self.signals, &mut self.shared_memory, pause.min(left))?;
            self.look_outside(interrupts)?;
            if self.phase.is_stopping() {
                return Ok(false);
            }
            pause = (2 * pause).min(LONGEST_PAUSE);
        }
    }

    /// Takes leave of a trial whose worker has returned from it: the worker stays for the next one, or is replaced. `outcome`
    /// says what the trial came to, by its status. Returns that, and a line for each thing that it has left behind.
    pub(super) fn settle(
        &mut self,
        mut worker: Worker,
        mut tenure: Tenure,
        device: Option<&DeviceUse>,
        outcome: impl FnOnce(i32) -> Outcome,
    ) -> Result<(Outcome, Vec<String>), SupervisorError> {
        let Settled { status, mut left, is_clean } = worker.settle(&mut self.shared_memory)?;
        let outcome = outcome(status);
        let most_trials = self.search.spec.supervision.worker_trials;
        let replacement = tenure.add(&outcome, worker.held().memory_bytes, device, most_trials);
        let must_go = worker.was_asked_to_leave() || !is_clean;
        match replacement.or_else(|| must_go.then_some(Replacement::Failure)) {
            Some(replacement) => {
                left.extend(replacement.line(&self.search.spec.device));
                self.dismiss(worker)?;
            }
            None => {
                if let Some(residence) = &mut self.residence {
                    residence.idle = Some((worker, tenure));
                }
            }
        }
        Ok((outcome, left))
    }

    /// A worker that has ended since its last trial, such as by the system's out-of-memory killer, gets no other one.
    fn dismiss_if_gone(&mut self) -> Result<(), SupervisorError> {
        let Some((worker, _)) = self.residence.as_mut().and_then(|residence| residence.idle.as_mut()) else {
            return Ok(());
        };
        let interrupts = process::wait([&mut *worker], &self.signals, &mut self.shared_memory, Duration::ZERO)?;
        let is_gone = worker.has_exited();
        self.look_outside(interrupts)?;
        if is_gone { self.dismiss_idle() } else { Ok(()) }
    }

    /// Whether a worker has stayed after its last trial.
    pub(super) fn has_idle_worker(&self) -> bool {
        self.residence.as_ref().is_some_and(|residence| residence.idle.is_some())
    }

    /// Lets the worker go that has stayed after its last trial, if there is one.
    pub(super) fn dismiss_idle(&mut self) -> Result<(), SupervisorError> {
        match self.residence.as_mut().and_then(|residence| residence.idle.take()) {
            Some((worker, _)) => self.dismiss(worker),
            None => Ok(()),
        }
    }

    /// Asks a worker that runs no trial to leave, and kills it where it does not in time.
    fn dismiss(&mut self, mut worker: Worker) -> Result<(), SupervisorError> {
        worker.ask_to_leave();
        let deadline = Instant::now() + grace(&self.search.spec.supervision);
        let mut is_killed = false;
        while !worker.has_exited() {
            if !is_killed && Instant::now() >= deadline {
                worker.kill();
                is_killed = true;
            }
            let interrupts = process::wait([&mut worker], &self.signals, &mut self.shared_memory, TICK)?;
            self.look_outside(interrupts)?;
        }
        let (exit, left) = worker.end(&[], &mut self.shared_memory)?;
        // Of no trial: what its device's own library had.
        tracing::debug!(?exit, ?left, is_killed, "a worker has left");
        Ok(())
    }
}

pub(super) fn grace(supervision: &Supervision) -> Duration {
    Duration::from_secs(supervision.grace_s.min(u32::MAX.into()))
}

impl Session {
    /// Ends the worker of this trial: at once, unless it has a device that may stay busy if its process is killed. That one is
    /// asked first, and is killed if it has not left in time.
    pub(super) fn end_worker(&mut self, supervision: &Supervision) {
        if self.tenure.is_some() {
            self.worker.ask_to_leave();
        }
        self.let_return(supervision);
    }

    /// Leaves a trial that was refused the time to return, if its worker stays; or else ends the worker.
    pub(super) fn let_return(&mut self, supervision: &Supervision) {
        if self.tenure.is_none() {
            self.worker.kill();
        } else {
            self.kill_at = Some(Instant::now() + grace(supervision));
        }
    }

    /// Kills a worker that was asked to leave, if its time is over, or nothing can wait for it.
    pub(super) fn kill_if_late(&mut self, is_urgent: bool) {
        if self.kill_at.is_some_and(|kill_at| is_urgent || Instant::now() >= kill_at) {
            self.kill_at = None;
            self.worker.kill();
        }
    }
}

/// What a trial that is being ended hears, so that it comes to its end: nothing that it says now is its own decision.
pub(super) fn parting(request: &Request) -> Reply {
    match request {
        Request::Report { .. } => Reply::Verdict { verdict: Verdict::Stop },
        Request::Finish { .. } | Request::Fail { .. } | Request::Postpone { .. } | Request::DiskFull { .. } => {
            Reply::Done
        }
        Request::Device { .. } | Request::UserAttribute { .. } | Request::StopSearch => Reply::Done,
        Request::Hello | Request::Suggest { .. } | Request::Epochs { .. } | Request::Checkpoint { .. } => {
            Reply::Refused { reason: "the trial is being ended".to_owned() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn ended(ending: Ending) -> Outcome {
        Outcome::Ended { ending, values: Vec::new() }
    }

    fn device(before: u64, after: u64) -> DeviceUse {
        DeviceUse { before_bytes: Some(before * MIB), after_bytes: Some(after * MIB), ..DeviceUse::default() }
    }

    #[test]
    fn worker_is_replaced_when_it_is_old_and_after_what_may_harm_the_next_trial() {
        let finished = ended(Ending::Finished);
        let mut tenure = Tenure::default();
        assert_eq!(tenure.add(&finished, 100 * MIB, None, 3), None);
        assert_eq!(tenure.add(&ended(Ending::Failed { reason: "x".to_owned() }), 100 * MIB, None, 3), None);
        assert_eq!(tenure.add(&finished, 100 * MIB, None, 3), Some(Replacement::Age));
        for ending in [
            Ending::Panicked { message: "x".to_owned() },
            Ending::TimedOut { after_s: 1 },
            Ending::DeviceOutOfMemory { device: "tpu".to_owned(), reason: "x".to_owned() },
        ] {
            assert_eq!(Tenure::default().add(&ended(ending), 0, None, 3), Some(Replacement::Failure));
        }
        assert_eq!(Tenure::default().add(&Outcome::Interrupted, 0, None, 3), None);
    }

    #[test]
    fn worker_is_replaced_when_it_or_its_device_grows() {
        let finished = ended(Ending::Finished);
        let mut tenure = Tenure::default();
        assert_eq!(tenure.add(&finished, 100 * MIB, Some(&device(1000, 1060)), 9), None);
        assert_eq!(tenure.add(&finished, 356 * MIB, Some(&device(1060, 1064)), 9), None);
        // Each trial alone adds little.
        let growth = Some(Replacement::DeviceGrowth(65 * MIB));
        assert_eq!(tenure.add(&finished, 100 * MIB, Some(&device(1064, 1065)), 9), growth);
        assert_eq!(tenure.add(&finished, 357 * MIB, None, 9), Some(Replacement::Growth(257 * MIB)));
        let mut large = Tenure::default();
        assert_eq!(large.add(&finished, 4000 * MIB, None, 9), None);
        assert_eq!(large.add(&finished, 6000 * MIB, None, 9), None);
        assert_eq!(large.add(&finished, 6001 * MIB, None, 9), Some(Replacement::Growth(2001 * MIB)));
        let line = growth.and_then(|growth| growth.line("tpu"));
        assert_eq!(line.as_deref(), Some("65.0 MiB of the memory of tpu, whose worker is replaced"));
    }
}
