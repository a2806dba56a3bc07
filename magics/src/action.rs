//! What a cell asks for: Rust to run and actions to take, with every option read and checked.
//!
//! Values that only the tuner can judge, such as an oracle's name, are passed on as they are.

mod results;

pub use results::{Best, Export, Plot, Study, Trials};

/// One part of a cell; the parts run in order.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Rust source, or an evcxr `:command`.
    Code {
        /// The lines as they stand in the cell.
        source: String,
        /// The 1-based line of the cell on which `source` begins.
        first_line: usize,
    },
    /// What a magic asks for.
    Action(Action),
}

/// What a magic asks for.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// `%tpu_connect`
    TpuConnect(TpuConnect),
    /// `%device`
    Device,
    /// `%devices`
    Devices,
    /// `%tpu_check`
    TpuCheck(TpuCheck),
    /// `%gc`
    Gc {
        /// Whether the states for `%undo` go as well.
        all: bool,
    },
    /// `%%tune`
    Tune(Box<Tune>),
    /// `%resume`
    Resume(Resume),
    /// `%tune status`, `%tune wait` and `%tune stop`
    Search(Search),
    /// `%trials`
    Trials(Trials),
    /// `%best`
    Best(Best),
    /// `%space`
    Space(Study),
    /// `%plot`
    Plot(Plot),
    /// `%export`
    Export(Export),
    /// `%studies`: list the studies of a folder.
    Studies {
        /// The folder; none means where the last study was, or [`Tune`]'s default.
        directory: Option<String>,
    },
    /// `%undo`: back to the state before the last cells.
    Undo {
        /// How many cells, at least 1.
        count: u64,
    },
    /// `%checkpoint`: keep the state as it is now.
    Checkpoint {
        /// Under this name.
        name: String,
    },
    /// `%restore`: back to a state that was kept.
    Restore {
        /// Its name.
        name: String,
    },
    /// `%checkpoints`: list what can be gone back to.
    Checkpoints,
    /// `%memory`
    Memory(Memory),
    /// `%lsmagic`
    Lsmagic,
    /// `%name?`, `%%name?`, `?%name` or `%lsmagic name`. The name is known to [`crate::help`].
    Help {
        /// The magic's name without `%`.
        name: String,
    },
    /// `%time STATEMENT` or `%%time`
    Time(Time),
}

/// What `%memory` is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// Show who holds what.
    Show,
    /// Show it, and go on showing it until the next such magic, or for ever.
    Watch,
    /// Limit what a cell may hold.
    Limit {
        /// In bytes; none takes the limit away.
        bytes: Option<u64>,
    },
}

/// Find an accelerator and make it the notebook's device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TpuConnect {
    /// A TPU's name or `local`; none means that the machine is searched.
    pub tpu: Option<String>,
    /// Fail rather than fall back to CUDA or the CPU.
    pub require: bool,
    /// What to test once it is connected.
    pub self_test: SelfTest,
}

/// What a self-test computes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SelfTest {
    /// Nothing: there is none.
    Off,
    /// The TPU.
    Tpu,
    /// The device of this PJRT plugin.
    Plugin(String),
}

/// Compile a program for a TPU that need not be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TpuCheck {
    /// Generation and chips, such as `v5e:2x2`; only libtpu knows which exist.
    pub tpu: String,
    /// A file with a StableHLO module.
    pub file: String,
}

/// Whether an objective is to become small or large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Smaller is better.
    Min,
    /// Larger is better.
    Max,
}

/// How the reports of a trial's steps become one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Summary {
    /// The best of them.
    Best,
    /// The last one.
    Last,
    /// Their mean.
    Mean,
}

/// A metric to optimise, as the objective reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Objective {
    /// The metric's name.
    pub metric: String,
    /// Whether it is to become small or large.
    pub direction: Direction,
    /// What several reports of it come to.
    pub summary: Summary,
}

/// A bound that a metric must keep to.
#[derive(Clone, Debug, PartialEq)]
pub struct Constraint {
    /// The metric's name, as the objective reports it.
    pub metric: String,
    /// On which side of the bound it must stay: `Min` keeps it at or below, `Max` at or above.
    pub direction: Direction,
    /// The bound; finite.
    pub bound: f64,
}

/// A parameter and a value for it, as they were typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The parameter's name.
    pub name: String,
    /// The value; the tuner knows whether the parameter can have it.
    pub value: String,
}

/// Search for the parameters with which an objective does best.
#[derive(Clone, Debug, PartialEq)]
pub struct Tune {
    /// Name of the search algorithm; the tuner knows which exist.
    pub oracle: String,
    /// The rule by which running trials are given up, as the tuner reads it; none lets them run.
    pub pruner: Option<String>,
    /// The rule by which the search ends early, as the tuner reads it.
    pub terminator: Option<String>,
    /// What to optimise; at least one.
    pub objectives: Vec<Objective>,
    /// What a trial's metrics must keep to for its values to count.
    pub constraints: Vec<Constraint>,
    /// How many trials to run, at least 1.
    pub max_trials: u64,
    /// How often each trial runs, at least 1.
    pub executions: u64,
    /// Values that parameters have in every trial.
    pub fixed: Vec<Setting>,
    /// Values of trials to try first.
    pub enqueued: Vec<Vec<Setting>>,
    /// The parameters to tune; empty for all of them.
    pub tune_only: Vec<String>,
    /// Seed of the search; none means that one is drawn.
    pub seed: Option<u64>,
    /// The study's name, a single folder name.
    pub project: String,
    /// The folder that holds the study's folder.
    pub directory: String,
    /// Seconds after which the search ends; more than 0.
    pub timeout_s: Option<f64>,
    /// Seconds after which one trial is ended; more than 0.
    pub trial_timeout_s: Option<f64>,
    /// Memory of one trial; more than 0.
    pub memory_bytes: Option<u64>,
    /// Trials that run side by side, at least 1.
    pub concurrency: u64,
    /// Threads of one trial, at least 1; none means a share of the machine's.
    pub threads: Option<u64>,
    /// How often a trial is tried again whose end may be chance.
    pub retries: u64,
    /// Failures in a row that end the search, at least 1; none means that only a broken objective does.
    pub max_consecutive_failures: Option<u64>,
    /// Trials whose checkpoints are kept.
    pub keep_best: u64,
    /// A folder to which the study is copied as it grows.
    pub mirror: Option<String>,
    /// Give the notebook back while the search runs.
    pub background: bool,
    /// Delete an earlier study of that name first.
    pub overwrite: bool,
    /// The Rust below the magic's line.
    pub body: String,
    /// The 1-based line of the cell on which `body` begins.
    pub body_line: usize,
}

/// Go on with a study as it was begun.
#[derive(Clone, Debug, PartialEq)]
pub struct Resume {
    /// The study; none means the notebook's last one.
    pub project: Option<String>,
    /// The folder that holds the study's folder; none means where the last study was, or [`Tune`]'s default.
    pub directory: Option<String>,
    /// How many trials to run in all, at least 1; none means as many as before.
    pub max_trials: Option<u64>,
    /// Seconds after which the search ends; none means as before.
    pub timeout_s: Option<f64>,
    /// Run code in the study's folder that this user has not compiled.
    pub trust: bool,
    /// Give the notebook back while the search runs.
    pub background: bool,
}

/// What to do about a search that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchVerb {
    /// Show where it stands.
    Status,
    /// Follow it to its end.
    Wait,
    /// Stop it after the current step of each trial.
    Stop,
}

/// See to a search that runs, here or in another notebook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Search {
    /// What to do.
    pub verb: SearchVerb,
    /// The study; none means the notebook's last one.
    pub project: Option<String>,
    /// The folder that holds the study's folder; none means where the last study was, or [`Tune`]'s default.
    pub directory: Option<String>,
}

/// Run Rust and say how long it took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Time {
    /// The Rust to time. Of a line magic, the blanks before it keep it in the column where it was typed, so that a
    /// compile error points there.
    pub source: String,
    /// The 1-based line of the cell on which `source` begins.
    pub first_line: usize,
}
