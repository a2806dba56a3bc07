//! Quasi-random search: an Owen-scrambled Sobol sequence (Burley 2020, JCGT 9(4)), which fills the space more evenly
//! than independent draws. Learns only the parameters from trials.

use super::history::History;
use super::random;
use super::sampler::Sampler;

/// The numbers of dimensions and points in the generator's tables.
const DIMENSIONS: usize = 256;
const POINTS: u64 = 1 << 16;

/// The Sobol sampler. The first trial is drawn at random, because the parameters are known only after it.
#[derive(Debug)]
pub(super) struct Qmc;

impl Sampler for Qmc {
    fn propose(&mut self, history: &History, trial: u64) -> Option<Vec<f64>> {
        let dimensions = history.space.dimensions.len();
        (dimensions > 0).then(|| point(history.settings.seed, trial, dimensions))
    }
}

/// Point number `index` of the sequence with this seed.
///
/// Beyond the tables, dimensions and points start again with another scrambling.
pub(super) fn point(seed: u64, index: u64, dimensions: usize) -> Vec<f64> {
    let coordinate = |dimension: usize| {
        let (round, set) = (index / POINTS, dimension / DIMENSIONS);
        let scrambling = random::hash(&[&seed.to_le_bytes(), &round.to_le_bytes(), &set.to_le_bytes()]);
        let (index, dimension) = (index % POINTS, dimension % DIMENSIONS);
        f64::from(sobol_burley::sample(index as u32, dimension as u32, scrambling as u32))
    };
    (0..dimensions).map(coordinate).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_run_of_64_points_has_one_in_each_64th_of_each_axis() {
        let points: Vec<Vec<f64>> = (0..128).map(|index| point(7, index, 5)).collect();
        for (run, axis) in [(0, 0), (0, 4), (64, 1), (64, 3)] {
            let mut strips = [false; 64];
            for point in &points[run..run + 64] {
                strips[(point[axis] * 64.0) as usize] = true;
            }
            assert!(strips.iter().all(|hit| *hit));
        }
    }

    #[test]
    fn sequence_goes_on_beyond_its_tables() {
        assert_ne!(point(7, 1, 1), point(7, POINTS + 1, 1));
        let wide = point(7, 1, DIMENSIONS + 1);
        assert_ne!(wide[0], wide[DIMENSIONS]);
    }
}
