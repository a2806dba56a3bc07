//! Random seeds for searches without a given seed, and seeds derived from another seed. Unique names come from the same source.

/// A new seed: 53 random bits of the operating system, since every JSON reader keeps 53 bits.
pub fn draw() -> u64 {
    getrandom::u64().expect("Linux has had getrandom(2) since version 3.17") >> 11
}

/// The seed of one part, such as a trial of a study, derived from the seed of the whole: output `part` of SplitMix64 (Steele, Lea
/// and Flood, "Fast splittable pseudorandom number generators", 2014).
pub fn derived(seed: u64, part: u64) -> u64 {
    let mut state = seed.wrapping_add(part.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}

#[cfg(test)]
mod tests {
    use super::derived;

    #[test]
    fn parts_have_seeds_of_their_own() {
        let seeds: std::collections::HashSet<u64> = (0..1000).map(|part| derived(7, part)).collect();
        assert_eq!(seeds.len(), 1000);
        // The published first outputs: https://rosettacode.org/wiki/Pseudo-random_numbers/Splitmix64
        assert_eq!([0, 1].map(|part| derived(1_234_567, part)), [6457827717110365317, 3203168211198807973]);
    }
}
