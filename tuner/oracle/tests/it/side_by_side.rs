//! Tests of every oracle's contract with several workers: no answer names a running trial, and a slow trial delays no other.

use crate::hyperband::{merit, report};
use crate::spec;
use ferrotune_oracle::{Next, create, names};
use ferrotune_space::record::{Ending, TrialRecord};
use ferrotune_space::spec::StudySpec;
use ferrotune_space::{Distribution, Parameter, Scale};

/// The epochs of a complete training.
const TOTAL: u64 = 9;
/// The number of epochs that other trials train while a slow trial trains one.
const SLOWNESS: u64 = 12;

/// A worker: its trial, its next epoch, and the epoch (exclusive) up to which it trains.
struct Worker {
    number: usize,
    epoch: u64,
    stop: u64,
}

/// A search with a simulated clock that counts epochs.
struct Simulated {
    spec: StudySpec,
    trials: Vec<TrialRecord>,
    workers: Vec<Worker>,
    slow: Option<usize>,
}

impl Simulated {
    /// The next trial to run. A new oracle answers every question, as after a restart.
    fn next(&mut self) -> Option<usize> {
        let running: Vec<u64> = self.workers.iter().map(|worker| worker.number as u64).collect();
        loop {
            match create(&self.spec).expect("a valid search").next(&self.trials, &running) {
                Next::New => {
                    let number = self.trials.len();
                    assert!((number as u64) < self.spec.max_trials, "one more than there may be");
                    self.trials.push(TrialRecord::new(number as u64));
                    return Some(number);
                }
                Next::Continue { trial } | Next::Prune { trial } if running.contains(&trial) => {
                    panic!("{} names {trial}, which runs", self.spec.oracle)
                }
                Next::Continue { trial } => return Some(trial as usize),
                Next::Prune { trial } => {
                    assert_eq!(self.trials[trial as usize].ending, None);
                    self.trials[trial as usize].ending = Some(Ending::Pruned);
                }
                Next::Wait => {
                    assert!(!running.is_empty(), "{} waits for nothing", self.spec.oracle);
                    return None;
                }
                Next::Exhausted => return None,
            }
        }
    }

    fn begin(&mut self, number: usize) {
        let mut oracle = create(&self.spec).expect("a valid search");
        let distribution = Distribution::Float { low: 0.0, high: 1.0, step: None, scale: Scale::Linear };
        if self.trials[number].parameters.is_empty() {
            let value = oracle.suggest(number as u64, "x", &distribution, &self.trials);
            self.trials[number].parameters.insert("x".to_owned(), Parameter { distribution, value });
        }
        let parent = oracle.parent(number as u64, &self.trials).filter(|_| self.trials[number].epochs_done() == 0);
        if let Some(parent) = parent {
            self.trials[number].parent = Some(parent);
        }
        if let Some(parent) = parent {
            let is_whole = self.workers.iter().all(|worker| worker.number as u64 != parent);
            assert!(is_whole, "a copy of {parent}, which still runs");
        }
        let epoch =
            parent.map_or(self.trials[number].epochs_done(), |parent| self.trials[parent as usize].epochs_done());
        let stop = oracle.epochs(number as u64, TOTAL, &self.trials);
        assert!(epoch < stop, "{}: {number} has nothing to do at {epoch}", self.spec.oracle);
        self.trials[number].epochs = Some(TOTAL);
        self.workers.push(Worker { number, epoch, stop });
    }

    /// Simulates one epoch. A worker leaves one epoch after its last report, because it writes a checkpoint.
    fn pass(&mut self, tick: u64) {
        let trials = &mut self.trials;
        let slow = self.slow;
        self.workers.retain_mut(|worker| {
            if slow == Some(worker.number) && !tick.is_multiple_of(SLOWNESS) {
                return true;
            }
            let record = &mut trials[worker.number];
            if worker.epoch < worker.stop {
                report(record, worker.epoch, merit(record.number) + worker.epoch as f64);
                worker.epoch += 1;
                return true;
            }
            if worker.stop == TOTAL {
                (record.ending, record.values) = (Some(Ending::Finished), vec![merit(record.number)]);
            } else {
                record.paused_at = Some(worker.stop);
            }
            false
        });
    }
}

/// Runs a search with this number of workers to its end; returns the trials, and the share of time in which workers were idle.
fn search(oracle: &str, max_trials: u64, workers: usize, slow: Option<usize>) -> (Vec<TrialRecord>, f64) {
    let spec = StudySpec { max_trials, ..spec(oracle) };
    let mut search = Simulated { spec, trials: Vec::new(), workers: Vec::new(), slow };
    let (mut idle, mut ticks) = (0, 0);
    loop {
        while search.workers.len() < workers {
            let Some(number) = search.next() else { break };
            search.begin(number);
        }
        if search.workers.is_empty() {
            return (search.trials, idle as f64 / (ticks * workers as u64) as f64);
        }
        ticks += 1;
        idle += workers - search.workers.len();
        search.pass(ticks);
        assert!(ticks < 10_000, "{oracle} does not end");
    }
}

#[test]
fn every_oracle_ends_with_several_workers_whoever_is_slow() {
    for oracle in names().filter(|oracle| *oracle != "grid") {
        for (workers, slow) in [(2, None), (3, Some(0)), (4, Some(5)), (30, Some(11))] {
            let (trials, _) = search(oracle, 24, workers, slow);
            assert_eq!(trials.len(), 24, "{oracle}");
            assert!(trials.iter().all(|trial| trial.ending.is_some()), "{oracle} {workers} {slow:?}: {trials:?}");
            let finished =
                trials.iter().any(|trial| trial.ending == Some(Ending::Finished) && trial.epochs_done() == TOTAL);
            assert!(finished, "{oracle}");
        }
    }
}

#[test]
fn one_slow_trial_holds_up_no_other() {
    // A whole search takes about 60 epochs of each worker, the slow trial's first rung alone 12 to 24, its complete training 108.
    for (oracle, most_idle) in [("random", 0.1), ("asha", 0.1), ("hyperband", 0.15), ("bohb", 0.15)] {
        let (_, idle) = search(oracle, 120, 3, Some(4));
        assert!(idle < most_idle, "{oracle}: idle for {idle:.2} of the time");
    }
}
