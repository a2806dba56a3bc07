//! Problems with two losses, each with the reference point of its hypervolume. benchmarks/bench_hpo.py has the same problems.

use super::{Ask, choice, float, int, vector};
use ferrotune_space::Scale;

/// A problem: its name, the function that asks for values and returns both losses, and the reference point of its hypervolume.
pub(crate) type Front = (&'static str, fn(&mut Ask<'_>) -> [f64; 2], [f64; 2]);

pub(crate) const FRONTS: [Front; 4] = [
    ("zdt1", zdt1, [1.1, 6.0]),
    ("size", size, [1.0, 1.0]),
    ("dtlz2", dtlz2, [2.0, 2.0]),
    ("schaffer", schaffer, [20.0, 20.0]),
];

/// The problem of Zitzler et al. (2000), in six dimensions.
fn zdt1(ask: &mut Ask<'_>) -> [f64; 2] {
    let x = vector(ask, &[(0.0, 1.0); 6]);
    let g = 1.0 + 9.0 * x[1..].iter().sum::<f64>() / 5.0;
    [x[0], g * (1.0 - (x[0] / g).sqrt())]
}

/// A problem with the error and the size of a model, which has a kind, layers and units.
fn size(ask: &mut Ask<'_>) -> [f64; 2] {
    let kind = choice(ask, "kind", &["dense", "sparse", "shared"]);
    let (layers, units) = (int(ask, "layers", 1, 8, Scale::Linear), int(ask, "units", 4, 512, Scale::Log).log2());
    let (rate, dropout) = (float(ask, "rate", -5.0, -1.0), float(ask, "dropout", 0.0, 0.8));
    let (cost, gain) = match kind.as_str() {
        "dense" => (1.0, 1.0),
        "sparse" => (0.6, 0.85),
        _ => (0.3, 0.6),
    };
    let capacity = gain * (0.5 * layers.ln() + 0.35 * units);
    let error = 0.05 + (-0.8 * capacity).exp() + 0.08 * (rate + 3.0).powi(2) + 0.5 * (dropout - 0.2).powi(2);
    [error.min(1.0), (cost * (layers * units.exp2()).ln() / 8.5).min(1.0)]
}

/// The problem of Deb et al. (2002), with two losses in five dimensions.
fn dtlz2(ask: &mut Ask<'_>) -> [f64; 2] {
    let x = vector(ask, &[(0.0, 1.0); 5]);
    let (radius, angle) =
        (1.0 + x[1..].iter().map(|v| (v - 0.5).powi(2)).sum::<f64>(), x[0] * std::f64::consts::FRAC_PI_2);
    [radius * angle.cos(), radius * angle.sin()]
}

/// A problem with the distances from two places, in four dimensions (after Schaffer 1985).
fn schaffer(ask: &mut Ask<'_>) -> [f64; 2] {
    let x = vector(ask, &[(-4.0, 6.0); 4]);
    let from = |place: f64| x.iter().map(|v| (v - place).powi(2)).sum::<f64>() / 2.0;
    [from(0.0), from(2.0)]
}
