//! Problems whose losses have noise; the search adds the noise itself. No setting of an oracle was chosen with
//! these problems. benchmarks/bench_hpo_kinds.py has the same problems for Optuna.

use super::discrete::{choices, table};
use super::{Ask, choice, float, int, log_float, vector};
use ferrotune_space::Scale;
use std::f64::consts::PI;

/// A problem of a narrow, rotated bowl with small waves.
pub(super) fn bowl4n(ask: &mut Ask<'_>) -> f64 {
    let x = vector(ask, &[(-3.0, 3.0); 4]);
    let y: Vec<f64> = x.iter().zip([0.7, -1.1, 0.4, 1.6]).map(|(v, place)| v - place).collect();
    let own: f64 = y.iter().zip([1.0, 0.4, 2.0, 0.2]).map(|(v, weight)| weight * v * v).sum();
    let waves: f64 = y.iter().map(|v| 1.0 - (PI * v).cos()).sum();
    own + 0.5 * (y[0] - y[1]).powi(2) + 0.3 * (y[2] + y[3]).powi(2) + 0.1 * waves
}

/// A problem of a network's validation error: few parameters matter much.
pub(super) fn recipe5n(ask: &mut Ask<'_>) -> f64 {
    let lr = log_float(ask, "lr", 1e-5, 1e-1);
    let units = int(ask, "units", 8, 512, Scale::Log).log2();
    let layers = int(ask, "layers", 1, 4, Scale::Linear);
    let dropout = float(ask, "dropout", 0.0, 0.6);
    let offset = match choice(ask, "act", &["relu", "tanh", "silu"]).as_str() {
        "relu" => 0.01,
        "tanh" => 0.05,
        _ => 0.0,
    };
    let rate = 0.06 * (lr + 2.7 + 0.15 * (units - 6.0)).powi(2);
    0.08 + offset
        + rate
        + 0.006 * (units - 7.3).powi(2)
        + 0.012 * (layers - 2.0).powi(2)
        + 0.3 * (dropout - 0.25).powi(2)
}

/// A problem of three dials with few positions, whose neighbours differ by less than the noise.
pub(super) fn dials3n(ask: &mut Ask<'_>) -> f64 {
    let mut off = |name: &str, place: f64| int(ask, name, 0, 7, Scale::Linear) - place;
    let (a, b, c) = (off("a", 5.0), off("b", 2.0), off("c", 4.0));
    0.05 * a * a + 0.04 * b * b + 0.03 * c * c + 0.02 * a * b
}

/// A problem of four choices: a term for each choice and one for each pair of neighbours, which look random.
pub(super) fn teams4n(ask: &mut Ask<'_>) -> f64 {
    let picked = choices(ask, &[4, 3, 3, 4]);
    let own: f64 = (0..4).map(|i| table(21, i, picked[i], 0)).sum();
    let pairs: f64 = (0..3).map(|i| table(22, i, picked[i], picked[i + 1])).sum();
    own / 4.0 + pairs / 6.0
}
