//! The resident worker, which stays from trial to trial, for a device that takes one process at a time. This module waits
//! for the device, decides when the worker is replaced, and asks the worker to exit. Runs no trial itself.

use super::{Supervisor, SupervisorError, TICK};
use crate::process::{self, ExclusiveDevice, Settled, Worker};
use crate::search::Outcome;
use ferrotune_machine::format::bytes;
use ferrotune_space::record::{DeviceUse, Ending};
use ferrotune_space::spec::Supervision;
use ferrotune_space::wire::{Reply, Request, Verdict};
use std::time::{Duration, Instant};

/// The growth of a device's memory in use, since before the worker's first trial, above which the device has a leak.
const TOLERATED_DEVICE_BYTES: u64 = 64 << 20;
/// The least growth of a worker's memory, since after its first trial, above which the worker is replaced. A growth by half
/// is tolerated as well.
const TOLERATED_BYTES: u64 = 256 << 20;
/// The first and the longest pause between two checks of a device that another process uses.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The lock of the device, and the worker that is idle after its last trial.
#[derive(Debug)]
pub(super) struct Residence {
    device: ExclusiveDevice,
    /// Whether the device process of the trials had the device open when it was last asked.
    pub(super) is_open: bool,
    pub(super) idle: Option<(Worker, Tenure)>,
}

impl Residence {
    /// The residence on the device of this machine.
    pub(super) fn new() -> Residence {
        Residence { device: ExclusiveDevice::of_this_machine(), is_open: false, idle: None }
    }
}

/// The history of a resident worker over its trials.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tenure {
    /// The number of trials that the worker has run.
    trials: u64,
    /// The memory that the worker held after its first trial, in bytes.
    first_bytes: Option<u64>,
    /// The device's memory in use before the worker's first trial, in bytes.
    device_bytes: Option<u64>,
}

/// The reason why a worker is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Replacement {
    /// The last trial ended in a way that may have left the device, or the library's own state, unclear.
    Failure,
    /// The worker has run the largest allowed number of trials.
    Age,
    /// The worker holds this many bytes more than after its first trial.
    Growth(u64),
    /// The device has this many bytes more in use than before the worker's first trial.
    DeviceGrowth(u64),
}

impl Tenure {
    /// Adds a trial that has returned, after which the worker holds `held_bytes`. Returns the reason why the worker cannot
    /// stay, if there is one.
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

/// Whether this end of a trial might harm later trials: a panic may leave a lock, or the library's state, half changed. An
/// error that the objective has returned does no such harm.
fn is_unclear(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Ended { ending, .. } => {
            !matches!(ending, Ending::Finished | Ending::Pruned | Ending::Failed { .. } | Ending::Refused { .. })
        }
        Outcome::Paused { .. } | Outcome::Executed | Outcome::Interrupted | Outcome::Postponed(_) => false,
    }
}

impl Replacement {
    /// A line for the trial's record about the memory that the trial has left in use.
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
    /// Waits until a worker can use the device. Returns whether a worker may begin: not if the search stops meanwhile.
    pub(super) fn wait_for_device(&mut self) -> Result<bool, SupervisorError> {
        let deadline = Instant::now() + self.device_wait();
        let mut pause = FIRST_PAUSE;
        self.dismiss_if_gone()?;
        loop {
            let is_wanted = |residence: &&mut Residence| residence.idle.is_none() && !residence.is_open;
            let Some(residence) = self.residence.as_mut().filter(is_wanted) else {
                return Ok(true);
            };
            let shared = self.devices.and_then(|devices| devices.process(&self.search.spec.device));
            let Some(holder) = residence.device.take(shared)? else { return Ok(true) };
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let spec = &self.search.spec;
                let (device, wait_s) = (spec.device.clone(), spec.supervision.device_wait_s);
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

    /// Whether a worker stays from trial to trial. None does where the trials share a device process.
    pub(super) fn has_staying_worker(&self) -> bool {
        self.residence.is_some() && self.devices.is_none()
    }

    /// How long the search waits for a device that another process uses.
    pub(super) fn device_wait(&self) -> Duration {
        Duration::from_secs(self.search.spec.supervision.device_wait_s.min(u32::MAX.into()))
    }

    /// Ends a trial whose worker has returned from it: the worker stays for the next trial, or is replaced. `outcome` gives
    /// the trial's outcome for its status. Returns that outcome, and a line for each thing that the trial has left behind.
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

    /// Dismisses an idle worker that has exited since its last trial, for example after the system's out-of-memory killer.
    /// Such a worker gets no further trial.
    fn dismiss_if_gone(&mut self) -> Result<(), SupervisorError> {
        let Some((worker, _)) = self.residence.as_mut().and_then(|residence| residence.idle.as_mut()) else {
            return Ok(());
        };
        let interrupts = process::wait([&mut *worker], &self.signals, &mut self.shared_memory, Duration::ZERO)?;
        let is_gone = worker.has_exited();
        self.look_outside(interrupts)?;
        if is_gone { self.dismiss_idle() } else { Ok(()) }
    }

    /// Whether a worker is idle after its last trial.
    pub(super) fn has_idle_worker(&self) -> bool {
        self.residence.as_ref().is_some_and(|residence| residence.idle.is_some())
    }

    /// Dismisses the idle worker, if there is one.
    pub(super) fn dismiss_idle(&mut self) -> Result<(), SupervisorError> {
        match self.residence.as_mut().and_then(|residence| residence.idle.take()) {
            Some((worker, _)) => self.dismiss(worker),
            None => Ok(()),
        }
    }

    /// Asks a worker that runs no trial to exit, and kills the worker if it does not exit in time.
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
        // These leftovers belong to no trial, but to the device's own library.
        tracing::debug!(?exit, ?left, is_killed, "a worker has left");
        Ok(())
    }
}

/// The time that a worker may take to exit.
pub(super) fn grace(supervision: &Supervision) -> Duration {
    Duration::from_secs(supervision.grace_s.min(u32::MAX.into()))
}

/// The reply to a trial that is being ended, so that the trial comes to its end: its requests are no longer its own
/// decisions.
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
        // Each trial alone adds less than the tolerated growth.
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
