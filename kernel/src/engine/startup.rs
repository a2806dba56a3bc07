//! Start-up: the engine's thread, the prelude and its progress, the processes that an engine needs, and a new engine after
//! evcxr or rust-analyzer has panicked. If no engine can start, the cell fails with the reason, and the next cell tries again.

use super::cell_supervisor::{self, CellSupervisor};
use super::evaluate::evaluator::Evcxr;
use super::evaluate::link::CellLink;
use super::inspection::{Knowledge, STACK_BYTES};
use super::{Engine, Inspector, Interrupts, first_cell, steps};
use crate::allocator;
use crate::chain;
use crate::environment;
use crate::execution::{LiveDisplay, Output, Work};
use crate::failure::{ErrorName, Failure};
use crate::folders::holds::{Held, hold};
use crate::folders::preludes;
use crate::prelude::Prelude;
use crate::runtime::Runtime;
use anyhow::{Context, Result};
use ferrotune_display::Bundle;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

/// The idle time that counts as a pause. Cells of a notebook that runs as a whole follow each other faster.
const PAUSE: Duration = Duration::from_millis(500);

/// The number of cells after which rust-analyzer reads its sources, also without a pause: it tells the types of many cells in less
/// time than the compiler.
const MANY_CELLS: u64 = 16;

/// The longest time between two looks at whether rust-analyzer is in use.
const LOOK: Duration = Duration::from_secs(60);

/// Starts the engine's thread, and returns the sender of its work.
pub(crate) fn start(runtime: Runtime, interrupts: Interrupts, inspector: Inspector) -> Sender<Work> {
    let (sender, arrivals) = mpsc::channel();
    let (accepted, work) = mpsc::channel();
    let is_ready = Arc::new(AtomicBool::new(false));
    let ready = Arc::clone(&is_ready);
    let engine = thread::Builder::new().name("engine".into()).stack_size(STACK_BYTES);
    let spawned = engine.spawn(move || serve(&runtime, &interrupts, &inspector, &work, &ready));
    let entrance = thread::Builder::new().name("entrance".into());
    let spawned = spawned.and_then(|_| entrance.spawn(move || admit(&arrivals, &accepted, &is_ready)));
    if let Err(error) = spawned {
        tracing::error!("the engine cannot start: {error}");
    }
    sender
}

/// Passes work on to the engine. A cell with a wrong magic fails at once, even if the engine is not ready.
fn admit(arrivals: &Receiver<Work>, accepted: &Sender<Work>, is_ready: &AtomicBool) {
    for work in arrivals {
        let Work::Execute { cell, outputs } = &work;
        if !is_ready.load(Ordering::Acquire)
            && let Err(failure) = steps(&cell.code)
        {
            if outputs.send(Output::Done(Err(failure))).is_err() {
                tracing::debug!("nobody waits for the cell");
            }
            continue;
        }
        if accepted.send(work).is_err() {
            return;
        }
    }
}

fn serve(
    runtime: &Runtime,
    interrupts: &Interrupts,
    inspector: &Inspector,
    work: &Receiver<Work>,
    is_ready: &AtomicBool,
) {
    let link = match CellLink::listen(&runtime.socket()) {
        Ok(link) => link,
        Err(error) => return refuse_all(&chain::in_one_line(&error), inspector, work),
    };
    interrupts.set_link(link.clone());
    // The build of the prelude is shown under the first cell, so it begins only with that cell.
    let mut pending = None;
    if !runtime.prelude_is_ready() {
        inspector.learn(Knowledge::without_rust());
        pending = first_cell::wait(interrupts, &link, work);
        if pending.is_none() {
            return;
        }
    }
    loop {
        link.compile_for_engine();
        match start_engine(runtime, interrupts, inspector, &link) {
            Ok((_holds, mut engine)) => {
                link.compile_for_user();
                is_ready.store(true, Ordering::Release);
                match run(&mut engine, pending.take(), work) {
                    Ended::NoMoreWork => return,
                    // The loop replaces the engine by a new engine without variables.
                    Ended::Panicked => {}
                }
            }
            Err(error) => {
                let reason = chain::in_one_line(&error);
                tracing::error!("the engine cannot start: {reason}");
                inspector.learn(Knowledge::without_rust());
                if let Some(work) = pending.take() {
                    refuse(&reason, work);
                }
                // The next cell may succeed: a full disk, a missing linker or a missing network may be repaired by then.
                pending = first_cell::wait(interrupts, &link, work);
                if pending.is_none() {
                    return;
                }
            }
        }
    }
}

/// The holds that keep other processes from removing a prelude and a toolchain.
type Holds = (Held, Option<Held>);

/// Starts an engine, and returns the engine with the holds on its prelude and toolchain. The holds are dropped after the engine.
fn start_engine(
    runtime: &Runtime,
    interrupts: &Interrupts,
    inspector: &Inspector,
    link: &CellLink,
) -> Result<(Holds, Engine)> {
    let idle = environment::completion_idle()?;
    runtime.ensure_libraries_load()?;
    let (prelude, held) = build_prelude(runtime, link)?;
    let toolchain = hold_toolchain()?;
    let program = cell_supervisor::program(&prelude.libraries()?, &runtime.socket());
    let supervisor = CellSupervisor::start(program, link)?;
    let evcxr = Evcxr::start(&prelude, runtime, link)?;
    let engine = Engine::new(Box::new(evcxr), supervisor, link, interrupts, inspector, runtime, idle);
    inspector.learn(engine.knowledge());
    Ok(((held, toolchain), engine))
}

/// Opens the prelude. If the prelude must be built first, shows the progress in one changing line.
fn build_prelude(runtime: &Runtime, link: &CellLink) -> Result<(Prelude, Held)> {
    let mut display = LiveDisplay::new("ferrotune-prelude".to_owned());
    let mut show = |text: String| link.emit(display.show(Bundle::text(text)));
    let (prelude, held) = loop {
        let prelude = runtime.prelude(&mut |line| {
            show(format!(
                "building the prelude, the library that cells are linked with, once for this toolchain: {line}"
            ));
        })?;
        // Another process may have removed the prelude before this process held it.
        if let Some(held) = hold(prelude.folder())? {
            break (prelude, held);
        }
    };
    if display.is_shown() {
        let built = "built the prelude, the library that cells are linked with";
        let text = match preludes::remove_old() {
            Some(removed) => format!("{built}; {removed}"),
            None => built.to_owned(),
        };
        link.emit(display.show(Bundle::text(text)));
    }
    Ok((prelude, held))
}

/// Holds the toolchain that `ferrotune setup` has installed, if cells are compiled with it.
fn hold_toolchain() -> Result<Option<Held>> {
    let Some(folder) = Runtime::toolchain()? else { return Ok(None) };
    let held = hold(&folder)?;
    held.with_context(|| format!("the toolchain in {} is gone; restart the kernel", folder.display())).map(Some)
}

#[derive(Debug, PartialEq)]
pub(super) enum Ended {
    /// There is no more work, because the kernel ends.
    NoMoreWork,
    /// evcxr or rust-analyzer panicked while a cell ran.
    Panicked,
}

/// Does all work, the pending work first.
pub(super) fn run(engine: &mut Engine, mut pending: Option<Work>, work: &Receiver<Work>) -> Ended {
    while let Some(work) = pending.take().or_else(|| next(engine, work)) {
        if panic::catch_unwind(AssertUnwindSafe(|| engine.take(work))).is_err() {
            let text = "the compiler's front end failed on this cell; it was started again, and the variables are lost";
            engine.link.emit(Output::Done(Err(Failure::new(ErrorName::EngineError, text))));
            return Ended::Panicked;
        }
        engine.begin_pause();
    }
    Ended::NoMoreWork
}

/// Waits for work. In the first pause rust-analyzer reads its sources, which completion needs.
fn next(engine: &mut Engine, work: &Receiver<Work>) -> Option<Work> {
    while let Some(pause) = engine.time_to_next_task() {
        match work.recv_timeout(pause) {
            Ok(work) => return Some(work),
            Err(RecvTimeoutError::Disconnected) => return None,
            Err(RecvTimeoutError::Timeout) => engine.use_pause(),
        }
    }
    work.recv().ok()
}

/// The task of an engine in its next pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leisure {
    /// rust-analyzer reads its sources.
    Analysis,
    /// The engine returns the memory that the analysis has freed to the system.
    Memory,
    /// rust-analyzer forgets the crates if nobody has asked it for the idle time.
    Forgetting,
}

impl Engine {
    /// How long the engine waits for work before its next task; none if it has no task.
    fn time_to_next_task(&self) -> Option<Duration> {
        match self.leisure {
            Leisure::Analysis | Leisure::Memory => Some(PAUSE),
            Leisure::Forgetting => self.idle.map(|idle| idle.min(LOOK)),
        }
    }

    fn use_pause(&mut self) {
        self.leisure = match self.leisure {
            Leisure::Analysis => {
                self.inspector.prepare();
                Leisure::Memory
            }
            Leisure::Memory => {
                allocator::return_freed_memory();
                Leisure::Forgetting
            }
            Leisure::Forgetting => {
                self.forget_unused();
                Leisure::Memory
            }
        };
    }

    /// Makes rust-analyzer forget the crates if nobody has asked it for the idle time.
    fn forget_unused(&mut self) {
        let Some(idle) = self.idle else { return };
        match panic::catch_unwind(AssertUnwindSafe(|| self.evaluator.forget_unused(idle))) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!("rust-analyzer keeps its memory: {}", chain::in_one_line(&error)),
            Err(_) => tracing::warn!("rust-analyzer keeps its memory: it panicked"),
        }
    }

    /// After a cell there may again be memory to return.
    fn begin_pause(&mut self) {
        match self.leisure {
            Leisure::Analysis if self.notebook.cells >= MANY_CELLS => self.use_pause(),
            Leisure::Forgetting => self.leisure = Leisure::Memory,
            Leisure::Analysis | Leisure::Memory => {}
        }
    }
}

/// Fails every cell with the reason for which there is no engine.
fn refuse_all(reason: &str, inspector: &Inspector, work: &Receiver<Work>) {
    inspector.learn(Knowledge::without_rust());
    for work in work {
        refuse(reason, work);
    }
}

/// Fails a cell with the reason for which there is no engine.
fn refuse(reason: &str, work: Work) {
    let Work::Execute { outputs, .. } = work;
    if outputs.send(Output::Done(Err(Failure::new(ErrorName::EngineError, reason)))).is_err() {
        tracing::debug!("nobody waits for the cell");
    }
}
