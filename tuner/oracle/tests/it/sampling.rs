//! Tests of uniform draws: they stay in the range, and every value has the probability of its scale.

use ferrotune_oracle::sampling::sample;
use ferrotune_space::{Distribution, Scale, Value};
use rand::SeedableRng;
use rand_pcg::Pcg64;
use std::collections::BTreeMap;

fn int(low: i64, high: i64, step: i64) -> Distribution {
    Distribution::Int { low, high, step, scale: Scale::Linear }
}

fn log_int(low: i64, high: i64) -> Distribution {
    Distribution::Int { low, high, step: 1, scale: Scale::Log }
}

fn float(low: f64, high: f64, step: Option<f64>) -> Distribution {
    Distribution::Float { low, high, step, scale: Scale::Linear }
}

fn log_float(low: f64, high: f64) -> Distribution {
    Distribution::Float { low, high, step: None, scale: Scale::Log }
}

fn reverse_log_int(low: i64, high: i64) -> Distribution {
    Distribution::Int { low, high, step: 1, scale: Scale::ReverseLog }
}

fn reverse_log_float(low: f64, high: f64) -> Distribution {
    Distribution::Float { low, high, step: None, scale: Scale::ReverseLog }
}

fn ordered(values: &[i64]) -> Distribution {
    Distribution::Choice { values: values.iter().copied().map(Value::Int).collect(), is_ordered: true }
}

fn choice(values: &[&str]) -> Distribution {
    Distribution::Choice {
        values: values.iter().map(|value| Value::Text((*value).to_owned())).collect(),
        is_ordered: false,
    }
}

fn booleans() -> Distribution {
    Distribution::Choice { values: vec![Value::Bool(false), Value::Bool(true)], is_ordered: false }
}

fn valid() -> Vec<Distribution> {
    vec![
        int(0, 10, 1),
        int(32, 512, 32),
        int(5, 20, 4),
        int(-3, -3, 1),
        int(i64::MIN, i64::MAX, 1),
        int(i64::MIN, i64::MAX, i64::MAX),
        log_int(1, 1000),
        log_int(1, 1),
        float(-1.0, 1.0, None),
        float(f64::MIN, f64::MAX, None),
        float(0.0, 1.0, Some(0.1)),
        float(0.1, 1.0, Some(0.25)),
        float(2.5, 2.5, None),
        log_float(1e-4, 1e-1),
        log_float(f64::MIN_POSITIVE, f64::MAX),
        reverse_log_int(1, 1000),
        reverse_log_int(1, i64::MAX),
        reverse_log_float(0.9, 0.999),
        reverse_log_float(f64::MIN_POSITIVE, f64::MAX),
        ordered(&[8, 64, 512]),
        choice(&["relu", "gelu", "tanh"]),
        booleans(),
    ]
}

#[test]
fn every_draw_is_in_the_range_and_on_the_lattice() {
    for distribution in valid() {
        assert_eq!(distribution.validate("x"), Ok(()));
        let mut rng = Pcg64::seed_from_u64(1);
        for _ in 0..1000 {
            let value = sample(&distribution, &mut rng);
            assert!(distribution.contains(&value), "{value:?} of {distribution:?}");
            assert_eq!(distribution.clamp_to_lattice(&value), Some(value));
        }
    }
}

fn counts(distribution: &Distribution, draws: u32) -> BTreeMap<String, u32> {
    let mut rng = Pcg64::seed_from_u64(3);
    let mut counts = BTreeMap::new();
    for _ in 0..draws {
        *counts.entry(sample(distribution, &mut rng).to_string()).or_default() += 1;
    }
    counts
}

#[test]
fn every_point_of_a_lattice_is_as_likely_as_the_others() {
    for (distribution, points) in
        [(int(5, 20, 4), 4), (float(0.0, 1.0, Some(0.1)), 11), (choice(&["a", "b", "c"]), 3), (booleans(), 2)]
    {
        let counts = counts(&distribution, 10_000 * points);
        assert_eq!(counts.len(), points as usize, "{counts:?}");
        assert!(counts.values().all(|count| (9_500..10_500).contains(count)), "{counts:?}");
    }
}

#[test]
fn ends_of_a_logarithmic_int_get_whole_cells() {
    let draws = 100_000;
    let counts = counts(&log_int(1, 4), draws);
    // The cell of k is from k - 0.5 to k + 0.5 on a logarithmic scale from 0.5 to 4.5.
    for k in 1..=4_u32 {
        let share = ((f64::from(k) + 0.5) / (f64::from(k) - 0.5)).ln() / 9.0_f64.ln();
        let found = f64::from(counts[&k.to_string()]) / f64::from(draws);
        assert!((found - share).abs() < 0.01, "{k}: {found} for {share}");
    }
}

#[test]
fn half_of_a_logarithmic_float_is_below_the_geometric_mean() {
    let mut rng = Pcg64::seed_from_u64(3);
    let distribution = log_float(1e-4, 1e-2);
    let below = (0..10_000).filter(|_| matches!(sample(&distribution, &mut rng), Value::Float(value) if value < 1e-3));
    assert!((4_800..5_200).contains(&below.count()));
}
