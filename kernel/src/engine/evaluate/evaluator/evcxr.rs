//! evcxr, configured for cells that are linked with the prelude. Owns evcxr's context, and reads evcxr's knowledge of the
//! notebook. Does not interpret results.

use super::{Evaluated, Evaluator};
use crate::cell_supervisor;
use crate::compile;
use crate::engine::evaluate::dependencies;
use crate::engine::evaluate::evaluator_state::EvaluatorState;
use crate::engine::evaluate::link::CellLink;
use crate::execution::{Output, Stream};
use crate::prelude::{self, Prelude};
use crate::runtime::Runtime;
use ::evcxr::{
    CommandContext, ContextState, Converted, Error, EvalContext, EvalContextOutputs, EvalOutputs, SharedAnalyzer,
    Variable,
};
use anyhow::Result;
use ferrotune_machine::own;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// The Rust that evcxr runs before the user's first cell.
///
/// The `?` tells evcxr, once, that cells may return early; otherwise it compiles the first such cell twice.
/// rust-analyzer writes `dyn Trait` without a path, so the commonest traits must be in scope: `SimpleBackend` for
/// `VarBuilder`, and `Any` for the payload of a thread's panic.
pub(in crate::engine) const FIRST_CELL: &str = "use ::ferrotune::cell::shown::*;
use ::ferrotune::cell::dbg;
use ::candle_nn::var_builder::SimpleBackend;
use ::std::any::Any;
::std::result::Result::<(), ::std::fmt::Error>::Ok(())?;";

/// Name of evcxr's phase in which a cell runs.
const EXECUTION: &str = "Execution";

/// evcxr, configured for cells that are linked with the prelude.
pub(in crate::engine) struct Evcxr {
    context: CommandContext,
}

impl Evcxr {
    /// Starts evcxr with a relay in place of its child process. The relay connects to the cell supervisor, which must already run.
    pub(in crate::engine) fn start(prelude: &Prelude, runtime: &Runtime, link: &CellLink) -> Result<Self> {
        let _starting = compile::mark_starting(runtime.folder())?;
        runtime.show_sources(prelude)?;
        let socket = runtime.socket();
        let mut relay = Command::new(own::PROGRAM);
        relay.arg("cell-relay").env(cell_supervisor::KERNEL_VARIABLE, socket).process_group(0);
        let started = Instant::now();
        let (mut context, outputs) = EvalContext::with_subprocess_command(relay).map_err(plain)?;
        tracing::debug!("evcxr is ready after {:?}", started.elapsed());
        forward(outputs, link)?;
        let folder = runtime.folder().to_owned();
        context.ask_compiler();
        let environment = move |manifest: &Path| compile::environment_of_metadata(manifest, &folder);
        context.analyzer().set_cargo_environment(environment);
        let mut state = context.state();
        // A settings file of evcxr may have other values, and no cell works with those.
        state.set_allow_static_linking(true);
        state.set_preserve_vars_on_panic(true);
        state.set_sccache(false).map_err(plain)?;
        for name in prelude::CRATES {
            let (package, value) = runtime.analysis_dependency(name);
            state.add_dep(&package, &value).map_err(plain)?;
        }
        context.eval_with_state(FIRST_CELL, state).map_err(plain)?;
        tracing::debug!("the prelude is in use after {:?}", started.elapsed());
        Ok(Self { context: CommandContext::with_eval_context(context) })
    }
}

impl Evaluator for Evcxr {
    fn run(&mut self, source: &str) -> Result<Evaluated, Error> {
        self.context.execute(source).map(evaluated)
    }

    fn forget_unused(&mut self, idle: Duration) -> Result<()> {
        self.context.analyzer().forget_unused(idle).map_err(plain)
    }

    fn analysis(&self) -> Option<(SharedAnalyzer, ContextState)> {
        Some((self.context.analyzer(), self.context.state()))
    }

    fn state(&mut self, last: &EvaluatorState) -> EvaluatorState {
        let dependencies = match self.context.execute(":show_deps") {
            Ok(outputs) => dependencies::of_user(outputs.get("text/plain").unwrap_or_default()),
            Err(error) => {
                tracing::error!("evcxr does not list the crates of the notebook: {error}");
                last.dependencies().to_vec()
            }
        };
        EvaluatorState::new(self.last_source(), self.variables(), dependencies)
    }

    fn last_source(&self) -> String {
        self.context.last_source().unwrap_or_default()
    }

    fn variables(&self) -> Vec<Variable> {
        self.context.variables()
    }

    fn set_variables(&mut self, variables: Vec<Variable>) {
        self.context.set_variables(variables);
    }

    fn item_names(&self) -> Vec<&str> {
        self.context.defined_item_names().collect()
    }
}

/// Converts evcxr's outputs.
fn evaluated(
    EvalOutputs { content_by_mime_type, phases, unkept, converted, renewed, copied, .. }: EvalOutputs,
) -> Evaluated {
    let runs = phases.into_iter().filter(|phase| phase.name == EXECUTION).map(|phase| phase.duration);
    Evaluated {
        run_time: runs.reduce(|sum, duration| sum + duration),
        value: content_by_mime_type,
        unkept: unkept.into_iter().map(|(name, reason)| (name, reason.to_string())).collect(),
        converted: converted.into_iter().map(|Converted { name, type_name }| (name, type_name)).collect(),
        renewed,
        copied,
    }
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
