//! Tests of several programs that search one study in a database; some of the programs are killed. `tests/test_storage.py`
//! tests with the real Optuna.

use crate::postgres;
use crate::processes::example;
use ferrotune_journal::{Journal, holder_of};
use ferrotune_space::record::{State, TrialRecord};
use rustix::process::{Pid, Signal, kill_process};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

/// Starts a program that searches the study `shared` from this folder.
fn start(folder: &Path, storage: &str) -> Child {
    let mut command = Command::new(example("scenarios"));
    command.arg("shared").arg(folder).env("STORAGE", storage).stdin(Stdio::null()).stdout(Stdio::piped());
    command.spawn().expect("the program starts")
}

fn trials(folder: &Path) -> Vec<TrialRecord> {
    Journal::read(&folder.join("shared")).map(|study| study.trials).unwrap_or_default()
}

/// Kills the program and its supervisor, which also ends the worker.
fn kill(child: &mut Child, study: &Path) {
    let supervisor = holder_of(study).expect("readable").expect("a supervisor").pid;
    kill_process(Pid::from_raw(supervisor.try_into().expect("a pid")).expect("a pid"), Signal::KILL).expect("killed");
    child.kill().expect("killed");
    child.wait().expect("it has ended");
}

fn finish(child: Child) {
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "MaxTrials\n");
}

fn assert_whole(trials: &[TrialRecord]) {
    assert_eq!(trials.len(), 12);
    for trial in trials {
        assert_eq!(trial.state(), State::Finished, "{trial:?}");
        assert_eq!(trial.metrics.keys().copied().collect::<Vec<u64>>(), (0..20).collect::<Vec<u64>>(), "{trial:?}");
    }
}

/// One of two supervisors is killed in the middle of a trial; the other one continues the trial from its checkpoint.
fn killed_supervisor_is_succeeded(storage: &str) {
    let folders = [tempfile::tempdir(), tempfile::tempdir()].map(|folder| folder.expect("a folder"));
    let mut first = start(folders[0].path(), storage);
    let is_under_way = |trial: &TrialRecord| trial.ending.is_none() && trial.checkpoint.is_some();
    while !trials(folders[0].path()).iter().any(|trial| is_under_way(trial) && trial.metrics.len() >= 3) {
        assert!(first.try_wait().expect("known").is_none(), "it has ended");
        thread::sleep(Duration::from_millis(10));
    }
    let second = start(folders[1].path(), storage);
    while trials(folders[1].path()).len() < 2 {
        thread::sleep(Duration::from_millis(10));
    }
    kill(&mut first, &folders[0].path().join("shared"));
    finish(second);
    let trials = trials(folders[1].path());
    assert_whole(&trials);
    let succeeded: Vec<&TrialRecord> = trials.iter().filter(|trial| !trial.retried.is_empty()).collect();
    let [succeeded] = succeeded.as_slice() else { panic!("{succeeded:?}") };
    assert!(succeeded.retried[0].to_string().contains("gave no sign of life"), "{succeeded:?}");
    // The objective fails if it begins from an epoch other than that of its checkpoint.
    let checkpoint = succeeded.checkpoint.clone().unwrap_or_default();
    assert!(checkpoint.is_empty() || checkpoint == "checkpoint-000019.safetensors", "{checkpoint}");
}

#[test]
fn trial_of_a_killed_supervisor_goes_on_under_another_one_in_sqlite() {
    let folder = tempfile::tempdir().expect("a folder");
    let file: PathBuf = folder.path().join("studies.db");
    killed_supervisor_is_succeeded(&format!("sqlite:///{}", file.display()));
}

#[test]
fn trial_of_a_killed_supervisor_goes_on_under_another_one_in_postgresql() {
    let Some(server) = postgres::server() else { return };
    killed_supervisor_is_succeeded(&server.database("studies"));
}

#[test]
fn supervisors_wait_for_a_server_that_has_crashed() {
    let Some(mut server) = postgres::server() else { return };
    let storage = server.database("studies");
    let folders = [tempfile::tempdir(), tempfile::tempdir()].map(|folder| folder.expect("a folder"));
    let programs = folders.each_ref().map(|folder| start(folder.path(), &storage));
    for _ in 0..3 {
        let ended = |trial: &TrialRecord| trial.ending.is_some();
        let before = trials(folders[0].path()).iter().filter(|trial| ended(trial)).count();
        while trials(folders[0].path()).iter().filter(|trial| ended(trial)).count() == before {
            thread::sleep(Duration::from_millis(10));
        }
        server.crash();
        thread::sleep(Duration::from_millis(1500));
        server.start_again();
    }
    programs.into_iter().for_each(finish);
    assert_whole(&trials(folders[0].path()));
}
