//! Tests of the map from ranges to the unit interval.

use ferrotune_space::{Distribution, Scale, Value};

#[test]
fn every_value_stands_at_the_middle_of_a_cell_that_gives_it_back() {
    let ranges = [
        Distribution::Int { low: -3, high: 17, step: 5, scale: Scale::Linear },
        Distribution::Int { low: 1, high: 300, step: 1, scale: Scale::Log },
        Distribution::Int { low: i64::MIN, high: i64::MAX, step: 1, scale: Scale::Linear },
        Distribution::Float { low: 0.1, high: 0.75, step: Some(0.1), scale: Scale::Linear },
        Distribution::Float { low: -f64::MAX, high: f64::MAX, step: None, scale: Scale::Linear },
        Distribution::Float { low: 1e-9, high: 1e9, step: None, scale: Scale::Log },
        Distribution::Int { low: 1, high: 300, step: 1, scale: Scale::ReverseLog },
        Distribution::Float { low: 1e-9, high: 1e9, step: None, scale: Scale::ReverseLog },
        Distribution::Float { low: 2.0, high: 2.0, step: None, scale: Scale::Linear },
        Distribution::Choice {
            values: ["a", "b", "c"].map(|text| Value::Text(text.to_owned())).to_vec(),
            is_ordered: false,
        },
    ];
    for range in ranges {
        for step in -1..=101 {
            let value = range.from_unit(f64::from(step) / 100.0);
            assert!(range.contains(&value), "{range:?} {value:?}");
            let unit = range.to_unit(&value).expect("a value of the range");
            assert!((0.0..=1.0).contains(&unit), "{range:?} {value:?} {unit}");
            let back = range.from_unit(unit);
            let is_near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1.0);
            match (&back, &value) {
                (Value::Float(back), Value::Float(value)) => assert!(is_near(*back, *value), "{range:?}"),
                (Value::Int(back), Value::Int(value)) => assert!(is_near(*back as f64, *value as f64), "{range:?}"),
                _ => assert_eq!(back, value),
            }
        }
    }
}

#[test]
fn values_of_another_type_have_no_coordinate() {
    let range = Distribution::Int { low: 1, high: 4, step: 1, scale: Scale::Linear };
    assert_eq!(range.to_unit(&Value::Float(2.0)), None);
    assert_eq!(range.to_unit(&Value::Int(9)), range.to_unit(&Value::Int(4)));
    assert_eq!(Distribution::Choice { values: vec![Value::Int(1)], is_ordered: false }.to_unit(&Value::Int(2)), None);
}

#[test]
fn levels_are_all_values_of_a_small_lattice_and_none_of_a_large_one() {
    let range = Distribution::Int { low: 1, high: 4, step: 1, scale: Scale::Log };
    let values: Vec<Value> = range.levels(4).expect("four").into_iter().map(|unit| range.from_unit(unit)).collect();
    assert_eq!(values, [1, 2, 3, 4].map(Value::Int));
    assert_eq!(range.levels(3), None);
    assert_eq!(Distribution::Float { low: 0.0, high: 1.0, step: None, scale: Scale::Linear }.levels(9), None);
}
