//! The evaluator: evcxr, configured for cells that are linked with the prelude. Owns evcxr's context, and reads evcxr's
//! knowledge of the notebook. Does not interpret results.

use super::dependencies;
use super::evaluator_state::EvaluatorState;
use super::link::CellLink;
use crate::execution::{Output, Stream};
use crate::prelude::{self, Prelude};
use crate::runtime::OWN_PROGRAM;
use crate::supervisor;
use anyhow::Result;
use evcxr::{CommandContext, Completions, Error, EvalContext, EvalContextOutputs, EvalOutputs};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Instant;

/// evcxr runs this before the user's first cell.
///
/// The `?` tells evcxr, once, that cells may return early; otherwise it compiles the first such cell twice.
/// rust-analyzer writes `dyn Trait` without a path, so the commonest traits must be in scope: `SimpleBackend` for
/// `VarBuilder`, and `Any` for the payload of a thread's panic.
pub(super) const FIRST_CELL: &str = "use ::ferrotune::cell::shown::*;
use ::ferrotune::cell::dbg;
use ::candle_nn::var_builder::SimpleBackend;
use std::any::Any;
std::result::Result::<(), std::fmt::Error>::Ok(())?;";

/// Name of evcxr's phase in which a cell runs.
pub(super) const EXECUTION: &str = "Execution";

pub(super) struct Evaluator {
    context: CommandContext,
}

impl Evaluator {
    /// Starts evcxr. The relay that evcxr takes for its runtime connects to the cell supervisor, which must run already.
    pub(super) fn start(prelude: &Prelude, socket: &Path, link: &CellLink) -> Result<Self> {
        let mut relay = Command::new(OWN_PROGRAM);
        relay.arg("cell-relay").env(supervisor::KERNEL_VARIABLE, socket).process_group(0);
        let started = Instant::now();
        let (mut context, outputs) = EvalContext::with_subprocess_command(relay).map_err(plain)?;
        tracing::debug!("evcxr is ready after {:?}", started.elapsed());
        forward(outputs, link)?;
        let mut state = context.state();
        // A settings file of evcxr's may have other values, with which no cell works.
        state.set_allow_static_linking(true);
        state.set_preserve_vars_on_panic(true);
        state.set_sccache(false).map_err(plain)?;
        for name in prelude::CRATES {
            let (package, value) = prelude.analysis_dependency(name);
            state.add_dep(&package, &value).map_err(plain)?;
        }
        context.eval_with_state(FIRST_CELL, state).map_err(plain)?;
        tracing::debug!("the prelude is in use after {:?}", started.elapsed());
        Ok(Self { context: CommandContext::with_eval_context(context) })
    }

    /// Runs Rust, after the `:commands` above it.
    pub(super) fn run(&mut self, source: &str) -> Result<EvalOutputs, Error> {
        self.context.execute(source)
    }

    /// What evcxr knows now. The crates are those of the last known state if evcxr does not list them.
    pub(super) fn state(&mut self, last: &EvaluatorState) -> EvaluatorState {
        let dependencies = match self.context.execute(":show_deps") {
            Ok(outputs) => dependencies::of_user(outputs.get("text/plain").unwrap_or_default()),
            Err(error) => {
                tracing::error!("evcxr does not list the crates of the notebook: {error}");
                last.dependencies().to_vec()
            }
        };
        EvaluatorState::new(self.last_source(), self.variables(), dependencies)
    }

    /// The generated source of the last cell that was compiled.
    pub(super) fn last_source(&self) -> String {
        self.context.last_source().unwrap_or_default()
    }

    /// Names and types of the variables.
    pub(super) fn variables(&self) -> Vec<(String, String)> {
        let variables = self.context.variables_and_types();
        variables.map(|(name, type_name)| (name.to_owned(), type_name.to_owned())).collect()
    }

    /// Names of the notebook's items.
    pub(super) fn item_names(&self) -> impl Iterator<Item = &str> {
        self.context.defined_item_names()
    }

    pub(super) fn completions(&mut self, source: &str, cursor: usize) -> Result<Completions> {
        self.context.completions(source, cursor)
    }

    /// Documentation of what ends at an offset, as text and as HTML.
    pub(super) fn hover(&mut self, source: &str, end: usize) -> Result<(String, String)> {
        self.context.hover_at(source, end)
    }
}

/// Whether the cell ran. A cell of comments or commands alone does not, and evcxr keeps the source of an earlier one.
pub(super) fn has_run(outputs: &EvalOutputs) -> bool {
    outputs.phases.iter().any(|phase| phase.name == EXECUTION)
}

/// Passes evcxr's own messages on to the running cell.
fn forward(outputs: EvalContextOutputs, link: &CellLink) -> Result<()> {
    for (lines, stream) in [(outputs.stdout, Stream::Stdout), (outputs.stderr, Stream::Stderr)] {
        let link = link.clone();
        thread::Builder::new().name("evcxr".into()).spawn(move || {
            for line in lines {
                link.emit(Output::Stream(stream, format!("{line}\n")));
            }
        })?;
    }
    Ok(())
}

fn plain(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow::anyhow!("{error}")
}
