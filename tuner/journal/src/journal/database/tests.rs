//! The contract tests of a storage, on SQLite and on PostgreSQL: recorded facts are read back, several searches share a
//! study, and no acknowledged fact is lost. `tests/it/journal.rs` has the same contract for a journal's file.

mod large;
#[path = "../../../tests/it/postgres.rs"]
mod postgres;
mod signs;

use super::super::tests::{record_any, search_of};
use super::super::*;
use ferrotune_space::record::{Ending, Runner};
use ferrotune_space::spec::Supervision;
use ferrotune_space::{Distribution, Parameter, Scale, Value};
use postgres::Server;
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use std::io::Write as _;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

type TestResult = Result<(), Box<dyn std::error::Error + Send + Sync>>;

/// A database for one test, and a folder for its studies.
struct Place {
    folder: tempfile::TempDir,
    url: String,
    server: Option<Server>,
}

impl Place {
    fn sqlite() -> std::io::Result<Place> {
        let folder = tempfile::tempdir()?;
        let url = format!("sqlite:///{}", folder.path().join("studies.db").display());
        Ok(Place { folder, url, server: None })
    }

    /// Both databases; PostgreSQL only if a server can be started.
    fn all() -> std::io::Result<Vec<Place>> {
        let mut places = vec![Place::sqlite()?];
        if let Some(server) = postgres::server() {
            let url = server.database("studies");
            places.push(Place { folder: tempfile::tempdir()?, url, server: Some(server) });
        }
        Ok(places)
    }

    fn spec(&self, objectives: u64) -> StudySpec {
        StudySpec { storage: Some(self.url.clone()), max_trials: 1000, ..search_of(objectives) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name).join("it")
    }

    fn open(&self, name: &str, heartbeat_s: u64) -> Result<Journal, JournalError> {
        let supervision = Supervision { heartbeat_s, ..Supervision::default() };
        Journal::open(&self.path(name), &StudySpec { supervision, ..self.spec(1) })
    }
}

fn unit(value: f64) -> Parameter {
    let distribution = Distribution::Float { low: 0.0, high: 1.0, step: None, scale: Scale::Linear };
    Parameter { distribution, value: Value::Float(value) }
}

fn finish(journal: &mut Journal, number: u64, value: f64) -> Result<(), JournalError> {
    let end = End { ending: Ending::Finished, values: vec![value], executions: Vec::new() };
    let usage = Usage::of(&journal.trials()[number as usize]);
    journal.trial_ended(number, usage, end)
}

/// Reads the journal until `is_there` accepts its trials, for at most a minute.
fn read_until(journal: &mut Journal, is_there: impl Fn(&[TrialRecord]) -> bool) -> TestResult {
    for _ in 0..6000 {
        journal.read_on()?;
        if is_there(journal.trials()) {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(10));
    }
    Err(format!("{:?}", journal.trials()).into())
}

#[test]
fn records_of_an_open_study_are_those_of_its_tables_in_every_field() -> TestResult {
    for place in Place::all()? {
        for search in 0..6 {
            let seed = seed::draw();
            let (spec, folder) = (place.spec(1 + search % 2), place.path(&search.to_string()));
            let spec = StudySpec { project: format!("it-{search}"), ..spec };
            let mut rng = Pcg64Mcg::seed_from_u64(seed);
            let mut journal = Journal::open(&folder, &spec)?;
            journal.begin_trial()?;
            for count in 0..120 {
                let number = rng.random_range(0..journal.trials().len() as u64);
                record_any(&mut journal, &mut rng, number)?;
                if count % 20 == 19 {
                    let read = Journal::read(&folder)?;
                    assert_eq!(journal.trials(), read.trials, "{} seed {seed}, fact {count}", place.url);
                    assert_eq!(journal.known.replay.study.times, read.times, "{} seed {seed}", place.url);
                    assert_eq!(journal.known.replay.study.defaults, read.defaults);
                }
            }
            let (live, ended) = (journal.trials().to_vec(), journal.ended());
            drop(journal);
            let again = Journal::open(&folder, &spec)?;
            assert_eq!((again.trials(), again.ended()), (live.as_slice(), ended), "{} seed {seed}", place.url);
        }
    }
    Ok(())
}

#[test]
fn facts_that_are_held_back_are_in_the_tables_when_the_next_trial_begins() -> TestResult {
    for place in Place::all()? {
        let mut journal = place.open("one", 0)?;
        journal.hold();
        for value in [0.25, 0.5, 0.75] {
            let number = journal.begin_trial()?;
            assert_eq!(Journal::read(&place.path("one"))?.trials, journal.trials(), "{}", place.url);
            journal.parameter(number, "x", unit(value))?;
            journal.report(number, 3, &[("loss".to_owned(), Some(value))].into())?;
            finish(&mut journal, number, value)?;
            assert_eq!(Journal::read(&place.path("one"))?.trials[number as usize].ending, None);
        }
        journal.release()?;
        assert_eq!(Journal::read(&place.path("one"))?.trials, journal.trials());
        assert_eq!(journal.ended(), 3);
    }
    Ok(())
}

#[test]
fn searches_of_one_study_have_trials_of_their_own_and_see_each_others() -> TestResult {
    for place in Place::all()? {
        let mut one = place.open("one", 30)?;
        let mut other = place.open("other", 30)?;
        assert_eq!((one.begin_trial()?, other.begin_trial()?, one.begin_trial()?), (0, 1, 2));
        other.parameter(1, "x", unit(0.5))?;
        other.report(1, 0, &[("loss".to_owned(), Some(0.5))].into())?;
        read_until(&mut one, |trials| trials[1].parameters.contains_key("x") && trials[1].metrics.len() == 1)?;
        assert!(one.trials()[1].runs_elsewhere() && !other.trials()[1].runs_elsewhere());
        finish(&mut other, 1, 0.5)?;
        read_until(&mut one, |trials| trials[1].value() == Some(0.5))?;
        assert_eq!((one.ended(), one.trials()[1].runner), (1, Runner::Search));
        // A waiting trial belongs to the first search that begins it.
        let waiting = one.enqueue_trial(&[("x".to_owned(), Value::Float(0.75))].into())?;
        read_until(&mut other, |trials| trials.iter().any(TrialRecord::is_enqueued))?;
        assert!(other.begin_enqueued_trial(waiting)? && !one.begin_enqueued_trial(waiting)?);
        assert!(one.trials()[3].runs_elsewhere() && !other.trials()[3].runs_elsewhere());
        // A search cannot write facts of a trial that another search owns.
        finish(&mut one, waiting, 9.0)?;
        assert_eq!(Journal::read(&place.path("other"))?.trials[3].ending, None, "{}", place.url);
        finish(&mut other, waiting, 0.75)?;
        let both = [one, other].map(|journal| journal.trials().len());
        assert_eq!(both, [4, 4]);
    }
    Ok(())
}

#[test]
fn numbers_are_handed_out_once_however_many_ask() -> TestResult {
    for place in Place::all()? {
        let numbers = thread::scope(|scope| {
            let search = |name: usize| {
                let place = &place;
                move || -> Result<Vec<u64>, JournalError> {
                    let mut journal = place.open(&name.to_string(), 0)?;
                    (0..10)
                        .map(|_| {
                            let number = journal.begin_trial()?;
                            finish(&mut journal, number, number as f64)?;
                            Ok(number)
                        })
                        .collect()
                }
            };
            let searches: Vec<_> = (0..6).map(|name| scope.spawn(search(name))).collect();
            searches.into_iter().map(|search| search.join().expect("no panic")).collect::<Result<Vec<_>, _>>()
        })?;
        let mut numbers = numbers.concat();
        numbers.sort();
        assert_eq!(numbers, (0..60).collect::<Vec<u64>>(), "{}", place.url);
        let read = Journal::read(&place.path("0"))?;
        assert!(read.trials.iter().all(|trial| trial.value() == Some(trial.number as f64)));
    }
    Ok(())
}

#[test]
fn searches_of_one_study_draw_with_one_seed() -> TestResult {
    for place in Place::all()? {
        let open = |name| Journal::open(&place.path(name), &StudySpec { seed: None, ..place.spec(1) });
        let (one, other) = (open("one")?, open("other")?);
        assert!(one.spec().seed.is_some());
        assert_eq!(one.spec().seed, other.spec().seed, "{}", place.url);
    }
    Ok(())
}

#[test]
fn a_study_ends_with_its_last_trial_however_many_ask() -> TestResult {
    for place in Place::all()? {
        let (mut one, mut other) = (place.open("one", 0)?, place.open("other", 0)?);
        assert_eq!(one.begin_trial_within(2)?, Some(0));
        assert_eq!(one.begin_trial_within(2)?, Some(1));
        assert_eq!(other.begin_trial_within(2)?, None);
        assert_eq!(other.trials().len(), 2);
    }
    Ok(())
}

#[test]
fn files_are_in_the_database_as_long_as_a_study_names_them() -> TestResult {
    for place in Place::all()? {
        let mut file = tempfile::tempfile()?;
        let bytes: Vec<u8> = (0..9_000_000_u32).map(|index| (index % 251) as u8).collect();
        file.write_all(&bytes)?;
        let mut journal = place.open("one", 1)?;
        let fetched = |hash: &str| {
            let (mut content, mut found) = (Content::of(&place.url, "it")?, Vec::new());
            content.write(hash, bytes.len() as u64, &mut found)?;
            Ok::<_, JournalError>((content.text()?, found))
        };
        let unpublished = |hash: &str| matches!(fetched(hash), Err(JournalError::NotPublished { .. }));
        assert!(unpublished("abc"), "{}", place.url);
        let (first, second) = (r#"{"files": ["abc"]}"#, r#"{"files": ["def"]}"#);
        // The second call finds all parts of the file already stored.
        for _ in 0..2 {
            journal.publish(first, &[("abc", &file, bytes.len() as u64)])?;
            assert!(fetched("abc")? == (first.to_owned(), bytes.clone()), "{}", place.url);
        }
        journal.publish(second, &[("def", &file, bytes.len() as u64)])?;
        assert!(unpublished("abc") && fetched("def")?.1 == bytes, "{}", place.url);
    }
    Ok(())
}

#[test]
fn a_server_that_crashes_loses_nothing_that_was_acknowledged() -> TestResult {
    let Some(mut server) = postgres::server() else { return Ok(()) };
    let url = server.database("studies");
    let place = Place { folder: tempfile::tempdir()?, url, server: None };
    let mut journal = place.open("one", 1)?;
    for round in 0..5 {
        let number = journal.begin_trial()?;
        journal.parameter(number, "x", unit(0.5))?;
        journal.report(number, 0, &[("loss".to_owned(), Some(0.25))].into())?;
        let acknowledged = journal.trials().to_vec();
        server.crash();
        let restarted = thread::spawn(move || {
            thread::sleep(Duration::from_millis(700));
            server.start_again();
            server
        });
        // This call waits for the server.
        finish(&mut journal, number, f64::from(round))?;
        server = restarted.join().map_err(|_| "the server does not start again")?;
        let read = Journal::read(&place.path("one"))?.trials;
        assert_eq!(read[..number as usize], acknowledged[..number as usize]);
        assert_eq!(read[number as usize].metrics, acknowledged[number as usize].metrics);
        assert_eq!(read, journal.trials());
    }
    assert_eq!(journal.ended(), 5);
    Ok(())
}

#[test]
fn what_cannot_be_opened_says_why_without_a_password() -> TestResult {
    let folder = tempfile::tempdir()?;
    let open = |name: &str, storage: &str| {
        let spec = StudySpec { storage: Some(storage.to_owned()), ..search_of(1) };
        Journal::open(&folder.path().join(name), &spec).map(drop).map_err(|error| format!("{error} {error:?}"))
    };
    let error = open("a", "postgresql://ann:s3cret@127.0.0.1:1/studies").unwrap_err();
    assert!(error.starts_with("storage postgresql://ann@127.0.0.1:1/studies: error connecting to server"), "{error}");
    assert!(!error.contains("s3cret"), "{error}");
    let error = open("a", "mysql://ann:s3cret@db/x").unwrap_err();
    assert!(error.contains("a storage mysql: is not supported"), "{error}");
    let path = folder.path().join("x.db");
    let url = format!("sqlite:///{}", path.display());
    open("b", &url)?;
    let error = open("b", &format!("sqlite:///{}", folder.path().join("y.db").display())).unwrap_err();
    assert!(error.contains("is of a study in sqlite:///"), "{error}");
    rusqlite::Connection::open(&path)?.execute_batch("UPDATE alembic_version SET version_num = 'v9'")?;
    let error = open("b", &url).unwrap_err();
    assert!(error.contains("has version 12 (v9) of Optuna's tables"), "{error}");
    Ok(())
}

#[test]
fn an_overwritten_study_is_gone_unless_another_search_runs_it() -> TestResult {
    for place in Place::all()? {
        let mut one = place.open("one", 30)?;
        one.begin_trial()?;
        drop(place.open("other", 30)?);
        let overwrite = StudySpec { overwrite: true, ..place.spec(1) };
        let error = Journal::open(&place.path("other"), &overwrite).map(drop).unwrap_err().to_string();
        assert!(error.starts_with("study it is in use by a supervisor on "), "{error}");
        assert!(study_folder::is_study(&place.path("other")));
        drop(one);
        assert_eq!(Journal::open(&place.path("one"), &overwrite)?.trials(), []);
        if let Some(server) = &place.server {
            assert_eq!(server.sql("studies", "SELECT count(*) FROM trials"), "0");
        }
    }
    Ok(())
}
