//! Seeds of trials and their executions, all from the study's seed.

/// A seed of an execution's own; that of the first is the trial's.
pub(super) fn execution_seed(study_seed: u64, number: u64, execution: u64) -> u64 {
    let seed = trial_seed(study_seed, number);
    execution.checked_sub(1).map_or(seed, |later| trial_seed(seed, later))
}

/// A seed of the trial's own: one step of SplitMix64 (Steele et al. 2014) from the study's seed and the number.
fn trial_seed(study_seed: u64, number: u64) -> u64 {
    let mut state = study_seed.wrapping_add((number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trials_of_one_study_have_seeds_of_their_own() {
        let seeds: std::collections::HashSet<u64> = (0..1000).map(|number| trial_seed(7, number)).collect();
        assert_eq!(seeds.len(), 1000);
        // The published first outputs: https://rosettacode.org/wiki/Pseudo-random_numbers/Splitmix64
        assert_eq!([0, 1].map(|number| trial_seed(1_234_567, number)), [6457827717110365317, 3203168211198807973]);
    }
}
