//! The engine: evaluates cells, one after the other, on a thread of its own. Each of its other duties has a file in
//! `engine/`. Knows nothing of Jupyter's sockets; a cell's outputs leave as [`Output`]s.
//!
//! Each piece of state has one owner. The [`Evaluator`] owns the interpreter of Rust, [`CellSupervisor`] the child process,
//! [`UndoStates`] the evaluator's states after earlier cells, and [`Notebook`] the remaining state of the notebook.

mod cell_supervisor;
mod evaluate;
mod first_cell;
mod handlers;
mod inspection;
mod interrupts;
mod notebook;
mod startup;
#[cfg(test)]
mod tests;

pub(crate) use handlers::read_only::only_looks;
pub(crate) use handlers::studies::{best_as_json, export_folder, folder_named};
pub(crate) use inspection::Inspector;
pub(crate) use interrupts::Interrupts;
pub(crate) use startup::start;

use crate::execution::{Cell, Output, Stream, Work};
use crate::failure::{ErrorName, Failure};
use crate::runtime::Runtime;
use cell_supervisor::CellSupervisor;
use evaluate::commands::{KernelCommand, Runner};
use evaluate::evaluator::{Evaluated, Evaluator};
use evaluate::evaluator_state::EvaluatorState;
use evaluate::evaluator_state::Undecided;
use evaluate::link::{CellLink, CellOutcome};
use evaluate::preparation::Prepared;
use evaluate::undo::UndoStates;
use evaluate::{commands, dependencies, preparation, report, syntax};
use evcxr::{CompilationError, Error, Variable};
use ferrotune_display::{Bundle, table};
use ferrotune_link::{CellEnding, SupervisorRequest};
use ferrotune_magics::{Split, Step};
use notebook::Notebook;
use startup::Leisure;
use std::collections::HashMap;
use std::time::Duration;

/// The error of a cell that an interrupt stopped before it ran.
const STOPPED_BEFORE: &str = "the cell was stopped before it ran; no variable has changed";

/// Splits a cell into its Rust and its magics.
fn steps(code: &str) -> Result<Vec<Step>, Failure> {
    ferrotune_magics::parse(code).map_err(|error| Failure::new(ErrorName::MagicError, error.to_string()))
}

/// The functions that replace the hook with which the prelude reports panics.
const HOOKS: [&str; 2] = ["set_hook", "take_hook"];

struct Engine {
    evaluator: Box<dyn Evaluator>,
    supervisor: CellSupervisor,
    undo: UndoStates,
    notebook: Notebook,
    link: CellLink,
    interrupts: Interrupts,
    inspector: Inspector,
    runtime: Runtime,
    leisure: Leisure,
    /// After which idle time rust-analyzer forgets the crates; none if it never does.
    idle: Option<Duration>,
}

impl Engine {
    fn new(
        mut evaluator: Box<dyn Evaluator>,
        supervisor: CellSupervisor,
        link: &CellLink,
        interrupts: &Interrupts,
        inspector: &Inspector,
        runtime: &Runtime,
        idle: Option<Duration>,
    ) -> Self {
        Self {
            undo: UndoStates::new(evaluator.state(&EvaluatorState::default())),
            evaluator,
            supervisor,
            notebook: Notebook::default(),
            link: link.clone(),
            interrupts: interrupts.clone(),
            inspector: inspector.clone(),
            runtime: runtime.clone(),
            leisure: Leisure::Analysis,
            idle,
        }
    }

    fn take(&mut self, work: Work) {
        match work {
            Work::Execute { cell, outputs } => {
                let number = self.notebook.begin_cell(cell.can_be_undone);
                self.notebook.count = cell.count;
                self.link.begin_cell(number, outputs, cell.allow_stdin);
                let result = match self.interrupts.begin_cell(&cell) {
                    Some(_running) => self.execute(&cell),
                    None => Err(Failure::new(ErrorName::Interrupted, STOPPED_BEFORE)),
                };
                // This precedes the cell's end: after its end the front end may ask about names that the cell has declared.
                self.inspector.learn(self.knowledge());
                self.link.emit(Output::Done(result));
            }
        }
    }

    fn execute(&mut self, cell: &Cell) -> Result<(), Failure> {
        self.replace_dead_supervisor()?;
        // Some editors put a byte order mark before a file's text.
        self.run_code(cell.code.strip_prefix('\u{feff}').unwrap_or(&cell.code))
    }

    /// Runs the code of a cell, magics included.
    fn run_code(&mut self, code: &str) -> Result<(), Failure> {
        for step in steps(code)? {
            match step {
                Step::Code { source, first_line } => {
                    self.run_user_code(&source, first_line)?;
                }
                Step::Action(action) => self.act(code, action)?,
            }
        }
        Ok(())
    }

    /// Starts a new supervisor if the present one has ended.
    fn replace_dead_supervisor(&mut self) -> Result<(), Failure> {
        let ended = self.supervisor.restart_if_ended();
        let Some(status) = ended.map_err(|error| Failure::from_error(ErrorName::EngineError, &error))? else {
            return Ok(());
        };
        self.supervisor.ask(SupervisorRequest::Limit { bytes: self.notebook.memory_limit })?;
        self.lose_variables()?;
        let text =
            format!("the supervisor of the cells ended ({status}); it was started again, and the variables are lost");
        Err(Failure::new(ErrorName::EngineError, text))
    }

    /// Forgets all variables and undo states, because the supervisor has lost all variables and snapshots.
    fn lose_variables(&mut self) -> Result<(), Failure> {
        self.notebook.origins.lost(self.undo.now.names());
        self.undo.lose_variables();
        self.redeclare(self.undo.now.clone())
    }

    /// Runs the user's Rust, which begins at a line of the cell, and the `:commands` above it.
    fn run_user_code(&mut self, source: &str, first_line: usize) -> Result<Evaluated, Failure> {
        let mut calls = commands::calls(source).map_err(|text| Failure::new(ErrorName::CommandError, text))?;
        let mut lines: Vec<&str> = source.split('\n').collect();
        for name in dependencies::leave_out(&mut calls, &mut lines) {
            let text = format!("{name} is part of every cell; the :dep line is not needed, and was left out\n");
            self.link.emit(Output::Stream(Stream::Stderr, text));
        }
        for call in calls {
            let Runner::Kernel(command) = call.runner else { continue };
            // evcxr first runs its own commands above this command.
            self.evaluate_lines(&lines[..call.line], first_line)?;
            lines[..=call.line].fill("");
            self.carry_out(command, &call)?;
        }
        self.evaluate_lines(&lines, first_line)
    }

    fn evaluate_lines(&mut self, lines: &[&str], first_line: usize) -> Result<Evaluated, Failure> {
        let padded = format!("{}{}", "\n".repeat(first_line.saturating_sub(1)), lines.join("\n"));
        let split = ferrotune_magics::split(&padded);
        syntax::check_brackets(&padded, &split.ending)?;
        let before = self.undo.now.clone();
        let (Prepared { source, insertions, .. }, result) = self.evaluate_deciding(&padded, &split)?;
        let has_run = result.is_ok();
        let concluded = self.conclude(result, |errors| {
            let failure = || report::compilation(errors, &source, |_| true, &insertions);
            syntax::of_python(&padded).unwrap_or_else(failure)
        });
        self.show_warnings(&padded, &source, &insertions);
        if let Ok(evaluated) = &concluded {
            self.warn_unkept(evaluated);
        }
        if has_run && concluded.is_err() {
            self.learn_shadowed(&before);
        }
        concluded
    }

    /// Prepares and evaluates a cell, with the waiting statements that it uses before its first token.
    fn attempt(
        &mut self,
        cell: &str,
        split: &Split<'_>,
        used: &[Undecided],
    ) -> Result<(Prepared, Result<Evaluated, Error>), Failure> {
        let statements: String = used.iter().map(|undecided| format!("{} ", undecided.statement)).collect();
        let hook = if self.notebook.changes_hook { "();::ferrotune::cell::report_panics(); " } else { "" };
        let statements = statements + hook + self.notebook.recording.as_deref().unwrap_or_default();
        let statement = Some(statements).filter(|statements| !statements.is_empty());
        let prepared = preparation::prepare(cell, split, statement, self.evaluator.item_names().into_iter());
        if !prepared.is_rust {
            syntax::check_operands(cell)?;
        }
        self.link.will_run(self.notebook.count, cell, &prepared.source);
        let result = self.evaluate(&prepared.source);
        if !matches!(result, Err(Error::CompilationErrors(_))) {
            self.notebook.changes_hook = HOOKS.iter().any(|function| cell.contains(function));
        }
        Ok((prepared, result))
    }

    /// Declares again the variables that a failing cell has shadowed: evcxr forgets these variables, but the store has them again.
    fn learn_shadowed(&mut self, before: &EvaluatorState) {
        let shadowed = before.variables_missing_in(&self.undo.now);
        if !shadowed.is_empty() {
            self.set_variables(self.undo.now.variables().iter().cloned().chain(shadowed).collect());
        }
    }

    /// Takes these for the variables that the cell process has.
    fn set_variables(&mut self, variables: Vec<Variable>) {
        self.evaluator.set_variables(variables.clone());
        self.undo.now.set_variables(variables);
    }

    /// Runs a command that evcxr does not run.
    fn carry_out(&mut self, command: KernelCommand, call: &commands::Call) -> Result<(), Failure> {
        match command {
            KernelCommand::Clear => self.clear()?,
            KernelCommand::Restart => self.restart()?,
            KernelCommand::Document => self.document(&call.argument)?,
            KernelCommand::Explain(why) => {
                let text = format!("{} changes nothing here: {why}\n", call.name);
                self.link.emit(Output::Stream(Stream::Stderr, text));
            }
            KernelCommand::Help => self.show(table(&["command", "what it does"], &commands::help())),
            KernelCommand::ShowDependencies => self.show_text(self.undo.now.dependencies_text()),
        }
        Ok(())
    }

    /// Runs generated Rust, which has no line of the user's.
    fn run_generated(&mut self, source: &str) -> Result<(), Failure> {
        let result = self.evaluate(source);
        self.conclude(result, report::generated).map(drop)
    }

    /// Evaluates Rust. Evaluates it a second time if the cell process has dropped variables whose types have been redefined.
    fn evaluate(&mut self, source: &str) -> Result<Evaluated, Error> {
        let before: Vec<String> = self.undo.now.names().into_iter().map(str::to_owned).collect();
        let result = self.evaluate_once(source);
        match &result {
            Ok(_) => self.notebook.origins.ran(self.notebook.count, source, &before, &self.undo.now.names()),
            Err(Error::SubprocessTerminated(_)) => self.notebook.origins.lost(before),
            Err(_) => {}
        }
        if let Ok(_) | Err(Error::CompilationErrors(_) | Error::SubprocessTerminated(_)) = &result {
            return result;
        }
        let dropped = self.link.take_changed();
        if dropped.is_empty() {
            return result;
        }
        self.forget_variables(&dropped);
        self.evaluate(source)
    }

    /// Makes evcxr forget variables that the cell process has dropped.
    fn forget_variables(&mut self, names: &[String]) {
        let kept = self.undo.now.variables().iter().filter(|variable| !names.contains(&variable.name));
        self.set_variables(kept.cloned().collect());
        self.warn_dropped(names);
    }

    /// Says what later cells do not have as this one has it.
    fn warn_unkept(&mut self, evaluated: &Evaluated) {
        self.notebook.origins.unkept(self.notebook.count, &evaluated.unkept);
        let text = evaluated.differences();
        if !text.is_empty() {
            self.link.emit(Output::Stream(Stream::Stderr, text));
        }
    }

    fn warn_dropped(&mut self, names: &[String]) {
        for name in names {
            let remake = self.notebook.origins.outdated(name);
            let text = format!(
                "the variable {name} was dropped: its type has been defined anew since it was made, or its value is gone; \
                 {remake} to have it\n"
            );
            self.link.emit(Output::Stream(Stream::Stderr, text));
        }
    }

    fn evaluate_once(&mut self, source: &str) -> Result<Evaluated, Error> {
        let result = self.evaluator.run(source);
        match &result {
            Ok(evaluated) if evaluated.run_time.is_some() => {
                let mut now = self.evaluator.state(&self.undo.now);
                now.undecided.clone_from(&self.undo.now.undecided);
                now.assumed.clone_from(&self.undo.now.assumed);
                self.undo.record(self.notebook.cell, now);
            }
            Err(Error::SubprocessTerminated(_)) => self.undo.now.lose_variables(),
            Ok(_) | Err(_) => {}
        }
        result
    }

    /// Waits for the cell's last outputs, and returns how it ended.
    fn conclude(
        &mut self,
        result: Result<Evaluated, Error>,
        explain: impl Fn(&[CompilationError]) -> Failure,
    ) -> Result<Evaluated, Failure> {
        let outcome = match result {
            Err(Error::SubprocessTerminated(_)) => self.link.outcome_of_death(),
            _ => self.link.sync(),
        };
        if outcome.cancelled {
            // evcxr's result depends on when the interrupt came; the user sees the same line each time.
            return Err(Failure::new(ErrorName::Interrupted, STOPPED_BEFORE));
        }
        let ended_early = self.ended_early(&outcome);
        if ended_early.is_some() {
            self.notebook.origins.failed(self.notebook.count);
        }
        if let Some((ending, threads)) = &outcome.restored {
            let own = ended_early.filter(|_| *ending == CellEnding::TakenBack);
            if own.is_some() && !threads.is_empty() {
                self.link.emit(Output::Stream(Stream::Stderr, report::taken_back(threads)));
            }
            return Err(own.unwrap_or_else(|| report::taken_over(ending, threads)));
        }
        match result {
            Err(Error::Message(text)) if outcome.failed.is_some() => {
                Err(ended_early.unwrap_or_else(|| Failure::of_lines(ErrorName::Error, &text)))
            }
            Ok(evaluated) => match ended_early {
                Some(failure) => Err(failure),
                None => {
                    self.show_value(&evaluated.value);
                    Ok(evaluated)
                }
            },
            Err(Error::CompilationErrors(errors)) => {
                Err(self.notebook.origins.explain(&errors, &self.undo.now.names(), explain(&errors)))
            }
            Err(Error::SubprocessTerminated(_)) => {
                Err(report::died(outcome.died.as_ref().unwrap_or(&CellEnding::Stopped)))
            }
            Err(error) => Err(Failure::of_lines(ErrorName::Error, &error.to_string())),
        }
    }

    /// The failure of a cell that ended by a panic or at a `?`.
    fn ended_early(&self, outcome: &CellOutcome) -> Option<Failure> {
        let place = |location: &Option<String>| location.as_deref().and_then(|location| self.link.place(location));
        if let Some((message, location)) = &outcome.panicked {
            let backtrace = self.link.places(&outcome.backtrace);
            let called = || backtrace.first().map(|found| found.name.clone());
            let place = if location.is_some() { place(location) } else { called() };
            return Some(report::ended_early(ErrorName::Panic, message, place, &backtrace));
        }
        let (message, location) = outcome.failed.as_ref()?;
        Some(report::ended_early(ErrorName::Error, message, place(location), &[]))
    }

    /// Shows the value of the last expression if the evaluator returns the value: most values come over the link instead.
    fn show_value(&self, value: &HashMap<String, String>) {
        let is_unit = value.get("text/plain").is_some_and(|text| text == "()") && value.len() == 1;
        if value.is_empty() || is_unit {
            return;
        }
        let bundle = value
            .iter()
            .fold(Bundle::default(), |bundle, (mime, content)| bundle.with_text(mime, content.trim_end_matches('\n')));
        self.link.emit(Output::Result { data: bundle.data, metadata: bundle.metadata });
    }
}
