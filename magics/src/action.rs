//! What a cell asks for: Rust to run and actions to take, with every option read and checked.
//!
//! Values that only the tuner can judge, such as an oracle's name, are passed on as they are.

mod files;
mod results;
mod session;

use ferrotune_space::spec::StudySpec;

pub use files::{Env, Folder, Lines, Load, WriteFile};
pub use results::{Best, Export, Plot, Study, TrialProfile, Trials};
pub use session::{Dep, History, Inspect, InspectStyle, Measure, Profile, Time, Timeit, Who, WhoStyle};

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
    /// `%device --report`
    DeviceReport,
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
        /// The folder; none means where the last study was, or `%%tune`'s default.
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
    /// `%checkpoints`: list the states that `%undo` and `%restore` can bring back.
    Checkpoints,
    /// `%memory`
    Memory(Memory),
    /// `%lsmagic`
    Lsmagic {
        /// The magic to describe, by a name that [`crate::help`] knows; none means all.
        name: Option<String>,
    },
    /// `%name?`, `%%name?` or `?%name`. The name is known to [`crate::help`].
    Help {
        /// The magic's name without `%`.
        name: String,
    },
    /// `%time STATEMENT` or `%%time`
    Time(Time),
    /// `!command`, `%bash` or `%%bash`
    Shell(Shell),
    /// `%%profile`
    Profile(Profile),
    /// `%profile`
    TrialProfile(TrialProfile),
    /// `%timeit STATEMENT`, `%%timeit`, `%memit STATEMENT` or `%%memit`
    Timeit(Timeit),
    /// `%who` and `%whos`
    Who(Who),
    /// `%%writefile`
    WriteFile(WriteFile),
    /// `%load`
    Load(Load),
    /// `%run`: run the code of a file.
    Run {
        /// A notebook or a file of Rust.
        path: String,
    },
    /// `%cd`: go to another folder.
    Cd(Folder),
    /// `%env`
    Env(Env),
    /// `%history`
    History(History),
    /// `%reset`: forget variables, definitions and crates.
    Reset,
    /// `%dep`
    Dep(Dep),
    /// `%opt`: optimise cells.
    Opt {
        /// From 0 to 3.
        level: String,
    },
    /// `%doc`: show the documentation of a name below the cell.
    Doc {
        /// The name, perhaps with a path before it.
        name: String,
    },
    /// `name?` and `name??`
    Inspect(Inspect),
    /// `%%html`, `%%markdown` and `%%latex`: show the cell's text.
    Show {
        /// As this MIME type.
        mime_type: &'static str,
        /// The text below the magic's line.
        text: String,
    },
}

/// What `%memory` is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// Show which process holds how much.
    Show,
    /// Show it, and keep the table up to date until the next `%memory`.
    Watch,
    /// Limit what a cell may hold.
    Limit {
        /// In bytes; none takes the limit away.
        bytes: Option<u64>,
    },
}

/// Make a device the notebook's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TpuConnect {
    /// Which device.
    pub choice: DeviceChoice,
    /// Whether to compute on it once it is connected, and to compare.
    pub self_test: bool,
}

/// How a device is chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceChoice {
    /// The best accelerator of this machine.
    Best {
        /// A TPU's name or `local`; none means that the machine is searched.
        tpu: Option<String>,
        /// Fail rather than fall back to CUDA or the CPU.
        require: bool,
    },
    /// The first device of a PJRT plugin: `cpu`, or the path of its library.
    Plugin(String),
}

/// Compile a program for a TPU that need not be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TpuCheck {
    /// Generation and chips, such as `v5e:2x2`; only libtpu knows which exist.
    pub tpu: String,
    /// What to compile.
    pub program: CheckedProgram,
}

/// What `%tpu_check` compiles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckedProgram {
    /// A variable of the notebook that holds a compiled step, or else a file with a StableHLO module.
    Named(String),
    /// The first compiled step of an objective.
    Objective {
        /// The study with the objective.
        study: Study,
        /// The trial with its parameters; none means the best one.
        trial: Option<u64>,
    },
}

/// Search for the parameters with which an objective does best.
#[derive(Clone, Debug, PartialEq)]
pub struct Tune {
    /// The search, without what only the cell's evaluation shows: the objective's library, its variables, the device.
    pub spec: StudySpec,
    /// Whether the user has named the project; otherwise it is the cell's own.
    pub is_named: bool,
    /// The Rust below the magic's line.
    pub body: String,
    /// The 1-based line of the cell on which `body` begins.
    pub body_line: usize,
}

/// Go on with a study as it was begun.
#[derive(Clone, Debug, PartialEq)]
pub struct Resume {
    /// The study.
    pub study: Study,
    /// How many trials to run in all, at least 1; none means as many as before.
    pub max_trials: Option<u64>,
    /// Seconds after which the search ends; none means as before.
    pub timeout_s: Option<f64>,
    /// Run code in the study's folder that this user has not compiled.
    pub trust: bool,
    /// Give the notebook back while the search runs.
    pub background: bool,
}

/// What to do with a search that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchVerb {
    /// Show where it stands.
    Status,
    /// Follow it to its end.
    Wait,
    /// Stop it after the current step of each trial.
    Stop,
}

/// Show, follow or stop a search that runs, here or in another notebook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Search {
    /// What to do.
    pub verb: SearchVerb,
    /// The study.
    pub study: Study,
}

/// Run a shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shell {
    /// The shell, which takes the script behind `-c`.
    pub program: &'static str,
    /// How an error names what was run: the command as it was typed, or the cell magic.
    pub name: String,
    /// The script. Empty lines before it make the shell count lines as the cell does.
    pub script: String,
}
