//! The contract tests of a storage with large numbers: steps, other integers, and the number of trials.

use super::super::super::tests::search_of;
use super::super::super::*;
use super::{Place, TestResult, finish, read_until};
use ferrotune_space::record::Ending;
use ferrotune_space::{Distribution, Parameter, Scale, Value};
use std::collections::BTreeMap;

/// Steps around the limits of 31, 32, 53, 63 and 64 bits.
const STEPS: [u64; 9] =
    [0, (1 << 31) - 1, 1 << 31, (1 << 32) + 1, (1 << 53) + 1, (1 << 63) - 1, 1 << 63, u64::MAX - 1, u64::MAX];

/// A number of trials that exceeds SQLite's limit on values in one statement, and the range of a signed 16-bit integer.
const TRIALS: u64 = 32_769;

impl Place {
    /// Runs a statement as another program would.
    fn run(&self, sql: &str) -> TestResult {
        match &self.server {
            Some(server) => drop(server.sql("studies", sql)),
            None => rusqlite::Connection::open(self.folder.path().join("studies.db"))?.execute_batch(sql)?,
        }
        Ok(())
    }
}

fn metrics(values: &[(&str, f64)]) -> BTreeMap<String, Option<f64>> {
    values.iter().map(|(name, value)| ((*name).to_owned(), Some(*value))).collect()
}

/// Reports finite values, other values, and both in turn, with another metric and without.
fn report_all(journal: &mut Journal) -> Result<(), JournalError> {
    for (step, value) in STEPS.into_iter().zip(1..) {
        let value = f64::from(value) / 3.0;
        journal.report(0, step, &metrics(&[("loss", value), ("size", -value)]))?;
    }
    for (step, value) in STEPS.into_iter().zip([0.1, f64::NAN, f64::INFINITY].into_iter().cycle()) {
        journal.report(0, step, &metrics(&[("loss", value)]))?;
    }
    for step in STEPS.into_iter().step_by(2) {
        journal.report(0, step, &metrics(&[("loss", 0.7)]))?;
        journal.report(0, step, &metrics(&[("size", f64::NEG_INFINITY)]))?;
    }
    Ok(())
}

#[test]
fn reports_of_any_step_are_those_of_a_file() -> TestResult {
    for place in Place::all()? {
        for is_held in [false, true] {
            let name = format!("held {is_held}");
            let mut file = Journal::open(&place.path(&format!("file {name}")), &search_of(1))?;
            let spec = StudySpec { project: name.clone(), ..place.spec(1) };
            let mut database = Journal::open(&place.path(&name), &spec)?;
            for journal in [&mut file, &mut database] {
                if is_held {
                    journal.hold();
                }
                journal.begin_trial()?;
                report_all(journal)?;
                journal.release()?;
            }
            let read = || Journal::read(&place.path(&name)).map(|study| study.trials[0].metrics.clone());
            assert_eq!(read()?, file.trials()[0].metrics, "{} {name}", place.url);
            assert_eq!(database.trials()[0].metrics, file.trials()[0].metrics);
            assert!(read()?.keys().copied().eq(STEPS));
            for journal in [&mut file, &mut database] {
                journal.executed(0, vec![0.5])?;
                journal.report(0, u64::MAX, &metrics(&[("loss", 0.25)]))?;
            }
            assert_eq!(read()?, [(u64::MAX, metrics(&[("loss", 0.25)]))].into(), "{} {name}", place.url);
            assert_eq!(file.trials()[0].metrics, read()?);
        }
    }
    Ok(())
}

#[test]
fn a_late_step_is_no_report_of_a_trial_that_another_program_has_ended() -> TestResult {
    for place in Place::all()? {
        let mut journal = place.open("one", 0)?;
        journal.begin_trial()?;
        journal.report(0, 1 << 40, &metrics(&[("loss", 0.5)]))?;
        place.run("UPDATE trials SET state = 'PRUNED'")?;
        journal.report(0, 1 << 41, &metrics(&[("loss", 0.25)]))?;
        let read = Journal::read(&place.path("one"))?.trials;
        assert_eq!(read[0].ending, Some(Ending::Pruned), "{}", place.url);
        assert_eq!(read[0].metrics, [(1 << 40, metrics(&[("loss", 0.5)]))].into());
        assert_eq!(journal.trials(), read);
    }
    Ok(())
}

#[test]
fn late_steps_that_earlier_versions_have_put_into_the_column_are_read() -> TestResult {
    let place = Place::sqlite()?;
    let mut journal = place.open("one", 0)?;
    journal.begin_trial()?;
    for step in [1_u64 << 31, (1 << 63) - 1] {
        place.run(&format!(
            "INSERT INTO trial_intermediate_values (trial_id, step, intermediate_value, intermediate_value_type) \
             SELECT trial_id, {step}, 0.5, 'FINITE' FROM trials"
        ))?;
    }
    drop(journal);
    let mut journal = place.open("one", 0)?;
    let mut reports: BTreeMap<_, _> = [1 << 31, (1 << 63) - 1].map(|step| (step, metrics(&[("loss", 0.5)]))).into();
    assert_eq!(journal.trials()[0].metrics, reports);
    journal.report(0, 1 << 31, &metrics(&[("loss", 0.75)]))?;
    reports.insert(1 << 31, metrics(&[("loss", 0.75)]));
    assert_eq!(Journal::read(&place.path("one"))?.trials[0].metrics, reports);
    Ok(())
}

#[test]
fn whole_numbers_come_back_as_large_as_they_were() -> TestResult {
    for place in Place::all()? {
        let spec = StudySpec { seed: Some(u64::MAX), max_trials: u64::MAX - 1, ..place.spec(1) };
        let mut journal = Journal::open(&place.path("one"), &spec)?;
        journal.begin_trial()?;
        let odd = (1 << 53) + 1;
        for (name, value) in [("least", i64::MIN), ("odd", odd), ("next", i64::MAX - 1), ("most", i64::MAX)] {
            let range = Distribution::Int { low: i64::MIN, high: i64::MAX, step: 1, scale: Scale::Linear };
            journal.parameter(0, name, Parameter { distribution: range, value: Value::Int(value) })?;
            let values = [value, value / 2].map(Value::Int).to_vec();
            let choice = Distribution::Choice { values, is_ordered: false };
            let parameter = Parameter { distribution: choice, value: Value::Int(value) };
            journal.parameter(0, &format!("chosen {name}"), parameter)?;
            journal.user_attribute(0, name, &Value::Int(value))?;
            journal.defaults_to(name, &Value::Int(value))?;
        }
        let preset = [("odd", odd), ("most", i64::MAX)].map(|(name, value)| (name.to_owned(), Value::Int(value)));
        let waiting = journal.enqueue_trial(&preset.into())?;
        journal.epochs(0, u64::MAX)?;
        journal.checkpoint(0, u64::MAX, "checkpoint-000001.safetensors")?;
        let usage = Usage { peak_bytes: u64::MAX, paused_at: Some(u64::MAX), ..Usage::of(&journal.trials()[0]) };
        journal.trial_paused(0, usage)?;
        journal.worker_started(0)?;
        let read = Journal::read(&place.path("one"))?;
        assert_eq!(read.trials, journal.trials(), "{}", place.url);
        assert_eq!((read.spec.seed, read.spec.max_trials), (Some(u64::MAX), u64::MAX - 1));
        assert_eq!(read.trials[0].parameters["odd"].value, Value::Int(odd));
        assert_eq!(read.trials[0].continued_from, Some(u64::MAX));
        assert_eq!(read.trials[waiting as usize].preset["odd"], Value::Int(odd));
        assert_eq!(read.defaults["next"], Value::Int(i64::MAX - 1));
    }
    Ok(())
}

#[test]
fn more_trials_wait_than_a_statement_has_values() -> TestResult {
    for place in Place::all()? {
        let mut journal = place.open("one", 60)?;
        place.run(&format!(
            "WITH RECURSIVE counted (number) AS (SELECT 0 UNION ALL SELECT number + 1 FROM counted WHERE number < {}) \
             INSERT INTO trials (number, study_id, state) SELECT number, 1, 'WAITING' FROM counted",
            TRIALS - 1
        ))?;
        read_until(&mut journal, |trials| trials.len() as u64 == TRIALS)?;
        let numbers: Vec<u64> = (0..TRIALS).collect();
        assert!(!journal.any_has_signs(&numbers)?);
        let last = TRIALS - 1;
        assert!(journal.begin_enqueued_trial(last)?);
        finish(&mut journal, last, 0.5)?;
        place.run(&format!("UPDATE trials SET state = 'FAIL' WHERE number < {last}"))?;
        read_until(&mut journal, |trials| trials[0].ending.is_some())?;
        assert_eq!(journal.ended(), TRIALS, "{}", place.url);
        assert_eq!(journal.trials()[last as usize].value(), Some(0.5));
        assert!(journal.trials().iter().map(|trial| trial.number).eq(numbers));
    }
    Ok(())
}
