//! A trial and a study as facts: what was tried, what came of it, how it ended. No storage, no processes.

use crate::given::Values;
use crate::space::{Distribution, Value};
use crate::spec::{Constraint, Direction, Objective, Summary};
use ferrotune_machine::format::bytes;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

/// How a trial's last worker ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "how", rename_all = "snake_case")]
pub enum Ending {
    /// The objective returned a value.
    Finished,
    /// The oracle gave up on it.
    Pruned,
    /// The objective returned an error, or no value, or the worker left without a result.
    Failed {
        /// One line.
        reason: String,
    },
    /// The objective panicked.
    Panicked {
        /// The panic's message and place.
        message: String,
    },
    /// Its memory went over the budget, or the machine's was running out.
    OutOfMemory {
        /// Its memory when it was stopped, in bytes.
        peak_bytes: u64,
        /// The budget in bytes.
        budget_bytes: u64,
    },
    /// It was not trained: trials like it say that it would go over the budget.
    Refused {
        /// The memory that it would at least take, in bytes.
        estimate_bytes: u64,
        /// The budget in bytes.
        budget_bytes: u64,
    },
    /// A signal ended it.
    Signalled {
        /// The signal's number.
        signal: i32,
    },
    /// It ran past its deadline.
    TimedOut {
        /// The deadline in seconds, rounded up.
        after_s: u64,
    },
    /// The search was stopped while it ran.
    Cancelled,
}

/// One parameter of one trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Parameter {
    /// The range that it was drawn from.
    pub distribution: Distribution,
    /// The value.
    pub value: Value,
}

/// The program that runs a trial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Runner {
    /// A search of this program.
    #[default]
    Search,
    /// None yet: the trial waits in the journal until a program begins it.
    Nobody,
    /// Another program that writes the same journal, such as Optuna.
    Other,
}

/// One trial: one choice of hyper-parameters and what came of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TrialRecord {
    /// Number in the study, counted from 0.
    pub number: u64,
    /// The parameters that the objective asked for.
    pub parameters: BTreeMap<String, Parameter>,
    /// Reported metrics by step; `None` for a value that was not finite.
    #[serde(deserialize_with = "metrics_by_step")]
    pub metrics: BTreeMap<u64, BTreeMap<String, Option<f64>>>,
    /// A value for each of the study's objectives, or none at all. Of a pruned trial, what its reports had come to.
    #[serde(default)]
    pub values: Vec<f64>,
    /// How it ended; `None` while it runs, waits for more epochs, or where its supervisor died with it.
    pub ending: Option<Ending>,
    /// Name of its last checkpoint, inside the trial's folder.
    pub checkpoint: Option<String>,
    /// Largest memory seen (resident less shared), in bytes.
    pub peak_bytes: u64,
    /// Seconds that its workers ran, all together.
    pub seconds: f64,
    /// Epochs of a whole training, as the objective said.
    pub epochs: Option<u64>,
    /// The epoch (exclusive) up to which the oracle let it train when its last worker ended; `None` if that worker
    /// was not ended by the oracle's epoch limit, or if a worker runs.
    pub paused_at: Option<u64>,
    /// Endings after which it was tried again, being perhaps no more than chance.
    pub retried: Vec<Ending>,
    /// Workers of it in a row that began and whose end no supervisor has seen, since its last checkpoint.
    pub unended_workers: u64,
    /// The trial whose last checkpoint it began with.
    #[serde(default)]
    pub parent: Option<u64>,
    /// The values of each finished execution, where it runs several times; its reports and its checkpoint are those of the
    /// last one.
    #[serde(default)]
    pub executions: Vec<Vec<f64>>,
    /// The values that it was enqueued with; it asks for the parameters all the same.
    #[serde(default)]
    pub preset: Values,
    /// Which program runs it, or ran it.
    #[serde(default)]
    pub runner: Runner,
    /// What its last worker took of the machine's memory, and left behind.
    pub memory: Option<MemoryCheck>,
}

/// The machine before a trial's worker and after it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryCheck {
    /// What the machine (or container) had left before, in bytes.
    pub before_bytes: u64,
    /// The same after it.
    pub after_bytes: u64,
    /// The supervisor's own memory after it, in bytes.
    pub supervisor_bytes: u64,
    /// What the trial left behind and what became of that, in words.
    pub left: Vec<String>,
}

/// Reads steps that JSON has made strings of: inside a tagged enum serde does not turn keys back into numbers.
pub(crate) fn metrics_by_step<'de, D: Deserializer<'de>, V: Deserialize<'de>>(
    deserializer: D,
) -> Result<BTreeMap<u64, V>, D::Error> {
    let by_key = BTreeMap::<String, V>::deserialize(deserializer)?;
    let steps = by_key.into_iter().map(|(step, metrics)| Ok((step.parse().map_err(D::Error::custom)?, metrics)));
    steps.collect()
}

/// Where a trial stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It runs, waits for more epochs, or lost its supervisor.
    Running,
    /// It has a value.
    Finished,
    /// The oracle gave up on it.
    Pruned,
    /// It ended in any other way.
    Failed,
}

impl TrialRecord {
    /// A trial of which nothing is known yet but its number.
    pub fn new(number: u64) -> TrialRecord {
        TrialRecord { number, ..TrialRecord::default() }
    }

    /// The record without what was reported, which may be megabytes.
    pub fn without_reports(&self) -> TrialRecord {
        TrialRecord {
            number: self.number,
            parameters: self.parameters.clone(),
            metrics: BTreeMap::new(),
            values: self.values.clone(),
            ending: self.ending.clone(),
            checkpoint: self.checkpoint.clone(),
            peak_bytes: self.peak_bytes,
            seconds: self.seconds,
            epochs: self.epochs,
            paused_at: self.paused_at,
            retried: self.retried.clone(),
            unended_workers: self.unended_workers,
            parent: self.parent,
            executions: self.executions.clone(),
            preset: self.preset.clone(),
            runner: self.runner,
            memory: self.memory.clone(),
        }
    }

    /// Where it stands.
    pub fn state(&self) -> State {
        match self.ending {
            None => State::Running,
            Some(Ending::Finished) => State::Finished,
            Some(Ending::Pruned) => State::Pruned,
            Some(_) => State::Failed,
        }
    }

    /// Whether it waits in the journal until a program begins it.
    pub fn is_enqueued(&self) -> bool {
        self.ending.is_none() && self.runner == Runner::Nobody
    }

    /// Whether another program runs it now, or ran it when that program was killed.
    pub fn runs_elsewhere(&self) -> bool {
        self.ending.is_none() && self.runner == Runner::Other
    }

    /// The value of the first objective.
    pub fn value(&self) -> Option<f64> {
        self.values.first().copied()
    }

    /// The standard deviation of each objective's value over the executions; empty for fewer than two.
    pub fn spreads(&self) -> Vec<f64> {
        let count = self.executions.len() as f64;
        let spread = |index: usize, mean: f64| {
            let squares =
                self.executions.iter().filter_map(|values| values.get(index)).map(|value| (value - mean).powi(2));
            (squares.sum::<f64>() / (count - 1.0)).sqrt()
        };
        if self.executions.len() < 2 {
            return Vec::new();
        }
        mean(&self.executions).into_iter().enumerate().map(|(index, mean)| spread(index, mean)).collect()
    }

    /// What the reports of all steps come to for an objective.
    pub fn summary(&self, objective: &Objective) -> Option<f64> {
        self.summary_before(objective, u64::MAX)
    }

    /// What the reports of the steps before `stop` come to for an objective.
    pub fn summary_before(&self, objective: &Objective, stop: u64) -> Option<f64> {
        let reported = self.metrics.range(..stop).filter_map(|(_, metrics)| metrics.get(&objective.metric));
        let mut finite = reported.map(|value| value.filter(|value| value.is_finite()));
        match objective.summary {
            Summary::Best => finite.flatten().reduce(|best, value| objective.direction.better(best, value)),
            Summary::Last => finite.next_back().flatten(),
            Summary::Mean => {
                let values: Vec<f64> = finite.collect::<Option<_>>()?;
                let mean = values.iter().sum::<f64>() / values.len() as f64;
                Some(mean).filter(|mean| mean.is_finite())
            }
        }
    }

    /// The metric's last finite report.
    pub fn last_reported(&self, metric: &str) -> Option<f64> {
        let mut reported = self.metrics.values().rev().filter_map(|metrics| *metrics.get(metric)?);
        reported.find(|value| value.is_finite())
    }

    /// By how much it breaks the constraints, all together: 0 where it keeps them.
    pub fn violation(&self, objectives: &[Objective], constraints: &[Constraint]) -> f64 {
        constraints.iter().map(|constraint| constraint.excess(self, objectives).max(0.0)).sum()
    }

    /// Epochs that it has been through, as far as its reports and `paused_at` tell.
    pub fn epochs_done(&self) -> u64 {
        self.last_step().map_or(0, |step| step.saturating_add(1)).max(self.paused_at.unwrap_or(0))
    }

    /// The last step with a report.
    pub fn last_step(&self) -> Option<u64> {
        self.metrics.keys().next_back().copied()
    }
}

impl Constraint {
    /// How far a trial is beyond the bound: at most 0 where it keeps to it, infinite where the metric has no value, which
    /// is the last that was reported, or that of the objective of this name.
    pub fn excess(&self, trial: &TrialRecord, objectives: &[Objective]) -> f64 {
        let values = objectives.iter().zip(&trial.values);
        let returned = || values.into_iter().find(|(objective, _)| objective.metric == self.metric);
        let value = trial.last_reported(&self.metric).or_else(|| returned().map(|(_, value)| *value));
        value.map_or(f64::INFINITY, |value| match self.direction {
            Direction::Min => value - self.bound,
            Direction::Max => self.bound - value,
        })
    }
}

impl fmt::Display for Constraint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.direction == Direction::Min { "<=" } else { ">=" };
        write!(formatter, "{}{sign}{}", self.metric, self.bound)
    }
}

impl fmt::Display for Objective {
    /// As `--objective` has it: `loss:min`, `loss:min:last`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let direction = if self.direction == Direction::Min { "min" } else { "max" };
        let summary = match self.summary {
            Summary::Best => "",
            Summary::Last => ":last",
            Summary::Mean => ":mean",
        };
        write!(formatter, "{}:{direction}{summary}", self.metric)
    }
}

impl Direction {
    /// A value as a loss, of which small is good; and a loss as a value.
    pub fn loss(self, value: f64) -> f64 {
        match self {
            Direction::Min => value,
            Direction::Max => -value,
        }
    }

    /// Whether `value` is strictly better than `other`.
    pub fn prefers(self, value: f64, other: f64) -> bool {
        match self {
            Direction::Min => value < other,
            Direction::Max => value > other,
        }
    }

    /// The better of two; the first where they are equal.
    fn better(self, first: f64, second: f64) -> f64 {
        if self.prefers(second, first) { second } else { first }
    }
}

/// The mean of several executions' values, one for each objective.
pub fn mean(executions: &[Vec<f64>]) -> Vec<f64> {
    let objectives = executions.iter().map(Vec::len).min().unwrap_or_default();
    let sum = |index| executions.iter().map(|values| values[index]).sum::<f64>();
    (0..objectives).map(|index| sum(index) / executions.len() as f64).collect()
}

/// The finished trial with the best finite value of the first objective; the earlier one of equals.
pub fn study_best(trials: &[TrialRecord], direction: Direction) -> Option<&TrialRecord> {
    let valued = trials.iter().filter(|trial| trial.state() == State::Finished);
    let valued = valued.filter_map(|trial| trial.value().filter(|value| value.is_finite()).map(|value| (trial, value)));
    let best = valued.reduce(|best, next| if direction.prefers(next.1, best.1) { next } else { best });
    best.map(|(trial, _)| trial)
}

impl fmt::Display for Ending {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ending::Finished => formatter.write_str("finished"),
            Ending::Pruned => formatter.write_str("pruned"),
            Ending::Failed { reason } => formatter.write_str(&one_line(reason)),
            Ending::Panicked { message } => write!(formatter, "panicked: {}", one_line(message)),
            Ending::OutOfMemory { peak_bytes, budget_bytes } => {
                let (peak, budget) = (bytes(*peak_bytes), bytes(*budget_bytes));
                write!(formatter, "out of memory: {peak} of {budget}; raise it with --memory")
            }
            Ending::Refused { estimate_bytes, budget_bytes } => {
                let (estimate, budget) = (bytes(*estimate_bytes), bytes(*budget_bytes));
                write!(formatter, "refused: it would need {estimate} of {budget}; raise it with --memory")
            }
            Ending::Signalled { signal } => write!(formatter, "killed by {}", signal_name(*signal)),
            Ending::TimedOut { after_s } => write!(formatter, "timed out after {after_s} s"),
            Ending::Cancelled => formatter.write_str("cancelled"),
        }
    }
}

fn one_line(text: &str) -> String {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}

/// Name of a signal that ends processes, as Linux numbers them on x86-64 and aarch64; `signal 40` for any other.
pub fn signal_name(signal: i32) -> Cow<'static, str> {
    Cow::Borrowed(match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        5 => "SIGTRAP",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        10 => "SIGUSR1",
        11 => "SIGSEGV",
        12 => "SIGUSR2",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        25 => "SIGXFSZ",
        31 => "SIGSYS",
        _ => return Cow::Owned(format!("signal {signal}")),
    })
}
