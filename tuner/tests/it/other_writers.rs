//! Tests of a study whose journal Optuna writes during the search: the contract of the file, with a simulated writer that
//! behaves like `JournalFileBackend`. The real Optuna is in `tests/test_optuna.py`.

use crate::spec;
use ferrotune_journal::{End, Journal, JournalError, Usage};
use ferrotune_space::event::Finish;
use ferrotune_space::record::{Ending, Runner, TrialRecord};
use ferrotune_space::spec::StudySpec;
use ferrotune_space::wire::{Reply, Request};
use ferrotune_space::{Distribution, Scale, Value};
use ferrotune_tuner::in_process::{Begun, InProcessSearch, Writing};
use serde_json::json;
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

fn open(folder: &Path) -> Result<Journal, JournalError> {
    Journal::open(folder, &spec("random"))
}

fn end(journal: &mut Journal, record: &TrialRecord) {
    let (values, executions) = (record.values.clone(), record.executions.clone());
    let end = End { ending: record.ending.clone().expect("it has ended"), values, executions };
    journal.trial_ended(record.number, Usage::of(record), end).expect("ended");
}

fn metrics(values: &[(&str, Option<f64>)]) -> BTreeMap<String, Option<f64>> {
    values.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
}

/// Optuna's distribution of `x`.
const UNIT: &str =
    r#"{"name": "FloatDistribution", "attributes": {"step": null, "low": 0.0, "high": 1.0, "log": false}}"#;

/// A simulated process of Optuna's with this name.
struct Optuna {
    journal: PathBuf,
    name: String,
}

impl Optuna {
    fn on(study: &Path, name: &str) -> Optuna {
        Optuna { journal: study.join("journal.log"), name: name.to_owned() }
    }

    fn lock(&self) -> PathBuf {
        self.journal.with_extension("log.lock")
    }

    fn append(&self, mut object: serde_json::Value) {
        object["worker_id"] = json!(self.name);
        while let Err(error) = std::os::unix::fs::symlink(&self.journal, self.lock()) {
            assert_eq!(error.kind(), ErrorKind::AlreadyExists);
            std::thread::yield_now();
        }
        self.append_unlocked(&format!("{object}\n"));
        std::fs::remove_file(self.lock()).expect("the lock was held");
    }

    fn append_unlocked(&self, text: &str) {
        let mut file = OpenOptions::new().append(true).open(&self.journal).expect("a journal");
        file.write_all(text.as_bytes()).expect("written");
    }

    fn create(&self) {
        self.append(json!({"op_code": 4, "study_id": 0, "datetime_start": "2026-11-20T09:55:23.467692+00:00"}));
    }

    fn enqueue(&self, preset: serde_json::Value) {
        self.append(json!({
            "op_code": 4, "study_id": 0, "datetime_start": null, "state": 4, "value": null, "values": null,
            "distributions": {}, "params": {}, "user_attrs": {}, "system_attrs": {"fixed_params": preset},
            "intermediate_values": {},
        }));
    }

    fn begin_enqueued(&self, number: u64) {
        self.append(json!({"op_code": 6, "trial_id": number, "state": 0, "values": null,
            "datetime_start": "2026-11-20T09:55:23.467692+00:00"}));
    }

    fn end(&self, number: u64, x: f64) {
        self.append(json!({"op_code": 5, "trial_id": number, "param_name": "x", "param_value_internal": x,
            "distribution": UNIT}));
        self.append(json!({"op_code": 6, "trial_id": number, "state": 1, "values": [x],
            "datetime_complete": "2026-11-20T09:55:23.477178+00:00"}));
    }

    /// The trials that this process has begun, as Optuna counts them. Reading takes no lock, so the last line may be
    /// incomplete: as in Optuna, a line without its end is not read.
    fn own(&self) -> Vec<u64> {
        let text = std::fs::read_to_string(&self.journal).expect("a journal");
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let lines = whole.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"));
        let creators = lines.filter(|line| line["op_code"] == 4).map(|line| line["worker_id"] == *self.name);
        creators.enumerate().filter(|(_, is_own)| *is_own).map(|(number, _)| number as u64).collect()
    }
}

fn unit() -> Distribution {
    Distribution::Float { low: 0.0, high: 1.0, step: None, scale: Scale::Linear }
}

fn search(directory: &Path, max_trials: u64) -> InProcessSearch {
    InProcessSearch::open(&StudySpec { directory: directory.to_owned(), max_trials, ..spec("random") })
        .expect("a study")
}

/// Runs the next trial of a search, whose value is its `x`; fails if the search is over.
fn run_next(search: &mut InProcessSearch, writing: Writing) -> Result<(u64, f64), Finish> {
    let number = match search.begin(writing).expect("begun") {
        Begun::Trial(number) => number,
        Begun::Over(finish) => return Err(finish),
        other => panic!("{other:?}"),
    };
    let request = Request::Suggest { name: "x".to_owned(), distribution: unit(), default: None, place: String::new() };
    let Reply::Value { value: Value::Float(x) } = search.answer(number, &request).expect("answered") else {
        panic!("x has no value");
    };
    search.answer(number, &Request::Finish { values: vec![Some(x)] }).expect("told");
    search.conclude(number).expect("concluded");
    Ok((number, x))
}

#[test]
fn a_number_that_another_program_took_is_not_taken_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut journal = open(folder.path()).expect("a new study");
    let optuna = Optuna::on(folder.path(), "30db-1");
    assert_eq!(journal.begin_trial().expect("begun"), 0);
    optuna.create();
    // Facts of our trial follow its first line.
    journal.report(0, 0, &metrics(&[("accuracy", Some(0.5))])).expect("told");
    assert_eq!(journal.begin_trial().expect("begun"), 2);
    optuna.end(1, 0.25);
    assert!(journal.read_on().expect("read"));
    assert!(!journal.read_on().expect("read"));
    assert_eq!((journal.trials()[1].runner, journal.trials()[1].value()), (Runner::Other, Some(0.25)));
    assert_eq!(journal.trials()[1].parameters["x"].value, Value::Float(0.25));
    let read = Journal::read(folder.path()).expect("a study").trials;
    assert_eq!(read[0].metrics[&0], metrics(&[("accuracy", Some(0.5))]));
    assert_eq!((read[1].clone(), read[2].runner), (journal.trials()[1].clone(), Runner::Search));
}

#[test]
fn two_programs_that_write_at_a_time_have_numbers_and_lines_of_their_own() {
    let directory = tempfile::tempdir().expect("a folder");
    let mut search = search(directory.path(), 10_000);
    let optuna = Optuna::on(search.folder(), "30db-1");
    let mut ours = Vec::new();
    let rounds = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            for count in 0..60 {
                optuna.create();
                optuna.end(optuna.own()[count], 0.5 + count as f64 / 1000.0);
                rounds.fetch_add(1, Ordering::SeqCst);
            }
        });
        while !other.is_finished() {
            // On a busy machine the other writer may wait long for a processor, and the number of our trials is limited.
            if ours.len() >= 100 * (rounds.load(Ordering::SeqCst) + 1) {
                std::thread::yield_now();
                continue;
            }
            let writing = if ours.len() % 2 == 0 { Writing::EachFact } else { Writing::EachTrial };
            ours.push(run_next(&mut search, writing).expect("one more trial"));
        }
    });
    // The last facts of the other writer are read before the search continues.
    ours.push(run_next(&mut search, Writing::EachFact).expect("one more trial"));
    let theirs: Vec<(u64, f64)> =
        optuna.own().into_iter().enumerate().map(|(count, number)| (number, 0.5 + count as f64 / 1000.0)).collect();
    let mut all = [ours, theirs.clone()].concat();
    all.sort_by_key(|(number, _)| *number);
    let read = Journal::read(search.folder()).expect("a study").trials;
    assert_eq!(read.iter().map(|trial| (trial.number, trial.values[0])).collect::<Vec<_>>(), all);
    assert!(all.iter().map(|(number, _)| *number).eq(0..all.len() as u64));
    let elsewhere = read.iter().filter(|trial| trial.runner == Runner::Other).map(|trial| trial.number);
    assert!(elsewhere.eq(theirs.iter().map(|(number, _)| *number)));
    for (mine, read) in search.trials().iter().zip(&read) {
        assert_eq!((&mine.values, &mine.ending, mine.runner), (&read.values, &read.ending, read.runner));
    }
}

#[test]
fn trials_that_another_program_enqueues_are_run_and_those_it_runs_are_left_alone() {
    let directory = tempfile::tempdir().expect("a folder");
    let mut search = search(directory.path(), 6);
    let optuna = Optuna::on(search.folder(), "30db-1");
    assert_eq!(run_next(&mut search, Writing::EachFact).expect("a trial").0, 0);
    optuna.enqueue(json!({"x": 0.125}));
    optuna.enqueue(json!({"x": 0.25}));
    optuna.enqueue(json!({}));
    // Optuna begins one of the enqueued trials and is then killed. It also begins a trial of its own.
    optuna.begin_enqueued(2);
    optuna.create();
    assert_eq!(run_next(&mut search, Writing::EachTrial).expect("the first enqueued one"), (1, 0.125));
    assert_eq!(run_next(&mut search, Writing::EachFact).expect("the one without values").0, 3);
    assert_eq!(run_next(&mut search, Writing::EachFact).expect("a new one").0, 5);
    assert_eq!(run_next(&mut search, Writing::EachFact), Err(Finish::MaxTrials));
    drop(search);
    let mut again = self::search(directory.path(), 7);
    assert_eq!(run_next(&mut again, Writing::EachFact).expect("a new one").0, 6);
    assert_eq!(run_next(&mut again, Writing::EachFact), Err(Finish::MaxTrials));
    let lost: Vec<u64> =
        again.trials().iter().filter(|trial| trial.ending.is_none()).map(|trial| trial.number).collect();
    assert_eq!(lost, [2, 4]);
}

#[test]
fn a_trial_of_ours_that_another_program_has_begun_or_ended_is_not_run() {
    let directory = tempfile::tempdir().expect("a folder");
    let mut journal = open(directory.path()).expect("a new study");
    let optuna = Optuna::on(directory.path(), "30db-1");
    for x in [0.25, 0.5] {
        journal.enqueue_trial(&[("x".to_owned(), Value::Float(x))].into()).expect("enqueued");
    }
    optuna.begin_enqueued(0);
    assert!(!journal.begin_enqueued_trial(0).expect("read"));
    assert!(journal.begin_enqueued_trial(1).expect("read"));
    // This is too late: the first program that begins a trial owns it, and its first end is final.
    optuna.begin_enqueued(1);
    let ended = TrialRecord { values: vec![0.5], ending: Some(Ending::Finished), ..journal.trials()[1].clone() };
    end(&mut journal, &ended);
    optuna.end(1, 0.75);
    let read = Journal::read(directory.path()).expect("a study").trials;
    assert_eq!(read[1], ended);
    assert!(journal.read_on().expect("read"));
    assert_eq!((journal.trials()[0].runner, journal.trials()[1].runner), (Runner::Other, Runner::Search));
}

#[test]
fn a_link_that_a_killed_search_left_holds_up_nobody() {
    let folder = tempfile::tempdir().expect("a folder");
    drop(open(folder.path()).expect("a new study"));
    let lock = folder.path().join("journal.log.lock");
    std::os::unix::fs::symlink(".//journal.log", &lock).expect("a link");
    // Optuna checks the link's target, and declares the holder dead if the target has not changed for long.
    assert!(std::fs::metadata(&lock).expect("the journal").is_file());
    let mut journal = open(folder.path()).expect("at once");
    journal.begin_trial().expect("begun");
    assert!(std::fs::symlink_metadata(&lock).is_err());
}

#[test]
fn what_another_program_left_of_a_line_is_kept_beside_the_journal() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut journal = open(folder.path()).expect("a new study");
    let optuna = Optuna::on(folder.path(), "30db-1");
    optuna.append_unlocked(r#"{"op_code":4,"worker_id":"30db"#);
    assert!(!journal.read_on().expect("a line that is being written"));
    assert_eq!(journal.begin_trial().expect("begun"), 0);
    let kept = std::fs::read_to_string(folder.path().join("journal.torn")).expect("kept");
    assert_eq!(kept, "{\"op_code\":4,\"worker_id\":\"30db\n");
    assert_eq!(Journal::read(folder.path()).expect("a study").trials.len(), 1);
}

#[test]
fn lines_that_optuna_ignores_or_understands_alone_do_not_end_the_search() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut journal = open(folder.path()).expect("a new study");
    let optuna = Optuna::on(folder.path(), "30db-1");
    assert_eq!(journal.begin_trial().expect("begun"), 0);
    // This trial was in the study that was in this folder before.
    optuna.end(12, 0.5);
    optuna.append(json!({"op_code": 7, "trial_id": 12, "step": 0, "intermediate_value": 0.5}));
    optuna.append(json!({"op_code": 8, "trial_id": 12, "user_attr": {"note": "late"}}));
    optuna.create();
    let choices = json!({"name": "CategoricalDistribution", "attributes": {"choices": [null, 0.1]}}).to_string();
    optuna.append(json!({"op_code": 5, "trial_id": 1, "param_name": "wd", "param_value_internal": 0,
        "distribution": choices}));
    optuna.end(1, 0.25);
    assert!(journal.read_on().expect("read"));
    let names: Vec<&str> = journal.trials()[1].parameters.keys().map(String::as_str).collect();
    assert_eq!((journal.trials().len(), journal.trials()[1].value(), names), (2, Some(0.25), vec!["x"]));
    assert_eq!(journal.begin_trial().expect("begun"), 2);
    assert_eq!(Journal::read(folder.path()).expect("a study").trials[1], journal.trials()[1]);
    // A search never records facts of a trial that does not exist.
    Optuna::on(folder.path(), "ferrotune-1").end(12, 0.5);
    assert!(Journal::read(folder.path()).is_err());
}

#[test]
fn a_line_that_is_none_stops_the_search_and_stays() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut journal = open(folder.path()).expect("a new study");
    Optuna::on(folder.path(), "30db-1").append_unlocked("not JSON\n");
    let error = journal.begin_trial().expect_err("damaged").to_string();
    assert!(error.contains("of ") && error.contains("is damaged (expected ident at line 1 column 2)"), "{error}");
    assert!(journal.report(0, 0, &metrics(&[])).is_err());
    assert!(std::fs::read_to_string(folder.path().join("journal.log")).expect("a journal").ends_with("not JSON\n"));
}
