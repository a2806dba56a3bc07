//! Logarithms of the normal distribution's functions for the acquisition function, accurate far into the tail.

use crate::normal::{cumulative, density};
use std::f64::consts::PI;

/// The value below which the series of the tail is more accurate than the difference of two functions.
const TAIL: f64 = -20.0;

/// Logarithm of the probability that a standard normal variable is below `z`, and its derivative.
pub(super) fn log_cumulative(z: f64) -> (f64, f64) {
    if z > 0.0 {
        let below = cumulative(z);
        return (below.ln(), density(z) / below);
    }
    let ratio = mills(z);
    (ratio.ln() + log_density(z), 1.0 / ratio)
}

/// Logarithm of the density at `z`.
fn log_density(z: f64) -> f64 {
    -0.5 * (z * z + (2.0 * PI).ln())
}

/// Logarithm of the expected excess of a standard normal variable over `-z`, `φ(z) + z Φ(z)`, and its derivative: the
/// logarithm of expected improvement without its scale (Ament et al. 2023, arXiv 2310.20708).
pub(super) fn log_excess(z: f64) -> (f64, f64) {
    if z > 0.0 {
        let below = cumulative(z);
        let excess = density(z) + z * below;
        return (excess.ln(), below / excess);
    }
    if z < TAIL {
        let square = z * z;
        let series = 1.0 - 3.0 / square * (1.0 - 5.0 / square * (1.0 - 7.0 / square));
        let rest = series / square;
        return (log_density(z) + rest.ln(), mills(z) / rest);
    }
    let ratio = mills(z);
    let rest = 1.0 + z * ratio;
    (log_density(z) + rest.ln(), ratio / rest)
}

/// The ratio `Φ(z) / φ(z)`.
fn mills(z: f64) -> f64 {
    if z < TAIL {
        let square = z * z;
        return -(1.0 - 1.0 / square * (1.0 - 3.0 / square * (1.0 - 5.0 / square))) / z;
    }
    cumulative(z) / density(z)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_values_of_the_excess() {
        // Golden numbers: trapezoids of width 1e-6 under t * exp(-(t - z)**2 / 2) / sqrt(2 * pi), from 0 to 5, in NumPy.
        let golden = [
            (1.5, 0.424_814_557),
            (0.0, -0.918_938_533),
            (-3.0, -7.869_686_060),
            (-7.9, -36.303_286),
            (-12.0, -77.909_101),
        ];
        for (z, expected) in golden {
            let (value, _) = log_excess(z);
            assert!((value - expected).abs() < 1e-5, "{z}: {value}");
        }
    }

    #[test]
    fn both_branches_meet_and_derivatives_are_slopes() {
        for function in [log_excess as fn(f64) -> (f64, f64), log_cumulative] {
            let (below, above) = (function(TAIL - 1e-9), function(TAIL + 1e-9));
            assert!((below.0 - above.0).abs() < 1e-5 && (below.1 - above.1).abs() < 1e-3, "{below:?} {above:?}");
            for z in [-50.0, -21.0, -7.0, -1.0, 0.5, 2.0, 6.0, 50.0] {
                let slope = (function(z + 1e-5).0 - function(z - 1e-5).0) / 2e-5;
                assert!((slope - function(z).1).abs() < 1e-3 * (1.0 + slope.abs()), "{z}: {slope}");
            }
        }
    }
}
