//! Requests of the magics that measure Rust or show the session.

use super::Lines;

/// The request of `%time` to run Rust and show its run time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Time {
    /// The Rust to time. For a line magic, blanks keep the Rust in the column where it was typed, so that a compile error
    /// points to that column.
    pub source: String,
    /// The 1-based line of the cell on which `source` begins.
    pub first_line: usize,
}

/// The request of `%%profile` to run Rust and show the time that the steps of its loops spend in each part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// The Rust to profile.
    pub source: String,
    /// The 1-based line of the cell on which `source` begins.
    pub first_line: usize,
    /// The number of steps to record, at least 1.
    pub steps: u64,
    /// Whether to show a flame graph too.
    pub flame: bool,
    /// The file to which the trace is written; none writes no trace.
    pub trace: Option<String>,
    /// TensorBoard's folder, to which the connected device's own profile is written; none writes no such profile.
    pub tensorboard: Option<String>,
}

/// The quantity that is measured while Rust runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// The time of one run.
    Time {
        /// The number of runs in one measurement; none means enough runs for an exact measurement.
        loops: Option<u64>,
        /// The number of measurements, at least 1.
        runs: u64,
    },
    /// The peak memory of the run.
    Memory,
}

/// The request of `%timeit` or `%memit` to run Rust and measure it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeit {
    /// The quantity to measure.
    pub measure: Measure,
    /// Rust to run before each measurement, on the line before `first_line`. Blanks keep this Rust in its column.
    pub setup: Option<String>,
    /// The Rust to measure. Blanks keep the Rust of a line magic in its column.
    pub source: String,
    /// The 1-based line of the cell on which `source` begins.
    pub first_line: usize,
}

/// The form in which variables are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhoStyle {
    /// The names of the variables.
    Names,
    /// A table with types, sizes and values.
    Table,
}

/// The request of `%who` or `%whos` to list the variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Who {
    /// The form of the list.
    pub style: WhoStyle,
    /// A text that the type of each listed variable must contain; none lists all variables.
    pub type_name: Option<String>,
}

/// The request of `%history` to list the cells of this session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History {
    /// The numbers of the cells to list; none means all cells.
    pub cells: Option<Lines>,
    /// Whether to show the cells' numbers.
    pub numbered: bool,
    /// The new file to which the cells are written; none shows the cells.
    pub file: Option<String>,
}

/// The request of `%dep` to add a crate, in the version that cargo chooses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dep {
    /// The crate's name, optionally followed by `@VERSION`.
    pub package: String,
    /// The crate's features, separated by commas.
    pub features: Option<String>,
}

/// The information that is shown about a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InspectStyle {
    /// The documentation of the name.
    Documentation,
    /// The source of the name's item.
    Source,
}

/// The request of `name?` or `name??` to show information about a name in the pager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspect {
    /// The name, perhaps with a path before it.
    pub name: String,
    /// The information to show.
    pub style: InspectStyle,
    /// The source of the whole cell, if the question marks are behind the name. The source is Rust if the name is a fallible variable.
    pub rust: Option<String>,
}
