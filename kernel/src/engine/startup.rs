//! Start-up: the engine's thread, the prelude and its progress, the processes that an engine needs, and a new engine after
//! evcxr or rust-analyzer has panicked. A kernel that cannot start fails every cell with the reason.

use super::cell_supervisor::CellSupervisor;
use super::evaluator::Evaluator;
use super::evaluator_state::EvaluatorState;
use super::inspection::Knowledge;
use super::link::CellLink;
use super::notebook::Notebook;
use super::undo::UndoStates;
use super::{Engine, Inspector, Interrupts};
use crate::chain;
use crate::execution::{LiveDisplay, Output, Work};
use crate::failure::{ErrorName, Failure};
use crate::prelude::Prelude;
use crate::runtime::Runtime;
use anyhow::Result;
use ferrotune_display::Bundle;
use std::panic::{self, AssertUnwindSafe};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

/// rust-analyzer recurses over the user's code.
pub(super) const STACK_BYTES: usize = 64 << 20;

/// Starts the engine's thread, and returns the way to give it work.
pub(crate) fn start(runtime: Runtime, interrupts: Interrupts, inspector: Inspector) -> Sender<Work> {
    let (sender, receiver) = mpsc::channel();
    let spawned = thread::Builder::new()
        .name("engine".into())
        .stack_size(STACK_BYTES)
        .spawn(move || serve(&runtime, &interrupts, &inspector, &receiver));
    if let Err(error) = spawned {
        tracing::error!("the engine cannot start: {error}");
    }
    sender
}

fn serve(runtime: &Runtime, interrupts: &Interrupts, inspector: &Inspector, work: &Receiver<Work>) {
    let link = match CellLink::listen(&runtime.socket()) {
        Ok(link) => link,
        Err(error) => return refuse_all(&chain::in_one_line(&error), None, inspector, work),
    };
    interrupts.set_link(link.clone());
    // The build of the prelude is shown under the first cell, so it begins only with that cell.
    let mut pending = None;
    if !runtime.prelude_is_ready() {
        inspector.learn(Knowledge::without_rust());
        pending = work.recv().ok();
    }
    if let Some(Work::Execute { cell, outputs }) = &pending {
        link.begin_cell(None, outputs.clone(), cell.allow_stdin);
    }
    loop {
        link.compile_for_engine();
        let mut engine = match start_engine(runtime, interrupts, inspector, &link) {
            Ok(engine) => engine,
            Err(error) => {
                let reason = chain::in_one_line(&error);
                tracing::error!("the engine cannot start: {reason}");
                return refuse_all(&reason, pending, inspector, work);
            }
        };
        link.compile_for_user();
        match run(&mut engine, pending.take(), work) {
            Ended::NoMoreWork => return,
            // The loop replaces the engine by one without variables.
            Ended::Panicked => {}
        }
    }
}

fn start_engine(runtime: &Runtime, interrupts: &Interrupts, inspector: &Inspector, link: &CellLink) -> Result<Engine> {
    let prelude = build_prelude(runtime, link)?;
    let socket = runtime.socket();
    let supervisor = CellSupervisor::start(prelude.library(), socket.clone(), link.clone())?;
    let mut evaluator = Evaluator::start(&prelude, &socket, link)?;
    let undo = UndoStates::new(evaluator.state(&EvaluatorState::default()));
    let engine = Engine {
        evaluator,
        link: link.clone(),
        supervisor,
        prelude,
        interrupts: interrupts.clone(),
        inspector: inspector.clone(),
        runtime: runtime.clone(),
        undo,
        notebook: Notebook::default(),
    };
    inspector.learn(engine.knowledge());
    Ok(engine)
}

/// Opens the prelude, and shows the progress in one changing line if it must be built first.
fn build_prelude(runtime: &Runtime, link: &CellLink) -> Result<Prelude> {
    let mut display = LiveDisplay::new("ferrotune-prelude".to_owned());
    let mut show = |text: String| link.emit(display.show(Bundle::text(text)));
    let prelude = runtime.prelude(&mut |line| {
        show(format!("building the prelude, the library that cells are linked with, once for this toolchain: {line}"));
    })?;
    if display.is_shown() {
        link.emit(display.show(Bundle::text("built the prelude, the library that cells are linked with")));
    }
    Ok(prelude)
}

enum Ended {
    /// The kernel ends.
    NoMoreWork,
    /// evcxr or rust-analyzer panicked while a cell ran.
    Panicked,
}

/// Does all work, the pending one first.
fn run(engine: &mut Engine, mut pending: Option<Work>, work: &Receiver<Work>) -> Ended {
    while let Some(work) = pending.take().or_else(|| work.recv().ok()) {
        if panic::catch_unwind(AssertUnwindSafe(|| engine.take(work))).is_err() {
            let text = "the compiler's front end failed on this cell; it was started again, and the variables are lost";
            engine.link.emit(Output::Done(Err(Failure::new(ErrorName::EngineError, text))));
            return Ended::Panicked;
        }
    }
    Ended::NoMoreWork
}

/// Fails every cell with the reason for which there is no engine.
fn refuse_all(reason: &str, pending: Option<Work>, inspector: &Inspector, work: &Receiver<Work>) {
    inspector.learn(Knowledge::without_rust());
    for work in pending.into_iter().chain(work) {
        let Work::Execute { outputs, .. } = work;
        if outputs.send(Output::Done(Err(Failure::new(ErrorName::EngineError, reason)))).is_err() {
            tracing::debug!("nobody waits for the cell");
        }
    }
}
