//! Seeds of trials and their executions, all from the study's seed.

use ferrotune_space::seed::derived;

/// A seed of an execution's own; that of the first is the trial's.
pub(super) fn execution_seed(study_seed: u64, number: u64, execution: u64) -> u64 {
    let seed = derived(study_seed, number);
    execution.checked_sub(1).map_or(seed, |later| derived(seed, later))
}
