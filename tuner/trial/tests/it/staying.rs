//! Tests of trials one after another in the same worker, as on a TPU. The device's library does not load here:
//! `tests/test_tpu_trials.py` tests devices that open.

use crate::harness::{Done, Supervisor, on_disk, spec, tagged};
use ferrotune_space::event::{Event, Finish};
use ferrotune_space::record::{Ending, TrialRecord};
use ferrotune_space::spec::StudySpec;
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;

/// The specification of a search on a device that only one process at a time can use.
fn exclusive(directory: &Path, scenario: &str, max_trials: u64) -> StudySpec {
    std::fs::create_dir_all(directory).unwrap();
    let library = directory.join("libtpu.so");
    std::fs::write(&library, "").unwrap();
    let mut spec = StudySpec { device: format!("xla:{}", library.display()), ..spec(directory, scenario, max_trials) };
    (spec.supervision.grace_s, spec.supervision.device_wait_s) = (1, 1);
    spec
}

fn start(spec: &StudySpec) -> Supervisor {
    let lock_file = spec.directory.join("lockfile");
    Supervisor::start_in(spec, &[], &[("FERROTUNE_TPU_LOCKFILE", lock_file.to_str().unwrap())])
}

/// The process id of each trial's worker.
fn workers(done: &Done) -> Vec<u32> {
    let pids = done.events.iter().filter_map(|event| match event {
        Event::TrialStarted { pid, .. } => Some(*pid),
        _ => None,
    });
    pids.collect()
}

fn reported(record: &TrialRecord, metric: &str) -> f64 {
    record.metrics[&0][metric].unwrap()
}

fn log(spec: &StudySpec, number: u64) -> String {
    let folder = spec.directory.join(&spec.project).join("trials").join(number.to_string());
    std::fs::read_to_string(folder.join("output.log")).unwrap()
}

#[test]
fn trials_share_a_process_and_its_statics_and_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let mut spec = exclusive(directory.path(), "in_company", 12);
    (spec.trial_timeout_s, spec.supervision.max_consecutive_failures) = (Some(5.0), Some(9));
    let done = start(&spec).finish();
    assert_eq!(done.last(), Ok(Finish::MaxTrials));
    let records = on_disk(&spec);
    let endings: Vec<String> = records.iter().filter_map(|record| Some(record.ending.as_ref()?.to_string())).collect();
    assert_eq!(endings[..2], ["finished", "finished"]);
    assert!(endings[2].starts_with("injected error ("), "{}", endings[2]);
    assert!(endings[3].starts_with("panicked: injected panic ("), "{}", endings[3]);
    assert_eq!(
        endings[4..],
        [
            "finished",
            "killed by SIGABRT",
            "finished",
            "timed out after 5 s",
            "finished",
            "finished",
            "finished",
            "finished"
        ]
    );
    // A panic, a signal, a limit and a leak each end the worker; an error does not.
    let seen: Vec<f64> = records.iter().map(|record| reported(record, "trials")).collect();
    assert_eq!(seen, [1.0, 2.0, 3.0, 4.0, 1.0, 2.0, 1.0, 2.0, 1.0, 2.0, 1.0, 2.0]);
    let processes: Vec<u32> = records.iter().map(|record| reported(record, "process") as u32).collect();
    assert_eq!(processes, workers(&done));
    assert_eq!(processes.iter().collect::<BTreeSet<_>>().len(), 5);
    assert!(records.iter().all(|record| reported(record, "found") == 0.0), "files or a folder of an earlier trial");
    for number in 0..12 {
        let log = log(&spec, number);
        assert_eq!(log.matches("said by").count(), 1, "{log}");
        assert!(log.contains(&format!("said by {number}\n")), "{log}");
    }
    let left = |number: usize| records[number].memory.as_ref().unwrap().left.join(", ");
    assert_eq!((left(0).as_str(), left(1).as_str()), ("", "2 processes, killed"));
    assert!(left(9).ends_with("in its worker, which is replaced"), "{}", left(9));
    assert_eq!(tagged("in_company"), Vec::<String>::new());
}

#[test]
fn worker_is_replaced_after_as_many_trials_as_it_may_run() {
    let directory = tempfile::tempdir().unwrap();
    let mut spec = exclusive(directory.path(), "in_company", 3);
    spec.supervision.worker_trials = 2;
    let done = start(&spec).finish();
    assert_eq!(done.last(), Ok(Finish::MaxTrials));
    let pids = workers(&done);
    assert!(pids[0] == pids[1] && pids[1] != pids[2], "{pids:?}");
    let seen: Vec<f64> = on_disk(&spec).iter().map(|record| reported(record, "trials")).collect();
    assert_eq!(seen, [1.0, 2.0, 1.0]);
}

#[test]
fn trial_that_reports_is_told_to_stop_before_its_worker_is_killed() {
    let directory = tempfile::tempdir().unwrap();
    let mut spec = exclusive(directory.path(), "heed", 2);
    (spec.trial_timeout_s, spec.supervision.grace_s) = (Some(0.5), 100);
    let done = start(&spec).finish();
    assert_eq!(done.last(), Ok(Finish::MaxTrials));
    for record in on_disk(&spec) {
        assert_eq!(record.ending, Some(Ending::TimedOut { after_s: 1 }));
        assert!(log(&spec, record.number).contains("leaves: "), "{}", log(&spec, record.number));
    }
}

#[test]
fn interrupt_stops_the_trial_and_the_worker_and_the_search_goes_on_later() {
    let directory = tempfile::tempdir().unwrap();
    let mut spec = exclusive(directory.path(), "heed", 1);
    spec.project = "interrupted".to_owned();
    let mut supervisor = start(&spec);
    supervisor.wait_for_step(3);
    supervisor.signal(Signal::INT);
    let done = supervisor.finish();
    assert_eq!(done.last(), Ok(Finish::Interrupted));
    assert_eq!(tagged("interrupted"), Vec::<String>::new());
    assert_eq!(on_disk(&spec)[0].ending, None);
}

#[test]
fn worker_dies_with_its_supervisor_and_the_next_search_takes_the_device() {
    let directory = tempfile::tempdir().unwrap();
    let spec = exclusive(directory.path(), "heed", 1);
    let mut supervisor = start(&spec);
    supervisor.wait_for_step(3);
    supervisor.signal(Signal::KILL);
    assert!(!supervisor.abandon().success());
    let spec = StudySpec { trial_timeout_s: Some(0.2), ..spec };
    let done = start(&spec).finish();
    assert_eq!(done.last(), Ok(Finish::MaxTrials));
    assert_eq!(on_disk(&spec)[0].ending, Some(Ending::TimedOut { after_s: 1 }));
}

#[test]
fn a_second_search_names_the_first_one_that_has_the_device() {
    let directory = tempfile::tempdir().unwrap();
    let first = exclusive(directory.path(), "heed", 1);
    let mut running = start(&first);
    running.wait_for_step(1);
    let second = StudySpec { project: "second".to_owned(), ..exclusive(directory.path(), "quick", 1) };
    let error = start(&second).finish().last().unwrap_err();
    let expected = format!(
        "{} takes one process at a time, and process {} (objective) runs another search on it, also after 1 s; end that process \
         or restart its notebook, then run the search again: it goes on where it is",
        second.device,
        running.pid()
    );
    assert_eq!(error, expected);
    assert!(on_disk(&second).is_empty(), "no trial has begun");
    running.signal(Signal::INT);
    running.signal(Signal::INT);
    assert_eq!(running.finish().last(), Ok(Finish::Interrupted));
}

#[test]
fn device_that_a_stranger_uses_is_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let mut spec = exclusive(directory.path(), "in_company", 1);
    spec.supervision.device_wait_s = 60;
    let lock_file = std::fs::canonicalize(directory.path()).unwrap().join("lockfile");
    let mut redirection = OsString::from("exec 3>");
    redirection.push(lock_file.as_os_str());
    redirection.push("; exec sleep 1");
    let mut stranger = std::process::Command::new("sh").arg("-c").arg(redirection).spawn().unwrap();
    while !lock_file.exists() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let mut supervisor = start(&spec);
    supervisor.wait_for(|event| matches!(event, Event::TrialStarted { .. }));
    assert!(stranger.try_wait().unwrap().is_some(), "the trial began while the stranger had the device");
    assert_eq!(supervisor.finish().last(), Ok(Finish::MaxTrials));
}

#[test]
fn trials_side_by_side_are_refused_before_anything_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let mut spec = exclusive(directory.path(), "quick", 2);
    spec.supervision.concurrency = 2;
    let error = start(&spec).finish().last().unwrap_err();
    let cure = "takes one process at a time, so its trials run one after another; use --concurrency 1 instead of 2";
    assert_eq!(error, format!("{} {cure}", spec.device));
    assert!(!directory.path().join("quick").exists());
}
