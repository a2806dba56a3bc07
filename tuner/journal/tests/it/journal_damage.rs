//! Tests of torn and damaged journals, of journals of newer versions, and of journals that Optuna wrote.

use crate::journal::{begin, end, metrics, open, refusal, write};
use crate::spec;
use expect_test::expect;
use ferrotune_journal::Journal;
use ferrotune_space::record::{Ending, TrialRecord};
use std::path::{Path, PathBuf};

/// Makes a study of three finished trials; returns the path of its journal.
fn study(folder: &Path) -> PathBuf {
    let mut journal = open(folder).expect("a new study");
    for number in 0..3 {
        let mut record = TrialRecord::new(number);
        record.metrics.insert(0, metrics(&[("accuracy", Some(0.5))]));
        (record.values, record.ending) = (vec![0.5], Some(Ending::Finished));
        write(&mut journal, &record);
    }
    folder.join("journal.log")
}

fn whole_lines(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1)
}

#[test]
fn a_journal_torn_anywhere_opens_and_goes_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = study(folder.path());
    let bytes = std::fs::read(&path).expect("a journal");
    // The journal is cut at every byte of the last trial, and at every 13th before.
    let late = bytes.len() - 400;
    for length in (0..late).step_by(13).chain(late..bytes.len()) {
        std::fs::write(&path, &bytes[..length]).expect("torn");
        let journal = open(folder.path()).expect("a torn journal opens");
        let trials = journal.trials().to_vec();
        drop(journal);
        let left = std::fs::read(&path).expect("a journal");
        let whole = whole_lines(&bytes[..length]);
        assert_eq!(left[..whole], bytes[..whole], "cut at {length}");
        assert_eq!(whole_lines(&left), left.len(), "cut at {length}");
        assert_eq!(Journal::read(folder.path()).expect("a study").trials, trials, "cut at {length}");
    }
    let kept = std::fs::read(folder.path().join("journal.torn")).expect("what was cut off is kept");
    assert!(kept.ends_with(&[&bytes[whole_lines(&bytes[..bytes.len() - 1])..bytes.len() - 1], b"\n"].concat()));
}

#[test]
fn a_trial_whose_end_was_torn_off_has_not_ended() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = study(folder.path());
    let bytes = std::fs::read(&path).expect("a journal");
    std::fs::write(&path, &bytes[..bytes.len() - 1]).expect("torn");
    // Reading does not change the file, because a search may be writing its last line.
    let endings: Vec<_> =
        Journal::read(folder.path()).expect("a study").trials.into_iter().map(|trial| trial.ending).collect();
    assert_eq!(endings, [Some(Ending::Finished), Some(Ending::Finished), None]);
    assert_eq!(std::fs::read(&path).expect("a journal").len(), bytes.len() - 1);
    let mut journal = open(folder.path()).expect("a torn journal opens");
    assert_eq!(journal.trials()[2].ending, None);
    begin(&mut journal, 3);
}

#[test]
fn a_flipped_byte_is_found_and_its_line_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = study(folder.path());
    let bytes = std::fs::read(&path).expect("a journal");
    let last_line = whole_lines(&bytes[..bytes.len() - 1]);
    // Without the newline before the last line, the last two lines form one line, which is torn.
    for position in (0..last_line - 1).step_by(7) {
        let mut flipped = bytes.clone();
        flipped[position] ^= 1;
        std::fs::write(&path, &flipped).expect("flipped");
        let line = bytes[..position].iter().filter(|byte| **byte == b'\n').count() + 1;
        let error = refusal(folder.path(), &spec("random"));
        assert!(error.starts_with(&format!("line {line} of STUDY/journal.log is damaged (")), "{position}: {error}");
        assert!(Journal::read(folder.path()).is_err());
        assert_eq!(std::fs::read(&path).expect("a journal"), flipped, "a damaged journal is left as it is");
    }
    let mut flipped = bytes.clone();
    flipped[last_line + 20] ^= 1;
    std::fs::write(&path, &flipped).expect("flipped");
    let journal = open(folder.path()).expect("a damaged last line is a torn one");
    assert_eq!(journal.trials()[2].ending, None);
}

/// Writes a journal of these lines as Optuna does, without checksums.
fn foreign_journal(folder: &Path, lines: &[&str]) {
    std::fs::write(folder.join("journal.log"), lines.join("\n") + "\n").expect("a journal");
}

#[test]
fn a_newer_version_is_not_touched() {
    let folder = tempfile::tempdir().expect("a folder");
    foreign_journal(
        folder.path(),
        &[
            r#"{"op_code":0,"worker_id":"w","study_name":"digits","directions":[2]}"#,
            r#"{"op_code":2,"worker_id":"w","study_id":0,"user_attr":{"ferrotune:journal":7}}"#,
            r#"{"op_code":99,"worker_id":"w"}"#,
        ],
    );
    expect!["study digits was written by ferrotune journal version 7, this one reads up to 2; update ferrotune"]
        .assert_eq(&refusal(folder.path(), &spec("random")));
    let before = std::fs::read(folder.path().join("journal.log")).expect("a journal");
    assert!(before.ends_with(b"99,\"worker_id\":\"w\"}\n"));
}

#[test]
fn a_study_begun_with_optuna_goes_on() {
    let folder = tempfile::tempdir().expect("a folder");
    // Optuna 5.0.0 wrote these lines.
    foreign_journal(
        folder.path(),
        &[
            r#"{"op_code":0,"worker_id":"30db-1","study_name":"mine","directions":[2]}"#,
            r#"{"op_code":4,"worker_id":"30db-1","study_id":0,"datetime_start":"2026-11-20T09:55:23.467692+00:00"}"#,
            r#"{"op_code":5,"worker_id":"30db-1","trial_id":0,"param_name":"a","param_value_internal":9.0,"distribution":"{\"name\": \"IntDistribution\", \"attributes\": {\"log\": false, \"step\": 1, \"low\": 1, \"high\": 10}}"}"#,
            r#"{"op_code":5,"worker_id":"30db-1","trial_id":0,"param_name":"d","param_value_internal":0,"distribution":"{\"name\": \"CategoricalDistribution\", \"attributes\": {\"choices\": [false, true]}}"}"#,
            r#"{"op_code":7,"worker_id":"30db-1","trial_id":0,"step":0,"intermediate_value":0.5}"#,
            r#"{"op_code":6,"worker_id":"30db-1","trial_id":0,"state":1,"values":[0.25],"datetime_complete":"2026-11-20T09:55:23.477178+00:00"}"#,
            r#"{"op_code":4,"worker_id":"30db-1","study_id":0,"datetime_start":null,"state":3,"value":null,"values":null,"distributions":{},"params":{},"user_attrs":{},"system_attrs":{"fixed_params":{"a":3}},"intermediate_values":{}}"#,
        ],
    );
    assert!(Journal::read(folder.path()).is_err(), "no search of ours has been there");
    let journal = open(folder.path()).expect("Optuna's study");
    drop(journal);
    let mut journal = open(folder.path()).expect("now ours as well");
    let trials = journal.trials();
    assert_eq!(trials[0].parameters["a"].value.to_string(), "9");
    assert_eq!(trials[0].parameters["d"].value.to_string(), "false");
    assert_eq!(trials[0].metrics[&0], metrics(&[("accuracy", Some(0.5))]));
    assert_eq!((trials[0].value(), &trials[0].ending), (Some(0.25), &Some(Ending::Finished)));
    expect!["failed under Optuna, which keeps no reason"]
        .assert_eq(&trials[1].ending.as_ref().map(ToString::to_string).unwrap_or_default());
    begin(&mut journal, 2);
}

#[test]
fn constants_of_python_are_no_damage_and_a_broken_line_of_its_is_not_cut_off() {
    let folder = tempfile::tempdir().expect("a folder");
    let lines = [
        r#"{"op_code":0,"worker_id":"30db-1","study_name":"mine","directions":[2]}"#,
        r#"{"op_code":4,"worker_id":"30db-1","study_id":0,"datetime_start":"2026-11-20T09:55:23.467692+00:00"}"#,
        r#"{"op_code":7,"worker_id":"30db-1","trial_id":0,"step":0,"intermediate_value":NaN}"#,
    ];
    foreign_journal(folder.path(), &lines);
    let journal = open(folder.path()).expect("Optuna's study");
    let trials = journal.trials();
    assert_eq!(trials[0].metrics[&0], metrics(&[("accuracy", None)]));
    drop(journal);
    foreign_journal(folder.path(), &[&lines[..], &["not JSON"]].concat());
    let before = std::fs::read(folder.path().join("journal.log")).expect("a journal");
    expect!["line 4 of STUDY/journal.log is damaged (expected ident at line 1 column 2); restore the file from a copy, or start anew with --overwrite"]
        .assert_eq(&refusal(folder.path(), &spec("random")));
    assert_eq!(std::fs::read(folder.path().join("journal.log")).expect("a journal"), before);
}

#[test]
fn a_minimised_study_of_optuna_is_not_maximised() {
    let folder = tempfile::tempdir().expect("a folder");
    foreign_journal(folder.path(), &[r#"{"op_code":0,"worker_id":"w","study_name":"digits","directions":[1]}"#]);
    expect!["study digits optimises accuracy:min, not accuracy:max; use another --project or --overwrite"]
        .assert_eq(&refusal(folder.path(), &spec("random")));
}

#[test]
fn executions_count_with_the_end_that_was_written_with_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut journal = open(folder.path()).expect("a new study");
    let mut record = TrialRecord { executions: vec![vec![0.25]], ..TrialRecord::new(0) };
    begin(&mut journal, 0);
    journal.executed(0, vec![0.25]).expect("written");
    record.executions.push(vec![0.75]);
    (record.values, record.ending) = (vec![0.5], Some(Ending::Finished));
    end(&mut journal, &record);
    drop(journal);
    let path = folder.path().join("journal.log");
    let bytes = std::fs::read(&path).expect("a journal");
    for length in bytes.len() - 900..=bytes.len() {
        std::fs::write(&path, &bytes[..length]).expect("torn");
        let trial = Journal::read(folder.path()).expect("a study").trials.remove(0);
        // If the end is torn off, the last execution is run again.
        let expected = if trial.ending.is_some() { record.executions.clone() } else { vec![vec![0.25]] };
        assert_eq!(trial.executions, expected, "cut at {length}");
    }
}
