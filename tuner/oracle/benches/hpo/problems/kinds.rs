//! Problems of choices that interact, of whole numbers under limits, and of choices in which a wrong value looks best at first. No
//! setting of an oracle was chosen with these problems. benchmarks/bench_hpo_kinds.py has the same problems for Optuna.

use super::discrete::{choices, table};
use super::{Ask, choice, float, int, log_float};
use ferrotune_space::Scale;

/// A problem of choices in a ring: a term for each choice with its neighbour, and one for each with both neighbours.
pub(super) fn ring5(ask: &mut Ask<'_>) -> f64 {
    let picked = choices(ask, &[5; 5]);
    let (next, after) = (|i: usize| picked[(i + 1) % 5], |i: usize| picked[(i + 2) % 5]);
    let pairs: f64 = (0..5).map(|i| table(11, i, picked[i], next(i))).sum();
    let triples: f64 = (0..5).map(|i| table(12, i, picked[i], 5 * next(i) + after(i))).sum();
    pairs / 5.0 + triples / 10.0
}

/// A problem in which the first choice decides the value of the others.
pub(super) fn leader5(ask: &mut Ask<'_>) -> f64 {
    let picked = choices(ask, &[4, 6, 6, 6, 6]);
    let parts: f64 = (1..5).map(|i| table(13, i, picked[0], picked[i])).sum();
    0.3 * table(14, 0, picked[0], 0) + parts / 4.0
}

/// A problem of many small choices: a term for each choice, and one for each with the choice three places later.
pub(super) fn small9(ask: &mut Ask<'_>) -> f64 {
    let picked = choices(ask, &[3, 2, 4, 3, 2, 3, 4, 2, 3]);
    let own: f64 = (0..9).map(|i| table(15, i, picked[i], 0)).sum();
    let pairs: f64 = (0..9).map(|i| table(16, i, picked[i], picked[(i + 3) % 9])).sum();
    own / 18.0 + pairs / 9.0
}

/// The loss of packed items: the value that is missing, or the excess over the limits. `room` has a limit for each row of `needs`.
fn packed(counts: &[f64], values: &[f64], needs: &[&[f64]], room: &[f64], most: f64) -> f64 {
    let total = |each: &[f64]| -> f64 { counts.iter().zip(each).map(|(count, each)| count * each).sum() };
    let excess: f64 = needs.iter().zip(room).map(|(each, room)| (total(each) / room - 1.0).max(0.0)).sum();
    if excess > 0.0 { 1.0 + excess } else { 1.0 - total(values) / most }
}

/// A packing problem of few kinds of items with many of each.
pub(super) fn crates5(ask: &mut Ask<'_>) -> f64 {
    let counts: Vec<f64> = (1..=5).map(|item| int(ask, &format!("n{item}"), 0, 20, Scale::Linear)).collect();
    packed(&counts, &[7.0, 12.0, 4.0, 19.0, 9.0], &[&[3.0, 5.0, 2.0, 9.0, 4.0]], &[130.0], 310.0)
}

/// A packing problem of many kinds of items with few of each, and two limits.
pub(super) fn luggage10(ask: &mut Ask<'_>) -> f64 {
    let counts: Vec<f64> = (1..=10).map(|item| int(ask, &format!("n{item}"), 0, 3, Scale::Linear)).collect();
    let values = [6.0, 10.0, 3.0, 8.0, 14.0, 5.0, 7.0, 12.0, 4.0, 9.0];
    let weights = [2.0, 5.0, 1.0, 4.0, 9.0, 3.0, 2.0, 6.0, 3.0, 4.0];
    let sizes = [3.0, 2.0, 2.0, 5.0, 4.0, 1.0, 6.0, 3.0, 1.0, 4.0];
    packed(&counts, &values, &[&weights, &sizes], &[40.0, 36.0], 92.0)
}

/// A problem of an order of parts, with a price for each part that the machine does not need.
pub(super) fn order7(ask: &mut Ask<'_>) -> f64 {
    const WANTED: [f64; 7] = [9.0, 2.0, 6.0, 11.0, 1.0, 8.0, 4.0];
    let counts: Vec<f64> = (1..=7).map(|part| int(ask, &format!("n{part}"), 0, 12, Scale::Linear)).collect();
    let missing: f64 = counts.iter().zip(WANTED).map(|(count, wanted)| (wanted - count).max(0.0)).sum();
    let spare: f64 = counts.iter().zip(WANTED).map(|(count, wanted)| (count - wanted).max(0.0)).sum();
    let coupled: f64 = counts.windows(2).map(|pair| (pair[0] - pair[1]).abs()).sum();
    0.1 * missing + 0.04 * spare + 0.005 * coupled
}

/// A problem in which a wrong kind has its wide valley near the middle; the right kind has a deeper valley elsewhere.
pub(super) fn lure3(ask: &mut Ask<'_>) -> f64 {
    let kind = choice(ask, "kind", &["near", "far", "flat"]);
    let x: Vec<f64> = (1..=3).map(|i| float(ask, &format!("x{i}"), -1.0, 1.0)).collect();
    let from = |place: [f64; 3]| -> f64 { x.iter().zip(place).map(|(v, p)| (v - p).powi(2)).sum() };
    match kind.as_str() {
        "near" => 0.6 + 0.5 * from([0.1, -0.1, 0.2]),
        "far" => 1.5 * from([0.6, -0.5, -0.6]),
        _ => 1.1 + 0.1 * from([0.0, 0.5, 0.5]),
    }
}

/// A problem of six kinds with small differences, and of floats and whole numbers with large differences.
pub(super) fn lure6(ask: &mut Ask<'_>) -> f64 {
    let kind = choice(ask, "kind", &["a", "b", "c", "d", "e", "f"]);
    let offset = match kind.as_str() {
        "a" => 0.9,
        "b" => 1.6,
        "c" => 0.6,
        "d" => 2.2,
        "e" => 0.0,
        _ => 1.2,
    };
    let (rate, x) = (log_float(ask, "rate", 1e-6, 1.0), float(ask, "x", 0.0, 10.0));
    let (n, m) = (int(ask, "n", 1, 16, Scale::Linear), int(ask, "m", 0, 8, Scale::Linear));
    offset + 0.3 * (rate + 4.4).powi(2) + 0.1 * (x - 7.5).powi(2) + 0.04 * (n - 12.0).powi(2) + 0.1 * (m - 2.0).powi(2)
}

/// A problem of two choices that must fit each other; each alone looks best with a wrong partner.
pub(super) fn couple4(ask: &mut Ask<'_>) -> f64 {
    const OFFSETS: [[f64; 4]; 4] =
        [[0.7, 0.9, 1.0, 1.8], [0.8, 1.2, 1.4, 1.1], [1.5, 1.3, 0.0, 1.6], [1.1, 0.9, 1.7, 1.3]];
    let names = ["a", "b", "c", "d"];
    let mut place = |name: &str| {
        let picked = choice(ask, name, &names);
        names.iter().position(|known| *known == picked).unwrap_or(0)
    };
    let offset = OFFSETS[place("row")][place("column")];
    let (x, y) = (float(ask, "x", -4.0, 4.0), float(ask, "y", -4.0, 4.0));
    offset + 0.2 * (x - 2.0).powi(2) + 0.2 * (y + 1.0 + 0.5 * (x - 2.0)).powi(2)
}
