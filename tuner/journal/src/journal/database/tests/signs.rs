//! The contract tests of heartbeats: which trials other searches take over, and which they do not.

use super::super::super::*;
use super::{Place, TestResult, finish, postgres, read_until};
use ferrotune_space::record::Runner;
use ferrotune_space::spec::Supervision;
use std::thread;
use std::time::{Duration, Instant};

#[test]
fn trials_of_a_dead_search_are_taken_over_once_and_its_own_facts_do_not_count_then() -> TestResult {
    for place in Place::all()? {
        let mut dead = place.open("dead", 1)?;
        dead.begin_trial()?;
        dead.checkpoint(0, 4, "checkpoint-000001.safetensors")?;
        dead.beat()?;
        let (mut one, mut other) = (place.open("one", 1)?, place.open("other", 1)?);
        assert_eq!(one.dead()?, [], "it has just lived");
        let found = loop {
            thread::sleep(Duration::from_millis(100));
            let found = one.dead()?;
            if !found.is_empty() {
                break found;
            }
        };
        let [found] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!(found.number, 0);
        let reason = found.ending.as_ref().map(ToString::to_string);
        assert!(reason.as_ref().is_some_and(|reason| reason.contains("gave no sign of life for")), "{reason:?}");
        let (folder, file) = found.checkpoint.as_ref().expect("its folder is there");
        assert_eq!((folder, file.as_str()), (&place.path("dead"), "checkpoint-000001.safetensors"));
        read_until(&mut other, |trials| trials.len() == 1)?;
        assert_eq!((one.take_over(found)?, other.take_over(found)?), (true, false), "{}", place.url);
        assert_eq!(one.trials()[0].runner, Runner::Search);
        assert_eq!(one.trials()[0].checkpoint.as_deref(), Some("checkpoint-000001.safetensors"));
        // The trial's first supervisor was not dead, but only cut off.
        dead.report(0, 5, &[("loss".to_owned(), Some(0.5))].into())?;
        assert!(dead.trials()[0].runs_elsewhere());
        finish(&mut dead, 0, 3.0)?;
        finish(&mut one, 0, 4.0)?;
        read_until(&mut other, |trials| trials[0].values == [4.0])?;
        assert!(other.trials()[0].metrics.is_empty(), "{}", place.url);
    }
    Ok(())
}

#[test]
fn a_transaction_that_was_cut_off_keeps_nobody_from_giving_signs_of_life() -> TestResult {
    let Some(server) = postgres::server() else { return Ok(()) };
    let url = server.database("studies");
    let place = Place { folder: tempfile::tempdir()?, url: url.clone(), server: None };
    let (mut dead, mut one) = (place.open("dead", 1)?, place.open("one", 1)?);
    dead.begin_trial()?;
    dead.beat()?;
    read_until(&mut one, |trials| trials.len() == 1)?;
    let found = loop {
        thread::sleep(Duration::from_millis(100));
        if let Some(found) = one.dead()?.pop() {
            break found;
        }
    };
    let number = one.begin_trial()?;
    one.beat()?;
    let mut client = ::postgres::Client::connect(&url, ::postgres::NoTls)?;
    // A transaction that waits for this one waits at most 20 s.
    client.batch_execute("SET idle_in_transaction_session_timeout = '20s'")?;
    let mut cut_off = client.transaction()?;
    cut_off.query("SELECT 1 FROM trials FOR UPDATE", &[])?;
    let given = || {
        let sql = "SELECT heartbeat FROM trial_heartbeats JOIN trials USING (trial_id) WHERE number =";
        server.sql("studies", &format!("{sql} {number}"))
    };
    let (begin, before) = (Instant::now(), given());
    assert!(!one.take_over(&found)?, "it is held");
    thread::sleep(Duration::from_millis(600));
    one.beat()?;
    assert!(begin.elapsed() < Duration::from_secs(10), "it waited for {:?}", begin.elapsed());
    assert_ne!(given(), before);
    cut_off.rollback()?;
    assert!(one.take_over(&found)?);
    assert!(!one.trials()[number as usize].runs_elsewhere());
    Ok(())
}

#[test]
fn nobody_dies_of_an_outage_of_the_server() -> TestResult {
    let Some(mut server) = postgres::server() else { return Ok(()) };
    let url = server.database("studies");
    let place = Place { folder: tempfile::tempdir()?, url, server: None };
    let (mut one, mut other) = (place.open("one", 1)?, place.open("other", 1)?);
    one.begin_trial()?;
    read_until(&mut other, |trials| trials.len() == 1)?;
    assert_eq!(other.dead()?, []);
    server.crash();
    thread::sleep(Duration::from_secs(3));
    server.start_again();
    assert_eq!(other.dead()?, [], "it could give no sign");
    for _ in 0..6 {
        thread::sleep(Duration::from_millis(500));
        one.beat()?;
        assert_eq!(other.dead()?, [], "it lives");
    }
    drop(one);
    Ok(())
}

#[test]
fn the_trials_of_a_search_that_has_left_in_good_order_wait_for_it() -> TestResult {
    for place in Place::all()? {
        let mut first = place.open("first", 1)?;
        first.begin_trial()?;
        drop(first);
        let mut other = place.open("other", 1)?;
        thread::sleep(Duration::from_millis(2500));
        assert_eq!(other.dead()?, [], "{}", place.url);
        let again = place.open("first", 1)?;
        assert_eq!(again.trials()[0].runner, Runner::Search);
    }
    Ok(())
}

#[test]
fn the_trials_of_a_worker_that_has_left_are_at_once_for_others() -> TestResult {
    for place in Place::all()? {
        let supervision = Supervision { heartbeat_s: 60, leaves_trials: true, ..Supervision::default() };
        let mut worker = Journal::open(&place.path("worker"), &StudySpec { supervision, ..place.spec(1) })?;
        worker.begin_trial()?;
        worker.checkpoint(0, 4, "checkpoint-000001.safetensors")?;
        let mut other = place.open("other", 60)?;
        assert!(other.trials()[0].runs_elsewhere() && other.any_has_signs(&[0])?, "{}", place.url);
        drop(worker);
        let found = other.dead()?;
        let [left] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((left.number, &left.ending, left.checkpoint.is_some()), (0, &None, true), "{}", place.url);
        assert!(other.take_over(left)?);
        assert_eq!(other.trials()[0].runner, Runner::Search);
    }
    Ok(())
}
