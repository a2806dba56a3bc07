//! The seeds of trials and their executions, all derived from the study's seed.

use ferrotune_space::seed::derived;

/// The seed of an execution; the first execution has the trial's seed.
pub(super) fn execution_seed(study_seed: u64, number: u64, execution: u64) -> u64 {
    let seed = derived(study_seed, number);
    execution.checked_sub(1).map_or(seed, |later| derived(seed, later))
}
