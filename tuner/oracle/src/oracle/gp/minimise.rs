//! Local minimisation in a box: L-BFGS (Nocedal 1980) with projection onto the bounds and backtracking. For smooth
//! functions of a few dozen variables.

use super::matrix::dot;
use std::collections::VecDeque;

/// The number of stored pairs of steps and gradient changes.
const MEMORY: usize = 8;
/// The share of the decrease predicted by the slope that a step must achieve (Armijo).
const SUFFICIENT: f64 = 1e-4;

/// The result of a minimisation.
#[derive(Clone, Debug)]
pub(super) struct Minimum {
    pub(super) point: Vec<f64>,
    pub(super) value: f64,
}

/// Minimises `function`, which returns a value and writes the gradient, from `start` inside `bounds`, with at most
/// `evaluations` evaluations. A value that is not finite is treated as too large.
pub(super) fn minimise(
    start: &[f64],
    bounds: &[(f64, f64)],
    evaluations: usize,
    mut function: impl FnMut(&[f64], &mut [f64]) -> f64,
) -> Minimum {
    let mut point: Vec<f64> = start.iter().zip(bounds).map(|(x, (low, high))| x.clamp(*low, *high)).collect();
    let mut gradient = vec![0.0; point.len()];
    let mut value = function(&point, &mut gradient);
    let mut memory: VecDeque<(Vec<f64>, Vec<f64>)> = VecDeque::new();
    let mut left = evaluations.saturating_sub(1);
    while left > 0 && value.is_finite() {
        let free = free(&point, &gradient, bounds);
        let direction = direction(&gradient, &free, &memory);
        let Some(next) = search(&point, value, &gradient, &direction, bounds, &mut left, &mut function) else {
            if memory.is_empty() {
                break;
            }
            memory.clear();
            continue;
        };
        let step: Vec<f64> = next.point.iter().zip(&point).map(|(new, old)| new - old).collect();
        let change: Vec<f64> = next.gradient.iter().zip(&gradient).map(|(new, old)| new - old).collect();
        let gain = value - next.value;
        (point, value, gradient) = (next.point, next.value, next.gradient);
        if dot(&step, &change) > 1e-10 * dot(&change, &change) {
            if memory.len() == MEMORY {
                memory.pop_front();
            }
            memory.push_back((step, change));
        }
        if gain < 1e-9 * (1.0 + value.abs()) {
            break;
        }
    }
    Minimum { point, value }
}

struct Trial {
    point: Vec<f64>,
    value: f64,
    gradient: Vec<f64>,
}

/// A backtracking line search along the direction, projected onto the bounds; `None` if no better point is found.
fn search(
    point: &[f64],
    value: f64,
    gradient: &[f64],
    direction: &[f64],
    bounds: &[(f64, f64)],
    left: &mut usize,
    function: &mut impl FnMut(&[f64], &mut [f64]) -> f64,
) -> Option<Trial> {
    let mut length = 1.0;
    let mut trial = Trial { point: point.to_vec(), value, gradient: gradient.to_vec() };
    for _ in 0..12 {
        if *left == 0 {
            return None;
        }
        for (index, (low, high)) in bounds.iter().enumerate() {
            trial.point[index] = (point[index] + length * direction[index]).clamp(*low, *high);
        }
        let step: Vec<f64> = trial.point.iter().zip(point).map(|(new, old)| new - old).collect();
        let slope = dot(gradient, &step);
        if slope >= 0.0 {
            return None;
        }
        *left -= 1;
        trial.value = function(&trial.point, &mut trial.gradient);
        if trial.value <= value + SUFFICIENT * slope {
            return Some(trial);
        }
        // The minimum of the parabola through both values and the slope, if it has one.
        let curvature = trial.value - value - slope;
        let factor = if trial.value.is_finite() { -slope / (2.0 * curvature) } else { 0.1 };
        length *= factor.clamp(0.1, 0.5);
    }
    None
}

/// The variables that the gradient does not push against a bound.
fn free(point: &[f64], gradient: &[f64], bounds: &[(f64, f64)]) -> Vec<bool> {
    let variables = point.iter().zip(gradient).zip(bounds);
    variables.map(|((x, slope), (low, high))| !(*x <= *low && *slope > 0.0 || *x >= *high && *slope < 0.0)).collect()
}

/// The direction from the two-loop recursion over the free variables; without stored pairs, steepest descent with a short step.
fn direction(gradient: &[f64], free: &[bool], memory: &VecDeque<(Vec<f64>, Vec<f64>)>) -> Vec<f64> {
    let masked = |vector: &[f64]| -> Vec<f64> {
        vector.iter().zip(free).map(|(x, free)| if *free { *x } else { 0.0 }).collect()
    };
    let mut direction = masked(gradient);
    let pairs: Vec<(Vec<f64>, Vec<f64>)> = memory.iter().map(|(step, change)| (masked(step), masked(change))).collect();
    let useful = |(step, change): &&(Vec<f64>, Vec<f64>)| dot(step, change) > 1e-12;
    let pairs: Vec<&(Vec<f64>, Vec<f64>)> = pairs.iter().filter(useful).collect();
    let mut weights = Vec::with_capacity(pairs.len());
    for (step, change) in pairs.iter().rev() {
        let weight = dot(step, &direction) / dot(step, change);
        direction.iter_mut().zip(change).for_each(|(d, change)| *d -= weight * change);
        weights.push(weight);
    }
    let scale = match pairs.last() {
        Some((step, change)) => dot(step, change) / dot(change, change),
        None => 0.1 / dot(&direction, &direction).sqrt().max(0.1),
    };
    direction.iter_mut().for_each(|d| *d *= scale);
    for ((step, change), weight) in pairs.iter().zip(weights.iter().rev()) {
        let correction = weight - dot(change, &direction) / dot(step, change);
        direction.iter_mut().zip(step).for_each(|(d, step)| *d += correction * step);
    }
    direction.iter_mut().for_each(|d| *d = -*d);
    direction
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rosenbrock(x: &[f64], gradient: &mut [f64]) -> f64 {
        let (a, b) = (1.0 - x[0], x[1] - x[0] * x[0]);
        gradient[0] = -2.0 * a - 400.0 * x[0] * b;
        gradient[1] = 200.0 * b;
        a * a + 100.0 * b * b
    }

    #[test]
    fn valley_is_followed_to_its_lowest_point() {
        let minimum = minimise(&[-1.2, 1.0], &[(-5.0, 5.0); 2], 200, rosenbrock);
        assert!(minimum.value < 1e-8, "{minimum:?}");
    }

    #[test]
    fn bounds_are_kept_and_used() {
        let minimum = minimise(&[-1.2, 1.0], &[(-5.0, 0.5), (-5.0, 5.0)], 200, rosenbrock);
        assert!((minimum.point[0] - 0.5).abs() < 1e-9 && (minimum.point[1] - 0.25).abs() < 1e-3, "{minimum:?}");
    }

    #[test]
    fn value_never_rises_and_what_is_not_finite_is_avoided() {
        let hole = |x: &[f64], gradient: &mut [f64]| {
            gradient[0] = 2.0 * (x[0] - 0.9);
            if x[0] > 0.8 { f64::NAN } else { (x[0] - 0.9).powi(2) }
        };
        let minimum = minimise(&[0.0], &[(0.0, 1.0)], 100, hole);
        assert!(minimum.value <= 0.81 && minimum.point[0] <= 0.8, "{minimum:?}");
    }
}
