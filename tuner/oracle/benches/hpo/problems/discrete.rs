//! Problems of choices, whole numbers and conditions. benchmarks/bench_hpo.py has the same problems for Optuna.

use super::{Ask, choice, float, int, log_float};
use ferrotune_space::{Distribution, Scale, Value};

/// A number of the unit interval that depends on four others and looks random.
pub(super) fn table(salt: u64, position: usize, a: i64, b: i64) -> f64 {
    let key = salt * 1009 + position as u64 * 131 + a as u64 * 31 + b as u64 * 17 + 7;
    let mixed = (key * 2_654_435_761) % 4_294_967_296;
    ((mixed ^ (mixed >> 15)) * 2_246_822_519 % 4_294_967_296) as f64 / 4_294_967_296.0
}

/// Values of unordered choices between whole numbers.
pub(super) fn choices(ask: &mut Ask<'_>, counts: &[i64]) -> Vec<i64> {
    let pick = |(index, count): (usize, &i64)| {
        let values = (0..*count).map(Value::Int).collect();
        match ask(&format!("c{}", index + 1), Distribution::Choice { values, is_ordered: false }) {
            Value::Int(value) => value,
            _ => -1,
        }
    };
    counts.iter().enumerate().map(pick).collect()
}

/// A problem in which every choice has its own term, and every pair of neighbouring choices has one.
pub(super) fn choices6(ask: &mut Ask<'_>) -> f64 {
    let picked = choices(ask, &[6; 6]);
    let own: f64 = (0..6).map(|i| table(1, i, picked[i], 0)).sum();
    let pairs: f64 = (0..5).map(|i| table(2, i, picked[i], picked[i + 1])).sum();
    own / 6.0 + pairs / 5.0
}

/// A problem of choices of different sizes, with a term for each pair of them.
pub(super) fn pairs5(ask: &mut Ask<'_>) -> f64 {
    let picked = choices(ask, &[4, 7, 3, 5, 8]);
    let pairs = (0..5).flat_map(|i| (0..i).map(move |j| (i, j)));
    pairs.map(|(i, j)| table(5, 5 * i + j, picked[i], picked[j])).sum::<f64>() / 10.0
}

/// The distance of a load's value from `most`, as a share; a load heavier than `room` has a penalty.
fn load(counts: &[f64], values: &[f64], weights: &[f64], room: f64, most: f64) -> f64 {
    let total = |each: &[f64]| -> f64 { counts.iter().zip(each).map(|(count, each)| count * each).sum() };
    let excess = (total(weights) - room).max(0.0);
    if excess > 0.0 { 1.0 + excess / room } else { 1.0 - total(values) / most }
}

pub(super) fn knapsack(ask: &mut Ask<'_>) -> f64 {
    let counts: Vec<f64> = (1..=8).map(|item| int(ask, &format!("n{item}"), 0, 5, Scale::Linear)).collect();
    let values = [9.0, 14.0, 5.0, 22.0, 11.0, 3.0, 17.0, 8.0];
    let weights = [4.0, 7.0, 3.0, 12.0, 5.0, 2.0, 10.0, 3.0];
    load(&counts, &values, &weights, 60.0, 140.0)
}

/// A problem of loading a lorry with boxes of three sizes, in steps of two, and of driving it.
pub(super) fn lorry(ask: &mut Ask<'_>) -> f64 {
    let mut boxes =
        |name: &str, high| match ask(name, Distribution::Int { low: 0, high, step: 2, scale: Scale::Linear }) {
            Value::Int(value) => value as f64,
            _ => f64::NAN,
        };
    let counts = [boxes("small", 30), boxes("middle", 20), boxes("large", 12), boxes("flat", 24)];
    let speed = int(ask, "speed", 40, 100, Scale::Linear);
    let loss = load(&counts, &[2.0, 5.0, 9.0, 3.0], &[1.0, 2.0, 4.0, 1.5], 60.0, 144.0);
    loss + ((speed - 72.0) / 40.0).powi(2)
}

/// A problem in which a category's offset is small compared with the effect of its numbers, so a wrong category looks good early.
pub(super) fn quadratic(ask: &mut Ask<'_>) -> f64 {
    let kind = choice(ask, "kind", &["a", "b", "c", "d", "e"]);
    let (x, y) = (float(ask, "x", -5.0, 5.0), float(ask, "y", -5.0, 5.0));
    let n = int(ask, "n", 0, 10, Scale::Linear);
    let offset = match kind.as_str() {
        "a" => 2.0,
        "b" => 0.8,
        "c" => 0.0,
        "d" => 1.4,
        _ => 3.0,
    };
    0.25 * (x - 1.5).powi(2) + 0.25 * (y + 2.0).powi(2) + 0.1 * (n - 6.0).powi(2) + offset
}

/// A problem of a network: layers have their own units, and every optimiser has other parameters.
pub(super) fn network(ask: &mut Ask<'_>) -> f64 {
    let layers = int(ask, "layers", 1, 4, Scale::Linear);
    let mut loss = 0.04 * (layers - 2.0).powi(2);
    for layer in 1..=layers as i64 {
        let units = int(ask, &format!("units{layer}"), 8, 512, Scale::Log).log2();
        loss += 0.012 * (units - 8.0 + layer as f64).powi(2);
    }
    let dropout = float(ask, "dropout", 0.0, 0.6);
    loss += 0.4 * (dropout - 0.05 - 0.05 * layers).powi(2);
    match choice(ask, "optimizer", &["sgd", "adam", "rmsprop"]).as_str() {
        "sgd" => {
            let (lr, momentum) = (log_float(ask, "sgd_lr", 1e-4, 1.0), float(ask, "momentum", 0.0, 0.99));
            loss + 0.02 + 0.05 * (lr + 1.3 + momentum).powi(2) + 0.1 * (momentum - 0.8).powi(2)
        }
        "adam" => {
            let (lr, gap) = (log_float(ask, "adam_lr", 1e-5, 1e-1), log_float(ask, "beta2_gap", 1e-4, 1e-1));
            loss + 0.06 * (lr + 2.8).powi(2) + 0.01 * (gap + 2.6).powi(2)
        }
        _ => {
            let (lr, rho) = (log_float(ask, "rms_lr", 1e-5, 1e-1), float(ask, "rho", 0.5, 0.99));
            loss + 0.03 + 0.06 * (lr + 3.3).powi(2) + 0.2 * (rho - 0.9).powi(2)
        }
    }
}

/// A problem of a pipeline: steps before a classifier, and four kinds of classifier.
pub(super) fn pipeline(ask: &mut Ask<'_>) -> f64 {
    let scaler = choice(ask, "scaler", &["none", "standard", "rank"]);
    let raw = if scaler == "none" { 0.12 } else { 0.0 };
    let kept = match choice(ask, "reducer", &["none", "pca", "select"]).as_str() {
        "pca" => 0.02 + 0.3 * (float(ask, "kept_variance", 0.5, 0.999) - 0.93).powi(2),
        "select" => 0.004 * (int(ask, "features", 2, 60, Scale::Log).log2() - 4.3).powi(2),
        _ => 0.05,
    };
    kept + match choice(ask, "classifier", &["knn", "logistic", "boosting", "mlp"]).as_str() {
        "knn" => {
            let neighbours = int(ask, "neighbours", 1, 100, Scale::Log).log2();
            0.16 + raw
                + 0.01 * (neighbours - 3.0).powi(2)
                + if choice(ask, "weights", &["uniform", "distance"]) == "uniform" { 0.02 } else { 0.0 }
        }
        "logistic" => 0.12 + 0.5 * raw + 0.02 * (log_float(ask, "c", 1e-4, 1e3) + 0.4).powi(2),
        "boosting" => {
            let (lr, rounds) =
                (log_float(ask, "shrinkage", 1e-3, 1.0), int(ask, "rounds", 20, 2000, Scale::Log).log10());
            let (depth, share) = (int(ask, "depth", 1, 12, Scale::Linear), float(ask, "share", 0.1, 1.0));
            0.04 + 0.08 * (lr + rounds - 1.2).powi(2)
                + 0.02 * (lr + 1.6).powi(2)
                + 0.003 * (depth - 4.0).powi(2)
                + 0.08 * (share - 0.6).powi(2)
        }
        _ => {
            let (lr, units) = (log_float(ask, "lr", 1e-5, 1e-1), int(ask, "units", 8, 1024, Scale::Log).log2());
            0.05 + raw + 0.05 * (lr + 2.6 + 0.1 * (units - 7.0)).powi(2) + 0.004 * (units - 7.5).powi(2)
        }
    }
}
