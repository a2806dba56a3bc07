//! Survival by reference points: keeps individuals in all directions of the space of losses. Pure mathematics.
//!
//! Deb and Jain (2014), An Evolutionary Many-Objective Optimization Algorithm Using Reference-Point-Based Nondominated
//! Sorting Approach, IEEE TEC 18(4), <https://doi.org/10.1109/TEVC.2013.2281535>: NSGA-III.

use super::survival::{Fitness, fronts};
use rand::{Rng, RngExt};

/// The weight of the other axes in the search for the extreme individual of an axis.
const OTHER_AXES: f64 = 1e-6;
/// The size below which a range or a pivot is treated as 0.
const TINY: f64 = 1e-12;

/// The number of points that [`simplex`] makes; `None` beyond `most`.
pub(super) fn simplex_size(objectives: usize, divisions: u64, most: u64) -> Option<u64> {
    // The binomial coefficient of (objectives - 1 + divisions, divisions), factor by factor: each product is a binomial coefficient, too.
    (1..objectives as u64).try_fold(1_u64, |size, axis| {
        size.checked_mul(divisions.checked_add(axis)?).map(|size| size / axis).filter(|size| *size <= most)
    })
}

/// The points whose coordinates are multiples of `1 / divisions` with the sum 1 (Das and Dennis 1998).
pub(super) fn simplex(objectives: usize, divisions: u64) -> Vec<Vec<f64>> {
    let mut partial: Vec<(Vec<u64>, u64)> = vec![(Vec::new(), divisions)];
    for _ in 1..objectives {
        let extend = |(point, left): (Vec<u64>, u64)| {
            (0..=left).map(move |steps| ([point.as_slice(), &[steps]].concat(), left - steps))
        };
        partial = partial.into_iter().flat_map(extend).collect();
    }
    let point = |(mut point, left): (Vec<u64>, u64)| -> Vec<f64> {
        point.push(left);
        point.into_iter().map(|steps| steps as f64 / divisions as f64).collect()
    };
    partial.into_iter().map(point).collect()
}

/// Indices of the `count` individuals that survive, in order. All losses are finite.
pub(super) fn survivors<R: Rng>(
    population: &[Fitness],
    count: usize,
    references: &[Vec<f64>],
    rng: &mut R,
) -> Vec<usize> {
    let mut kept: Vec<usize> = Vec::new();
    for front in fronts(population) {
        if kept.len() + front.len() <= count {
            kept.extend(front);
            continue;
        }
        let all: Vec<&[f64]> = kept.iter().chain(&front).map(|member| population[*member].losses.as_slice()).collect();
        let places = places(&all, references);
        let (known, candidates) = places.split_at(kept.len());
        let mut crowds = vec![0; references.len()];
        known.iter().for_each(|place| crowds[place.reference] += 1);
        let chosen = fill(&mut crowds, candidates, count - kept.len(), rng);
        kept.extend(chosen.into_iter().map(|index| front[index]));
        break;
    }
    kept.sort_unstable();
    kept
}

/// The reference point that is nearest to an individual, and the distance from it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Place {
    reference: usize,
    /// Distance from the line through the origin and the reference point.
    distance: f64,
}

/// Chooses `count` of the candidates, each time for a reference point with the fewest individuals, whose numbers are in
/// `crowds`.
fn fill<R: Rng>(crowds: &mut [usize], candidates: &[Place], count: usize, rng: &mut R) -> Vec<usize> {
    let mut left: Vec<usize> = (0..candidates.len()).collect();
    let mut chosen = Vec::with_capacity(count);
    while chosen.len() < count {
        let occupied = |reference: &usize| left.iter().any(|index| candidates[*index].reference == *reference);
        let open: Vec<usize> = (0..crowds.len()).filter(occupied).collect();
        let Some(fewest) = open.iter().map(|reference| crowds[*reference]).min() else { break };
        let lonely: Vec<usize> = open.into_iter().filter(|reference| crowds[*reference] == fewest).collect();
        let reference = lonely[rng.random_range(0..lonely.len())];
        let near: Vec<usize> = left.iter().copied().filter(|index| candidates[*index].reference == reference).collect();
        let nearest = near.iter().copied().min_by(|a, b| candidates[*a].distance.total_cmp(&candidates[*b].distance));
        let any = near[rng.random_range(0..near.len())];
        let next = nearest.filter(|_| fewest == 0).unwrap_or(any);
        crowds[reference] += 1;
        left.retain(|index| *index != next);
        chosen.push(next);
    }
    chosen
}

/// The place of each individual, in losses that are scaled to the range of the front.
fn places(losses: &[&[f64]], references: &[Vec<f64>]) -> Vec<Place> {
    let objectives = references.first().map_or(0, Vec::len);
    let column = |axis: usize| losses.iter().map(move |losses| losses[axis]);
    let ideal: Vec<f64> = (0..objectives).map(|axis| column(axis).fold(f64::INFINITY, f64::min)).collect();
    let shifted: Vec<Vec<f64>> =
        losses.iter().map(|losses| losses.iter().zip(&ideal).map(|(loss, ideal)| loss - ideal).collect()).collect();
    let ranges = intercepts(&shifted, objectives);
    let scaled =
        |point: &Vec<f64>| -> Vec<f64> { point.iter().zip(&ranges).map(|(loss, range)| loss / range).collect() };
    let place = |point: Vec<f64>| {
        let distances = references.iter().map(|reference| distance(&point, reference)).enumerate();
        let nearest = distances.min_by(|a, b| a.1.total_cmp(&b.1));
        nearest.map_or(Place { reference: 0, distance: 0.0 }, |(reference, distance)| Place { reference, distance })
    };
    shifted.iter().map(scaled).map(place).collect()
}

/// The intercepts of the plane through the extreme individual of each axis with the axes; or else the largest loss of each axis.
fn intercepts(shifted: &[Vec<f64>], objectives: usize) -> Vec<f64> {
    let extreme = |axis: usize| {
        let reach = |point: &Vec<f64>| {
            let weighted = point.iter().enumerate();
            weighted.map(|(other, loss)| if other == axis { *loss } else { loss / OTHER_AXES }).fold(0.0, f64::max)
        };
        shifted.iter().min_by(|a, b| reach(a).total_cmp(&reach(b))).cloned()
    };
    let largest = |axis: usize| shifted.iter().map(|point| point[axis]).fold(0.0, f64::max);
    let extremes: Option<Vec<Vec<f64>>> = (0..objectives).map(extreme).collect();
    let plane = extremes.and_then(|extremes| solved(extremes, vec![1.0; objectives]));
    let plane: Option<Vec<f64>> = plane.map(|normal| normal.iter().map(|weight| 1.0 / weight).collect());
    let is_sound = |plane: &Vec<f64>| plane.iter().all(|intercept| intercept.is_finite() && *intercept > TINY);
    let plane = plane.filter(is_sound).unwrap_or_else(|| (0..objectives).map(largest).collect());
    plane.into_iter().map(|range| if range > TINY { range } else { 1.0 }).collect()
}

/// The solution of a system of linear equations, by elimination with pivots; `None` if there is not exactly one.
fn solved(mut rows: Vec<Vec<f64>>, mut right: Vec<f64>) -> Option<Vec<f64>> {
    let size = right.len();
    for step in 0..size {
        let pivot = (step..size).max_by(|a, b| rows[*a][step].abs().total_cmp(&rows[*b][step].abs()))?;
        if rows[pivot][step].abs() < TINY {
            return None;
        }
        rows.swap(step, pivot);
        right.swap(step, pivot);
        let (head, known) = (rows[step].clone(), right[step]);
        for row in (0..size).filter(|row| *row != step) {
            let factor = rows[row][step] / head[step];
            rows[row].iter_mut().zip(&head).for_each(|(value, head)| *value -= factor * head);
            right[row] -= factor * known;
        }
    }
    Some((0..size).map(|row| right[row] / rows[row][row]).collect())
}

/// The distance of a point from the line through the origin and `reference`.
fn distance(point: &[f64], reference: &[f64]) -> f64 {
    let product: f64 = point.iter().zip(reference).map(|(a, b)| a * b).sum();
    let share = product / reference.iter().map(|b| b * b).sum::<f64>();
    point.iter().zip(reference).map(|(a, b)| (a - share * b).powi(2)).sum::<f64>().sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_pcg::Pcg64;

    fn feasible(losses: Vec<Vec<f64>>) -> Vec<Fitness> {
        losses.into_iter().map(|losses| Fitness { losses, violation: 0.0 }).collect()
    }

    #[test]
    fn reference_points_are_spread_evenly_over_the_simplex() {
        for (objectives, divisions, size) in [(1, 5, 1), (2, 4, 5), (3, 3, 10), (3, 12, 91), (5, 4, 70)] {
            let points = simplex(objectives, divisions);
            assert_eq!((points.len(), simplex_size(objectives, divisions, 1000)), (size, Some(size as u64)));
            assert!(points.iter().all(|point| (point.iter().sum::<f64>() - 1.0).abs() < 1e-12));
            // Each point has a neighbour at one step: two coordinates differ by 1 / divisions.
            let apart = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt();
            let step = 2_f64.sqrt() / divisions as f64;
            for point in points.iter().filter(|_| objectives > 1) {
                let others = points.iter().filter(|other| *other != point);
                let nearest = others.map(|other| apart(point, other)).fold(f64::INFINITY, f64::min);
                assert!((nearest - step).abs() < 1e-12, "{nearest} is not {step}");
            }
        }
        assert_eq!(simplex_size(3, 12, 90), None);
        assert_eq!(simplex_size(60, u64::MAX, 10_000), None);
    }

    #[test]
    fn survivors_are_spread_over_the_directions_whatever_the_scale() {
        // Thirty individuals near one end of the front, and one near each other reference point.
        let references = simplex(3, 2);
        let scale = [1.0, 1000.0, 0.01];
        let scaled = |point: &[f64]| point.iter().zip(scale).map(|(value, scale)| value * scale).collect::<Vec<_>>();
        let mut losses: Vec<Vec<f64>> = references.iter().map(|point| scaled(point)).collect();
        let crowd = |index: usize| scaled(&[0.98 - 1e-4 * index as f64, 0.01 + 1e-4 * index as f64, 0.01]);
        losses.extend((0..30).map(crowd));
        let mut rng = Pcg64::seed_from_u64(1);
        assert_eq!(survivors(&feasible(losses), 6, &references, &mut rng), [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn better_fronts_and_feasible_individuals_survive_first() {
        let references = simplex(2, 3);
        let mut population = feasible(vec![vec![3.0, 3.0], vec![1.0, 2.0], vec![2.0, 1.0], vec![0.0, 0.0]]);
        population[3].violation = 0.5;
        let mut rng = Pcg64::seed_from_u64(1);
        assert_eq!(survivors(&population, 2, &references, &mut rng), [1, 2]);
        assert_eq!(survivors(&population, 3, &references, &mut rng), [0, 1, 2]);
        assert_eq!(survivors(&population, 4, &references, &mut rng), [0, 1, 2, 3]);
    }

    #[test]
    fn equal_losses_and_flat_axes_have_places() {
        let references = simplex(3, 3);
        for losses in [vec![vec![1.0; 3]; 5], vec![vec![0.0, 1.0, 2.0], vec![0.0, 2.0, 1.0], vec![0.0, 1.5, 1.5]]] {
            let kept = survivors(&feasible(losses), 2, &references, &mut Pcg64::seed_from_u64(1));
            assert_eq!(kept.len(), 2);
        }
    }

    #[test]
    fn equations_are_solved_or_have_no_solution() {
        let solution = solved(vec![vec![0.0, 2.0], vec![4.0, 1.0]], vec![2.0, 5.0]).expect("a solution");
        assert!((solution[0] - 1.0).abs() < 1e-12 && (solution[1] - 1.0).abs() < 1e-12);
        assert_eq!(solved(vec![vec![1.0, 2.0], vec![2.0, 4.0]], vec![1.0, 1.0]), None);
    }
}
