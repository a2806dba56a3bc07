//! Tests of failing trials: every way to fail is recorded as what it is, and the search continues.

use crate::harness::{on_disk, run, spec, tagged};
use ferrotune_space::event::Finish;
use ferrotune_space::record::{Ending, TrialRecord};
use std::process::Command;

const MIB: u64 = 1 << 20;

#[test]
fn every_fault_has_its_ending_and_the_search_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let mut spec = spec(directory.path(), "faults", 13);
    spec.trial_timeout_s = Some(2.0);
    spec.memory_budget_bytes = Some(300 * MIB);
    let done = run(&spec);
    assert_eq!(done.last(), Ok(Finish::MaxTrials));
    let endings: Vec<String> = done.ended().iter().map(|record| record.ending.as_ref().unwrap().to_string()).collect();
    let expected = [
        "finished",
        "panicked: injected panic (tuner/trial/examples/objective/faults.rs:",
        "killed by SIGABRT",
        "exited with 0 before the objective returned",
        "exited with 3 before the objective returned",
        "killed by SIGSEGV",
        "timed out after 2 s",
        "out of memory: ",
        "timed out after 2 s",
        "injected error",
        "finished",
        "finished",
        "finished",
    ];
    assert_eq!(endings.len(), expected.len(), "{endings:?}");
    for (ending, expected) in endings.iter().zip(expected) {
        assert!(ending.starts_with(expected), "{ending} for {expected}");
    }
    let without_reports = on_disk(&spec).iter().map(TrialRecord::without_reports).collect::<Vec<_>>();
    assert_eq!(without_reports.iter().collect::<Vec<_>>(), done.ended());
    assert_eq!(tagged("faults"), Vec::<String>::new());
}

#[test]
fn memory_is_held_to_the_budget_before_much_more_is_taken() {
    let directory = tempfile::tempdir().unwrap();
    let mut spec = spec(directory.path(), "faults", 8);
    spec.project = "budget".to_owned();
    spec.trial_timeout_s = Some(3.0);
    spec.memory_budget_bytes = Some(200 * MIB);
    let done = run(&spec);
    let Some(Ending::OutOfMemory { peak_bytes, budget_bytes }) = done.ended()[7].ending else {
        panic!("{:?}", done.ended()[7].ending);
    };
    assert_eq!(budget_bytes, 200 * MIB);
    // At 1 GB/s a tick takes 10 MB; a benchmark checks that. Only a watch that sleeps lets a trial take more than the limit here.
    assert!(peak_bytes > 200 * MIB && peak_bytes < 500 * MIB, "{peak_bytes}");
    assert!(done.ended()[7].peak_bytes >= peak_bytes);
}

#[test]
fn last_output_of_a_trial_is_in_its_log() {
    let directory = tempfile::tempdir().unwrap();
    let mut spec = spec(directory.path(), "faults", 12);
    spec.project = "output".to_owned();
    spec.trial_timeout_s = Some(3.0);
    spec.memory_budget_bytes = Some(100 * MIB);
    run(&spec);
    let log = |trial: u64| {
        let path = directory.path().join(format!("output/trials/{trial}/output.log"));
        std::fs::read_to_string(path).unwrap()
    };
    assert_eq!(log(11).len(), 64 << 10);
    assert!(log(11).ends_with("line 199999 of much output\n"));
    assert!(log(1).contains("injected panic"), "{}", log(1));
}

#[test]
fn library_that_cannot_be_loaded_is_the_reason_of_the_failure() {
    let directory = tempfile::tempdir().unwrap();
    let mut spec = spec(directory.path(), "library", 1);
    spec.library = directory.path().join("no library");
    std::fs::write(&spec.library, "no ELF file, but long enough to look for a header in it").unwrap();
    let ending = run(&spec).ended()[0].ending.clone().unwrap().to_string();
    assert!(ending.starts_with("cannot load the objective: ") && ending.contains("objective.so"), "{ending}");
}

#[test]
fn entry_point_of_a_library_is_called_and_its_status_is_the_workers() {
    let directory = tempfile::tempdir().unwrap();
    let (source, library) = (directory.path().join("seven.rs"), directory.path().join("seven.so"));
    std::fs::write(&source, "#[unsafe(no_mangle)] pub extern \"C\" fn library() -> i32 { 7 }").unwrap();
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    rustc.args(["--edition=2024", "--crate-type=cdylib", "-o"]).arg(&library).arg(&source);
    assert!(rustc.status().unwrap().success());
    let mut spec = spec(directory.path(), "library", 1);
    spec.library = library.clone();
    let reason = "exited with 7 before the objective returned".to_owned();
    assert_eq!(run(&spec).ended()[0].ending, Some(Ending::Failed { reason }));
    let copy = directory.path().join("library/objective.so");
    assert_eq!(std::fs::read(copy).unwrap(), std::fs::read(library).unwrap());
}

#[test]
fn three_failures_and_no_success_end_the_search() {
    let directory = tempfile::tempdir().unwrap();
    let done = run(&spec(directory.path(), "impossible", 10));
    assert_eq!(done.ended().len(), 3);
    assert!(!done.status.success());
    let message = done.last().unwrap_err();
    assert!(message.starts_with("the first 3 trials all failed, the last one so: "), "{message}");
    assert!(message.contains("units"), "{message}");
}

#[test]
fn output_that_cannot_be_kept_costs_no_trial() {
    let directory = tempfile::tempdir().unwrap();
    let done = run(&spec(directory.path(), "homeless", 2));
    assert_eq!(done.last(), Ok(Finish::MaxTrials));
    assert!(done.ended().iter().all(|record| record.ending == Some(Ending::Finished)), "{:?}", done.ended());
}

#[test]
fn trial_that_ends_badly_costs_those_beside_it_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let mut spec = spec(directory.path(), "faults", 13);
    spec.project = "beside".to_owned();
    spec.trial_timeout_s = Some(2.0);
    spec.memory_budget_bytes = Some(300 * MIB);
    spec.supervision.concurrency = 4;
    let done = run(&spec);
    assert_eq!(done.last(), Ok(Finish::MaxTrials));
    let mut finished: Vec<u64> =
        done.ended().iter().filter(|record| record.value().is_some()).map(|it| it.number).collect();
    finished.sort_unstable();
    assert_eq!(finished, [0, 10, 11, 12]);
    assert!(matches!(on_disk(&spec)[7].ending, Some(Ending::OutOfMemory { .. })), "{:?}", on_disk(&spec)[7].ending);
    assert_eq!(tagged("beside"), Vec::<String>::new());
}

#[test]
fn one_allocation_beyond_the_budget_is_refused_by_the_system() {
    let directory = tempfile::tempdir().unwrap();
    let mut spec = spec(directory.path(), "greedy", 1);
    spec.memory_budget_bytes = Some(100 * MIB);
    let Some(Ending::OutOfMemory { peak_bytes, .. }) = run(&spec).ended()[0].ending else { panic!() };
    assert!(peak_bytes >= 4096 * MIB, "{peak_bytes}");
    // The refused memory was never allocated.
    assert!(on_disk(&spec)[0].peak_bytes < 100 * MIB);
}

#[test]
fn flood_of_threads_is_ended() {
    let directory = tempfile::tempdir().unwrap();
    let done = run(&spec(directory.path(), "threads", 1));
    let ending = done.ended()[0].ending.clone().unwrap().to_string();
    assert!(
        ending.ends_with("threads and processes at once; a trial may have 4096") || ending.contains("thread"),
        "{ending}"
    );
    // Without an end, each thread would sleep for 9 s.
    assert!(done.ended()[0].seconds < 5.0, "{}", done.ended()[0].seconds);
}

#[test]
fn records_of_megabytes_make_no_event_and_no_status_large() {
    let directory = tempfile::tempdir().unwrap();
    let spec = spec(directory.path(), "long", 1);
    let done = run(&spec);
    assert_eq!(done.last(), Ok(Finish::MaxTrials), "{:?}", done.last());
    let largest = done.events.iter().map(|event| serde_json::to_vec(event).unwrap().len()).max();
    assert!(largest < Some(16 << 10), "{largest:?} bytes");
    assert!(std::fs::metadata(directory.path().join("long/status.json")).unwrap().len() < 16 << 10);
    let trials = on_disk(&spec);
    assert!(trials.iter().all(|trial| trial.metrics.len() == 1500 && trial.metrics[&7].len() == 101));
}
