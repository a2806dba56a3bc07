//! Axes with cells: the cell of a number, and the margin that keeps every cell likely enough. Pure mathematics.
//!
//! Hamano et al. (2022), CMA-ES with Margin, GECCO, arXiv:2205.13482, equations 6 to 14. Without the margin a narrow
//! distribution always draws the same cell, and its step size no longer shrinks.

use crate::normal;

/// The cell into which `value` falls, of `cells` equal ones; the two outer cells have no outer bound.
pub(super) fn cell(value: f64, cells: u32) -> u32 {
    // The conversion saturates at both ends.
    ((value * f64::from(cells)).ceil() as u32).saturating_sub(1).min(cells - 1)
}

/// The middle of a cell.
pub(super) fn middle(cell: u32, cells: u32) -> f64 {
    (f64::from(cell) + 0.5) / f64::from(cells)
}

/// The stretch of an axis when a strategy begins: 1, unless no draw could leave the middle cell.
pub(super) fn first_stretch(cells: Option<u32>, sigma: f64, probability: f64) -> f64 {
    let Some(cells) = cells else { return 1.0 };
    let needed = 0.5 / f64::from(cells) / -normal::quantile(probability / 2.0);
    (needed / sigma).max(1.0)
}

/// The mean and stretch of an axis with which its neighbouring cells are drawn with a `probability`.
///
/// `spread` is the distribution's standard deviation on this axis before the stretch.
pub(super) fn correct(mean: f64, spread: f64, stretch: f64, cells: u32, probability: f64) -> (f64, f64) {
    if cells < 2 {
        return (mean, stretch);
    }
    let (width, own) = (1.0 / f64::from(cells), cell(mean, cells));
    let deviation = spread * stretch;
    if own == 0 || own == cells - 1 {
        // The probability limits the distance to the bound of the only neighbour.
        let wall = if own == 0 { width } else { 1.0 - width };
        let reach = -normal::quantile(probability) * deviation;
        return (mean.clamp(wall - reach, wall + reach), stretch);
    }
    let (low, high) = (f64::from(own) * width, f64::from(own + 1) * width);
    let below = normal::cumulative((low - mean) / deviation);
    let above = normal::cumulative((mean - high) / deviation);
    let inside = 1.0 - below - above;
    let half = probability / 2.0;
    let (raised_below, raised_above) = (below.max(half), above.max(half));
    // The probability that the raised cells gain is subtracted from all cells above the margin, in proportion.
    let excess = 1.0 - raised_below - raised_above - inside;
    let above_margin = raised_below + inside + raised_above - 3.0 * half;
    let share = |raised: f64| (raised + excess * (raised - half) / above_margin).clamp(1e-10, 0.5 - 1e-10);
    let to_low = -normal::quantile(share(raised_below));
    let to_high = -normal::quantile(share(raised_above));
    let stretch = (high - low) / ((to_low + to_high) * spread);
    ((low * to_high + high * to_low) / (to_low + to_high), stretch)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probabilities(mean: f64, deviation: f64, cells: u32) -> Vec<f64> {
        let wall = |index: u32| match index {
            0 => f64::NEG_INFINITY,
            _ if index == cells => f64::INFINITY,
            _ => f64::from(index) / f64::from(cells),
        };
        let share = |index| normal::between((wall(index) - mean) / deviation, (wall(index + 1) - mean) / deviation);
        (0..cells).map(share).collect()
    }

    #[test]
    fn numbers_fall_into_equal_cells() {
        let cells: Vec<u32> = [-3.0, 0.0, 0.1, 0.26, 0.5, 0.51, 0.99, 1.0, 7.0].map(|value| cell(value, 4)).into();
        assert_eq!(cells, [0, 0, 0, 1, 1, 2, 3, 3, 3]);
        assert!((0..5).all(|index| cell(middle(index, 5), 5) == index));
    }

    #[test]
    fn neighbours_keep_their_probability_however_narrow_the_distribution() {
        for spread in [1e-9, 1e-3, 0.05] {
            for mean in [0.01, 0.2, 0.5, 0.51, 0.97, 1.6] {
                for cells in [2, 5, 9] {
                    let (moved, stretch) = correct(mean, spread, 1.0, cells, 0.02);
                    let shares = probabilities(moved, spread * stretch, cells);
                    let own = cell(moved, cells) as usize;
                    let neighbours = [own.checked_sub(1), Some(own + 1).filter(|cell| *cell < cells as usize)];
                    for neighbour in neighbours.into_iter().flatten() {
                        let case = format!("{spread} {mean} {cells}: {shares:?}");
                        assert!(shares[neighbour] + shares[own] < 1.0 + 1e-9, "{case}");
                        let outside: f64 = 1.0 - shares[own];
                        assert!(outside >= 0.0199, "{case}");
                    }
                }
            }
        }
    }

    #[test]
    fn distribution_that_is_wide_enough_is_left_alone() {
        let (mean, stretch) = correct(0.52, 0.1, 1.5, 5, 0.02);
        assert!((mean - 0.52).abs() < 1e-9 && (stretch - 1.5).abs() < 1e-9, "{mean} {stretch}");
    }
}
