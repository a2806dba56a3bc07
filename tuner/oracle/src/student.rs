//! Student's t distribution function. Knows no other distribution.

use std::f64::consts::PI;

/// Probability of a value of at most `t` with this number of degrees of freedom, at least 1. Its absolute error is about 1e-15.
///
/// Abramowitz and Stegun (1964), formulas 26.7.3 and 26.7.4.
pub(crate) fn cumulative(t: f64, freedom: u64) -> f64 {
    let angle = (t / (freedom as f64).sqrt()).atan();
    let (sine, cosine) = angle.sin_cos();
    let is_odd = !freedom.is_multiple_of(2);
    let mut term = if is_odd { cosine } else { 1.0 };
    let mut sum = if freedom == 1 { 0.0 } else { term };
    for power in ((if is_odd { 3 } else { 2 })..freedom.saturating_sub(1)).step_by(2) {
        term *= cosine * cosine * (power - 1) as f64 / power as f64;
        sum += term;
    }
    let between = if is_odd { (angle + sine * sum) * 2.0 / PI } else { sine * sum };
    (0.5 + 0.5 * between).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Golden numbers from `tests/golden/forecast.py`.
    #[test]
    fn probabilities_are_those_of_scipy() {
        let golden = [
            (-6.314, 1, 0.049_998_064_473_678_65),
            (1.0, 2, 0.788_675_134_594_812_9),
            (-1.5, 3, 0.115_291_932_622_411_47),
            (0.0, 4, 0.5),
            (2.5, 5, 0.972_754_950_328_811_9),
            (-1.9, 30, 0.033_541_461_999_298_465),
            (-1.7, 101, 0.046_104_282_686_395_21),
            (f64::NEG_INFINITY, 6, 0.0),
        ];
        for (t, freedom, probability) in golden {
            let ours = cumulative(t, freedom);
            assert!((ours - probability).abs() < 1e-14, "{ours} for {t} and {freedom}");
        }
    }
}
