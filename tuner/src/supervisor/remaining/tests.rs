//! Tests of the estimates in searches that real oracles simulate, against the true remaining time of each search.

use super::*;
use ferrotune_oracle::{Next, Oracle, create};
use ferrotune_space::objective::{Direction, Objective};
use ferrotune_space::record::Ending;
use std::collections::BTreeMap;

/// The number of epochs of a whole training.
const EPOCHS: u64 = 27;
/// The seconds between two trials: the start of a process, and the oracle's own time.
const PAUSE_S: f64 = 0.7;

/// A running trial: the time at which its worker began, and the time at which its next epoch ends.
struct Worker {
    trial: u64,
    began_at: f64,
    epoch_ends_at: f64,
}

struct Simulation {
    spec: StudySpec,
    oracle: Box<dyn Oracle>,
    trials: Vec<TrialRecord>,
    workers: Vec<Worker>,
    now: f64,
    /// All estimates, each with its time.
    estimates: Vec<(f64, f64)>,
}

/// The seconds of an epoch: between half a second and two seconds, depending on the trial's number.
fn epoch_s(trial: u64) -> f64 {
    0.5 + 1.5 * ((trial * 7919 % 101) as f64 / 101.0)
}

impl Simulation {
    fn run(oracle: &str, pruner: Option<&str>, concurrency: u64, max_trials: u64) -> Simulation {
        let objectives = vec![Objective::new("loss", Direction::Min)];
        let mut spec =
            StudySpec { oracle: oracle.to_owned(), seed: Some(3), max_trials, ..StudySpec::new("it", objectives) };
        spec.pruner = pruner.map(str::to_owned);
        spec.supervision.concurrency = concurrency;
        let oracle = create(&spec).unwrap();
        let (trials, workers) = (Vec::new(), Vec::new());
        let mut simulation = Simulation { spec, oracle, trials, workers, now: 0.0, estimates: Vec::new() };
        while simulation.begin_trials() {
            simulation.end_epoch();
            let running: Vec<(u64, f64)> =
                simulation.workers.iter().map(|it| (it.trial, (simulation.now - it.began_at).max(0.0))).collect();
            let planned_epochs = simulation.oracle.planned_epochs(&simulation.trials, max_trials);
            let course = Course { elapsed_s: simulation.now, earlier_s: 0.0, running: &running, planned_epochs };
            let estimate = seconds(&simulation.trials, &simulation.spec, &course);
            simulation.estimates.extend(estimate.map(|estimate| (simulation.now, estimate)));
        }
        simulation
    }

    /// Begins trials, and returns whether a trial runs.
    fn begin_trials(&mut self) -> bool {
        while (self.workers.len() as u64) < self.spec.supervision.concurrency {
            let running: Vec<u64> = self.workers.iter().map(|worker| worker.trial).collect();
            let trial = match self.oracle.next(&self.trials, &running) {
                Next::New if (self.trials.len() as u64) < self.spec.max_trials => {
                    self.trials.push(TrialRecord::new(self.trials.len() as u64));
                    self.trials.len() as u64 - 1
                }
                Next::Continue { trial } => trial,
                Next::Prune { trial } => {
                    self.trials[trial as usize].ending = Some(Ending::Pruned);
                    continue;
                }
                Next::New | Next::Wait | Next::Exhausted => break,
            };
            self.trials[trial as usize].paused_at = None;
            let began_at = self.now + PAUSE_S;
            self.workers.push(Worker { trial, began_at, epoch_ends_at: began_at + epoch_s(trial) });
        }
        !self.workers.is_empty()
    }

    /// Advances to the end of the next epoch, and ends the trial's worker if that epoch was its last.
    fn end_epoch(&mut self) {
        let next = (0..self.workers.len())
            .min_by(|a, b| self.workers[*a].epoch_ends_at.total_cmp(&self.workers[*b].epoch_ends_at));
        let index = next.unwrap();
        let (trial, began_at) = (self.workers[index].trial, self.workers[index].began_at);
        self.now = self.workers[index].epoch_ends_at;
        let record = &mut self.trials[trial as usize];
        let step = record.epochs_done();
        record.epochs = Some(EPOCHS);
        let loss = ((trial * 31 % 17) as f64 + 1.0) / (step + 1) as f64;
        record.metrics.insert(step, BTreeMap::from([("loss".to_owned(), Some(loss))]));
        let stop = self.oracle.epochs(trial, EPOCHS, &self.trials);
        let ending = if step + 1 >= EPOCHS {
            Some(Ending::Finished)
        } else {
            self.oracle.ends(trial, &self.trials).map(|_| Ending::Pruned)
        };
        if ending.is_none() && step + 1 < stop {
            self.workers[index].epoch_ends_at += epoch_s(trial);
            return;
        }
        let record = &mut self.trials[trial as usize];
        record.seconds += self.now - began_at;
        record.paused_at = ending.is_none().then_some(stop);
        record.values = ending.iter().map(|_| loss).collect();
        record.ending = ending;
        self.workers.remove(index);
    }

    /// The ratio of each estimate to the true remaining time. The first seventh of the search is left out, and so is the
    /// last tenth, where one epoch is a large part of the remaining time.
    fn ratios(&self) -> Vec<f64> {
        let middle = 0.15 * self.now..0.9 * self.now;
        let judged = self.estimates.iter().filter(|(now, _)| middle.contains(now));
        judged.map(|(now, estimate)| estimate / (self.now - now)).collect()
    }
}

#[test]
fn estimates_are_near_the_time_that_the_search_still_takes() {
    let searches = [
        ("random", None, 1, 30),
        ("random", None, 4, 30),
        ("random", Some("median"), 1, 40),
        ("random", Some("median"), 4, 40),
        ("hyperband", None, 1, 49),
        ("hyperband", None, 4, 49),
        ("successive_halving", None, 1, 27),
        ("asha", None, 3, 40),
    ];
    for (oracle, pruner, concurrency, max_trials) in searches {
        let mut ratios = Simulation::run(oracle, pruner, concurrency, max_trials).ratios();
        ratios.sort_by(f64::total_cmp);
        let (lowest, middle, highest) = (ratios[0], ratios[ratios.len() / 2], ratios[ratios.len() - 1]);
        assert!((0.5..2.0).contains(&middle), "{oracle} {pruner:?} {concurrency}: {middle}");
        assert!(lowest > 0.25 && highest < 3.0, "{oracle} {pruner:?} {concurrency}: {lowest} to {highest}");
    }
}

fn ended(number: u64, ending: Ending, seconds: f64) -> TrialRecord {
    TrialRecord { seconds, ending: Some(ending), ..TrialRecord::new(number) }
}

fn spec_of(max_trials: u64) -> StudySpec {
    StudySpec { max_trials, ..StudySpec::new("it", vec![Objective::new("loss", Direction::Min)]) }
}

#[test]
fn nothing_is_estimated_before_a_trial_has_ended() {
    let course = Course { elapsed_s: 5.0, earlier_s: 0.0, running: &[(0, 5.0)], planned_epochs: None };
    assert_eq!(seconds(&[TrialRecord::new(0)], &spec_of(4), &course), None);
}

#[test]
fn pruned_trials_do_not_make_whole_trainings_shorter() {
    let mut trials: Vec<_> = (0..3).map(|number| ended(number, Ending::Pruned, 1.0)).collect();
    trials.push(ended(3, Ending::Finished, 20.0));
    let running = TrialRecord { epochs: Some(10), ..TrialRecord::new(4) };
    trials.push(running);
    let course = Course { elapsed_s: 25.0, earlier_s: 0.0, running: &[(4, 2.0)], planned_epochs: None };
    // The trial is longer than the pruned trials, so 18 of its 20 seconds are left.
    assert_eq!(seconds(&trials, &spec_of(5), &course), Some(18.0));
    // Of the trials to begin, two of five are trained to their end: one more than seen.
    let six = seconds(&trials, &spec_of(6), &course).unwrap();
    assert!((six - (18.0 + 0.4 * 20.0 + 0.6)).abs() < 1e-9, "{six}");
}

#[test]
fn search_ends_at_its_own_time_at_the_latest() {
    let trials = [ended(0, Ending::Finished, 10.0)];
    let course = Course { elapsed_s: 10.0, earlier_s: 0.0, running: &[], planned_epochs: None };
    let spec = StudySpec { timeout_s: Some(25.0), ..spec_of(10) };
    assert_eq!(seconds(&trials, &spec, &course), Some(15.0));
    assert_eq!(seconds(&trials, &StudySpec { timeout_s: Some(500.0), ..spec }, &course), Some(90.0));
}

#[test]
fn trials_of_earlier_searches_do_not_count_as_time_of_this_one() {
    let trials: Vec<_> = (0..10).map(|number| ended(number, Ending::Finished, 10.0)).collect();
    let mut trials = trials;
    trials.push(TrialRecord::new(10));
    let course = Course { elapsed_s: 5.0, earlier_s: 100.0, running: &[(10, 4.0)], planned_epochs: None };
    // Four of five seconds were spent in trials.
    assert_eq!(seconds(&trials, &spec_of(12), &course), Some(16.0 / 0.8));
}
