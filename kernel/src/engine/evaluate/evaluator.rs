//! What the engine needs of an evaluator of Rust. evcxr is the one that runs cells; the engine's tests have a table of answers.
//! Interprets no results.

mod evcxr;

pub(in crate::engine) use self::evcxr::{Evcxr, FIRST_CELL};

use crate::engine::evaluate::evaluator_state::EvaluatorState;
use ::evcxr::{ContextState, Error, SharedAnalyzer};
use anyhow::Result;
use std::collections::HashMap;
use std::time::Duration;

/// Evaluates the Rust of a notebook, and knows its items and variables.
pub(in crate::engine) trait Evaluator {
    /// Runs Rust, after the `:commands` above it.
    fn run(&mut self, source: &str) -> Result<Evaluated, Error>;

    /// Gives rust-analyzer the real sources before a cell needs them, and lets it infer a type for the first time.
    fn prepare_analysis(&mut self) -> Result<()>;

    /// Whether a cell has given rust-analyzer the real sources, which it may not have read.
    fn has_unread_sources(&self) -> bool;

    /// rust-analyzer, and what the evaluator knows now. They answer questions while a cell runs. None until the sources are read.
    fn analysis(&self) -> Option<(SharedAnalyzer, ContextState)>;

    /// What the evaluator knows now. The crates are those of the last known state if it cannot list them.
    fn state(&mut self, last: &EvaluatorState) -> EvaluatorState;

    /// The generated source of the last cell that was compiled.
    fn last_source(&self) -> String;

    /// Names and types of the variables.
    fn variables(&self) -> Vec<(String, String)>;

    /// Names of the notebook's items.
    fn item_names(&self) -> Vec<&str>;
}

/// What an evaluator says of Rust that it has evaluated.
#[derive(Clone, Debug, Default)]
pub(in crate::engine) struct Evaluated {
    /// How long the statements ran. None if there are only comments and commands; [`Evaluator::last_source`] is then that of an
    /// earlier cell.
    pub(in crate::engine) run_time: Option<Duration>,
    /// The representations, by MIME type, of the value of the last expression. Most values come over the link instead.
    pub(in crate::engine) value: HashMap<String, String>,
}
