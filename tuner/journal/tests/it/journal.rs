//! Tests that the journal gives back the recorded facts, and has one writer at a time.

use crate::spec;
use expect_test::expect;
use ferrotune_journal::{End, Journal, JournalError, Times, Usage};
use ferrotune_space::objective::{Direction, Objective};
use ferrotune_space::record::{DeviceUse, Ending, MemoryCheck, Runner, TrialRecord};
use ferrotune_space::spec::StudySpec;
use ferrotune_space::{Distribution, Parameter, Scale, Value};
use std::collections::BTreeMap;
use std::path::Path;

pub(crate) fn metrics(values: &[(&str, Option<f64>)]) -> BTreeMap<String, Option<f64>> {
    values.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
}

fn parameters() -> BTreeMap<String, Parameter> {
    let units = Distribution::Int { low: i64::MIN, high: i64::MAX, step: 1, scale: Scale::Linear };
    let lr = Distribution::Float { low: 1e-4, high: 0.1, step: None, scale: Scale::Log };
    let activation = Distribution::Choice {
        values: vec![Value::Text("relu".into()), Value::Text("gelu \"é\"".into())],
        is_ordered: false,
    };
    let uneven = Distribution::Int { low: 5, high: 20, step: 4, scale: Scale::Linear };
    let dropout = Distribution::Float { low: 0.0, high: 0.55, step: Some(0.1), scale: Scale::Linear };
    let norm = Distribution::Choice { values: vec![Value::Bool(false), Value::Bool(true)], is_ordered: false };
    let size = Distribution::Choice { values: vec![Value::Int(8), Value::Int(64)], is_ordered: true };
    let decay = Distribution::Float { low: 0.9, high: 0.999, step: None, scale: Scale::ReverseLog };
    BTreeMap::from([
        ("size".to_owned(), Parameter { distribution: size, value: Value::Int(64) }),
        ("decay".to_owned(), Parameter { distribution: decay, value: Value::Float(0.99) }),
        ("uneven".to_owned(), Parameter { distribution: uneven, value: Value::Int(17) }),
        ("dropout".to_owned(), Parameter { distribution: dropout, value: Value::Float(0.3) }),
        ("units".to_owned(), Parameter { distribution: units, value: Value::Int(i64::MAX - 1) }),
        ("lr".to_owned(), Parameter { distribution: lr, value: Value::Float(0.008_123_456_789_012_345) }),
        ("activation".to_owned(), Parameter { distribution: activation, value: Value::Text("gelu \"é\"".into()) }),
        ("norm".to_owned(), Parameter { distribution: norm, value: Value::Bool(true) }),
    ])
}

fn whole_trial(number: u64, ending: Ending, value: Option<f64>) -> TrialRecord {
    TrialRecord {
        number,
        parameters: parameters(),
        metrics: BTreeMap::from([
            (0, metrics(&[("accuracy", Some(0.1)), ("loss", Some(2.5e-300))])),
            (1, metrics(&[("accuracy", None), ("loss", None)])),
            (7, metrics(&[("accuracy", Some(1.0 / 3.0))])),
        ]),
        values: value.into_iter().collect(),
        ending: Some(ending),
        checkpoint: Some("step-7.safetensors".to_owned()),
        peak_bytes: 3 << 30,
        seconds: 12.25,
        epochs: Some(20),
        paused_at: None,
        continued_from: None,
        retried: vec![Ending::Signalled { signal: 11 }],
        unended_workers: 0,
        parent: None,
        executions: Vec::new(),
        preset: BTreeMap::new(),
        user_attributes: BTreeMap::from([("note".to_owned(), "mine".into()), ("size".to_owned(), 7.into())]),
        runner: Runner::Search,
        memory: Some(MemoryCheck { before_bytes: 9, after_bytes: 8, supervisor_bytes: 3, left: vec!["it".to_owned()] }),
        device: Some(DeviceUse {
            name: "tpu".to_owned(),
            kind: Some("TPU v5 lite".to_owned()),
            version: None,
            before_bytes: Some(7),
            after_bytes: Some(u64::MAX),
            peak_bytes: Some(3),
        }),
    }
}

/// Begins the next trial of a study that has `number` trials.
pub(crate) fn begin(journal: &mut Journal, number: u64) {
    assert_eq!(journal.begin_trial().expect("begun"), number);
}

/// Records a trial's facts in the order in which a search learns them.
pub(crate) fn write(journal: &mut Journal, record: &TrialRecord) {
    begin(journal, record.number);
    for (name, parameter) in &record.parameters {
        journal.parameter(record.number, name, parameter.clone()).expect("parameter");
    }
    if let Some(total) = record.epochs {
        journal.epochs(record.number, total).expect("epochs");
    }
    for (step, metrics) in &record.metrics {
        journal.report(record.number, *step, metrics).expect("report");
    }
    for (name, value) in &record.user_attributes {
        let value = value.as_i64().map_or_else(|| Value::from(value.as_str().expect("a text")), Value::Int);
        journal.user_attribute(record.number, name, &value).expect("user attribute");
    }
    if let Some(device) = &record.device {
        journal.device(record.number, device).expect("device");
    }
    if let Some(file) = &record.checkpoint {
        journal.checkpoint(record.number, 7, file).expect("checkpoint");
    }
    if record.ending.is_some() {
        end(journal, record);
    }
}

/// Records the end of this record's trial.
pub(crate) fn end(journal: &mut Journal, record: &TrialRecord) {
    let (values, executions) = (record.values.clone(), record.executions.clone());
    let end = End { ending: record.ending.clone().expect("it has ended"), values, executions };
    journal.trial_ended(record.number, Usage::of(record), end).expect("ended");
}

pub(crate) fn open(folder: &Path) -> Result<Journal, JournalError> {
    Journal::open(folder, &spec("random"))
}

pub(crate) fn refusal(folder: &Path, spec: &StudySpec) -> String {
    let error = Journal::open(folder, spec).expect_err("refused").to_string();
    error.replace(&folder.display().to_string(), "STUDY")
}

#[test]
fn every_fact_comes_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let endings = [
        (Ending::Finished, Some(0.1 + 0.2)),
        (Ending::Pruned, Some(0.5)),
        (Ending::Pruned, None),
        (Ending::Failed { reason: "exited with 3".to_owned() }, None),
        (Ending::Panicked { message: "index 5\nsrc/x.rs:3".to_owned() }, None),
        (Ending::OutOfMemory { peak_bytes: 5 << 30, budget_bytes: 4 << 30 }, None),
        (Ending::Signalled { signal: 11 }, None),
        (Ending::TimedOut { after_s: 60 }, None),
        (Ending::Cancelled, None),
        (Ending::Finished, None),
    ];
    let numbered = (0..).zip(endings);
    let written: Vec<_> = numbered.map(|(number, (ending, value))| whole_trial(number, ending, value)).collect();
    let mut journal = open(folder.path()).expect("a new study");
    assert_eq!(journal.trials(), []);
    for record in &written {
        write(&mut journal, record);
    }
    let study = Journal::read(folder.path()).expect("readable while it is written");
    assert_eq!((study.spec, study.trials), (spec("random"), written.clone()));
    drop(journal);
    assert_eq!(open(folder.path()).expect("reopened").trials(), written);
}

#[test]
fn times_are_those_of_the_lines_also_without_a_zone() {
    let folder = tempfile::tempdir().expect("a folder");
    let before = chrono::Utc::now();
    let mut journal = open(folder.path()).expect("a new study");
    write(&mut journal, &whole_trial(0, Ending::Finished, Some(0.5)));
    begin(&mut journal, 1);
    drop(journal);
    let times = Journal::read(folder.path()).expect("a study").times;
    let [Times { started: Some(started), ended: Some(ended) }, Times { started: Some(_), ended: None }] = times[..]
    else {
        panic!("{times:?}");
    };
    // Journals have microsecond precision.
    assert!(before - chrono::TimeDelta::microseconds(1) <= started && started <= ended, "{before} {started} {ended}");
    let path = folder.path().join("journal.log");
    let mut lines = std::fs::read_to_string(&path).expect("a journal");
    lines.push_str(
        "{\"op_code\":4,\"worker_id\":\"30db-1\",\"study_id\":0,\"datetime_start\":\"2026-11-20T09:55:23.467692\"}\n",
    );
    std::fs::write(&path, lines).expect("written");
    let local = Journal::read(folder.path()).expect("a study").times[2].started.expect("a time");
    assert_eq!(local.with_timezone(&chrono::Local).naive_local().to_string(), "2026-11-20 09:55:23.467692");
}

#[test]
fn defaults_come_back_as_they_were_given_last() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut journal = open(folder.path()).expect("a new study");
    for default in [Value::Int(3), Value::Int(4), Value::Int(4)] {
        journal.defaults_to("units", &default).expect("told");
    }
    drop(journal);
    let mut journal = open(folder.path()).expect("reopened");
    let length = || std::fs::metadata(folder.path().join("journal.log")).expect("a journal").len();
    let before = length();
    journal.defaults_to("units", &Value::Int(4)).expect("known");
    assert_eq!(length(), before);
    let defaults = Journal::read(folder.path()).expect("a study").defaults;
    assert_eq!(defaults, BTreeMap::from([("units".to_owned(), Value::Int(4))]));
}

#[test]
fn a_paused_trial_comes_back_paused() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut journal = open(folder.path()).expect("a new study");
    let paused = TrialRecord { ending: None, paused_at: Some(8), ..whole_trial(0, Ending::Finished, None) };
    write(&mut journal, &TrialRecord { ending: None, ..paused.clone() });
    journal.trial_paused(0, Usage::of(&paused)).expect("paused");
    drop(journal);
    let mut journal = open(folder.path()).expect("reopened");
    assert_eq!(journal.trials(), std::slice::from_ref(&paused));
    journal.worker_started(0).expect("continued");
    let interrupted = Journal::read(folder.path()).expect("readable while it is written").trials;
    assert_eq!(
        interrupted,
        [TrialRecord { paused_at: None, continued_from: Some(8), unended_workers: 1, ..paused.clone() }]
    );
    let ended = TrialRecord { ending: Some(Ending::Finished), values: vec![1.0], paused_at: None, ..paused };
    end(&mut journal, &ended);
    let left = TrialRecord { seconds: ended.seconds + 1.0, peak_bytes: ended.peak_bytes + 1, ..ended };
    journal.trial_paused(0, Usage::of(&left)).expect("what the last worker used");
    assert_eq!(journal.trials(), std::slice::from_ref(&left));
    drop(journal);
    assert_eq!(open(folder.path()).expect("reopened").trials(), [left]);
}

#[test]
fn every_line_is_json_without_nan_and_has_a_checksum() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut journal = open(folder.path()).expect("a new study");
    let mut record = whole_trial(0, Ending::Finished, Some(f64::NAN));
    record.metrics.insert(9, metrics(&[("accuracy", Some(f64::INFINITY)), ("loss", Some(f64::NAN))]));
    record.metrics.insert(10, metrics(&[]));
    write(&mut journal, &record);
    let text = std::fs::read_to_string(folder.path().join("journal.log")).expect("a journal");
    for line in text.lines() {
        let object: serde_json::Value = serde_json::from_str(line).expect("JSON");
        assert!(object["crc"].is_string() && object["op_code"].is_u64(), "{line}");
    }
    let read = Journal::read(folder.path()).expect("a study").trials;
    assert_eq!(read[0].metrics[&9], metrics(&[("accuracy", None), ("loss", None)]));
    assert_eq!(read[0].metrics[&10], metrics(&[]));
    assert!(read[0].values.is_empty());
}

#[test]
fn a_study_has_one_writer() {
    let folder = tempfile::tempdir().expect("a folder");
    let first = open(folder.path()).expect("a new study");
    let error = refusal(folder.path(), &spec("random"));
    let me = format!("study digits is in use by process {} on ", std::process::id());
    assert!(
        error.starts_with(&me) && error.ends_with("; wait until that search ends, or use another --project"),
        "{error}"
    );
    let overwrite = StudySpec { overwrite: true, ..spec("random") };
    assert_eq!(refusal(folder.path(), &overwrite), error);
    drop(first);
    assert!(open(folder.path()).is_ok());
}

#[test]
fn another_objective_is_another_study() {
    let folder = tempfile::tempdir().expect("a folder");
    drop(open(folder.path()).expect("a new study"));
    let objectives = vec![Objective::new("loss", Direction::Min)];
    let other = StudySpec { objectives, ..spec("random") };
    expect!["study digits optimises accuracy:max, not loss:min; use another --project or --overwrite"]
        .assert_eq(&refusal(folder.path(), &other));
    assert!(Journal::open(folder.path(), &StudySpec { overwrite: true, ..other }).is_ok());
}

#[test]
fn overwriting_deletes_a_study_and_nothing_else() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut journal = open(folder.path()).expect("a new study");
    write(&mut journal, &whole_trial(0, Ending::Finished, Some(1.0)));
    drop(journal);
    let trial_folder = folder.path().join("trials/0");
    std::fs::create_dir_all(&trial_folder).expect("a trial's folder");
    let overwrite = StudySpec { overwrite: true, ..spec("random") };
    let journal = Journal::open(folder.path(), &overwrite).expect("overwritten");
    assert_eq!((journal.trials().len(), trial_folder.exists()), (0, false));
    assert!(!journal.spec().overwrite);

    let foreign = tempfile::tempdir().expect("a folder");
    std::fs::write(foreign.path().join("thesis.tex"), "years of work").expect("a file");
    expect!["STUDY is not a study (no journal.log in it), so --overwrite leaves it alone; use another --project"]
        .assert_eq(&refusal(foreign.path(), &overwrite));
    assert!(foreign.path().join("thesis.tex").exists());
    assert!(Journal::open(&foreign.path().join("new"), &overwrite).is_ok());
}

#[test]
fn a_folder_that_cannot_be_written_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("file");
    std::fs::write(&file, "").expect("a file");
    expect![
        "study folder STUDY/digits cannot be written (Not a directory (os error 20)); choose another with --directory"
    ]
    .assert_eq(&refusal(&file.join("digits"), &spec("random")).replace("STUDY", "STUDY/digits"));
    let missing = Journal::read(folder.path()).expect_err("no study").to_string();
    assert!(missing.ends_with("run %%tune with this --project first"), "{missing}");
}

#[test]
fn a_seed_is_kept_for_a_search_that_names_none() {
    let folder = tempfile::tempdir().expect("a folder");
    let unseeded = StudySpec { seed: None, ..spec("random") };
    let seed = |spec: &StudySpec| Journal::open(folder.path(), spec).expect("a study").spec().seed;
    let drawn = seed(&unseeded);
    assert!(drawn.is_some());
    assert_eq!(seed(&unseeded), drawn);
    assert_eq!(seed(&spec("random")), Some(7));
    assert_eq!(seed(&unseeded), Some(7));
}

#[test]
fn facts_of_unknown_trials_and_impossible_values_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut journal = open(folder.path()).expect("a new study");
    let error = journal.report(0, 0, &metrics(&[])).expect_err("no trial").to_string();
    expect!["trial 0 cannot be recorded: the study has 0 trials; start it first"].assert_eq(&error);
    begin(&mut journal, 0);
    let distribution = Distribution::Int { low: 0, high: 3, step: 1, scale: Scale::Linear };
    let parameter = Parameter { distribution, value: Value::Int(4) };
    let error = journal.parameter(0, "units", parameter).expect_err("outside").to_string();
    expect!["trial 0: units = 4 is not in the parameter's range; suggest a value from the range"].assert_eq(&error);
}
