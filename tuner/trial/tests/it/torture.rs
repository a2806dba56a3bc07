//! `kill -9` of supervisors and workers at random instants, against a model of what must be on disk. A few rounds with
//! the other tests; `cargo xtask torture` asks for hundreds. `FERROTUNE_TORTURE_SEED` repeats the delays of a run.

use crate::harness::{Supervisor, on_disk, run, spec, tagged};
use ferrotune_space::event::{Event, Finish};
use ferrotune_space::record::{Ending, State, TrialRecord};
use ferrotune_space::spec::StudySpec;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, DefaultHasher, Hash as _, Hasher as _, RandomState};
use std::time::Duration;

const TRIALS: u64 = 40;
/// The number of epochs in a whole training of this scenario.
const EPOCHS: usize = 27;

/// The facts that the supervisor has reported, and that must therefore be on disk.
#[derive(Default)]
struct Model {
    ended: BTreeMap<u64, TrialRecord>,
    /// The last reported step of each trial.
    steps: BTreeMap<u64, u64>,
}

impl Model {
    fn apply(&mut self, event: &Event) {
        match event {
            Event::TrialStarted { trial, .. } => {
                assert!(!self.ended.contains_key(trial), "trial {trial} has ended and begins again");
            }
            Event::TrialEnded { record } => {
                let earlier = self.ended.insert(record.number, record.clone());
                assert!(earlier.is_none(), "trial {} ends twice", record.number);
            }
            Event::Progress(progress) => {
                for running in &progress.running {
                    self.steps.extend(running.step.map(|step| (running.trial, step)));
                }
            }
            _ => {}
        }
    }

    /// Checks that everything that was reported is on disk, and unchanged.
    fn check(&mut self, spec: &StudySpec) {
        let records = on_disk(spec);
        for (number, end) in &self.ended {
            let record = &records[*number as usize];
            assert_eq!((&record.ending, &record.values), (&end.ending, &end.values));
            let reported: Vec<_> = record.metrics.iter().map(|(step, metrics)| (*step, metrics["done"])).collect();
            let all: Vec<_> = (0..reported.len() as u64).map(|step| (step, Some(step as f64 + 1.0))).collect();
            assert_eq!(reported, all, "trial {number} lacks a report");
            assert!(
                record.ending != Some(Ending::Finished) || all.len() == EPOCHS,
                "trial {number}: {} reports",
                all.len()
            );
        }
        for (number, step) in &self.steps {
            let last = records[*number as usize].last_step();
            assert!(last >= Some(*step), "trial {number} had told step {step}, and the journal ends at {last:?}");
        }
        // An ended trial on disk is a fact, even if the supervisor had no time to report it.
        self.ended.extend(records.into_iter().filter(|record| record.ending.is_some()).map(|it| (it.number, it)));
    }
}

#[test]
fn nothing_that_was_told_is_lost_by_kills_at_random_instants() {
    let directory = tempfile::tempdir().unwrap();
    let mut spec = spec(directory.path(), "slow", TRIALS);
    spec.project = "torture".to_owned();
    // A trial whose worker alone is killed runs again.
    spec.supervision.retries = 10_000;
    spec.supervision.concurrency = 3;
    let rounds: u32 = std::env::var("FERROTUNE_TORTURE_ROUNDS").map_or(8, |rounds| rounds.parse().unwrap());
    let any_seed = || RandomState::new().build_hasher().finish();
    let seed: u64 = std::env::var("FERROTUNE_TORTURE_SEED").map_or_else(|_| any_seed(), |seed| seed.parse().unwrap());
    eprintln!("FERROTUNE_TORTURE_SEED={seed}");
    let mut model = Model::default();
    for round in 0..rounds {
        if model.ended.len() as u64 == spec.max_trials {
            spec.max_trials += TRIALS;
        }
        let supervisor = Supervisor::start(&spec);
        let pids = supervisor.pid();
        let killer = std::thread::spawn(move || kill_at_random(pids, round % 2 == 0, (seed, round)));
        let done = supervisor.finish();
        killer.join().unwrap();
        done.events.iter().for_each(|event| model.apply(event));
        if done.events.iter().any(|event| matches!(event, Event::Opened { .. })) {
            model.check(&spec);
        }
        assert!(!matches!(done.events.last(), Some(Event::Error { .. })), "{:?}", done.events.last());
    }
    let done = run(&spec);
    assert_eq!(done.last(), Ok(Finish::MaxTrials));
    done.events.iter().for_each(|event| model.apply(event));
    model.check(&spec);
    let records = on_disk(&spec);
    assert_eq!(records.len() as u64, spec.max_trials);
    for record in records {
        // The objective fails if a checkpoint is not the state after its step.
        assert_eq!((record.state(), record.metrics.len()), (State::Finished, 27), "{record:?}");
    }
    assert_eq!(tagged("torture"), Vec::<String>::new());
}

/// Kills some of a supervisor's workers, then the supervisor, after delays that the seed decides.
fn kill_at_random(supervisor: u32, workers_too: bool, seed: (u64, u32)) {
    let wait = |step: u8| {
        let mut hasher = DefaultHasher::new();
        (seed, step).hash(&mut hasher);
        std::thread::sleep(Duration::from_micros(hasher.finish() % 250_000));
    };
    if workers_too {
        for step in 0..3 {
            wait(step);
            let children = std::fs::read_to_string(format!("/proc/{supervisor}/task/{supervisor}/children"));
            // The list is empty if the supervisor has already ended.
            let children = children.unwrap_or_default();
            if let Some(worker) = children.split_whitespace().last() {
                kill(worker.parse().unwrap());
            }
        }
    }
    wait(3);
    kill(supervisor);
}

fn kill(pid: u32) {
    match kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), Signal::KILL) {
        // The process may have ended a moment ago.
        Ok(()) | Err(rustix::io::Errno::SRCH) => {}
        Err(errno) => panic!("{errno}"),
    }
}
