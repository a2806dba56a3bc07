//! What the magics ask for that time Rust, and look at the session.

use super::Lines;

/// Run Rust and say how long it took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Time {
    /// The Rust to time. Of a line magic, the blanks before it keep it in the column where it was typed, so that a
    /// compile error points there.
    pub source: String,
    /// The 1-based line of the cell on which `source` begins.
    pub first_line: usize,
}

/// Run Rust and show what the steps of its loops spend their time on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// The Rust.
    pub source: String,
    /// The 1-based line of the cell on which `source` begins.
    pub first_line: usize,
    /// How many steps to record, at least 1.
    pub steps: u64,
    /// Whether to show a flame graph, too.
    pub flame: bool,
    /// The file to which the trace is written, if one is given.
    pub trace: Option<String>,
    /// TensorBoard's folder, to which the connected device's own profile is written, if one is given.
    pub tensorboard: Option<String>,
}

/// What is measured of Rust.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// How long one run takes.
    Time {
        /// How often one measurement runs it; none means as often as takes long enough to measure.
        loops: Option<u64>,
        /// How many measurements, at least 1.
        runs: u64,
    },
    /// The most memory that it takes.
    Memory,
}

/// Run Rust and measure it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeit {
    /// What to measure.
    pub measure: Measure,
    /// Rust to run before each measurement, on the line before `first_line`. Blanks keep it in its column.
    pub setup: Option<String>,
    /// The Rust to measure. Blanks keep that of a line magic in its column.
    pub source: String,
    /// The 1-based line of the cell on which `source` begins.
    pub first_line: usize,
}

/// How variables are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhoStyle {
    /// Their names.
    Names,
    /// A table with types, sizes and values.
    Table,
}

/// List the variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Who {
    /// How.
    pub style: WhoStyle,
    /// Only those whose type has this word in it; none means all.
    pub type_name: Option<String>,
}

/// List the cells of this session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History {
    /// Which cells, by number; none means all.
    pub cells: Option<Lines>,
    /// With their numbers.
    pub numbered: bool,
    /// Write them to this new file.
    pub file: Option<String>,
}

/// Add a crate, in the version that cargo picks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dep {
    /// Its name, perhaps with `@VERSION` behind it.
    pub package: String,
    /// Its features, with commas between.
    pub features: Option<String>,
}

/// What is shown of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InspectStyle {
    /// Its documentation.
    Documentation,
    /// Its source.
    Source,
}

/// Show a name in the pager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspect {
    /// The name, perhaps with a path before it.
    pub name: String,
    /// What to show.
    pub style: InspectStyle,
    /// The cell, if it is Rust where the name is a variable with a result or an option.
    pub rust: Option<String>,
}
