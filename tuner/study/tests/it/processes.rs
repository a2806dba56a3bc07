//! Tests of programs that start themselves again, as supervisors and as workers.

use ferrotune_journal::Journal;
use ferrotune_space::record::TrialRecord;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The path of an example, which cargo builds with the tests.
pub(crate) fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().unwrap().parent().unwrap().join("examples").join(name)
}

/// The standard output of the example program.
fn say(name: &str, arguments: &[&str]) -> String {
    let output = Command::new(example(name)).args(arguments).stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

fn trials(study: &Path) -> Vec<TrialRecord> {
    Journal::read(study).unwrap().trials
}

#[test]
fn every_ending_of_a_trial_is_one_of_the_trial_alone() {
    let folder = tempfile::tempdir().unwrap();
    let said = say("scenarios", &["endings", folder.path().to_str().unwrap()]);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[0], "MaxTrials");
    assert_eq!(lines[1], "0 Some(\"finished\")");
    assert!(lines[2].starts_with("1 Some(\"panicked: boom (tuner/study/examples/scenarios.rs:"), "{said}");
    assert_eq!(lines[3], "2 Some(\"killed by SIGABRT\")");
    assert_eq!(lines[4], "3 Some(\"exited with 0 before the objective returned\")");
    assert!(lines[5].starts_with("4 Some(\"out of memory: "), "{said}");
    assert_eq!(lines[6], "5 Some(\"timed out after 3 s\")");
}

#[test]
fn callbacks_hear_everything_in_order_and_can_end_the_search() {
    let folder = tempfile::tempdir().unwrap();
    let said = say("scenarios", &["callbacks", folder.path().to_str().unwrap()]);
    let mut expected = vec!["search true 0".to_owned()];
    for trial in 0..4 {
        expected.push(format!("begin {trial}"));
        expected.push(format!("execution 0 of {trial}"));
        expected.push(format!("report {trial} 0 [\"loss\"]"));
        expected.push(format!("execution 0 of {trial} has 1 value"));
        expected.push(format!("end {trial}"));
    }
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[..expected.len()], expected, "{said}");
    // Another trial may have begun before the supervisor received the interrupt.
    assert_eq!(lines[lines.len() - 2], "over Interrupted");
    assert!(["Interrupted 4", "Interrupted 5"].contains(&lines[lines.len() - 1]), "{said}");
}

#[test]
fn a_second_search_builds_on_the_first_one() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(say("scenarios", &["two", folder.path().to_str().unwrap()]), "true\n");
    assert_eq!(trials(&folder.path().join("first")).len(), 2);
}

#[test]
fn threads_before_the_study_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let said = say("scenarios", &["threads", folder.path().to_str().unwrap()]);
    assert_eq!(said, "the program has started threads before Study::builder(); call that first in `main`\n");
}

#[test]
fn program_that_was_killed_goes_on_where_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let mut child = Command::new(example("scenarios")).args(["steps", path]).stdin(Stdio::null()).spawn().unwrap();
    let study = folder.path().join("steps");
    // Waits until the second trial has a checkpoint.
    while !Journal::read(&study).is_ok_and(|study| study.trials.get(1).is_some_and(|trial| trial.checkpoint.is_some()))
    {
        assert!(child.try_wait().unwrap().is_none());
        std::thread::yield_now();
    }
    kill_process(Pid::from_child(&child), Signal::KILL).unwrap();
    child.wait().unwrap();
    // The supervisor stops by itself when its trial has completed a step.
    let holder = || ferrotune_journal::holder_of(&study).unwrap();
    while holder().is_some() {
        std::thread::yield_now();
    }
    assert_eq!(say("scenarios", &["steps", path]), "MaxTrials\n");
    let trials = trials(&study);
    assert_eq!(trials.len(), 3);
    for trial in trials {
        assert_eq!(trial.state(), ferrotune_space::record::State::Finished, "{trial:?}");
        assert_eq!(trial.metrics.len(), 20);
    }
}

#[test]
fn interrupt_ends_the_search_with_its_results() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let mut command = Command::new(example("scenarios"));
    let mut child = command.args(["steps", path]).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let study = folder.path().join("steps");
    while !Journal::read(&study).is_ok_and(|study| study.trials.first().is_some_and(|trial| trial.checkpoint.is_some()))
    {
        std::thread::yield_now();
    }
    // Sends the signal to all processes of the program, as a terminal does.
    let supervisor = ferrotune_journal::holder_of(&study).unwrap().unwrap().pid;
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    kill_process(Pid::from_raw(supervisor.try_into().unwrap()).unwrap(), Signal::INT).unwrap();
    let said: Vec<String> = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap).collect();
    assert!(child.wait().unwrap().success());
    assert_eq!(said, ["Interrupted"]);
}

#[test]
fn network_of_the_example_learns_and_the_search_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    assert!(say("digits", &["4", path]).starts_with("MaxTrials: best "));
    let first = trials(&folder.path().join("digits"));
    say("digits", &["8", path]);
    let all = trials(&folder.path().join("digits"));
    assert!(all.len() >= 8, "{}", all.len());
    assert_eq!(
        all[..4].iter().map(|trial| &trial.parameters).collect::<Vec<_>>(),
        first.iter().map(|trial| &trial.parameters).collect::<Vec<_>>()
    );
    let best = all.iter().filter_map(TrialRecord::value).fold(0.0, f64::max);
    assert!(best > 0.85, "{best}");
}

#[test]
fn example_without_processes_runs_a_thousand_trials() {
    let folder = tempfile::tempdir().unwrap();
    let said = say("parabola", &["1000", folder.path().to_str().unwrap()]);
    assert!(said.starts_with("1000 trials, "), "{said}");
    assert_eq!(trials(&folder.path().join("parabola")).len(), 1000);
    let asked = trials(&folder.path().join("asked"));
    let best = asked.iter().filter_map(TrialRecord::value).fold(f64::MAX, f64::min);
    assert!(asked.len() == 30 && best < 0.01, "{best}");
}
