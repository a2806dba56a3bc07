//! Tests of ranges: the errors for invalid ranges, and the forms that people and Optuna read.

use expect_test::{Expect, expect};
use ferrotune_space::{Distribution, Scale, Value};

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

#[test]
fn impossible_ranges_are_refused_with_a_cure() {
    let check = |distribution: Distribution, expect: Expect| {
        expect.assert_eq(&distribution.validate("units").expect_err("a bad range").to_string());
    };
    check(int(5, 4, 1), expect!["parameter units has the empty range 5..=4; put the smaller bound first"]);
    check(int(1, 4, 0), expect!["parameter units has step 0; give a step of at least 1"]);
    check(log_int(0, 4), expect!["parameter units is logarithmic but starts at 0; start at 1 or drop .log()"]);
    check(
        Distribution::Int { low: 1, high: 9, step: 2, scale: Scale::Log },
        expect!["parameter units is logarithmic and has step 2; drop the step or .log()"],
    );
    check(float(1.0, 0.5, None), expect!["parameter units has the empty range 1..=0.5; put the smaller bound first"]);
    check(float(0.0, f64::INFINITY, None), expect!["parameter units has the bound or choice inf; give finite numbers"]);
    check(float(f64::NAN, 1.0, None), expect!["parameter units has the bound or choice NaN; give finite numbers"]);
    check(float(0.0, 1.0, Some(0.0)), expect!["parameter units has step 0; give a step of more than 0"]);
    check(float(0.0, 1.0, Some(f64::NAN)), expect!["parameter units has step NaN; give a step of more than 0"]);
    check(log_float(0.0, 1.0), expect!["parameter units is logarithmic but starts at 0; start above 0 or drop .log()"]);
    check(
        Distribution::Float { low: 0.1, high: 1.0, step: Some(0.1), scale: Scale::Log },
        expect!["parameter units is logarithmic and has step 0.1; drop the step or .log()"],
    );
    check(
        reverse_log_float(0.0, 1.0),
        expect!["parameter units is logarithmic but starts at 0; start above 0 or drop .reverse_log()"],
    );
    check(
        Distribution::Int { low: 1, high: 9, step: 2, scale: Scale::ReverseLog },
        expect!["parameter units is logarithmic and has step 2; drop the step or .reverse_log()"],
    );
    check(
        Distribution::Choice { values: vec![Value::Int(1), Value::Int(2), Value::Int(1)], is_ordered: false },
        expect!["parameter units has the choice 1 twice; list each value once"],
    );
    check(choice(&[]), expect!["parameter units has no choices; list at least one value"]);
    check(
        Distribution::Choice { values: vec![Value::Int(1), Value::Float(2.5)], is_ordered: false },
        expect!["parameter units has choices of different types (int and float); give all of one type"],
    );
    check(
        Distribution::Choice { values: vec![Value::Float(f64::NAN)], is_ordered: false },
        expect!["parameter units has the bound or choice NaN; give finite numbers"],
    );
}

#[test]
fn a_reversed_logarithm_is_the_one_of_keras_tuner() {
    let (low, high) = (1e-4_f64, 0.9);
    for probability in [0.0, 0.1, 0.5, 0.73, 1.0] {
        // `cumulative_prob_to_value` of its Float.
        let expected = high + low - low * (high / low).powf(1.0 - probability);
        let Value::Float(found) = reverse_log_float(low, high).from_unit(probability) else { panic!("no float") };
        assert!((found - expected).abs() < 1e-12, "{probability}: {found} for {expected}");
    }
    let values: Vec<Value> = [0.2, 0.3, 0.8].map(|unit| reverse_log_int(1, 4).from_unit(unit)).to_vec();
    assert_eq!(values, [2, 3, 4].map(Value::Int));
}

#[test]
fn an_ordered_choice_has_an_order_and_no_other_choice_has() {
    assert!(ordered(&[1, 2]).has_order() && int(1, 2, 1).has_order() && float(0.0, 1.0, None).has_order());
    assert!(!choice(&["a", "b"]).has_order() && !booleans().has_order());
}

#[test]
fn ranges_of_studies_from_before_there_were_three_scales_are_read() {
    let check = |text: &str, range: Distribution| {
        assert_eq!(serde_json::from_str::<Distribution>(text).expect("a range"), range);
        assert_eq!(serde_json::to_string(&range).expect("JSON"), text);
    };
    check(r#"{"kind":"int","low":5,"high":20,"step":4,"log":false}"#, int(5, 20, 4));
    check(r#"{"kind":"float","low":0.5,"high":2.0,"step":null,"log":true}"#, log_float(0.5, 2.0));
    check(r#"{"kind":"choice","values":["a"]}"#, choice(&["a"]));
    check(r#"{"kind":"float","low":0.5,"high":2.0,"step":null,"log":"reverse"}"#, reverse_log_float(0.5, 2.0));
    check(r#"{"kind":"choice","values":[8,64],"is_ordered":true}"#, ordered(&[8, 64]));
}

#[test]
fn values_outside_are_not_contained_and_are_clamped() {
    let check = |distribution: Distribution, value: Value, nearest: Option<Value>| {
        assert!(!distribution.contains(&value), "{value:?} of {distribution:?}");
        assert_eq!(distribution.clamp_to_lattice(&value), nearest);
    };
    check(int(5, 20, 4), Value::Int(20), Some(Value::Int(17)));
    check(int(5, 20, 4), Value::Int(-1), Some(Value::Int(5)));
    check(int(5, 20, 4), Value::Int(8), Some(Value::Int(9)));
    check(int(5, 20, 4), Value::Int(i64::MAX), Some(Value::Int(17)));
    check(int(5, 20, 4), Value::Float(9.0), None);
    check(float(0.0, 1.0, Some(0.1)), Value::Float(0.27), Some(Value::Float(0.3)));
    check(float(0.0, 1.0, Some(0.4)), Value::Float(1.0), Some(Value::Float(0.8)));
    check(float(0.0, 1.0, None), Value::Float(1.5), Some(Value::Float(1.0)));
    check(float(0.0, 1.0, None), Value::Float(f64::NAN), None);
    check(choice(&["a"]), Value::Text("b".to_owned()), None);
    check(booleans(), Value::Int(0), None);
}

#[test]
fn optuna_reads_what_is_written_and_the_other_way_round() {
    let check = |distribution: Distribution, expect: Expect| {
        let text = distribution.to_optuna();
        expect.assert_eq(&text);
        assert_eq!(Distribution::from_optuna(&text), Ok(distribution));
    };
    check(
        int(1, 10, 1),
        expect![[r#"{"name":"IntDistribution","attributes":{"log":false,"step":1,"low":1,"high":10}}"#]],
    );
    check(
        log_float(1e-4, 0.1),
        expect![[r#"{"name":"FloatDistribution","attributes":{"step":null,"low":0.0001,"high":0.1,"log":true}}"#]],
    );
    check(choice(&["x", "y"]), expect![[r#"{"name":"CategoricalDistribution","attributes":{"choices":["x","y"]}}"#]]);
    check(booleans(), expect![[r#"{"name":"CategoricalDistribution","attributes":{"choices":[false,true]}}"#]]);
    // Python writes JSON with these spaces.
    let python =
        r#"{"name": "FloatDistribution", "attributes": {"step": 0.25, "low": 0.0, "high": 1.0, "log": false}}"#;
    assert_eq!(Distribution::from_optuna(python), Ok(float(0.0, 1.0, Some(0.25))));
}

#[test]
fn the_upper_bound_given_to_optuna_is_on_the_lattice() {
    assert!(int(5, 20, 4).to_optuna().contains(r#""high":17"#));
    assert!(float(0.0, 1.0, Some(0.3)).to_optuna().contains(r#""high":0.9,"#));
}

#[test]
fn what_optuna_has_no_words_for_is_plain_to_it() {
    let check = |distribution: Distribution, expect: Expect| expect.assert_eq(&distribution.to_optuna());
    check(
        reverse_log_float(0.5, 2.0),
        expect![[r#"{"name":"FloatDistribution","attributes":{"step":null,"low":0.5,"high":2.0,"log":false}}"#]],
    );
    check(ordered(&[8, 64]), expect![[r#"{"name":"CategoricalDistribution","attributes":{"choices":[8,64]}}"#]]);
}

#[test]
fn foreign_distributions_are_refused() {
    for text in [
        r#"{"name": "UniformDistribution", "attributes": {"low": 0.0, "high": 1.0}}"#,
        r#"{"name": "CategoricalDistribution", "attributes": {"choices": [null]}}"#,
        "{",
    ] {
        let error = Distribution::from_optuna(text).expect_err("foreign").to_string();
        assert!(error.starts_with(&format!("`{text}` is not a distribution that can be searched")), "{error}");
    }
}

#[test]
fn internal_numbers_give_the_value_back() {
    for distribution in
        [int(5, 20, 4), float(0.0, 1.0, Some(0.1)), log_float(1e-4, 0.1), choice(&["a", "b"]), booleans()]
    {
        for step in 0..=100 {
            let value = distribution.from_unit(f64::from(step) / 100.0);
            let internal = distribution.to_internal(&value).expect("a value of the range");
            assert_eq!(distribution.from_internal(internal), Some(value));
        }
    }
    assert_eq!(booleans().from_internal(2.0), None);
    assert_eq!(booleans().from_internal(-1.0), None);
    assert_eq!(booleans().to_internal(&Value::Int(1)), None);
}

#[test]
fn floats_are_shown_with_four_digits_and_keep_sign_and_exponent() {
    let shown = |value: f64| Value::Float(value).to_string();
    let table = [
        (0.1, "0.1"),
        (1.0, "1"),
        (-0.0, "-0"),
        (0.001_234_567, "0.001235"),
        (0.000_1, "0.0001"),
        (-0.000_012_345_6, "-1.235e-5"),
        (1234.567, "1235"),
        (9999.7, "1e4"),
        (-5000.0, "-5000"),
        (123_456.7, "1.235e5"),
        (1e300, "1e300"),
        (5e-324, "4.941e-324"),
        (f64::NAN, "NaN"),
        (f64::NEG_INFINITY, "-inf"),
    ];
    for (value, text) in table {
        assert_eq!(shown(value), text);
    }
    assert_eq!(format!("{:>6}|{}", Value::Int(-3), Value::Bool(true)), "    -3|true");
}

#[test]
fn sums_of_decimals_are_the_points_that_they_are_meant_to_be() {
    let sum = 0.1 + 0.1 + 0.1;
    for (range, value, point) in [
        (float(0.1, 0.5, Some(0.1)), sum, 0.3),
        // A sum above the upper end by its last bit, and a value below the lower end.
        (float(0.1, 0.3, Some(0.1)), sum, 0.3),
        (float(0.3, 0.9, Some(0.1)), 0.3 - 1e-17, 0.3),
        (float(-0.5, 0.5, Some(0.1)), -0.1 - 0.2, -0.3),
        (float(-0.6, 0.6, Some(0.2)), -0.6 + 0.2 + 0.2 + 0.2, 0.0),
        // Ranges of earlier versions' studies whose objectives read single precision.
        (float(f64::from(0.1_f32), 0.5, Some(f64::from(0.1_f32))), 0.3, f64::from(0.1_f32) * 3.0),
        (float(0.1, 0.5, Some(0.1)), 0.300_000_004_470_348_36, 0.3),
        // Optuna's result for low + step * 2.
        (float(0.1, 0.5, Some(0.1)), 0.1 + 0.1 * 2.0, 0.3),
    ] {
        assert!(range.contains(&Value::Float(value)), "{value} of {range:?}");
        let Some(Value::Float(nearest)) = range.clamp_to_lattice(&Value::Float(value)) else { panic!("{range:?}") };
        assert!(
            (nearest - point).abs() < 1e-15 && nearest.is_sign_negative() == (point < 0.0),
            "{nearest} of {range:?}"
        );
    }
    for (range, value) in [
        (float(0.1, 0.5, Some(0.1)), 0.31),
        (float(0.1, 0.5, Some(0.1)), 0.6),
        (float(0.1, 0.5, Some(0.1)), 0.0),
        (float(0.1, 0.5, None), 0.5 + 1e-12),
    ] {
        assert!(!range.contains(&Value::Float(value)), "{value} of {range:?}");
    }
}

#[test]
fn no_point_of_a_lattice_around_zero_is_minus_zero() {
    for (low, step) in [(-0.6, 0.2), (-0.9, 0.3), (-0.33, 0.03)] {
        for value in float(low, -low, Some(step)).levels(100).expect("a lattice") {
            let Value::Float(value) = float(low, -low, Some(step)).from_unit(value) else { panic!("no float") };
            assert!(value != 0.0 || value.is_sign_positive(), "{value} of {low} and {step}");
        }
    }
}
