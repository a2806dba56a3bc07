//! Tests of the errors for searches with several objectives.

use crate::spec;
use expect_test::expect;
use ferrotune_oracle::create;
use ferrotune_space::objective::{Direction, Objective};
use ferrotune_space::spec::StudySpec;

fn trade_off(oracle: &str) -> StudySpec {
    let objectives = vec![Objective::new("accuracy", Direction::Max), Objective::new("size", Direction::Min)];
    StudySpec { objectives, ..spec(oracle) }
}

#[test]
fn comparisons_by_one_objective_are_refused_before_anything_starts() {
    let error = |spec: StudySpec| create(&spec).err().expect("refused").to_string();
    for oracle in ["hyperband", "bohb", "successive_halving", "asha", "pbt", "pb2"] {
        assert!(error(trade_off(oracle)).starts_with(&format!("--oracle {oracle} compares trials by one objective")));
    }
    expect!["--oracle asha compares trials by one objective, but --objective names accuracy:max, size:min; use nsga2, nsga3, auto, gp, tpe or random"]
        .assert_eq(&error(trade_off("asha")));
    expect![
        "--pruner median compares trials by one objective, but --objective names accuracy:max, size:min; leave it out"
    ]
    .assert_eq(&error(StudySpec { pruner: Some("median".to_owned()), ..trade_off("random") }));
    expect!["--terminator regret compares trials by one objective, but --objective names accuracy:max, size:min; leave it out"]
        .assert_eq(&error(StudySpec { terminator: Some("regret".to_owned()), ..trade_off("random") }));
    let mut repeated = trade_off("random");
    repeated.objectives[1].metric = "accuracy".to_owned();
    expect!["--objective names accuracy twice; keep one"].assert_eq(&error(repeated));
    let none = StudySpec { objectives: Vec::new(), ..trade_off("random") };
    expect!["the search has no objective; name a metric and its direction with --objective, as in val_accuracy:max"]
        .assert_eq(&error(none));
    for oracle in ["auto", "gp", "tpe", "cmaes", "nsga2", "nsga3", "qmc", "grid", "random"] {
        assert!(create(&trade_off(oracle)).is_ok(), "{oracle}");
    }
}
