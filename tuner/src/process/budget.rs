//! How much memory a trial may hold, and which trial is to blame where memory is short. Ends no trial.

use super::ProcessError;
use ferrotune_machine::memory::available_bytes;

const GIB: u64 = 1 << 30;
/// The machine's free memory at which the largest trial must go, before the system chooses what to kill.
const FLOOR_BYTES: u64 = 500 << 20;

/// A trial that holds less is not what makes a machine short of memory.
const SMALL_TRIAL_BYTES: u64 = 64 << 20;

/// How much memory a trial may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// The most that a trial may hold, in bytes.
    pub trial_bytes: u64,
    /// The least that the machine (or container) must have left, in bytes.
    pub floor_bytes: u64,
}

/// What a worker may allocate beyond its budget, which limits the memory in use: a program allocates more than it uses.
const ALLOCATION_SLACK_BYTES: u64 = 256 << 20;
/// The size of a thread's stack, all of which counts as allocated.
const STACK_BYTES: u64 = 8 << 20;

impl Budget {
    /// The budget of each of `concurrency` trials: what the user asked for, or else an equal share of the memory that is
    /// available now. 10 % of it, and at least 1 GiB, is left to others.
    pub fn choose(asked_bytes: Option<u64>, concurrency: u64) -> Result<Budget, ProcessError> {
        let available = available_bytes().map_err(ProcessError::system("read how much memory is available"))?;
        Ok(Budget::of(asked_bytes, available, concurrency))
    }

    fn of(asked_bytes: Option<u64>, available: u64, concurrency: u64) -> Budget {
        let usual = available.saturating_sub(GIB.max(available / 10)).max(available / 2) / concurrency.max(1);
        // On a machine with little memory from the start, the floor must not end every trial.
        Budget { trial_bytes: asked_bytes.unwrap_or(usual), floor_bytes: FLOOR_BYTES.min(available / 4) }
    }

    /// What the system itself lets a worker of `threads` threads allocate, with `data_bytes` of shared data mapped: a
    /// second limit, for a trial that allocates faster than its supervisor looks.
    pub fn allocation_limit_bytes(&self, threads: u64, data_bytes: u64) -> u64 {
        let more =
            data_bytes.saturating_add(threads.saturating_mul(STACK_BYTES)).saturating_add(ALLOCATION_SLACK_BYTES);
        self.trial_bytes.saturating_add(more)
    }

    /// What the machine has left, in bytes, where that is below the floor.
    pub fn machine_shortage(&self) -> Result<Option<u64>, ProcessError> {
        let available = available_bytes().map_err(ProcessError::system("read how much memory is available"))?;
        Ok(Some(available).filter(|available| *available < self.floor_bytes))
    }

    /// What to blame where a trial holds `held_bytes`, and `machine_bytes` is what a machine below its floor has left.
    pub fn shortage(&self, held_bytes: u64, machine_bytes: Option<u64>) -> Option<Shortage> {
        if held_bytes > self.trial_bytes {
            return Some(Shortage::OfTrial);
        }
        let available_bytes = machine_bytes?;
        let is_small = held_bytes < SMALL_TRIAL_BYTES || held_bytes < self.trial_bytes / 10;
        Some(if is_small { Shortage::Elsewhere { available_bytes } } else { Shortage::OfTrial })
    }
}

/// What takes the memory that is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shortage {
    /// The trial: it is over its budget, or large on a machine below its floor.
    OfTrial,
    /// Other processes: the trial is small, and the next ones would fail in the same way.
    Elsewhere {
        /// What the machine has left, in bytes.
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
