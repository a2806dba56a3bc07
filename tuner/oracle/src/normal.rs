//! The standard normal distribution: density, distribution function, quantile and draws. Knows no other distribution.

use rand::{Rng, RngExt as _};
use std::f64::consts::{FRAC_1_SQRT_2, PI, TAU};

/// A draw, by the method of Box and Muller (1958).
pub(crate) fn draw<R: Rng + ?Sized>(rng: &mut R) -> f64 {
    let radius = (-2.0 * (1.0 - rng.random::<f64>()).ln()).sqrt();
    radius * (TAU * rng.random::<f64>()).cos()
}

/// Probability density at `x`.
pub(crate) fn density(x: f64) -> f64 {
    (-0.5 * x * x).exp() / (2.0 * PI).sqrt()
}

/// Probability of a value of at most `x`; precise also in the lower tail.
pub(crate) fn cumulative(x: f64) -> f64 {
    0.5 * libm::erfc(-x * FRAC_1_SQRT_2)
}

/// Probability of a value between `low` and `high`, without cancellation in the upper tail.
pub(crate) fn between(low: f64, high: f64) -> f64 {
    if low > 0.0 { cumulative(-low) - cumulative(-high) } else { cumulative(high) - cumulative(low) }
}

/// The quantile of `probability`; infinite at 0 and 1.
///
/// Acklam's rational approximation (2003), precise to nine digits, improved by one step of Halley's method.
pub(crate) fn quantile(probability: f64) -> f64 {
    if probability <= 0.0 {
        return f64::NEG_INFINITY;
    }
    if probability >= 1.0 {
        return f64::INFINITY;
    }
    let x = rough_quantile(probability);
    let step = (cumulative(x) - probability) / density(x);
    if step.is_finite() { x - step / (1.0 + 0.5 * x * step) } else { x }
}

fn rough_quantile(probability: f64) -> f64 {
    const CENTRE: [f64; 6] = [
        -3.969_683_028_665_376e1,
        2.209_460_984_245_205e2,
        -2.759_285_104_469_687e2,
        1.383_577_518_672_69e2,
        -3.066_479_806_614_716e1,
        2.506_628_277_459_239,
    ];
    const CENTRE_BELOW: [f64; 6] = [
        -5.447_609_879_822_406e1,
        1.615_858_368_580_409e2,
        -1.556_989_798_598_866e2,
        6.680_131_188_771_972e1,
        -1.328_068_155_288_572e1,
        1.0,
    ];
    const TAIL: [f64; 6] = [
        -7.784_894_002_430_293e-3,
        -3.223_964_580_411_365e-1,
        -2.400_758_277_161_838,
        -2.549_732_539_343_734,
        4.374_664_141_464_968,
        2.938_163_982_698_783,
    ];
    const TAIL_BELOW: [f64; 5] =
        [7.784_695_709_041_462e-3, 3.224_671_290_700_398e-1, 2.445_134_137_142_996, 3.754_408_661_907_416, 1.0];
    /// The probability at which the tail begins.
    const EDGE: f64 = 0.024_25;
    let polynomial = |coefficients: &[f64], x: f64| coefficients.iter().fold(0.0, |sum, factor| sum * x + factor);
    let nearer = probability.min(1.0 - probability);
    if nearer >= EDGE {
        let offset = probability - 0.5;
        let square = offset * offset;
        return offset * polynomial(&CENTRE, square) / polynomial(&CENTRE_BELOW, square);
    }
    let depth = (-2.0 * nearer.ln()).sqrt();
    let x = polynomial(&TAIL, depth) / polynomial(&TAIL_BELOW, depth);
    if probability < 0.5 { x } else { -x }
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
        assert!(
            (1..100)
                .all(|step| (rough_quantile(f64::from(step) / 100.0) - quantile(f64::from(step) / 100.0)).abs() < 1e-8)
        );
        assert_eq!((quantile(0.0), quantile(1.0)), (f64::NEG_INFINITY, f64::INFINITY));
    }

    #[test]
    fn tails_keep_their_precision() {
        assert!((cumulative(-10.0) / 7.619_853_024_160_526e-24 - 1.0).abs() < 1e-12);
        assert!((between(10.0, 11.0) / between(-11.0, -10.0) - 1.0).abs() < 1e-15);
        assert!((between(-1.0, 1.0) - 0.682_689_492_137_085_9).abs() < 1e-15);
    }
}
