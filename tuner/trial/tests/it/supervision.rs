//! Tests of supervision: retries, refusals, the files of ended trials, and the log of the machine between trials.

use crate::harness::{Supervisor, on_disk, run, spec, tagged};
use ferrotune_space::event::Finish;
use ferrotune_space::record::{Ending, State, TrialRecord};
use ferrotune_space::spec::StudySpec;
use ferrotune_tuner::supervisor::spec_of;
use rustix::process::Signal;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

fn checkpoints(spec: &StudySpec, number: u64) -> Vec<PathBuf> {
    let folder = spec.directory.join(&spec.project).join("trials").join(number.to_string());
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = files.filter(|path| path.extension().is_some_and(|end| end == "safetensors")).collect();
    files.sort();
    files
}

#[test]
fn trial_that_a_signal_ends_is_tried_again_as_often_as_asked() {
    let directory = tempfile::tempdir().unwrap();
    let mut spec = spec(directory.path(), "unsteady", 2);
    spec.supervision.retries = 2;
    assert_eq!(run(&spec).last(), Ok(Finish::MaxTrials));
    let records = on_disk(&spec);
    let signalled = Ending::Signalled { signal: 11 };
    // The first trial fails twice, the second one always.
    assert_eq!((&records[0].ending, &records[0].retried), (&Some(Ending::Finished), &vec![signalled.clone(); 2]));
    assert_eq!((&records[1].ending, &records[1].retried), (&Some(signalled.clone()), &vec![signalled; 2]));
}

#[test]
fn failures_in_a_row_end_the_search_with_the_last_reason() {
    let directory = tempfile::tempdir().unwrap();
    let mut spec = spec(directory.path(), "unsteady", 9);
    spec.supervision.max_consecutive_failures = Some(4);
    let done = run(&spec);
    let message = done.last().unwrap_err();
    let expected = "4 trials in a row have failed, as many as --max-consecutive-failures allows, the last one so: \
                    killed by SIGSEGV";
    assert_eq!(message, expected);
    assert_eq!(done.ended().len(), 4);
}

#[test]
fn trial_that_cannot_fit_is_refused_before_it_trains() {
    let directory = tempfile::tempdir().unwrap();
    let mut spec = spec(directory.path(), "sized", 40);
    spec.memory_budget_bytes = Some(150 * MIB);
    assert_eq!(run(&spec).last(), Ok(Finish::MaxTrials));
    let records = on_disk(&spec);
    let refused = |record: &&TrialRecord| matches!(record.ending, Some(Ending::Refused { .. }));
    let need = |record: &TrialRecord| match record.parameters["mib"].value {
        ferrotune_space::Value::Int(mib) => mib.unsigned_abs() * MIB,
        _ => panic!(),
    };
    let refused: Vec<_> = records.iter().filter(refused).collect();
    assert!(!refused.is_empty(), "{records:?}");
    for record in refused {
        assert!(need(record) > 150 * MIB && record.metrics.is_empty() && record.peak_bytes < 50 * MIB, "{record:?}");
    }
    // A trial that fits is never refused; a trial close to the budget may end either way.
    assert!(records.iter().filter(|record| need(record) < 140 * MIB).all(|record| record.state() == State::Finished));
}

#[test]
fn memory_that_a_step_has_freed_serves_the_next_one_unless_the_user_says_otherwise() {
    let faults_in = |environment: &[(&str, &str)]| {
        let directory = tempfile::tempdir().unwrap();
        let spec = spec(directory.path(), "step_again", 1);
        assert_eq!(Supervisor::start_in(&spec, &[], environment).finish().last(), Ok(Finish::MaxTrials));
        on_disk(&spec)[0].metrics[&0]["faults"].unwrap()
    };
    let (kept, returned) = (faults_in(&[]), faults_in(&[("MALLOC_TRIM_THRESHOLD_", "131072")]));
    // Each step makes 16 tensors of 256 pages.
    assert!(kept < 50.0 && returned > 500.0, "{kept} pages and {returned} pages");
}

#[test]
fn freed_memory_that_is_kept_leaves_room_for_other_sizes_within_the_budget() {
    let directory = tempfile::tempdir().unwrap();
    let mut spec = spec(directory.path(), "change_sizes", 2);
    spec.memory_budget_bytes = Some(220 * MIB);
    assert_eq!(run(&spec).last(), Ok(Finish::MaxTrials));
    for record in on_disk(&spec) {
        assert_eq!(record.ending, Some(Ending::Finished), "{record:?}");
    }
}

#[test]
fn checkpoints_of_trials_that_cannot_win_are_removed() {
    let directory = tempfile::tempdir().unwrap();
    let mut spec = spec(directory.path(), "train", 6);
    spec.supervision.keep_best = 2;
    assert_eq!(run(&spec).last(), Ok(Finish::MaxTrials));
    let mut records = on_disk(&spec);
    records.sort_by(|a, b| b.value().partial_cmp(&a.value()).unwrap());
    let kept: Vec<bool> = records.iter().map(|record| record.checkpoint.is_some()).collect();
    assert_eq!(kept, [true, true, false, false, false, false]);
    for record in records {
        // The trial keeps its last two checkpoints; in this objective the best step is the last.
        assert_eq!(checkpoints(&spec, record.number).len(), if record.checkpoint.is_some() { 2 } else { 0 });
    }
}

#[test]
fn damaged_checkpoint_gives_way_to_the_one_before_it() {
    let directory = tempfile::tempdir().unwrap();
    let mut spec = spec(directory.path(), "slow", 1);
    spec.project = "damaged".to_owned();
    let mut supervisor = Supervisor::start(&spec);
    supervisor.wait_for_step(5);
    supervisor.signal(Signal::KILL);
    supervisor.finish();
    // A worker that has not ended yet may write another checkpoint.
    let deadline = Instant::now() + Duration::from_secs(30);
    while !tagged("damaged").is_empty() {
        assert!(Instant::now() < deadline, "the worker outlives its supervisor");
        std::thread::yield_now();
    }
    // The worker may have written a checkpoint that it could not report.
    let known = on_disk(&spec)[0].checkpoint.clone().unwrap();
    let files = checkpoints(&spec, 0);
    let last = files.iter().find(|file| file.ends_with(&known)).unwrap();
    let mut bytes = std::fs::read(last).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(last, bytes).unwrap();
    // The objective fails if its model has not counted the right number of epochs.
    assert_eq!(run(&spec).last(), Ok(Finish::MaxTrials));
    assert_eq!(on_disk(&spec)[0].state(), State::Finished);
    let log = std::fs::read_to_string(directory.path().join("damaged/trials/0/output.log")).unwrap();
    assert!(log.contains("is damaged: its checksum is"), "{log}");
}

#[test]
fn study_goes_on_in_another_place_with_nothing_but_its_folder() {
    let directory = tempfile::tempdir().unwrap();
    let mut spec = spec(directory.path(), "train", 2);
    spec.library = directory.path().join("library");
    std::fs::write(&spec.library, "of the session that began it").unwrap();
    assert_eq!(run(&spec).last(), Ok(Finish::MaxTrials));
    let moved = directory.path().join("elsewhere/again");
    std::fs::create_dir_all(moved.parent().unwrap()).unwrap();
    std::fs::rename(directory.path().join("train"), &moved).unwrap();
    std::fs::remove_file(&spec.library).unwrap();
    let mut resumed = spec_of(&moved).unwrap();
    assert_eq!((resumed.directory.as_path(), resumed.project.as_str()), (moved.parent().unwrap(), "again"));
    resumed.max_trials = 4;
    assert_eq!(run(&resumed).last(), Ok(Finish::MaxTrials));
    assert_eq!(on_disk(&resumed).len(), 4);
    assert!(spec_of(Path::new("/nowhere")).is_err());
}

#[test]
fn memory_before_and_after_each_trial_is_on_record() {
    let directory = tempfile::tempdir().unwrap();
    let spec = spec(directory.path(), "quick", 3);
    run(&spec);
    for record in on_disk(&spec) {
        let memory = record.memory.unwrap();
        assert!(memory.before_bytes > MIB && memory.after_bytes > MIB && memory.supervisor_bytes > 100_000);
        assert_eq!(memory.left, Vec::<String>::new());
    }
}

#[test]
fn trial_that_ends_its_supervisor_again_and_again_is_given_up() {
    let directory = tempfile::tempdir().unwrap();
    let spec = spec(directory.path(), "deadly", 2);
    for _ in 0..5 {
        let supervisor = Supervisor::start(&spec);
        assert!(!supervisor.finish().status.success());
        assert_eq!(on_disk(&spec)[0].ending, None);
    }
    assert_eq!(run(&spec).last(), Ok(Finish::MaxTrials));
    let reason = on_disk(&spec)[0].ending.clone().unwrap().to_string();
    assert_eq!(reason, "its supervisor or the machine went down 5 times in a row while it ran");
    assert_eq!(on_disk(&spec)[1].state(), State::Finished);
    // Every one of those trials had left a process outside all process groups and without a parent.
    assert_eq!(tagged("deadly"), Vec::<String>::new());
}
