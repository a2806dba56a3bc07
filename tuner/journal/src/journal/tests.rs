//! Tests that the records of an open study equal the records that are read back from its file.

use super::state::StudyState;
use super::*;
use ferrotune_space::objective::{Constraint, Direction, Objective};
use ferrotune_space::record::{Ending, MemoryCheck};
use ferrotune_space::{Distribution, Parameter, Scale, Value};
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use serde_json::json;
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write as _;

type TestResult = Result<(), Box<dyn std::error::Error + Send + Sync>>;

const SEARCHES: u64 = 40;
const FACTS: u64 = 120;
/// The first of four steps each: mostly from zero, and around the limits of 31, 63 and 64 bits.
const FIRST_STEPS: [u64; 6] = [0, 0, 0, (1 << 31) - 2, (1 << 63) - 2, u64::MAX - 4];

/// Appends a line as Optuna does. No other thread of the test holds the journal's lock.
fn append_as_optuna(folder: &Path, mut object: serde_json::Value) -> std::io::Result<()> {
    object["worker_id"] = json!("30db-1");
    let mut file = OpenOptions::new().append(true).open(folder.join(JOURNAL))?;
    file.write_all(format!("{object}\n").as_bytes())
}

fn line_of_optuna(rng: &mut Pcg64Mcg, number: u64) -> serde_json::Value {
    let unit = r#"{"name": "FloatDistribution", "attributes": {"step": null, "low": 0.0, "high": 1.0, "log": false}}"#;
    let nulls = r#"{"name": "CategoricalDistribution", "attributes": {"choices": [null, 0.5]}}"#;
    let (value, step, state): (f64, u64, u64) = (rng.random(), rng.random_range(0..4), rng.random_range(0..5));
    match rng.random_range(0..9) {
        0 => json!({"op_code": 4, "study_id": 0, "datetime_start": "2026-11-20T09:55:23.467692+00:00"}),
        1 => json!({"op_code": 4, "study_id": 0, "datetime_start": null, "state": 4, "value": null, "params": {},
            "distributions": {}, "system_attrs": {"fixed_params": {"x": value}}, "intermediate_values": {}}),
        2 => json!({"op_code": 4, "study_id": 0, "datetime_start": null, "state": state, "value": value,
            "params": {"x": value}, "distributions": {"x": unit}, "intermediate_values": {"2": value}}),
        3 => json!({"op_code": 5, "trial_id": number, "param_name": "x", "param_value_internal": value,
            "distribution": unit}),
        4 => json!({"op_code": 5, "trial_id": number, "param_name": "wd", "param_value_internal": 0,
            "distribution": nulls}),
        5 => json!({"op_code": 7, "trial_id": number, "step": step, "intermediate_value": value}),
        6 => json!({"op_code": 8, "trial_id": number, "user_attr": {"note": "mine"}}),
        7 => json!({"op_code": 9, "trial_id": number, "system_attr": {"grid": 1}}),
        _ => json!({"op_code": 6, "trial_id": number, "state": state, "values": [value],
            "datetime_start": "2026-11-20T09:55:23.467692", "datetime_complete": "2026-11-20T09:55:24.467692"}),
    }
}

/// Records any fact that a search can record about a trial, in any order.
pub(super) fn record_any(journal: &mut Journal, rng: &mut Pcg64Mcg, number: u64) -> Result<(), JournalError> {
    let record = journal.trials()[number as usize].clone();
    let value: f64 = rng.random();
    let step = FIRST_STEPS[rng.random_range(0..FIRST_STEPS.len())] + rng.random_range(0..4);
    let ending = match rng.random_range(0..6) {
        0 => Ending::Pruned,
        1 => Ending::Failed { reason: "it broke".to_owned() },
        2 => Ending::OutOfMemory { peak_bytes: 7, budget_bytes: 5 },
        3 => Ending::Signalled { signal: 9 },
        _ => Ending::Finished,
    };
    let memory = Some(MemoryCheck { before_bytes: 9, left: vec!["a socket".to_owned()], ..MemoryCheck::default() });
    let usage = Usage { seconds: record.seconds + value, peak_bytes: step, memory, ..Usage::of(&record) };
    match rng.random_range(0..15) {
        0 => journal.begin_trial().map(drop),
        1 => journal.enqueue_trial(&BTreeMap::from([("x".to_owned(), Value::Float(value))])).map(drop),
        2 => journal.begin_enqueued_trial(number).map(drop),
        3 => journal.inherited(number, 0, Some("checkpoint-000001.safetensors")),
        4 => journal.executed(number, vec![value]),
        5 => {
            let distribution = Distribution::Float { low: 0.0, high: 1.5, step: None, scale: Scale::Linear };
            journal.parameter(number, "x", Parameter { distribution, value: Value::Float(value) })
        }
        6 => {
            // Optuna's form of this range ends at 17.
            let distribution = Distribution::Int { low: 5, high: 20, step: 4, scale: Scale::Linear };
            journal.parameter(number, "units", Parameter { distribution, value: Value::Int(13) })
        }
        7 => journal.asked_at("x", &format!("cell.rs:{step}")),
        8 => journal.defaults_to("x", &Value::Float(value)),
        9 => journal.epochs(number, 1 + step),
        10 | 11 => {
            let reported = [Some(value), None, Some(f64::NAN), Some(f64::INFINITY)][rng.random_range(0..4)];
            let metrics = [("loss", reported), ("size", Some(value))].map(|(name, value)| (name.to_owned(), value));
            journal.report(number, step, &metrics.into_iter().take(rng.random_range(0..3)).collect())
        }
        12 => match rng.random() {
            true => journal.checkpoint(number, step, "checkpoint-000002.safetensors"),
            false => journal.checkpoint_removed(number),
        },
        13 => match rng.random_range(0..3) {
            0 => journal.worker_started(number),
            1 => journal.trial_paused(number, Usage { paused_at: Some(step), unended_workers: 0, ..usage }),
            _ => journal.trial_paused(number, Usage { paused_at: None, retried: vec![ending], ..usage }),
        },
        _ => {
            let values = [vec![], vec![value], vec![f64::NAN], vec![value, value]][rng.random_range(0..4)].clone();
            journal.trial_ended(number, usage, End { ending, values, executions: vec![vec![value]] })
        }
    }
}

pub(super) fn search_of(objectives: u64) -> StudySpec {
    let objectives =
        ["loss", "size"].map(|metric| Objective::new(metric, Direction::Min)).into_iter().take(objectives as usize);
    let constraints = vec![Constraint { metric: "size".to_owned(), direction: Direction::Min, bound: 0.5 }];
    StudySpec { constraints, ..StudySpec::new("it", objectives.collect()) }
}

#[test]
fn records_of_an_open_study_are_those_of_its_file_in_every_field() -> TestResult {
    let first = seed::draw();
    for seed in (0..SEARCHES).map(|search| first.wrapping_add(search)) {
        let directory = tempfile::tempdir()?;
        let folder = directory.path().join("it");
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let mut journal = Journal::open(&folder, &search_of(1 + seed % 2))?;
        journal.begin_trial()?;
        for count in 0..FACTS {
            let number = rng.random_range(0..journal.trials().len() as u64);
            if rng.random_range(0..4) == 0 {
                // The line may also be about a trial that does not exist.
                append_as_optuna(&folder, line_of_optuna(&mut rng, number + count / 100 * 50))?;
            } else {
                record_any(&mut journal, &mut rng, number)?;
            }
            if count % 10 == 0 || count + 1 == FACTS {
                journal.read_on()?;
                let replayed: StudyState = Replay::of(&folder.join(JOURNAL), "it")?.study;
                assert_eq!(journal.known.replay.study, replayed, "seed {seed}, fact {count}");
            }
        }
        let live = journal.trials().to_vec();
        drop(journal);
        assert_eq!(Journal::open(&folder, &search_of(1 + seed % 2))?.trials(), live, "seed {seed}");
    }
    Ok(())
}

#[test]
fn facts_that_are_held_back_are_in_the_records_at_once_and_in_the_file_later() -> TestResult {
    let first = seed::draw();
    for seed in (0..SEARCHES).map(|search| first.wrapping_add(search)) {
        let directory = tempfile::tempdir()?;
        let folder = directory.path().join("it");
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let mut journal = Journal::open(&folder, &search_of(1))?;
        journal.hold();
        journal.begin_trial()?;
        for _ in 0..FACTS {
            let number = rng.random_range(0..journal.trials().len() as u64);
            record_any(&mut journal, &mut rng, number)?;
        }
        journal.release()?;
        assert_eq!(journal.known.replay.study, Replay::of(&folder.join(JOURNAL), "it")?.study, "seed {seed}");
    }
    Ok(())
}
