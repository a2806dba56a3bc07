//! evcxr, configured for cells that are linked with the prelude. Owns evcxr's context, and reads evcxr's knowledge of the
//! notebook. Does not interpret results.

use super::{Evaluated, Evaluator};
use crate::cell_supervisor;
use crate::chain;
use crate::compile;
use crate::engine::evaluate::dependencies;
use crate::engine::evaluate::evaluator_state::EvaluatorState;
use crate::engine::evaluate::link::CellLink;
use crate::execution::{Output, Stream};
use crate::prelude::{self, Prelude};
use crate::runtime::{OWN_PROGRAM, Runtime};
use ::evcxr::{
    CommandContext, ContextState, Converted, Error, EvalContext, EvalContextOutputs, EvalOutputs, SharedAnalyzer,
    Variable,
};
use anyhow::{Context, Result};
use std::fs;
use std::os::unix::process::CommandExt;
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

/// The optimisation level before rust-analyzer has the real sources, and the level afterwards. The level is the same, but the bytes
/// of the manifest differ: a manifest with other bytes makes rust-analyzer read everything again.
const BEFORE_SOURCES: &str = "2 ";
const WITH_SOURCES: &str = "2";

/// evcxr, with the prelude and the runtime for which it is configured.
pub(in crate::engine) struct Evcxr {
    context: CommandContext,
    prelude: Prelude,
    runtime: Runtime,
    /// Whether rust-analyzer has the real sources, and not empty crates.
    has_sources: bool,
    /// Whether rust-analyzer has read the real sources.
    has_read: bool,
}

impl Evcxr {
    /// Starts evcxr with a relay in place of its child process. The relay connects to the cell supervisor, which must already run.
    pub(in crate::engine) fn start(prelude: &Prelude, runtime: &Runtime, link: &CellLink) -> Result<Self> {
        let _starting = compile::mark_starting(runtime.folder())?;
        runtime.hide_sources()?;
        let socket = runtime.socket();
        let mut relay = Command::new(OWN_PROGRAM);
        relay.arg("cell-relay").env(cell_supervisor::KERNEL_VARIABLE, socket).process_group(0);
        let started = Instant::now();
        let (mut context, outputs) = EvalContext::with_subprocess_command(relay).map_err(plain)?;
        tracing::debug!("evcxr is ready after {:?}", started.elapsed());
        forward(outputs, link)?;
        let mut state = context.state();
        // A settings file of evcxr may have other values, and no cell works with those.
        state.set_allow_static_linking(true);
        state.set_preserve_vars_on_panic(true);
        state.set_sccache(false).map_err(plain)?;
        for name in prelude::CRATES {
            let (package, value) = runtime.analysis_dependency(name);
            state.add_dep(&package, &value).map_err(plain)?;
        }
        state.set_opt_level(BEFORE_SOURCES).map_err(plain)?;
        context.eval_with_state(FIRST_CELL, state).map_err(plain)?;
        tracing::debug!("the prelude is in use after {:?}", started.elapsed());
        let context = CommandContext::with_eval_context(context);
        Ok(Self { context, prelude: prelude.clone(), runtime: runtime.clone(), has_sources: false, has_read: false })
    }

    /// Gives rust-analyzer the real sources in place of empty crates.
    fn read_sources(&mut self) -> Result<()> {
        if self.has_sources {
            return Ok(());
        }
        self.runtime.show_sources(&self.prelude)?;
        self.context.execute(&format!(":opt {WITH_SOURCES}")).map_err(plain)?;
        // evcxr writes the manifest before a cell, but not before a completion.
        let manifest = self.runtime.cells().join("Cargo.toml");
        let level = |level| format!("opt-level = {level}\n");
        let text = fs::read_to_string(&manifest)?.replace(&level(BEFORE_SOURCES), &level(WITH_SOURCES));
        fs::write(&manifest, text).with_context(|| format!("cannot write {}", manifest.display()))?;
        self.has_sources = true;
        Ok(())
    }
}

impl Evaluator for Evcxr {
    fn run(&mut self, source: &str) -> Result<Evaluated, Error> {
        if needs_sources(source) {
            self.read_sources().map_err(|error| Error::Message(chain::in_one_line(&error)))?;
        }
        self.context.execute(source).map(evaluated)
    }

    fn prepare_analysis(&mut self) -> Result<()> {
        if self.has_read {
            return Ok(());
        }
        if self.has_sources {
            // rust-analyzer has already inferred types for the cell that needed the sources.
            self.context.hover_at("let", "let".len())?;
        } else {
            self.read_sources()?;
            // At the second source rust-analyzer frees the data of the first source.
            for source in ["let number = 1;\nnumb", "numb"] {
                self.context.completions(source, source.len())?;
            }
        }
        self.has_read = true;
        Ok(())
    }

    fn forget_unused(&mut self, idle: Duration) -> Result<()> {
        self.context.analyzer().forget_unused(idle).map_err(plain)
    }

    fn has_unread_sources(&self) -> bool {
        self.has_sources && !self.has_read
    }

    fn analysis(&self) -> Option<(SharedAnalyzer, ContextState)> {
        self.has_read.then(|| (self.context.analyzer(), self.context.state()))
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

/// Whether a cell may declare a variable, whose type rust-analyzer infers, or has a command of evcxr.
fn needs_sources(source: &str) -> bool {
    let is_of_name = |c: char| c.is_alphanumeric() || c == '_';
    source.lines().any(|line| line.starts_with(':')) || source.split(|c| !is_of_name(c)).any(|word| word == "let")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_and_commands_need_the_sources() {
        for source in ["let x = 1;", "1;let(a, b) = c", "match a { _ => { let b = 1; } }", "//\n:type x"] {
            assert!(needs_sources(source), "{source}");
        }
        for source in ["x + 1", "letter.outlet()", "println!(\":type\");", "fn f() -> a::B { C }", "use a::{b, c};"] {
            assert!(!needs_sources(source), "{source}");
        }
    }
}
