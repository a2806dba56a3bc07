//! The memory budget of a trial, and the cause of a memory shortage. Ends no trial.

use super::ProcessError;
use ferrotune_machine::memory::available_bytes;

const GIB: u64 = 1 << 30;
/// The free memory of the machine below which the largest trial is ended, before the system chooses a process to kill.
const FLOOR_BYTES: u64 = 500 << 20;

/// The memory below which a trial cannot be the cause of a machine's shortage.
const SMALL_TRIAL_BYTES: u64 = 64 << 20;

/// The limits on the memory of a trial and of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// The largest memory that a trial may hold, in bytes.
    pub trial_bytes: u64,
    /// The least memory that the machine (or container) must have left, in bytes.
    pub floor_bytes: u64,
}

/// The bytes that a worker may allocate beyond its budget: the budget limits the memory in use, and a program allocates
/// more than it uses.
const ALLOCATION_SLACK_BYTES: u64 = 256 << 20;
/// The size of a thread's stack, all of which counts as allocated.
const STACK_BYTES: u64 = 8 << 20;

impl Budget {
    /// The budget of each of `concurrency` trials: the user's choice, or else an equal share of the memory that is
    /// available now. 10 % of that memory, and at least 1 GiB, is left to other processes.
    pub fn choose(asked_bytes: Option<u64>, concurrency: u64) -> Result<Budget, ProcessError> {
        let available = available_bytes().map_err(ProcessError::system("read how much memory is available"))?;
        Ok(Budget::of(asked_bytes, available, concurrency))
    }

    fn of(asked_bytes: Option<u64>, available: u64, concurrency: u64) -> Budget {
        let usual = available.saturating_sub(GIB.max(available / 10)).max(available / 2) / concurrency.max(1);
        // On a machine with little memory from the start, the floor must not end every trial.
        Budget { trial_bytes: asked_bytes.unwrap_or(usual), floor_bytes: FLOOR_BYTES.min(available / 4) }
    }

    /// The limit at which the system itself refuses allocations of a worker with `threads` threads and `data_bytes` of
    /// mapped shared data. It is a second limit, for a trial that allocates faster than its supervisor's checks.
    pub fn allocation_limit_bytes(&self, threads: u64, data_bytes: u64) -> u64 {
        let more =
            data_bytes.saturating_add(threads.saturating_mul(STACK_BYTES)).saturating_add(ALLOCATION_SLACK_BYTES);
        self.trial_bytes.saturating_add(more)
    }

    /// The memory that the machine has left, in bytes, if that is below the floor.
    pub fn machine_shortage(&self) -> Result<Option<u64>, ProcessError> {
        let available = available_bytes().map_err(ProcessError::system("read how much memory is available"))?;
        Ok(Some(available).filter(|available| *available < self.floor_bytes))
    }

    /// The cause of a shortage, if there is one: a trial holds `held_bytes`, and a machine below its floor has
    /// `machine_bytes` left.
    pub fn shortage(&self, held_bytes: u64, machine_bytes: Option<u64>) -> Option<Shortage> {
        if held_bytes > self.trial_bytes {
            return Some(Shortage::OfTrial);
        }
        let available_bytes = machine_bytes?;
        let is_small = held_bytes < SMALL_TRIAL_BYTES || held_bytes < self.trial_bytes / 10;
        Some(if is_small { Shortage::Elsewhere { available_bytes } } else { Shortage::OfTrial })
    }
}

/// The cause of a memory shortage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shortage {
    /// The trial: it is over its budget, or large on a machine below its floor.
    OfTrial,
    /// Other processes: the trial is small, and later trials would fail in the same way.
    Elsewhere {
        /// The memory that the machine has left, in bytes.
        available_bytes: u64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_budget_leaves_a_tenth_and_at_least_a_gibibyte() {
        assert_eq!(Budget::of(None, 100 * GIB, 1).trial_bytes, 90 * GIB);
        assert_eq!(Budget::of(None, 4 * GIB, 1).trial_bytes, 3 * GIB);
        assert_eq!(Budget::of(None, GIB, 1).trial_bytes, GIB / 2);
        assert_eq!(Budget::of(None, 100 * GIB, 3).trial_bytes, 30 * GIB);
        assert_eq!(Budget::of(Some(5), GIB, 2).trial_bytes, 5);
    }

    #[test]
    fn a_small_trial_is_not_at_fault_where_the_machine_is_short() {
        let budget = Budget { trial_bytes: 2 * GIB, floor_bytes: FLOOR_BYTES };
        let elsewhere = Some(Shortage::Elsewhere { available_bytes: 7 });
        assert_eq!(budget.shortage(GIB, None), None);
        assert_eq!(budget.shortage(GIB, Some(7)), Some(Shortage::OfTrial));
        assert_eq!(budget.shortage(3 * GIB, None), Some(Shortage::OfTrial));
        assert_eq!(budget.shortage(SMALL_TRIAL_BYTES - 1, Some(7)), elsewhere);
        assert_eq!(budget.shortage(2 * GIB / 10 - 1, Some(7)), elsewhere);
        let tiny = Budget { trial_bytes: 5, floor_bytes: FLOOR_BYTES };
        assert_eq!(tiny.shortage(6, Some(7)), Some(Shortage::OfTrial));
    }
}
