//! The volume that a set of points dominates up to a reference point. Exact, in any number of dimensions.

use super::pareto;

/// Volume that `points` dominate up to `reference`. Points that are not better than `reference` in every loss add
/// nothing.
///
/// In two dimensions a sweep; in more, slices along the last loss, as in While et al. (2006), IEEE TEC 10(1): a few
/// hundred points in three dimensions take milliseconds, and each further dimension costs a factor of their number.
///
/// ```
/// use ferrotune_oracle::analysis::hypervolume::hypervolume;
/// assert_eq!(hypervolume(&[vec![1.0, 3.0], vec![2.0, 1.0]], &[4.0, 4.0]), 7.0);
/// ```
pub fn hypervolume(points: &[Vec<f64>], reference: &[f64]) -> f64 {
    let before = |point: &&Vec<f64>| point.iter().zip(reference).all(|(x, limit)| x < limit);
    let inside: Vec<Vec<f64>> = points.iter().filter(before).cloned().collect();
    let mut front: Vec<Vec<f64>> = pareto::front(&inside).into_iter().map(|index| inside[index].clone()).collect();
    front.sort_by(|a, b| pareto::lexicographic(a, b));
    front.dedup();
    match reference {
        [] => 0.0,
        [limit] => front.first().map_or(0.0, |point| limit - point[0]),
        [first, second] => sweep(&front, *first, *second),
        [rest @ .., last] => slices(front, rest, *last),
    }
}

/// The dominated area in two dimensions: `front` is sorted by the first loss, so the second loss decreases.
fn sweep(front: &[Vec<f64>], first: f64, second: f64) -> f64 {
    let mut height = second;
    let mut area = 0.0;
    for point in front {
        area += (first - point[0]) * (height - point[1]);
        height = point[1];
    }
    area
}

/// The dominated volume in more dimensions: between two neighbouring values of the last loss, the points so far determine the section.
fn slices(mut front: Vec<Vec<f64>>, rest: &[f64], last: f64) -> f64 {
    front.sort_by(|a, b| a[rest.len()].total_cmp(&b[rest.len()]));
    let mut section: Vec<Vec<f64>> = Vec::new();
    let mut volume = 0.0;
    for (index, point) in front.iter().enumerate() {
        section.push(point[..rest.len()].to_vec());
        let next = front.get(index + 1).map_or(last, |next| next[rest.len()]);
        if next > point[rest.len()] {
            volume += (next - point[rest.len()]) * hypervolume(&section, rest);
        }
    }
    volume
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(count: u32, dimensions: usize) -> Vec<Vec<f64>> {
        let factors = [37, 53, 71, 29];
        let point = |k: u32| factors[..dimensions].iter().map(|f| f64::from((k + 1) * f % 101) / 101.0).collect();
        (0..count).map(point).collect()
    }

    /// Golden numbers from `tests/golden/hypervolume.py`.
    #[test]
    fn volumes_are_those_of_optuna() {
        for (dimensions, golden) in GOLDEN {
            let ours = hypervolume(&points(60, dimensions), &vec![0.9; dimensions]);
            assert!((ours - golden).abs() < 1e-12, "{dimensions}: {ours} for {golden}");
        }
    }

    const GOLDEN: [(usize, f64); 3] =
        [(2, 0.716_911_087_148_318_7), (3, 0.531_037_123_131_977_9), (4, 0.334_071_782_724_535_2)];

    #[test]
    fn points_behind_the_reference_add_nothing() {
        assert_eq!(hypervolume(&[vec![5.0, 0.0], vec![1.0, 1.0], vec![f64::NAN, 0.0]], &[2.0, 2.0]), 1.0);
        assert_eq!(hypervolume(&[], &[1.0, 1.0]), 0.0);
        assert_eq!(hypervolume(&[vec![3.0], vec![1.0]], &[4.0]), 3.0);
    }
}
