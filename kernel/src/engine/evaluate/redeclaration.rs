//! The redeclaration of a state in evcxr: evcxr forgets everything, then runs one cell that declares the items of the state, and
//! then learns the variables. `:clear` and `:restart` redeclare a state too.

use crate::engine::Engine;
use crate::engine::evaluate::evaluator::{Evaluated, FIRST_CELL};
use crate::engine::evaluate::evaluator_state::EvaluatorState;
use crate::engine::evaluate::report;
use crate::failure::Failure;
use crate::prelude;
use evcxr::Error;

impl Engine {
    /// Carries out `:clear`: a new cell process without variables, and an evcxr without items, variables and crates.
    pub(in crate::engine) fn clear(&mut self) -> Result<(), Failure> {
        self.start_anew(EvaluatorState::default())
    }

    /// Carries out `:restart`: a new cell process without variables; the items stay.
    pub(in crate::engine) fn restart(&mut self) -> Result<(), Failure> {
        let mut state = self.undo.now.clone();
        state.lose_variables();
        self.start_anew(state)
    }

    fn start_anew(&mut self, state: EvaluatorState) -> Result<(), Failure> {
        let left = self.undo.now.clone();
        self.notebook.origins.lost(left.names());
        let declared = self.redeclare(state);
        let now = std::mem::replace(&mut self.undo.now, left);
        self.undo.record(self.notebook.cell, now);
        declared
    }

    /// Makes evcxr forget everything and declare a state.
    pub(in crate::engine) fn redeclare(&mut self, state: EvaluatorState) -> Result<(), Failure> {
        let cell = self.notebook.cell.take();
        // An interrupt between forgetting and declaring would leave an empty evcxr.
        self.link.compile_for_engine();
        let declared = self.declare(state);
        self.link.compile_for_user();
        self.notebook.cell = cell;
        match declared {
            Ok(state) => {
                self.undo.now = state;
                Ok(())
            }
            Err(failure) => {
                self.undo.now = EvaluatorState::default();
                Err(failure)
            }
        }
    }

    /// Declares a state without the variables whose types have been redefined, and returns the state without these variables.
    fn declare(&mut self, mut state: EvaluatorState) -> Result<EvaluatorState, Failure> {
        self.evaluate_generated(":clear")?;
        let own = prelude::CRATES.iter().map(|name| {
            let (package, value) = self.runtime.analysis_dependency(name);
            format!("{package} = {value}")
        });
        let dependencies = own.chain(state.dependencies().iter().cloned());
        let dependencies: String = dependencies.map(|dependency| format!(":dep {dependency}\n")).collect();
        self.evaluate_generated(&format!("{dependencies}{FIRST_CELL}"))?;
        loop {
            let result = self.evaluate_once(&state.declaration());
            let dropped = self.link.take_changed();
            if dropped.is_empty() {
                self.conclude_generated(result)?;
                self.evaluator.set_variables(state.variables().to_vec());
                return Ok(state);
            }
            state.forget(&dropped);
            self.warn_dropped(&dropped);
        }
    }

    fn evaluate_generated(&mut self, source: &str) -> Result<(), Failure> {
        let result = self.evaluate_once(source);
        self.conclude_generated(result)
    }

    fn conclude_generated(&mut self, result: Result<Evaluated, Error>) -> Result<(), Failure> {
        self.conclude(result, |errors| {
            let mut failure = report::generated(errors);
            failure.text = format!("the variables are kept, but evcxr cannot declare them again: {}", failure.text);
            failure
        })
        .map(drop)
    }
}
