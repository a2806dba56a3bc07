//! Tests of searches with several objectives and constraints: what the journal stores, and what older versions wrote.

use crate::journal::{open, refusal, write};
use crate::spec;
use expect_test::expect;
use ferrotune_journal::Journal;
use ferrotune_space::objective::{Constraint, Direction, Objective, Summary};
use ferrotune_space::record::{Ending, TrialRecord};
use ferrotune_space::spec::StudySpec;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

fn trade_off(oracle: &str) -> StudySpec {
    let objectives = vec![Objective::new("accuracy", Direction::Max), Objective::new("size", Direction::Min)];
    let constraints = vec![
        Constraint { metric: "latency".to_owned(), direction: Direction::Min, bound: 10.0 },
        Constraint { metric: "accuracy".to_owned(), direction: Direction::Max, bound: 0.5 },
        Constraint { metric: "absent".to_owned(), direction: Direction::Max, bound: 0.5 },
    ];
    StudySpec { objectives, constraints, ..spec(oracle) }
}

fn trial(number: u64, values: Vec<f64>) -> TrialRecord {
    let metrics = [("accuracy", 0.75), ("latency", 12.5)].map(|(name, value)| (name.to_owned(), Some(value)));
    let metrics = BTreeMap::from([(3, BTreeMap::from(metrics))]);
    TrialRecord { metrics, values, ending: Some(Ending::Finished), ..TrialRecord::new(number) }
}

fn lines(folder: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(folder.join("journal.log")).expect("a journal");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn several_values_and_constraints_come_back_and_are_in_optunas_form() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut journal = Journal::open(folder.path(), &trade_off("random")).expect("a new study");
    let trials = [trial(0, vec![0.75, 9.0]), trial(1, vec![0.75, f64::NAN]), trial(2, Vec::new())];
    trials.iter().for_each(|record| write(&mut journal, record));
    let read = Journal::read(folder.path()).expect("a study");
    assert_eq!(read.spec, *journal.spec());
    assert_eq!(read.trials[0], trials[0]);
    assert!(read.trials[1].values.is_empty() && read.trials[2].values.is_empty());
    let lines = lines(folder.path());
    assert_eq!(lines[0]["directions"], json!([2, 1]));
    assert_eq!(lines[1]["system_attr"], json!({"study:metric_names": ["accuracy", "size"]}));
    let of_first: Vec<&Value> = lines.iter().filter(|line| line["trial_id"] == json!(0)).collect();
    // Optuna has no intermediate values of several objectives.
    assert!(of_first.iter().all(|line| line["op_code"] != json!(7)));
    let [.., constraints, state] = of_first.as_slice() else { panic!("{of_first:?}") };
    assert_eq!((&constraints["op_code"], &state["op_code"]), (&json!(9), &json!(6)));
    assert_eq!(constraints["system_attr"], json!({"constraints": [2.5, -0.25, f64::MAX]}));
    assert_eq!((&state["state"], &state["values"]), (&json!(1), &json!([0.75, 9.0])));
    let failed = lines.iter().find(|line| line["trial_id"] == json!(1) && line["op_code"] == json!(6));
    assert_eq!(failed.map(|line| (&line["state"], &line["values"])), Some((&json!(3), &Value::Null)));
}

#[test]
fn study_of_one_objective_is_not_one_of_several() {
    let folder = tempfile::tempdir().expect("a folder");
    drop(open(folder.path()).expect("a new study"));
    expect!["study digits optimises accuracy:max, not accuracy:max,size:min; use another --project or --overwrite"]
        .assert_eq(&refusal(folder.path(), &trade_off("random")));
    let last = Objective { summary: Summary::Last, ..Objective::new("accuracy", Direction::Max) };
    expect!["study digits optimises accuracy:max, not accuracy:max:last; use another --project or --overwrite"]
        .assert_eq(&refusal(folder.path(), &StudySpec { objectives: vec![last], ..spec("random") }));
}

#[test]
fn study_that_optuna_began_is_checked_by_its_directions() {
    let folder = tempfile::tempdir().expect("a folder");
    let line = r#"{"op_code": 0, "worker_id": "host-1", "study_name": "digits", "directions": [1, 2]}"#;
    std::fs::write(folder.path().join("journal.log"), format!("{line}\n")).expect("written");
    expect![
        "study digits optimises accuracy:min,size:max, not accuracy:max,size:min; use another --project or --overwrite"
    ]
    .assert_eq(&refusal(folder.path(), &trade_off("random")));
    expect!["study digits optimises accuracy:min,…:max, not accuracy:max; use another --project or --overwrite"]
        .assert_eq(&refusal(folder.path(), &spec("random")));
    let mut other = trade_off("random");
    other.objectives.reverse();
    assert!(Journal::open(folder.path(), &other).is_ok());
}

/// A study with the spec of version 1: one objective, and no list of objectives.
#[test]
fn study_of_the_version_before_goes_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut old = serde_json::to_value(spec("random")).expect("JSON");
    let fields = old.as_object_mut().expect("an object");
    fields.remove("objectives");
    fields.insert("objective".to_owned(), json!({"metric": "accuracy", "direction": "max"}));
    fields.insert("also".to_owned(), json!([]));
    let facts = [
        json!({"op_code": 0, "study_name": "digits", "directions": [2]}),
        json!({"op_code": 2, "study_id": 0, "user_attr": {"ferrotune:journal": 1}}),
        json!({"op_code": 2, "study_id": 0, "user_attr": {"ferrotune:spec": old}}),
        json!({"op_code": 4, "study_id": 0, "datetime_start": "2026-01-01T00:00:00.000000+00:00"}),
        json!({"op_code": 7, "trial_id": 0, "step": 0, "intermediate_value": 0.5}),
        json!({"op_code": 6, "trial_id": 0, "state": 1, "values": [0.5], "datetime_complete": null}),
    ];
    let text: String = facts
        .into_iter()
        .map(|mut fact| {
            fact["worker_id"] = json!("host-1");
            format!("{fact}\n")
        })
        .collect();
    std::fs::write(folder.path().join("journal.log"), text).expect("written");
    let journal = open(folder.path()).expect("it goes on");
    assert_eq!(journal.spec().objectives, spec("random").objectives);
    let trials = journal.trials();
    assert_eq!((trials[0].value(), trials[0].metrics[&0]["accuracy"]), (Some(0.5), Some(0.5)));
    // The previous version cannot read the facts that this version adds.
    assert!(lines(folder.path()).iter().any(|line| line["user_attr"] == json!({"ferrotune:journal": 2})));
}
