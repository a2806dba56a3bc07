//! A search whose trials train on a simulated clock. An epoch takes one unit of time, and five units in a slow trial. No
//! real time passes.

use crate::COUNTED;
use crate::problems::{Curve, EPOCHS, Problem};
use ferrotune_oracle::{Next, Oracle, create};
use ferrotune_space::Parameter;
use ferrotune_space::objective::{Direction, Objective, Summary};
use ferrotune_space::record::{Ending, TrialRecord, study_best};
use ferrotune_space::spec::StudySpec;
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64;
use std::collections::BTreeMap;
use std::time::Instant;

/// The time of an epoch in a slow trial, and the interval at which trials are slow if there are several workers: every tenth trial.
const SLOW: (u64, u64) = (5, 10);

/// The workers of a search.
pub(crate) struct Workers {
    pub(crate) count: u64,
}

/// The result of a search.
pub(crate) struct Outcome {
    /// The true final loss of the incumbent after the epochs of [`COUNTED`] trainings.
    pub(crate) losses: Vec<f64>,
    /// The true final loss of each best finished trial, with the epochs of the whole search until it finished.
    pub(crate) course: Vec<(u64, f64)>,
    /// Share of the workers' time in which they were idle.
    pub(crate) idle: f64,
    /// Milliseconds that the oracle took for each trial that began or continued.
    pub(crate) milliseconds: f64,
    pub(crate) trials: usize,
}

pub(crate) struct Search<'a> {
    problem: &'a Problem,
    seed: u64,
    oracle: Box<dyn Oracle>,
    objective: Objective,
    records: Vec<TrialRecord>,
    curves: Vec<Curve>,
    /// The trials that train, by number: the epoch (exclusive) up to which each may train, and the time at which its current epoch ends.
    running: BTreeMap<u64, (u64, u64)>,
    epochs: u64,
    losses: Vec<f64>,
    course: Vec<(u64, f64)>,
    seconds: f64,
    decisions: u64,
}

impl<'a> Search<'a> {
    pub(crate) fn new(oracle: &str, problem: &'a Problem, seed: u64) -> Result<Search<'a>, String> {
        let objective = Objective { summary: Summary::Last, ..Objective::new("loss", Direction::Min) };
        let (name, pruner) = oracle.split_once('+').map_or((oracle, None), |(name, pruner)| (name, Some(pruner)));
        let spec = StudySpec {
            oracle: name.to_owned(),
            pruner: pruner.map(str::to_owned),
            max_trials: 100_000,
            seed: Some(seed),
            ..StudySpec::new("bench", vec![objective.clone()])
        };
        let oracle = create(&spec).map_err(|error| error.to_string())?;
        Ok(Search {
            problem,
            seed,
            oracle,
            objective,
            records: Vec::new(),
            curves: Vec::new(),
            running: BTreeMap::new(),
            epochs: 0,
            losses: Vec::new(),
            course: Vec::new(),
            seconds: 0.0,
            decisions: 0,
        })
    }

    /// Runs the search until its epochs are used up, or until the oracle has no further trial.
    pub(crate) fn run(mut self, workers: &Workers, counted: usize) -> Result<Outcome, String> {
        let (mut now, mut idle) = (0, 0);
        while self.losses.len() < counted.min(COUNTED.len()) {
            while (self.running.len() as u64) < workers.count && self.occupy(now, workers)? {}
            let Some(end) = self.running.values().map(|(_, end)| *end).min() else { break };
            idle += (workers.count - self.running.len() as u64) * (end - now);
            now = end;
            let ended: Vec<u64> =
                self.running.iter().filter(|(_, (_, at))| *at == end).map(|(trial, _)| *trial).collect();
            for trial in ended {
                self.end_epoch(trial, now, workers);
            }
        }
        // A search that has ended early keeps its last incumbent.
        self.losses.resize(COUNTED.len(), self.incumbent());
        let idle = idle as f64 / (now * workers.count).max(1) as f64;
        let milliseconds = self.seconds * 1000.0 / self.decisions.max(1) as f64;
        Ok(Outcome { losses: self.losses, course: self.course, idle, milliseconds, trials: self.records.len() })
    }

    /// Gives a worker a trial to train; returns whether there was a trial.
    fn occupy(&mut self, now: u64, workers: &Workers) -> Result<bool, String> {
        let running: Vec<u64> = self.running.keys().copied().collect();
        loop {
            let started = Instant::now();
            let next = self.oracle.next(&self.records, &running);
            self.seconds += started.elapsed().as_secs_f64();
            let number = match next {
                Next::New => {
                    self.records.push(TrialRecord::new(self.records.len() as u64));
                    let curve = self.ask();
                    self.curves.push(curve);
                    self.records.len() as u64 - 1
                }
                Next::Continue { trial } => trial,
                Next::Prune { trial } => {
                    self.finish(trial, Ending::Pruned);
                    continue;
                }
                Next::Wait | Next::Exhausted => return Ok(false),
            };
            let started = Instant::now();
            self.records[number as usize].epochs = Some(EPOCHS);
            let stop = self.oracle.epochs(number, EPOCHS, &self.records);
            self.seconds += started.elapsed().as_secs_f64();
            self.decisions += 1;
            let record = &mut self.records[number as usize];
            if record.epochs_done() >= stop && stop < EPOCHS {
                return Err(format!("trial {number} goes on at {stop}, where it waits"));
            }
            record.continued_from = record.paused_at.take();
            self.running.insert(number, (stop, now + self.epoch_time(number, workers)));
            return Ok(true);
        }
    }

    fn ask(&mut self) -> Curve {
        let number = self.records.len() - 1;
        let (records, oracle, seconds) = (&mut self.records, &mut self.oracle, &mut self.seconds);
        self.problem.curve(&mut |name, distribution| {
            let started = Instant::now();
            let value = oracle.suggest(number as u64, name, &distribution, records);
            *seconds += started.elapsed().as_secs_f64();
            records[number].parameters.insert(name.to_owned(), Parameter { distribution, value: value.clone() });
            value
        })
    }

    fn epoch_time(&self, trial: u64, workers: &Workers) -> u64 {
        let is_slow = workers.count > 1 && self.draws(trial, u64::MAX).random_range(0..SLOW.1) == 0;
        if is_slow { SLOW.0 } else { 1 }
    }

    fn draws(&self, trial: u64, epoch: u64) -> Pcg64 {
        Pcg64::seed_from_u64(self.seed.wrapping_mul(0x9E37_79B9).wrapping_add(trial * 1009).wrapping_add(epoch))
    }

    /// Reports an epoch of a trial; the trial then continues, waits or ends.
    fn end_epoch(&mut self, trial: u64, now: u64, workers: &Workers) {
        let epoch = self.records[trial as usize].metrics.len() as u64;
        let mut rng = self.draws(trial, epoch);
        // The sum of twelve uniform draws is close to a normal one.
        let noise: f64 = (0..12).map(|_| rng.random::<f64>()).sum::<f64>() - 6.0;
        let value = self.curves[trial as usize][epoch as usize] + self.problem.noise * noise;
        let metrics = BTreeMap::from([("loss".to_owned(), Some(value))]);
        self.records[trial as usize].metrics.insert(epoch, metrics);
        self.epochs += 1;
        let started = Instant::now();
        let is_pruned = self.oracle.ends(trial, &self.records).is_some();
        self.seconds += started.elapsed().as_secs_f64();
        let (stop, _) = self.running[&trial];
        if is_pruned || epoch + 1 >= stop {
            self.running.remove(&trial);
            match (is_pruned, stop < EPOCHS) {
                (true, _) => self.finish(trial, Ending::Pruned),
                (false, true) => self.records[trial as usize].paused_at = Some(stop),
                (false, false) => self.finish(trial, Ending::Finished),
            }
        } else {
            self.running.insert(trial, (stop, now + self.epoch_time(trial, workers)));
        }
        if COUNTED.get(self.losses.len()).is_some_and(|counted| self.epochs >= counted * EPOCHS) {
            self.losses.push(self.incumbent());
        }
    }

    fn finish(&mut self, trial: u64, ending: Ending) {
        let record = &mut self.records[trial as usize];
        record.values = record.summary(&self.objective).into_iter().collect();
        record.paused_at = None;
        record.ending = Some(ending);
        if study_best(&self.records, Direction::Min).is_some_and(|best| best.number == trial) {
            self.course.push((self.epochs, self.incumbent()));
        }
    }

    /// The true final loss of the trial that a user would choose: the best finished trial, or the one that has trained longest.
    fn incumbent(&self) -> f64 {
        let longest = || {
            let key =
                |trial: &&TrialRecord| (trial.epochs_done(), -trial.summary(&self.objective).unwrap_or(f64::INFINITY));
            self.records.iter().max_by(|a, b| key(a).0.cmp(&key(b).0).then(key(a).1.total_cmp(&key(b).1)))
        };
        let trial = study_best(&self.records, Direction::Min).or_else(longest);
        trial.map_or(f64::INFINITY, |trial| self.curves[trial.number as usize][EPOCHS as usize - 1])
    }
}
