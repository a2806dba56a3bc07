//! Tests of inferred spaces: conditions that follow only from the trials.

use ferrotune_oracle::inferred::{Condition, Space};
use ferrotune_space::record::{Ending, TrialRecord};
use ferrotune_space::{Distribution, Parameter, Scale, Value};

/// A finished trial with these parameters, all of them choices of 0 to 3.
fn finished(number: u64, parameters: &[(&str, i64)]) -> TrialRecord {
    let choice = || Distribution::Int { low: 0, high: 3, step: 1, scale: Scale::Linear };
    let parameter = |value: i64| Parameter { distribution: choice(), value: Value::Int(value) };
    let parameters = parameters.iter().map(|(name, value)| ((*name).to_owned(), parameter(*value))).collect();
    TrialRecord { parameters, ending: Some(Ending::Finished), values: vec![0.0], ..TrialRecord::new(number) }
}

#[test]
fn conditions_are_inferred_down_to_conditions_of_conditions() {
    let trials = [
        finished(0, &[("layers", 1), ("units_1", 3)]),
        finished(1, &[("layers", 2), ("units_1", 0), ("units_2", 1)]),
        finished(2, &[("layers", 0)]),
        finished(3, &[("layers", 3), ("units_1", 0), ("units_2", 2), ("norm", 1)]),
        finished(4, &[("layers", 3), ("units_1", 0), ("units_2", 0)]),
    ];
    let space = Space::infer(&trials);
    let names: Vec<&str> = space.dimensions.iter().map(|dimension| dimension.name.as_str()).collect();
    assert_eq!(names, ["layers", "units_1", "units_2", "norm"]);
    let condition = |index: usize| space.dimensions[index].condition.clone();
    assert_eq!(condition(0), None);
    assert_eq!(condition(1), Some(Condition { parent: 0, present: vec![false, true, true, true] }));
    assert_eq!(condition(2), Some(Condition { parent: 0, present: vec![false, false, true, true] }));
    // Trials with units_2 of 0 and 1 did not ask for the parameter; 3 was not tried, and 2 is the nearest tried value.
    assert_eq!(condition(3), Some(Condition { parent: 2, present: vec![false, false, true, true] }));
    let with = |layers: f64, units: f64| space.is_active(3, &[layers, 0.5, units, 0.5]);
    assert!(with(0.9, 0.6) && !with(0.9, 0.3) && !with(0.3, 0.6));
}

#[test]
fn a_presence_that_nothing_explains_stays_unconditional() {
    let trials = [finished(0, &[("a", 1), ("b", 3)]), finished(1, &[("a", 1)]), finished(2, &[("a", 2), ("b", 0)])];
    assert!(Space::infer(&trials).dimensions.iter().all(|dimension| dimension.condition.is_none()));
}
