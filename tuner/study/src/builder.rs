//! Fills the description of a search (`StudySpec`) option by option. Wrong options are errors when the study is built.

use crate::processes::is_in_objective;
use crate::{Callback, Objective, Place, Study, StudyError, Value};
use ferrotune_journal::{JournalError, StorageUrl};
use ferrotune_space::objective::{Constraint, Direction};
use ferrotune_space::spec::StudySpec;
use ferrotune_space::warm_start::is_path;
use ferrotune_tuner::process::Role;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The builder of a search; made by [`Study::builder`].
///
/// By default the search runs ten trials by the oracle `auto`, one after the other, in `studies/untitled_project`, on the CPU, and
/// keeps the checkpoints of the best three.
#[derive(Debug)]
#[must_use = "a study is made with .build()?"]
pub struct StudyBuilder {
    spec: StudySpec,
    is_in_process: bool,
    callbacks: Vec<Box<dyn Callback>>,
    /// The first given option that needs processes for the trials.
    needs_processes: Option<&'static str>,
    role: Option<Role>,
}

impl StudyBuilder {
    pub(crate) fn new() -> StudyBuilder {
        let role = Role::of_this_process();
        match &role {
            Some(Role::Supervisor { spec }) => crate::processes::supervise(spec),
            Some(Role::Worker { .. }) if !is_in_objective() => crate::processes::become_worker(),
            Some(Role::Worker { .. }) | None => {}
        }
        StudyBuilder {
            spec: StudySpec::default(),
            is_in_process: false,
            callbacks: Vec::new(),
            needs_processes: None,
            role,
        }
    }

    /// The study's name: its folder is `DIRECTORY/PROJECT`. A program that runs several searches gives each a different name.
    pub fn project(mut self, project: impl Into<String>) -> Self {
        self.spec.project = project.into();
        self
    }

    /// The folder of all studies.
    pub fn directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.spec.directory = directory.into();
        self
    }

    /// A metric to optimise. Each call adds an objective: trials with several are compared by Pareto dominance.
    pub fn objective(mut self, metric: impl Into<String>, direction: Direction) -> Self {
        self.spec.objectives.push(Objective::new(metric, direction));
        self
    }

    /// A bound that a metric must keep: at or below `bound` with [`Direction::Min`], or at or above it.
    pub fn constraint(mut self, metric: impl Into<String>, direction: Direction, bound: f64) -> Self {
        self.spec.constraints.push(Constraint { metric: metric.into(), direction, bound });
        self
    }

    /// The oracle that chooses the trials, by its name: `auto`, `gp`, `tpe`, `hyperband`, …, with its settings as in
    /// `hyperband:factor=4,iterations=2,min=1`.
    pub fn oracle(mut self, name: impl Into<String>) -> Self {
        self.spec.oracle = name.into();
        self
    }

    /// The pruner, which ends trials because of their reports: `median`, `patience:steps=5`, …
    pub fn pruner(mut self, rule: impl Into<String>) -> Self {
        self.spec.pruner = Some(rule.into());
        self
    }

    /// The terminator, which ends the search before all trials have run: `stagnation:trials=30`, …
    pub fn terminator(mut self, rule: impl Into<String>) -> Self {
        self.spec.terminator = Some(rule.into());
        self
    }

    /// The number of trials to run in all, including those of earlier runs.
    pub fn max_trials(mut self, trials: u64) -> Self {
        self.spec.max_trials = trials;
        self
    }

    /// The number of executions of each trial, each with another seed; the trial's values are the means.
    pub fn executions(mut self, executions: u64) -> Self {
        self.spec.executions = executions;
        self
    }

    /// The value that a parameter has in all trials: `.fix("units", 64)`.
    pub fn fix(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.spec.given.fixed.insert(name.into(), value.into());
        self
    }

    /// The parameters to tune: any other parameter keeps its default, or else its lowest or first value.
    pub fn tune_only<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.spec.given.tune_only.extend(names.into_iter().map(Into::into));
        self
    }

    /// A trial to try first, with these values: `.enqueue([("lr", 0.01.into())])`. The oracle chooses the other parameters. The
    /// same values are not queued twice in one study.
    pub fn enqueue<N: Into<String>>(mut self, values: impl IntoIterator<Item = (N, Value)>) -> Self {
        let values = values.into_iter().map(|(name, value)| (name.into(), value)).collect();
        self.spec.given.enqueued.push(values);
        self
    }

    /// Learns from another study before the first trial: a project in the same directory or database, or a folder, whose path has a slash
    /// as in `./earlier/digits`. The search tries the best trial of that study first. It does not change that study, whose trials do not
    /// become trials of this study. Several studies are named by several calls.
    ///
    /// The first run copies the finished trials, so that the search continues in the same way when the other study has grown. Only
    /// trials are used whose parameters are all parameters of this search, with values in their ranges. The run fails if the other
    /// study has other objectives or no such trial.
    pub fn from(mut self, study: impl Into<String>) -> Self {
        self.spec.from.push(study.into());
        self
    }

    /// The seed of all random draws. By default the operating system draws it.
    pub fn seed(mut self, seed: u64) -> Self {
        self.spec.seed = Some(seed);
        self
    }

    /// Ends the search after this time; running trials finish their current step.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.spec.timeout_s = Some(limit.as_secs_f64());
        self
    }

    /// Ends a trial that runs longer than this limit.
    pub fn trial_timeout(mut self, limit: Duration) -> Self {
        self.spec.trial_timeout_s = Some(limit.as_secs_f64());
        self.for_processes("trial_timeout")
    }

    /// Ends a trial that holds more memory than this budget. By default a trial may take most of the machine's available memory.
    pub fn memory_bytes(mut self, budget: u64) -> Self {
        self.spec.memory_budget_bytes = Some(budget);
        self.for_processes("memory_bytes")
    }

    /// The number of trials that run at the same time.
    pub fn concurrency(mut self, trials: u64) -> Self {
        self.spec.supervision.concurrency = trials;
        self.for_processes("concurrency")
    }

    /// The number of threads of each trial. By default the trials share the machine's cores.
    pub fn threads(mut self, threads: u64) -> Self {
        self.spec.supervision.threads = Some(threads);
        self.for_processes("threads")
    }

    /// The number of retries of a trial that ended by a signal or without a result, which may be due to chance.
    pub fn retries(mut self, retries: u64) -> Self {
        self.spec.supervision.retries = retries;
        self.for_processes("retries")
    }

    /// Ends the search after this many failures in a row, of any kind.
    pub fn max_consecutive_failures(mut self, failures: u64) -> Self {
        self.spec.supervision.max_consecutive_failures = Some(failures);
        self
    }

    /// The number of the best trials that keep their checkpoints.
    pub fn keep_best(mut self, trials: u64) -> Self {
        self.spec.supervision.keep_best = trials;
        self.for_processes("keep_best")
    }

    /// The number of trials that one process runs on a TPU before another process replaces it.
    pub fn worker_trials(mut self, trials: u64) -> Self {
        self.spec.supervision.worker_trials = trials;
        self.for_processes("worker_trials")
    }

    /// The time that a process on a TPU may take to exit before it is killed.
    pub fn grace(mut self, limit: Duration) -> Self {
        self.spec.supervision.grace_s = limit.as_secs_f64().ceil() as u64;
        self.for_processes("grace")
    }

    /// The memory that a trial may use of a card or TPU which it shares with a notebook, in bytes. Without it, an equal part of what is free.
    pub fn device_memory(mut self, bytes: u64) -> Self {
        self.spec.supervision.device_memory_bytes = Some(bytes);
        self.for_processes("device_memory")
    }

    /// The time to wait for a TPU while another process uses it.
    pub fn device_wait(mut self, limit: Duration) -> Self {
        self.spec.supervision.device_wait_s = limit.as_secs_f64().ceil() as u64;
        self.for_processes("device_wait")
    }

    /// A folder to which the study is copied as it grows.
    pub fn mirror(mut self, folder: impl Into<PathBuf>) -> Self {
        self.spec.supervision.mirror = Some(folder.into());
        self.for_processes("mirror")
    }

    /// The database of the study, for searches on several hosts, and for Optuna: `postgresql://USER@HOST/DATABASE`
    /// or `sqlite:///FILE`, with the tables of Optuna's `RDBStorage`. By default the study is in its folder, which always has the
    /// checkpoints. Each search has its own folder; searches whose projects have the same name share one study.
    pub fn storage(mut self, url: impl Into<String>) -> Self {
        self.spec.storage = Some(url.into());
        self
    }

    /// The interval of this search's heartbeats in the database; other searches consider the search dead after twice that time.
    pub fn heartbeat(mut self, interval: Duration) -> Self {
        self.spec.supervision.heartbeat_s = interval.as_secs_f64().ceil() as u64;
        self.for_processes("heartbeat")
    }

    /// The device of the trials: `cpu`, `cuda`, …
    pub fn device(mut self, device: impl Into<String>) -> Self {
        self.spec.device = device.into();
        self
    }

    /// Deletes an earlier study of this name first.
    pub fn overwrite(mut self) -> Self {
        self.spec.overwrite = true;
        self
    }

    /// Reports the events of the search to `callback`. The processes of trials create the callback, too, but do not call it.
    pub fn callback(mut self, callback: impl Callback + 'static) -> Self {
        self.callbacks.push(Box::new(callback));
        self
    }

    /// Runs the trials in the calling thread, for objectives that take microseconds: the same oracles, the same
    /// journal, and a thousand trials a second.
    ///
    /// The trials are then not isolated. A panic is still only a failed trial, but if a trial crashes, hangs or takes all
    /// memory, the whole program does, and the trial's reports since its last checkpoint are lost.
    pub fn in_process(mut self) -> Self {
        self.is_in_process = true;
        self
    }

    /// Builds the study. Nothing is read or written yet.
    ///
    /// Fails without an objective, for an unknown oracle or rule, for a setting that the oracle or rule does not have, for limits
    /// that allow no trial, and for options that need processes in a search [`in_process`](StudyBuilder::in_process).
    pub fn build(mut self) -> Result<Study, StudyError> {
        if self.spec.objectives.is_empty() {
            return Err(StudyError::NoObjective);
        }
        if Path::new(&self.spec.project).file_name() != Some(self.spec.project.as_ref()) {
            return Err(StudyError::Project { project: self.spec.project });
        }
        if let Some(option) = self.needs_processes.filter(|_| self.is_in_process) {
            return Err(StudyError::NeedsProcesses { option });
        }
        ferrotune_oracle::create(&self.spec)?;
        if let Some(storage) = &self.spec.storage {
            StorageUrl::parse(storage).map_err(JournalError::from)?.remember_password();
        }
        let absolute =
            |path: &PathBuf| std::path::absolute(path).map_err(StudyError::process("cannot find the studies"));
        self.spec.directory = absolute(&self.spec.directory)?;
        if let Some(mirror) = &mut self.spec.supervision.mirror {
            *mirror = absolute(mirror)?;
        }
        for study in self.spec.from.iter_mut().filter(|study| is_path(study)) {
            *study = absolute(&PathBuf::from(&*study))?.display().to_string();
        }
        let place = match self.role {
            Some(Role::Worker { study }) if !is_in_objective() => Place::Worker { study },
            _ if self.is_in_process => Place::InProcess(None),
            Some(Role::Worker { .. }) => return Err(StudyError::Nested),
            Some(Role::Supervisor { .. }) | None => Place::Processes,
        };
        Ok(Study { spec: self.spec, place, callbacks: self.callbacks })
    }

    fn for_processes(mut self, option: &'static str) -> Self {
        self.needs_processes.get_or_insert(option);
        self
    }
}
