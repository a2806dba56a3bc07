//! The interface between the engine and an evaluator of Rust. evcxr evaluates the cells of a notebook; a table of answers replaces
//! evcxr in the engine's tests. An evaluator interprets no results.

mod evcxr;

pub(in crate::engine) use self::evcxr::{Evcxr, FIRST_CELL};

use crate::engine::evaluate::evaluator_state::EvaluatorState;
use ::evcxr::{ContextState, Error, SharedAnalyzer, Variable};
use anyhow::Result;
use std::collections::HashMap;
use std::time::Duration;

/// An evaluator of a notebook's Rust, which knows the notebook's items and variables.
pub(in crate::engine) trait Evaluator {
    /// Runs Rust, after the `:commands` above it.
    fn run(&mut self, source: &str) -> Result<Evaluated, Error>;

    /// Makes rust-analyzer forget the crates if it was not asked for this time. It reads them again when it is asked.
    fn forget_unused(&mut self, idle: Duration) -> Result<()>;

    /// rust-analyzer and evcxr's present context, which answer questions while a cell runs. None for an evaluator without them.
    fn analysis(&self) -> Option<(SharedAnalyzer, ContextState)>;

    /// The evaluator's present state. If the evaluator cannot list its crates, the crates are those of `last`.
    fn state(&mut self, last: &EvaluatorState) -> EvaluatorState;

    /// The generated source of the last cell that was compiled.
    fn last_source(&self) -> String;

    /// The variables, in the order of their names.
    fn variables(&self) -> Vec<Variable>;

    /// Takes these for the variables that the cell process has.
    fn set_variables(&mut self, variables: Vec<Variable>);

    /// Names of the notebook's items.
    fn item_names(&self) -> Vec<&str>;
}

/// The result of an evaluation of Rust.
#[derive(Clone, Debug, Default)]
pub(in crate::engine) struct Evaluated {
    /// The run time of the statements. None if the source has only comments and commands; [`Evaluator::last_source`] is then the
    /// source of an earlier cell.
    pub(in crate::engine) run_time: Option<Duration>,
    /// The representations, by MIME type, of the value of the last expression. Most values come over the link instead.
    pub(in crate::engine) value: HashMap<String, String>,
    /// The variables that end with the cell, each with the reason.
    pub(in crate::engine) unkept: Vec<(String, String)>,
    /// The variables that later cells have with another type than this cell, each with that type.
    pub(in crate::engine) converted: Vec<(String, String)>,
    /// The items of earlier cells whose statics begin anew.
    pub(in crate::engine) renewed: Vec<String>,
    /// The items whose statics each cell has for itself.
    pub(in crate::engine) copied: Vec<String>,
}

impl Evaluated {
    /// A line for each variable that ends with the cell or that later cells have with another type, and for each static that is
    /// not the one of earlier or later cells.
    pub(in crate::engine) fn differences(&self) -> String {
        // A name that begins with `_` is of a value that the user does not mean to use.
        let unkept = self.unkept.iter().filter(|(name, _)| !name.starts_with('_'));
        let unkept = unkept.map(|(name, reason)| format!("`{name}` is not kept: {reason}\n"));
        let converted = self.converted.iter().map(|(name, kept)| format!("`{name}` is kept as `{kept}`\n"));
        let renewed = self.renewed.iter().map(|name| format!("`{name}` begins anew: its type is defined anew\n"));
        let copied = self.copied.iter().map(|name| {
            format!("`{name}` begins anew in each cell: write the lifetimes in its type, as in `Cow<'static, str>`\n")
        });
        unkept.chain(converted).chain(renewed).chain(copied).collect()
    }
}
