//! The steps of a cell: Rust to run and actions to take, with every option read and checked.
//!
//! Values that only the tuner can check, such as an oracle's name, are passed on unchanged.

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
        /// The lines, exactly as in the cell.
        source: String,
        /// The 1-based line of the cell on which `source` begins.
        first_line: usize,
    },
    /// The action of a magic.
    Action(Action),
}

/// The action of a magic, with its options.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// `%tpu_connect`: connects a device to the notebook.
    TpuConnect(TpuConnect),
    /// `%device`: shows the device in use.
    Device,
    /// `%device close`: ends the process of the device in use.
    DeviceClose,
    /// `%device --report`: shows the compilations of the device in use and its copies to the host.
    DeviceReport,
    /// `%devices`: lists the devices.
    Devices,
    /// `%tpu_check`: compiles a program for a TPU.
    TpuCheck(TpuCheck),
    /// `%gc`: returns freed memory to the machine.
    Gc {
        /// Whether the states for `%undo` are forgotten too.
        all: bool,
    },
    /// `%%tune`: begins a search.
    Tune(Box<Tune>),
    /// `%resume`: continues a study.
    Resume(Resume),
    /// `%tune status`, `%tune wait` and `%tune stop`: show, follow or stop a search.
    Search(Search),
    /// `%trials`: lists the trials of a study.
    Trials(Trials),
    /// `%best`: shows the best trials of a study.
    Best(Best),
    /// `%space`: shows the search space of a study.
    Space(Study),
    /// `%plot`: draws a plot of a study.
    Plot(Plot),
    /// `%export`: writes a study to a file.
    Export(Export),
    /// `%studies`: lists the studies in a folder.
    Studies {
        /// The folder; none means the folder that holds the last study, or the default of `%%tune`.
        directory: Option<String>,
    },
    /// `%undo`: returns to the state before the last cells.
    Undo {
        /// The number of cells to undo, at least 1.
        count: u64,
    },
    /// `%checkpoint`: keeps the present state under a name.
    Checkpoint {
        /// The name of the checkpoint.
        name: String,
    },
    /// `%restore`: returns to the state of a checkpoint.
    Restore {
        /// The name of the checkpoint.
        name: String,
    },
    /// `%checkpoints`: lists the states to which `%undo` and `%restore` can return.
    Checkpoints,
    /// `%memory`: shows the memory that the notebook's processes hold, or limits the memory of cells.
    Memory(Memory),
    /// `%lsmagic`: lists the magics, or describes one magic.
    Lsmagic {
        /// The magic to describe, by a name that [`crate::help`] knows; none lists all magics.
        name: Option<String>,
    },
    /// `%name?`, `%%name?` or `?%name`: shows the help of a magic, whose name [`crate::help`] knows.
    Help {
        /// The magic's name without `%`.
        name: String,
    },
    /// `%time STATEMENT` or `%%time`: times one run of Rust.
    Time(Time),
    /// `!command`, `%bash` or `%%bash`: runs a shell.
    Shell(Shell),
    /// `%%profile`: profiles the steps of a cell.
    Profile(Profile),
    /// `%profile`: shows the profile of a trial.
    TrialProfile(TrialProfile),
    /// `%timeit STATEMENT`, `%%timeit`, `%memit STATEMENT` or `%%memit`: measures the time or the memory of Rust.
    Timeit(Timeit),
    /// `%who` and `%whos`: list the variables.
    Who(Who),
    /// `%%writefile`: writes the cell's text to a file.
    WriteFile(WriteFile),
    /// `%load`: puts a file into the cell.
    Load(Load),
    /// `%run`: runs the code of a file.
    Run {
        /// The path of a notebook or of a file of Rust.
        path: String,
    },
    /// `%cd`: changes the working folder.
    Cd(Folder),
    /// `%env`: shows or sets environment variables.
    Env(Env),
    /// `%history`: lists the cells of this session.
    History(History),
    /// `%reset`: forgets variables, definitions and crates.
    Reset,
    /// `%dep`: adds a crate.
    Dep(Dep),
    /// `%opt`: sets the optimisation level of cells.
    Opt {
        /// The level, from 0 to 3.
        level: String,
    },
    /// `%doc`: shows the documentation of a name below the cell.
    Doc {
        /// The name, perhaps with a path before it.
        name: String,
    },
    /// `name?` and `name??`: show the documentation or the source of a name.
    Inspect(Inspect),
    /// `%%html`, `%%markdown` and `%%latex`: show the cell's text in that format.
    Show {
        /// The MIME type of the text.
        mime_type: &'static str,
        /// The text below the magic's line.
        text: String,
    },
}

/// The action of `%memory`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// Shows the memory that each process holds.
    Show,
    /// Shows the memory that each process holds, and updates the table until the next `%memory`.
    Watch,
    /// Limits the memory that a cell may hold.
    Limit {
        /// The limit in bytes; none removes the limit.
        bytes: Option<u64>,
    },
}

/// The request of `%tpu_connect` to connect a device to the notebook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TpuConnect {
    /// The choice of the device.
    pub choice: DeviceChoice,
    /// Whether to compute on the connected device and compare the results.
    pub self_test: bool,
}

/// The way in which a device is chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceChoice {
    /// The best accelerator of this machine.
    Best {
        /// A TPU's name or `local`; none searches the machine for a device.
        tpu: Option<String>,
        /// Whether to fail rather than fall back to a card or the CPU.
        require: bool,
    },
    /// A device of a PJRT plugin, which is `cuda`, `cuda:1`, `rocm`, `oneapi`, `cpu` or the path of the plugin's library.
    Plugin(String),
}

/// The request of `%tpu_check` to compile a program for a TPU, which the machine need not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TpuCheck {
    /// The TPU's generation and chips, such as `v5e:2x2`; only libtpu knows which TPUs exist.
    pub tpu: String,
    /// The program to compile.
    pub program: CheckedProgram,
}

/// The program that `%tpu_check` compiles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckedProgram {
    /// A variable of the notebook that holds a compiled step, or else a file with a StableHLO module.
    Named(String),
    /// The first compiled step of an objective.
    Objective {
        /// The study with the objective.
        study: Study,
        /// The trial whose parameters the objective uses; none means the best trial.
        trial: Option<u64>,
    },
}

/// The request of `%%tune` to search for the best parameters of an objective.
#[derive(Clone, Debug, PartialEq)]
pub struct Tune {
    /// The search, without the values that only the cell's evaluation gives: the objective's library, its variables, the device.
    pub spec: StudySpec,
    /// Whether the user has named the project; if not, the cell gets a project of its own.
    pub is_named: bool,
    /// The Rust below the magic's line.
    pub body: String,
    /// The 1-based line of the cell on which `body` begins.
    pub body_line: usize,
}

/// The request of `%resume` to continue a study with its own settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Resume {
    /// The study.
    pub study: Study,
    /// The total number of trials, at least 1; none keeps the study's number.
    pub max_trials: Option<u64>,
    /// The time in seconds after which the search ends; none keeps the study's timeout.
    pub timeout_s: Option<f64>,
    /// Whether to run code in the study's folder that this user has not compiled.
    pub trust: bool,
    /// Whether the search runs in the background, so that the notebook can run other cells.
    pub background: bool,
}

/// The action of `%tune status`, `%tune wait` or `%tune stop` on a running search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchVerb {
    /// Shows the progress of the search.
    Status,
    /// Follows the search until it ends.
    Wait,
    /// Stops the search after the current step of each trial.
    Stop,
}

/// The request to show, follow or stop a running search of this or another notebook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Search {
    /// The action on the search.
    pub verb: SearchVerb,
    /// The study.
    pub study: Study,
}

/// The request to run a script in a shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shell {
    /// The shell's program, which accepts the script behind `-c`.
    pub program: &'static str,
    /// The name in error messages: the command as typed, or the cell magic.
    pub name: String,
    /// The script. Empty lines before the script give its lines the same numbers as in the cell.
    pub script: String,
}
