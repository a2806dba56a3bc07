//! The engine: runs cells, one after the other, on a thread of its own.
//!
//! It owns evcxr's context. Knows nothing of sockets; what a cell gives goes out as [`Output`]s.

mod captures;
mod commands;
mod devices;
mod history;
mod insertions;
mod link;
mod memory;
mod objective;
mod report;
mod search;
mod sharing;
mod state;
mod studies;
mod watch;

use crate::execution::{Cell, Completion, Completions, Failure, Output, Stream, Work};
use crate::prelude::{self, Prelude};
use crate::resume;
use crate::runtime::{OWN_PROGRAM, Runtime};
use crate::supervisor;
use anyhow::{Context, Result};
use commands::{Call, Duty};
use evcxr::{CommandContext, Error, EvalCallbacks, EvalContext, EvalContextOutputs, EvalOutputs};
use ferrotune_display::{Bundle, table};
use ferrotune_link::{Answer, CellEnding, SupervisorRequest};
use ferrotune_machine::format::duration;
use ferrotune_magics::{Action, Step, Study, Time, Tune};
use ferrotune_tuner::supervisor::Origin;
use history::History;
use insertions::Insertions;
use link::{CellLink, CellOutcome};
use objective::Objective;
pub(crate) use search::Search;
use serde_json::{Map, Value};
use state::Picture;
use std::os::unix::process::CommandExt;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Where studies live if no magic says otherwise.
const DEFAULT_DIRECTORY: &str = "studies";

/// What is run before the user's first cell.
///
/// The `?` tells evcxr, once, that cells may end early; it would find out by compiling the first such cell twice.
/// rust-analyzer writes `dyn Trait` without a path, so the commonest names must be in scope: `VarBuilder` is an alias
/// with the one, and what a thread panicked with is the other.
const FIRST_CELL: &str = "use ::ferrotune::cell::Show as _;
use ::candle_nn::var_builder::SimpleBackend;
use std::any::Any;
std::result::Result::<(), std::fmt::Error>::Ok(())?;";

/// The text of the error of a cell that was stopped too early.
const STOPPED_BEFORE: &str = "the cell was stopped before it ran; no variable has changed";

/// What is to be stopped by an interrupt.
#[derive(Clone, Default)]
pub(crate) struct Running {
    link: Arc<Mutex<Option<CellLink>>>,
    /// Process id of the supervisor of the search that runs.
    search: Arc<Mutex<Option<u32>>>,
    /// When the user last asked for a stop.
    interrupted_at: Arc<Mutex<Option<Instant>>>,
}

impl Running {
    /// Asks the running cell or search to stop.
    pub(crate) fn interrupt(&self) {
        *self.interrupted_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        match self.search().and_then(|pid| rustix::process::Pid::from_raw(i32::try_from(pid).ok()?)) {
            Some(pid) => {
                if let Err(error) = rustix::process::kill_process(pid, rustix::process::Signal::INT) {
                    tracing::debug!("the search has ended by itself: {error}");
                }
            }
            None => {
                if let Some(link) = &*self.link.lock().unwrap_or_else(PoisonError::into_inner) {
                    link.interrupt();
                }
            }
        }
    }

    /// Whether the user has asked for a stop since then.
    fn is_interrupted_since(&self, begin: Instant) -> bool {
        self.interrupted_at.lock().unwrap_or_else(PoisonError::into_inner).is_some_and(|at| at >= begin)
    }

    fn search(&self) -> Option<u32> {
        *self.search.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_search(&self, pid: Option<u32>) {
        *self.search.lock().unwrap_or_else(PoisonError::into_inner) = pid;
    }
}

/// Starts the engine's thread.
pub(crate) fn start(runtime: Runtime, running: Running) -> Sender<Work> {
    let (sender, receiver) = mpsc::channel();
    let spawned = thread::Builder::new()
        .name("engine".into())
        .stack_size(64 << 20) // rust-analyzer recurses over what the user wrote
        .spawn(move || serve(&runtime, &running, &receiver));
    if let Err(error) = spawned {
        tracing::error!("the engine cannot start: {error}");
    }
    sender
}

fn serve(runtime: &Runtime, running: &Running, work: &Receiver<Work>) {
    let link = match CellLink::listen(&runtime.link()) {
        Ok(link) => link,
        Err(error) => return refuse_all(&crate::chain::in_one_line(&error), work),
    };
    *running.link.lock().unwrap_or_else(PoisonError::into_inner) = Some(link.clone());
    // A prelude that has to be built first shows its progress in the first cell, so that cell is waited for.
    let first = if runtime.prelude_is_ready() { None } else { work.recv().ok() };
    if let Some(Work::Execute { cell, outputs }) = &first {
        link.begin_cell(None, outputs.clone(), cell.allow_stdin);
    }
    let start = || Engine::start(runtime, running, link.clone(), build_prelude(runtime, &link)?);
    let mut pending = first;
    loop {
        link.engine_starts();
        let mut engine = match start() {
            Ok(engine) => engine,
            Err(error) => {
                let reason = crate::chain::in_one_line(&error);
                tracing::error!("the engine cannot start: {reason}");
                refuse(&reason, pending);
                return refuse_all(&reason, work);
            }
        };
        link.engine_runs();
        // What comes back from here is an engine that broke; the next one begins without variables.
        if !engine.take_all(&mut pending, work) {
            return;
        }
    }
}

/// Opens the prelude; where it has to be built, one updating display says how far it is.
fn build_prelude(runtime: &Runtime, link: &CellLink) -> Result<Prelude> {
    let mut update = false;
    let mut show = |text: String| {
        let data = Bundle::text(text).data;
        let display_id = Some("ferrotune-prelude".to_owned());
        link.emit(Output::Display { data, metadata: Map::new(), display_id, update });
        update = true;
    };
    let mut built = false;
    let prelude = runtime.prelude(&mut |line| {
        built = true;
        show(format!("building what cells are linked with, once for this toolchain: {line}"));
    })?;
    if built {
        show("built what cells are linked with".to_owned());
    }
    Ok(prelude)
}

/// Every cell fails with the reason for which there is no engine.
fn refuse_all(reason: &str, work: &Receiver<Work>) {
    for work in work {
        refuse(reason, Some(work));
    }
}

fn refuse(reason: &str, work: Option<Work>) {
    if let Some(Work::Execute { outputs, .. }) = work
        && outputs.send(Output::Done(Err(report::failure("EngineError", reason)))).is_err()
    {
        tracing::debug!("no one waits for the cell");
    }
}

/// The program that supervises the cells. It ends with this.
struct CellSupervisor(Child);

impl CellSupervisor {
    fn start(prelude: &Prelude, socket: &Path, link: &CellLink) -> Result<Self> {
        link.forget_supervisor();
        let child = Command::new(OWN_PROGRAM)
            .arg("cell-supervisor")
            .arg(prelude.library())
            .env(supervisor::KERNEL_VARIABLE, socket)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .context("cannot start the supervisor of the cells")?;
        let supervisor = Self(child);
        link.wait_for_supervisor()?;
        Ok(supervisor)
    }
}

impl Drop for CellSupervisor {
    fn drop(&mut self) {
        if let Err(error) = self.0.kill().and_then(|()| self.0.wait()) {
            tracing::warn!("the supervisor of the cells may still run: {error}");
        }
    }
}

struct Engine {
    context: CommandContext,
    link: CellLink,
    supervisor: CellSupervisor,
    prelude: Prelude,
    running: Running,
    socket: PathBuf,
    runtime_folder: PathBuf,
    history: History,
    /// How many cells have begun.
    cells: u64,
    /// The number of the one that runs, or ran last, if it can be undone.
    cell: Option<u64>,
    /// What the user has allowed a cell to hold.
    limit: Option<u64>,
    watched: memory::Watched,
    /// Folder of the study of the last search.
    last_study: Option<PathBuf>,
    searches: u64,
}

impl Engine {
    fn start(runtime: &Runtime, running: &Running, link: CellLink, prelude: Prelude) -> Result<Self> {
        let socket = runtime.link();
        let supervisor = CellSupervisor::start(&prelude, &socket, &link)?;
        let mut command = Command::new(OWN_PROGRAM);
        command.arg("cell-relay").env(supervisor::KERNEL_VARIABLE, &socket).process_group(0);
        let started = Instant::now();
        let (mut context, outputs) = EvalContext::with_subprocess_command(command).map_err(plain)?;
        tracing::debug!("evcxr is ready after {:?}", started.elapsed());
        forward(outputs, &link)?;
        let mut state = context.state();
        // A settings file of evcxr's may have chosen otherwise, and no cell would work.
        state.set_allow_static_linking(true);
        state.set_preserve_vars_on_panic(true);
        state.set_sccache(false).map_err(plain)?;
        for name in prelude::CRATES {
            let (package, value) = prelude.analysis_dependency(name);
            state.add_dep(&package, &value).map_err(plain)?;
        }
        context.eval_with_state(FIRST_CELL, state).map_err(plain)?;
        tracing::debug!("the prelude is in use after {:?}", started.elapsed());
        let mut engine = Self {
            context: CommandContext::with_eval_context(context),
            link,
            supervisor,
            prelude,
            running: running.clone(),
            socket,
            runtime_folder: runtime.folder().to_owned(),
            history: History::default(),
            cells: 0,
            cell: None,
            limit: None,
            watched: memory::Watched::default(),
            last_study: None,
            searches: 0,
        };
        engine.history.now = engine.picture();
        Ok(engine)
    }

    /// Does all work until there is no more, or until evcxr or rust-analyzer panics; then `true`.
    fn take_all(&mut self, pending: &mut Option<Work>, work: &Receiver<Work>) -> bool {
        while let Some(work) = pending.take().or_else(|| work.recv().ok()) {
            let is_cell = matches!(work, Work::Execute { .. });
            if panic::catch_unwind(AssertUnwindSafe(|| self.take(work))).is_ok() {
                continue;
            }
            if !is_cell {
                // The question has no answer; should the analyzer be broken for good, the next cell will tell.
                continue;
            }
            let text = "the compiler's front end failed on this cell; it was started again, and the variables are lost";
            self.link.emit(Output::Done(Err(report::failure("EngineError", text))));
            return true;
        }
        false
    }

    fn take(&mut self, work: Work) {
        match work {
            Work::Execute { cell, outputs } => {
                self.cells += u64::from(cell.can_be_undone);
                self.cell = cell.can_be_undone.then_some(self.cells);
                self.link.begin_cell(self.cell, outputs, cell.allow_stdin);
                let result = if self.running.is_interrupted_since(cell.begun_at) {
                    Err(report::failure("Interrupted", STOPPED_BEFORE))
                } else {
                    self.execute(&cell)
                };
                self.link.emit(Output::Done(result));
            }
            Work::Complete { code, cursor, reply } => {
                if reply.send(self.complete(&code, cursor)).is_err() {
                    tracing::debug!("no one waits for the completion");
                }
            }
            Work::Inspect { code, cursor, reply } => {
                if reply.send(self.inspect(&code, cursor)).is_err() {
                    tracing::debug!("no one waits for the inspection");
                }
            }
        }
    }

    fn execute(&mut self, cell: &Cell) -> Result<(), Failure> {
        self.replace_dead_supervisor()?;
        let steps =
            ferrotune_magics::parse(&cell.code).map_err(|error| report::failure("MagicError", error.to_string()))?;
        for step in steps {
            match step {
                Step::Code { source, first_line } => {
                    self.run_user_code(&cell.code, &source, first_line)?;
                }
                Step::Action(action) => self.act(&cell.code, action)?,
            }
        }
        Ok(())
    }

    fn act(&mut self, cell: &str, action: Action) -> Result<(), Failure> {
        match action {
            Action::TpuConnect(request) => self.run_generated(&devices::connect(&request)),
            Action::TpuCheck(request) => self.run_generated(&devices::check(&request)),
            Action::Device => self.run_generated("ferrotune::device::describe();"),
            Action::Devices => self.run_generated("ferrotune::device::list();"),
            Action::Tune(tune) => self.tune(&tune),
            Action::Resume(request) => {
                let folder = self.study_folder(request.project.as_deref(), request.directory.as_deref())?;
                let origin = if request.trust { Origin::User } else { Origin::Study };
                let search = search::resumed(&folder, &request)
                    .and_then(|spec| Search::start(spec, &resume::trust(origin), &self.runtime_folder))
                    .map_err(|error| report::failure("TuneError", crate::chain::in_one_line(&error)))?;
                self.follow(search)
            }
            Action::Search(request) => {
                let folder = self.study_folder(request.project.as_deref(), request.directory.as_deref())?;
                let display_id = self.new_display();
                watch::act(request.verb, &folder, &display_id, &self.link)?;
                // What is said next without a name is about this one.
                self.last_study = Some(folder);
                Ok(())
            }
            Action::Trials(request) => {
                let folder = self.folder_of(&request.study)?;
                self.show(studies::trials(&folder, &request))
            }
            Action::Best(request) => {
                let folder = self.folder_of(&request.study)?;
                self.show(studies::best(&folder, &request))
            }
            Action::Space(study) => {
                let folder = self.folder_of(&study)?;
                self.show(studies::space(&folder))
            }
            Action::Plot(request) => {
                let folder = self.folder_of(&request.study)?;
                self.show(studies::plot(&folder, &request))
            }
            Action::Export(request) => {
                let folder = self.folder_of(&request.study)?;
                self.show(studies::export(&folder, &request))
            }
            Action::Studies { directory } => self.show(studies::overview(&self.directory(directory.as_deref()))),
            Action::Undo { count } => self.undo(count),
            Action::Checkpoint { name } => self.checkpoint(&name),
            Action::Restore { name } => self.restore_checkpoint(&name),
            Action::Checkpoints => self.checkpoints(),
            Action::Memory(memory) => self.memory(memory),
            Action::Gc { all } => self.gc(all),
            Action::Lsmagic => self.show(Ok(Bundle::text(ferrotune_magics::lsmagic()))),
            Action::Help { name } => {
                let help = ferrotune_magics::help(&name).with_context(|| format!("there is no magic {name}"));
                self.show(help.map(Bundle::text))
            }
            Action::Time(Time { source, first_line }) => self.time(cell, &source, first_line),
        }
    }

    fn show(&self, bundle: Result<Bundle>) -> Result<(), Failure> {
        let bundle = bundle.map_err(|error| report::failure("MagicError", crate::chain::in_one_line(&error)))?;
        self.link.emit(Output::Display {
            data: bundle.data,
            metadata: bundle.metadata,
            display_id: None,
            update: false,
        });
        Ok(())
    }

    /// Runs Rust as the user wrote it, beginning at a line of the cell, after the commands above it.
    fn run_user_code(&mut self, cell: &str, source: &str, first_line: usize) -> Result<EvalOutputs, Failure> {
        let calls = commands::calls(source).map_err(|text| report::failure("CommandError", text))?;
        let mut lines: Vec<&str> = source.split('\n').collect();
        for call in &calls {
            let own = commands::crate_of_every_cell(&call.argument).filter(|_| call.name == ":dep");
            match (call.duty, own) {
                (_, Some(name)) => {
                    let text = format!("{name} is part of every cell; the :dep line is not needed, and was left out\n");
                    self.link.emit(Output::Stream(Stream::Stderr, text));
                }
                (Duty::Evcxr, None) => continue,
                _ => {
                    // evcxr's own commands above it are carried out first.
                    self.evaluate_lines(cell, &lines[..call.line], first_line)?;
                    lines[..call.line].fill("");
                    self.carry_out(call)?;
                }
            }
            lines[call.line] = "";
        }
        self.evaluate_lines(cell, &lines, first_line)
    }

    fn evaluate_lines(&mut self, cell: &str, lines: &[&str], first_line: usize) -> Result<EvalOutputs, Failure> {
        let padded = format!("{}{}", "\n".repeat(first_line.saturating_sub(1)), lines.join("\n"));
        let (source, insertions) = sharing::items(&padded, self.context.defined_item_names());
        let result = self.evaluate(&source);
        self.conclude(cell, result, |errors| report::compilation(errors, |_| true, &insertions))
    }

    /// Carries out a command that is not left to evcxr.
    fn carry_out(&mut self, call: &Call) -> Result<(), Failure> {
        match call.duty {
            Duty::Clear => self.clear(),
            Duty::Restart => self.restart(),
            Duty::Help => self.show(Ok(table(&["command", "what it does"], &commands::help()))),
            Duty::ShowDependencies => self.show(Ok(Bundle::text(self.history.now.dependencies_text()))),
            Duty::Evcxr | Duty::Refused(_) => Ok(()),
        }
    }

    fn run_generated(&mut self, source: &str) -> Result<(), Failure> {
        let result = self.evaluate(source);
        self.conclude("", result, |errors| report::compilation(errors, |_| false, &Insertions::default())).map(drop)
    }

    fn time(&mut self, cell: &str, source: &str, first_line: usize) -> Result<(), Failure> {
        let started = Instant::now();
        let outputs = self.run_user_code(cell, source, first_line)?;
        let total = started.elapsed();
        let run: Duration =
            outputs.phases.iter().filter(|phase| phase.name == "Execution").map(|phase| phase.duration).sum();
        let text = format!("Wall time: {} (and {} to compile)\n", duration(run), duration(total.saturating_sub(run)));
        self.link.emit(Output::Stream(Stream::Stdout, text));
        Ok(())
    }

    /// Runs a search to its end.
    fn tune(&mut self, tune: &Tune) -> Result<(), Failure> {
        let objective = Objective::expand(tune, &self.variables())?;
        let (sender, searches) = mpsc::channel();
        let (description, runtime_folder) = (tune.clone(), self.runtime_folder.clone());
        self.link.set_tuner(Some(Box::new(move |request| {
            let spec = search::spec(&description, request);
            match spec.and_then(|spec| Search::start(spec, &resume::trust(Origin::User), &runtime_folder)) {
                Ok(search) => match sender.send(search) {
                    Ok(()) => Answer::Done,
                    Err(_) => Answer::Refused { reason: "the kernel is ending".to_owned() },
                },
                Err(error) => Answer::Refused { reason: crate::chain::in_one_line(&error) },
            }
        })));
        let result = self.evaluate(&objective.source);
        self.link.set_tuner(None);
        self.conclude("", result, |errors| objective.explain(errors))?;
        let search =
            searches.try_recv().map_err(|_| report::failure("TuneError", "the cell ended before the search began"))?;
        self.follow(search)
    }

    /// Shows a search to its end, unless it is to go on by itself.
    fn follow(&mut self, search: Search) -> Result<(), Failure> {
        self.last_study = Some(search.folder().to_owned());
        if search.is_in_background() {
            return search.detach(&|output| self.link.emit(output));
        }
        self.running.set_search(Some(search.pid()));
        if self.link.is_interrupted() {
            self.running.interrupt(); // it came while the search was about to begin
        }
        let display_id = self.new_display();
        let result = search.follow(&display_id, &|output| self.link.emit(output));
        self.running.set_search(None);
        result
    }

    /// The id of a display of a search.
    fn new_display(&mut self) -> String {
        self.searches += 1;
        format!("ferrotune-search-{}-{}", std::process::id(), self.searches)
    }

    /// The folder of studies that is meant: the one that is named, else that of the last study.
    fn directory(&self, named: Option<&str>) -> PathBuf {
        let last = self.last_study.as_deref().and_then(Path::parent);
        named.map(Path::new).or(last).unwrap_or(Path::new(DEFAULT_DIRECTORY)).to_path_buf()
    }

    fn folder_of(&self, study: &Study) -> Result<PathBuf, Failure> {
        self.study_folder(study.project.as_deref(), study.directory.as_deref())
    }

    /// The folder of the named study, or of the last one.
    fn study_folder(&self, project: Option<&str>, directory: Option<&str>) -> Result<PathBuf, Failure> {
        match (project, &self.last_study) {
            (Some(project), _) => Ok(self.directory(directory).join(project)),
            (None, _) if directory.is_some() => Err(report::failure(
                "MagicError",
                "--directory alone names no study; name one with --project, %studies lists those of a folder",
            )),
            (None, Some(last)) => Ok(last.clone()),
            (None, None) => {
                Err(report::failure("MagicError", "no search has run in this notebook; name one with --project"))
            }
        }
    }

    fn evaluate(&mut self, source: &str) -> Result<EvalOutputs, Error> {
        let result = self.evaluate_once(source);
        match &result {
            Ok(_) | Err(Error::CompilationErrors(_) | Error::SubprocessTerminated(_)) => return result,
            Err(_) => {}
        }
        let changed = self.link.take_changed();
        if changed.is_empty() {
            return result;
        }
        self.forget_variables(&changed)?;
        self.evaluate(source)
    }

    /// Makes evcxr forget variables that the process of the cells has dropped.
    fn forget_variables(&mut self, names: &[String]) -> Result<(), Error> {
        self.link.request(SupervisorRequest::Skip);
        // evcxr forgets what has been moved, and what can be copied is not moved.
        let moved = |name| format!("let {name} = ::std::string::String::new(); ::std::mem::drop({name});\n");
        let moves: String = names.iter().map(moved).collect();
        let result = self.evaluate_once(&moves);
        self.link.begin(None);
        self.tell_dropped(names);
        result.map(drop)
    }

    fn tell_dropped(&self, names: &[String]) {
        for name in names {
            let text = format!(
                "the variable {name} was dropped: its type has been defined anew since it was made, or its value is gone\n"
            );
            self.link.emit(Output::Stream(Stream::Stderr, text));
        }
    }

    fn evaluate_once(&mut self, source: &str) -> Result<EvalOutputs, Error> {
        let result = self.context.execute_with_callbacks(source, &mut EvalCallbacks::default());
        match &result {
            // A cell of comments or commands alone runs nothing, and the last source is another cell's.
            Ok(outputs) if outputs.phases.iter().any(|phase| phase.name == "Execution") => {
                let picture = self.picture();
                self.history.ran(self.cell, picture);
            }
            Ok(_) => {}
            Err(Error::SubprocessTerminated(_)) => self.history.now.lose_variables(),
            Err(_) => {}
        }
        result
    }

    /// What evcxr knows now.
    fn picture(&mut self) -> Picture {
        let source = self.context.last_source().unwrap_or_default();
        Picture::new(source, self.variables(), self.dependencies())
    }

    /// The crates that the user has added, as `:dep` takes them.
    fn dependencies(&mut self) -> Vec<String> {
        let outputs = match self.context.execute(":show_deps") {
            Ok(outputs) => outputs,
            Err(error) => {
                tracing::error!("evcxr does not list the crates of the notebook: {error}");
                return self.history.now.dependencies().to_vec();
            }
        };
        let lines = outputs.get("text/plain").unwrap_or_default().lines();
        lines.filter(|line| commands::crate_of_every_cell(line).is_none()).map(str::to_owned).collect()
    }

    /// Names and types of the variables.
    fn variables(&self) -> Vec<(String, String)> {
        let variables = self.context.variables_and_types();
        variables.map(|(name, type_name)| (name.to_owned(), type_name.to_owned())).collect()
    }

    /// Starts another supervisor where something has ended the present one.
    fn replace_dead_supervisor(&mut self) -> Result<(), Failure> {
        let ended = self.supervisor.0.try_wait();
        let Ok(Some(status)) = ended else { return Ok(()) };
        let engine_error = |text: String| report::failure("EngineError", text);
        self.supervisor = CellSupervisor::start(&self.prelude, &self.socket, &self.link)
            .map_err(|error| engine_error(crate::chain::in_one_line(&error)))?;
        self.ask(SupervisorRequest::Limit { bytes: self.limit })?;
        self.history.lose_variables();
        self.redeclare(self.history.now.clone())?;
        let text =
            format!("the supervisor of the cells ended ({status}); it was started again, and the variables are lost");
        Err(engine_error(text))
    }

    /// Waits for what the cell has printed, and tells how it ended.
    fn conclude(
        &mut self,
        cell: &str,
        result: Result<EvalOutputs, Error>,
        explain: impl Fn(&[evcxr::CompilationError]) -> Failure,
    ) -> Result<EvalOutputs, Failure> {
        let facts = match result {
            Err(Error::SubprocessTerminated(_)) => self.link.last_words(),
            _ => self.link.sync(),
        };
        match result {
            // What was not run is told in the same words, whatever evcxr made of it.
            _ if facts.cancelled => Err(report::failure("Interrupted", STOPPED_BEFORE)),
            _ if facts.restored.is_some() => Err(self.restored(cell, &facts)),
            Err(Error::Message(_)) if facts.failed.is_some() => {
                Err(report::failure("Error", facts.failed.unwrap_or_default()))
            }
            Ok(outputs) => match self.ended_early(cell, &facts) {
                Some(failure) => Err(failure),
                None => {
                    self.show_result(&outputs);
                    Ok(outputs)
                }
            },
            Err(Error::CompilationErrors(errors)) => Err(explain(&errors)),
            Err(Error::SubprocessTerminated(_)) => {
                Err(report::died(facts.died.as_ref().unwrap_or(&CellEnding::Stopped)))
            }
            Err(error) => Err(report::failure("Error", error.to_string())),
        }
    }

    /// Another process has the variables now; what the cell itself had to say goes first.
    fn restored(&self, cell: &str, facts: &CellOutcome) -> Failure {
        let Some((ending, threads)) = &facts.restored else { return report::failure("CellDied", "the cell ended") };
        let own = self.ended_early(cell, facts).filter(|_| *ending == CellEnding::TakenBack);
        own.unwrap_or_else(|| report::taken_over(ending, threads))
    }

    fn ended_early(&self, cell: &str, facts: &CellOutcome) -> Option<Failure> {
        if let Some((message, location)) = &facts.panicked {
            let generated = self.context.last_source().unwrap_or_default();
            let location = location.as_deref().map(|location| match report::cell_line(cell, &generated, location) {
                Some(line) => format!(" (line {line} of the cell)"),
                None if location.contains("src/lib.rs") => String::new(),
                None => format!(" ({location})"),
            });
            return Some(report::failure("Panic", format!("{message}{}", location.unwrap_or_default())));
        }
        facts.failed.as_ref().map(|message| report::failure("Error", message.clone()))
    }

    /// The value of the last expression, where it came by evcxr's way.
    fn show_result(&self, outputs: &EvalOutputs) {
        let is_unit =
            outputs.get("text/plain").is_some_and(|text| text == "()") && outputs.content_by_mime_type.len() == 1;
        if outputs.is_empty() || is_unit {
            return;
        }
        let data: Map<String, Value> = outputs
            .content_by_mime_type
            .iter()
            .map(|(mime, content)| (mime.clone(), Value::from(content.trim_end_matches('\n'))))
            .collect();
        self.link.emit(Output::Result { data, metadata: Map::new() });
    }

    fn complete(&mut self, code: &str, cursor: usize) -> Completions {
        let line_start = code[..cursor].rfind('\n').map_or(0, |newline| newline + 1);
        let typed = &code[line_start..cursor];
        if typed.starts_with('%') {
            let matches = ferrotune_magics::complete(typed).into_iter();
            let matches = matches.map(|name| Completion { text: name.to_owned(), kind: "magic".to_owned() }).collect();
            return Completions { start: line_start, end: cursor, matches };
        }
        if let Some((start, names)) = commands::complete(code, cursor) {
            let matches = names.into_iter();
            let matches = matches.map(|name| Completion { text: name.to_owned(), kind: "magic".to_owned() }).collect();
            return Completions { start, end: cursor, matches };
        }
        match self.context.completions(&commands::blanked(code), cursor) {
            Ok(completions) => Completions {
                start: completions.start_offset,
                end: completions.end_offset,
                matches: completions
                    .completions
                    .into_iter()
                    .map(|completion| Completion { text: completion.code, kind: completion.kind.to_owned() })
                    .collect(),
            },
            Err(error) => {
                tracing::debug!("no completions: {error}");
                Completions { start: cursor, end: cursor, matches: Vec::new() }
            }
        }
    }

    fn inspect(&mut self, code: &str, cursor: usize) -> Map<String, Value> {
        let line_start = code[..cursor].rfind('\n').map_or(0, |newline| newline + 1);
        let line = code[line_start..].lines().next().unwrap_or_default();
        if let Some(magic) = line.strip_prefix('%') {
            let name = magic
                .trim_start_matches('%')
                .split(|c: char| !(c.is_alphanumeric() || c == '_'))
                .next()
                .unwrap_or_default();
            return ferrotune_magics::help(name).map(|help| Bundle::text(help).data).unwrap_or_default();
        }
        let end = code[cursor..]
            .find(|c: char| !(c.is_alphanumeric() || c == '_'))
            .map_or(code.len(), |length| cursor + length);
        match self.context.hover_at(&commands::blanked(code), end) {
            Ok((text, _)) if text == "No documentation found" => Map::new(),
            Ok((text, html)) => Bundle::text(text).with("text/html", html).data,
            Err(error) => {
                tracing::debug!("nothing to inspect: {error}");
                Map::new()
            }
        }
    }
}

/// Gives what evcxr itself has to say to the running cell.
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
