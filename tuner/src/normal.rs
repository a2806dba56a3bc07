//! The standard normal distribution: density, distribution function and quantile. Knows no other distribution.

use std::f64::consts::{FRAC_1_SQRT_2, PI};

/// Density at `x`.
pub(crate) fn density(x: f64) -> f64 {
    (-0.5 * x * x).exp() / (2.0 * PI).sqrt()
}

/// Probability of a value of at most `x`; precise in the lower tail too.
pub(crate) fn cumulative(x: f64) -> f64 {
    0.5 * libm::erfc(-x * FRAC_1_SQRT_2)
}

/// Probability of a value between `low` and `high`, without cancellation in the upper tail.
pub(crate) fn between(low: f64, high: f64) -> f64 {
    if low > 0.0 { cumulative(-low) - cumulative(-high) } else { cumulative(high) - cumulative(low) }
}

/// The value that is exceeded with probability `1 - probability`; infinite at 0 and 1.
///
/// Abramowitz and Stegun (1964), formula 26.2.23, sharpened by Halley's method to full precision.
pub(crate) fn quantile(probability: f64) -> f64 {
    if probability <= 0.0 {
        return f64::NEG_INFINITY;
    }
    if probability >= 1.0 {
        return f64::INFINITY;
    }
    let tail = (-2.0 * probability.min(1.0 - probability).ln()).sqrt();
    let numerator = 2.515_517 + tail * (0.802_853 + tail * 0.010_328);
    let denominator = 1.0 + tail * (1.432_788 + tail * (0.189_269 + tail * 0.001_308));
    let rough = numerator / denominator - tail;
    let mut x = if probability < 0.5 { rough } else { -rough };
    for _ in 0..3 {
        let step = (cumulative(x) - probability) / density(x);
        if step.is_finite() {
            x -= step / (1.0 + 0.5 * x * step);
        }
    }
    x
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantile_inverts_the_distribution_function() {
        for probability in [1e-12, 1e-6, 0.025, 0.3, 0.5, 0.8, 0.975, 1.0 - 1e-9] {
            let back = cumulative(quantile(probability));
            assert!((back / probability - 1.0).abs() < 1e-12, "{probability}: {back}");
        }
        assert!((quantile(0.975) - 1.959_963_984_540_054).abs() < 1e-14);
        assert_eq!((quantile(0.0), quantile(1.0)), (f64::NEG_INFINITY, f64::INFINITY));
    }

    #[test]
    fn tails_keep_their_precision() {
        assert!((cumulative(-10.0) / 7.619_853_024_160_526e-24 - 1.0).abs() < 1e-12);
        assert!((between(10.0, 11.0) / between(-11.0, -10.0) - 1.0).abs() < 1e-15);
        assert!((between(-1.0, 1.0) - 0.682_689_492_137_085_9).abs() < 1e-15);
    }
}
