//! Tests of checkpoints: on a disk that fails, after kills at the worst instant, over several workers, and in little memory.

use crate::harness::{Done, Supervisor, on_disk, run, spec};
use ferrotune_space::checkpoint::step_of;
use ferrotune_space::event::{Event, Finish};
use ferrotune_space::record::{Ending, State};
use ferrotune_space::spec::StudySpec;
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

const MIB: u64 = 1 << 20;

/// Builds the library that makes calls on files fail, in `folder`.
fn faulty_files(folder: &Path) -> String {
    let library = folder.join("faulty_files.so");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/faulty_files.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-Wall", "-Werror", "-O1", "-shared", "-fPIC", "-o"]).arg(&library).args([source, "-ldl"]);
    assert!(compiler.status().unwrap().success());
    library.into_os_string().into_string().unwrap()
}

/// Runs a search in which every `every`th of these calls on a checkpoint fails with `errno`.
fn run_with_faults(spec: &StudySpec, library: &str, part: &str, calls: &str, errno: &str, every: &str) -> Done {
    let environment = [
        ("LD_PRELOAD", library),
        ("FAULTY_PATH", part),
        ("FAULTY_CALLS", calls),
        ("FAULTY_ERRNO", errno),
        ("FAULTY_EVERY", every),
    ];
    Supervisor::start_in(spec, &[], &environment).finish()
}

fn folder_of(spec: &StudySpec, number: u64) -> PathBuf {
    spec.directory.join(&spec.project).join("trials").join(number.to_string())
}

/// The names and the contents of the files in a trial's folder whose names satisfy `wanted`.
fn files(spec: &StudySpec, number: u64, wanted: impl Fn(&str) -> bool) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(folder_of(spec, number)).unwrap().map(|entry| entry.unwrap().path());
    let named = entries.map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), path));
    named.filter(|(name, _)| wanted(name)).map(|(name, path)| (name, std::fs::read(path).unwrap())).collect()
}

fn checkpoints(spec: &StudySpec, number: u64) -> BTreeMap<String, Vec<u8>> {
    files(spec, number, |name| name.starts_with("checkpoint-"))
}

/// The steps of a trial's checkpoints, oldest first.
fn steps(spec: &StudySpec, number: u64) -> Vec<u64> {
    let names = checkpoints(spec, number).into_keys();
    names.map(|name| step_of(&folder_of(spec, number).join(name)).unwrap().unwrap()).collect()
}

/// A search that was interrupted after its trial had reached `step`.
fn interrupted(directory: &Path, scenario: &str, step: u64) -> StudySpec {
    let spec = spec(directory, scenario, 1);
    let mut supervisor = Supervisor::start(&spec);
    supervisor.wait_for_step(step);
    supervisor.signal(Signal::INT);
    assert_eq!(supervisor.finish().last(), Ok(Finish::Interrupted));
    spec
}

#[test]
fn checkpoint_that_cannot_be_read_ends_the_search_and_nothing_is_lost() {
    let directory = tempfile::tempdir().unwrap();
    let library = faulty_files(directory.path());
    let spec = interrupted(directory.path(), "slow", 5);
    let kept = checkpoints(&spec, 0);
    assert_eq!(kept.len(), 2);
    for calls in ["open", "read", "list"] {
        // The errors EIO, ENOMEM, EACCES, EMFILE and ESTALE.
        for errno in ["5", "12", "13", "24", "116"] {
            let part = if calls == "list" { "trials/0" } else { ".safetensors" };
            let done = run_with_faults(&spec, &library, part, calls, errno, "1");
            let message = done.last().unwrap_err();
            assert!(message.contains(&format!("os error {errno}")), "{calls}: {message}");
            assert!(message.contains(if calls == "list" { "trials/0" } else { "checkpoint-" }), "{calls}: {message}");
            assert!(checkpoints(&spec, 0) == kept, "{calls} with {errno} has changed the checkpoints");
            assert_eq!(on_disk(&spec)[0].ending, None);
        }
    }
    // The objective fails if its model has not counted the right number of epochs.
    assert_eq!(run(&spec).last(), Ok(Finish::MaxTrials));
    let record = &on_disk(&spec)[0];
    assert_eq!((record.state(), record.metrics.len()), (State::Finished, 27));
}

#[test]
fn error_of_a_restore_says_which_trial_and_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let library = faulty_files(directory.path());
    let spec = interrupted(directory.path(), "slow", 5);
    let last = folder_of(&spec, 0).join(on_disk(&spec)[0].checkpoint.clone().unwrap());
    let message = run_with_faults(&spec, &library, ".safetensors", "open", "5", "1").last().unwrap_err();
    let expected = format!(
        "trial 0 cannot read the checkpoint {}: Input/output error (os error 5); nothing of it is lost: run the search \
         again once the file can be read, or remove the file to go on from the checkpoint before it",
        last.display()
    );
    assert_eq!(message, expected);
    std::fs::remove_file(last).unwrap();
    assert_eq!(run(&spec).last(), Ok(Finish::MaxTrials));
    assert_eq!(on_disk(&spec)[0].state(), State::Finished);
}

#[test]
fn objective_that_ignores_the_error_of_a_restore_writes_over_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let library = faulty_files(directory.path());
    let spec = interrupted(directory.path(), "heedless", 5);
    let (kept, reported) = (checkpoints(&spec, 0), on_disk(&spec)[0].metrics.len());
    let message = run_with_faults(&spec, &library, ".safetensors", "read", "5", "1").last().unwrap_err();
    assert!(message.contains("cannot read the checkpoint"), "{message}");
    assert!(checkpoints(&spec, 0) == kept);
    let record = &on_disk(&spec)[0];
    assert_eq!((&record.ending, record.metrics.len()), (&None, reported));
}

#[test]
fn worker_without_a_file_to_open_is_tried_again() {
    let directory = tempfile::tempdir().unwrap();
    let mut spec = interrupted(directory.path(), "short_of_files", 5);
    spec.supervision.retries = 1;
    let done = run(&spec);
    assert_eq!(done.last(), Ok(Finish::MaxTrials));
    let record = &on_disk(&spec)[0];
    assert_eq!((record.state(), record.metrics.len()), (State::Finished, 27));
    let [Ending::Failed { reason }] = record.retried.as_slice() else { panic!("{:?}", record.retried) };
    assert!(reason.contains("Too many open files"), "{reason}");
}

#[test]
fn checkpoint_of_the_best_step_outlives_resumes() {
    let directory = tempfile::tempdir().unwrap();
    let spec = interrupted(directory.path(), "peaked", 6);
    let before = steps(&spec, 0);
    assert_eq!(before[0], 1);
    assert_eq!(run(&spec).last(), Ok(Finish::MaxTrials));
    assert_eq!(steps(&spec, 0), [1, 25, 26]);
}

#[test]
fn checkpoint_of_the_best_step_outlives_promotions() {
    let directory = tempfile::tempdir().unwrap();
    let mut spec = spec(directory.path(), "peaked", 12);
    spec.oracle = "hyperband".to_owned();
    let done = run(&spec);
    assert_eq!(done.last(), Ok(Finish::MaxTrials));
    let kept: Vec<_> = on_disk(&spec).into_iter().filter(|record| record.checkpoint.is_some()).collect();
    assert!(!kept.is_empty());
    for record in kept {
        let last = record.epochs_done() - 1;
        assert_eq!(steps(&spec, record.number), [1, last - 1, last], "trial {}", record.number);
    }
    let continued = |number| done.events.iter().filter(|event| is_start_of(event, number)).count() > 1;
    assert!(on_disk(&spec).iter().any(|record| record.checkpoint.is_some() && continued(record.number)));
}

fn is_start_of(event: &Event, number: u64) -> bool {
    matches!(event, Event::TrialStarted { trial, .. } if *trial == number)
}

#[test]
fn leftovers_of_kills_are_removed_and_no_file_of_the_users() {
    let directory = tempfile::tempdir().unwrap();
    let library = faulty_files(directory.path());
    let mut spec = spec(directory.path(), "train", 1);
    let is_partial = |name: &str| name.ends_with(".partial");
    // The trial's first worker is killed before its fourth checkpoint gets its name, and so is the second worker.
    spec.supervision.retries = 1;
    run_with_faults(&spec, &library, "checkpoint-", "rename", "KILL", "4");
    let record = &on_disk(&spec)[0];
    assert_eq!((record.state(), record.metrics.len()), (State::Failed, 7), "{record:?}");
    assert!(files(&spec, 0, is_partial).is_empty());
    let theirs =
        ["checkpoint-best.safetensors", "checkpoint-7.safetensors", "notes.partial", "checkpoint-000042.safetensors"];
    for name in theirs {
        std::fs::write(folder_of(&spec, 0).join(name), "the user's").unwrap();
    }
    spec.max_trials = 2;
    spec.supervision.retries = 0;
    // The worker is killed after its first checkpoint got its name, before the worker could report it.
    run_with_faults(&spec, &library, "trials/1/checkpoint-", "renamed", "KILL", "1");
    assert_eq!(on_disk(&spec)[1].checkpoint, None);
    assert_eq!(checkpoints(&spec, 1).into_keys().collect::<Vec<_>>(), ["checkpoint-000000.safetensors"]);
    // A supervisor that is killed along with its worker leaves such a file.
    std::fs::write(folder_of(&spec, 1).join("checkpoint-000001.partial"), "torn").unwrap();
    spec.max_trials = 3;
    assert_eq!(run(&spec).last(), Ok(Finish::MaxTrials));
    assert!(checkpoints(&spec, 1).is_empty());
    assert_eq!(files(&spec, 0, |name| theirs.contains(&name)).len(), theirs.len());
    assert_eq!(files(&spec, 0, is_partial).into_keys().collect::<Vec<_>>(), ["notes.partial"]);
}

#[test]
fn budget_that_suffices_from_scratch_suffices_after_a_resume() {
    let directory = tempfile::tempdir().unwrap();
    let mut spec = spec(directory.path(), "heavy", 1);
    spec.supervision.retries = 1;
    spec.supervision.threads = Some(1);
    // The state has 480 MiB, and training takes some 100 MiB more.
    spec.memory_budget_bytes = Some(620 * MIB);
    assert_eq!(run(&spec).last(), Ok(Finish::MaxTrials));
    let record = &on_disk(&spec)[0];
    assert_eq!(
        (&record.retried, record.state()),
        (&vec![Ending::Signalled { signal: 11 }], State::Finished),
        "{record:?}"
    );
    let reported = |step: u64, metric: &str| record.metrics[&step][metric].unwrap();
    assert_eq!(reported(1, "same"), 1.0);
    // The allocator may still have the last tensor's memory.
    assert!(reported(1, "grown_mib") < 40.0, "{} MiB", reported(1, "grown_mib"));
}

#[test]
fn a_full_disk_ends_the_search_and_not_the_trial() {
    let directory = tempfile::tempdir().unwrap();
    let library = faulty_files(directory.path());
    let spec = spec(directory.path(), "train", 1);
    // The trial's second checkpoint finds a full disk (ENOSPC).
    let error = run_with_faults(&spec, &library, "/checkpoint-", "rename", "28", "2").last().unwrap_err();
    assert!(error.starts_with("cannot write the checkpoint "), "{error}");
    let cure = "No space left on device (os error 28); free some space, then run the search again: trial 0 goes on from its last checkpoint";
    assert!(error.ends_with(cure), "{error}");
    let [trial] = &on_disk(&spec)[..] else { panic!("{:?}", on_disk(&spec)) };
    assert_eq!((&trial.ending, trial.checkpoint.as_deref()), (&None, Some("checkpoint-000000.safetensors")));
    let done = run(&spec);
    assert_eq!(done.last(), Ok(Finish::MaxTrials));
    // The objective fails if it does not continue after its checkpoint.
    assert_eq!(on_disk(&spec)[0].ending, Some(Ending::Finished));
}
