//! The kernel's end of the link: orders to cell supervisors and compilers, and what their frames tell of the running cell.

mod limit;
mod reader;

use super::evaluate::places::{Found, Places};
use crate::environment;
use crate::execution::Output;
use anyhow::{Context, Result, bail};
use ferrotune_link::{
    Answer, CellEnding, Stream, SupervisorOrder, SupervisorReply, SupervisorRequest, Surroundings, wire,
};
use ferrotune_space::spec::ItemLines;
use limit::Limit;
use serde_json::Value;
use std::collections::HashMap;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedSender;

/// How long the supervisor may take to reply to a request.
const REPLY_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a supervisor may take to start.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// How long the last frame on a process that has died may take to arrive.
const LAST_FRAME_TIMEOUT: Duration = Duration::from_secs(2);
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// What is known of a cell, beside its outputs.
#[derive(Clone, Debug, Default)]
pub(super) struct CellOutcome {
    /// The last panic on the cell's thread: its message and location.
    panic: Option<(String, Option<String>)>,
    /// The panic that ended the cell.
    pub(super) panicked: Option<(String, Option<String>)>,
    /// Through which places the panic came, each as `file:line:column`.
    pub(super) backtrace: Vec<String>,
    /// The error that ended the cell, and the location of its `?`.
    pub(super) failed: Option<(String, Option<String>)>,
    /// How the process ended, if the variables went with it.
    pub(super) died: Option<CellEnding>,
    /// How the process ended, if its snapshot has taken its place, and the names of the threads that were not copied.
    pub(super) restored: Option<(CellEnding, Vec<String>)>,
    /// The user has interrupted the cell.
    pub(super) interrupted: bool,
    /// The cell was stopped before it ran.
    pub(super) cancelled: bool,
    /// The cell was not run, because the types of these variables have been defined anew.
    changed: Vec<String>,
    /// What the compiler warned of when it compiled last, as rustc's JSON.
    warnings: Vec<Value>,
    /// The trace of a cell under `%%profile`.
    pub(super) profile: Option<String>,
    /// Whether the connected device's profile is in its file, of a cell under `%%profile --tensorboard`, or why not.
    pub(super) device_profile: Option<Result<(), String>>,
    /// The samples of each run of a cell under `%%profile --flame`, as JSON.
    pub(super) samples: Vec<String>,
    /// Why a run has no samples.
    pub(super) unsampled: Option<String>,
}

/// A search that a cell wants to begin.
#[derive(Debug)]
pub(super) struct TuneRequest {
    pub(super) pid: u32,
    pub(super) library: String,
    pub(super) symbol: String,
    pub(super) shared_fd: Option<i32>,
    pub(super) device: String,
    pub(super) seed: Option<u64>,
    pub(super) items: Vec<ItemLines>,
}

/// Begins a search and returns the answer for the cell.
type Tuner = Box<dyn Fn(TuneRequest) -> Answer + Send>;

/// A connection that takes orders.
type Peer = Arc<Mutex<UnixStream>>;

#[derive(Default)]
struct State {
    outputs: Option<UnboundedSender<Output>>,
    allow_stdin: bool,
    outcome: CellOutcome,
    /// Whether a cell has failed for the reason in `outcome.died`.
    died_was_told: bool,
    /// Whether the user knows that cells run without a snapshot.
    unguarded_was_told: bool,
    /// The cell supervisor.
    connection: Option<(u64, Peer)>,
    /// The processes that compile the cell.
    compilers: Vec<(u64, Peer)>,
    /// Whether the user's own code is compiled, which an interrupt may stop.
    compiles_for_user: bool,
    connections: u64,
    requests: u64,
    /// Where the reply to each request goes.
    replies: HashMap<u64, mpsc::Sender<SupervisorReply>>,
    tuner: Option<Tuner>,
    surroundings: Surroundings,
    limit: Limit,
    places: Places,
}

/// Shared by the engine's thread and the threads that read from supervisors.
#[derive(Clone, Default)]
pub(super) struct CellLink {
    state: Arc<Mutex<State>>,
}

impl CellLink {
    /// Listens at a path.
    pub(super) fn listen(path: &Path) -> Result<Self> {
        let listener = UnixListener::bind(path).with_context(|| format!("cannot listen at {}", path.display()))?;
        let link = Self::default();
        link.lock().limit = Limit::new(environment::output_limit_bytes()?);
        let acceptor = link.clone();
        thread::Builder::new().name("link".into()).spawn(move || {
            for stream in listener.incoming() {
                match stream {
                    Ok(stream) => acceptor.clone().connected(stream),
                    Err(error) => tracing::warn!("a cell supervisor could not connect: {error}"),
                }
            }
        })?;
        Ok(link)
    }

    /// Outputs belong to this cell from now on. It can be undone under its number, if it has one.
    pub(super) fn begin_cell(&self, cell: Option<u64>, outputs: UnboundedSender<Output>, allow_stdin: bool) {
        {
            let mut state = self.lock();
            state.outputs = Some(outputs);
            state.allow_stdin = allow_stdin;
            state.limit.begin_cell();
            state.places.begin_cell();
            // If the process died between two cells, the next cell fails for that reason.
            let died = state.outcome.died.take().filter(|_| !state.died_was_told);
            state.outcome = CellOutcome { died, ..CellOutcome::default() };
        }
        self.order(&SupervisorOrder::Begin { cell });
    }

    /// What runs next can be undone under this number, or not at all.
    pub(super) fn begin(&self, cell: Option<u64>) {
        self.order(&SupervisorOrder::Begin { cell });
    }

    /// The supervisor has ended, or will end at once.
    pub(super) fn forget_supervisor(&self) {
        self.lock().connection = None;
    }

    /// Waits until a supervisor has connected.
    pub(super) fn wait_for_supervisor(&self) -> Result<()> {
        let deadline = Instant::now() + START_TIMEOUT;
        while self.lock().connection.is_none() {
            if Instant::now() >= deadline {
                bail!("the cell supervisor does not start");
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// Rust of the running cell is about to run: the user's lines, and the same lines as evcxr gets them.
    pub(super) fn will_run(&self, number: Option<u32>, cell: &str, prepared: &str) {
        self.lock().places.add(number, cell, prepared);
    }

    /// A location, `file:line:column`, as users read it; none in generated lines.
    pub(super) fn place(&self, location: &str) -> Option<String> {
        self.lock().places.text(location)
    }

    /// Those of some locations that are in lines of the notebook's cells.
    pub(super) fn places(&self, locations: &[String]) -> Vec<Found> {
        let mut state = self.lock();
        let mut places: Vec<Found> = locations.iter().filter_map(|location| state.places.find(location)).collect();
        places.dedup();
        places
    }

    pub(super) fn set_tuner(&self, tuner: Option<Tuner>) {
        self.lock().tuner = tuner;
    }

    /// Waits until the front end has everything that the cell process has written, and returns what is known of the cell.
    pub(super) fn sync(&self) -> CellOutcome {
        self.request(SupervisorRequest::Sync);
        self.lock().outcome.clone()
    }

    /// Sends the supervisor a request, and waits for its reply; none where there is no supervisor.
    pub(super) fn request(&self, request: SupervisorRequest) -> Option<SupervisorReply> {
        let (sender, receiver) = mpsc::channel();
        let number = {
            let mut state = self.lock();
            state.requests += 1;
            let number = state.requests;
            state.replies.insert(number, sender);
            number
        };
        let reply = if self.order(&SupervisorOrder::Request { number, request }) {
            receiver.recv_timeout(REPLY_TIMEOUT)
        } else {
            Err(RecvTimeoutError::Disconnected)
        };
        if reply == Err(RecvTimeoutError::Timeout) {
            tracing::warn!("the cell supervisor does not answer");
        }
        self.lock().replies.remove(&number);
        reply.ok()
    }

    /// Waits until the supervisor has told how its process ended, and returns what is known of the cell.
    pub(super) fn outcome_of_death(&self) -> CellOutcome {
        let deadline = Instant::now() + LAST_FRAME_TIMEOUT;
        loop {
            let mut state = self.lock();
            if state.outcome.died.is_some() || Instant::now() >= deadline {
                state.died_was_told = true;
                return state.outcome.clone();
            }
            drop(state);
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// The variables for which the cell was not run. They are forgotten afterwards.
    pub(super) fn take_changed(&self) -> Vec<String> {
        self.request(SupervisorRequest::Sync);
        std::mem::take(&mut self.lock().outcome.changed)
    }

    /// What the compiler warned of when it compiled last. It is told once.
    pub(super) fn take_warnings(&self) -> Vec<Value> {
        std::mem::take(&mut self.lock().outcome.warnings)
    }

    /// Whether the user has interrupted the running cell.
    pub(super) fn is_interrupted(&self) -> bool {
        self.lock().outcome.interrupted
    }

    pub(super) fn interrupt(&self) {
        let compilers = {
            let mut state = self.lock();
            state.outcome.interrupted = true;
            if !state.compiles_for_user {
                return; // the notebook is broken if the engine's own code is stopped halfway
            }
            state.compilers.clone()
        };
        for (_, peer) in &compilers {
            write(peer, &SupervisorOrder::Interrupt);
        }
        self.order(&SupervisorOrder::Interrupt);
    }

    /// The receiver of the present cell's outputs.
    pub(super) fn outputs(&self) -> Option<UnboundedSender<Output>> {
        self.lock().outputs.clone()
    }

    /// From now on the engine's own code is compiled, which an interrupt does not stop.
    pub(super) fn compile_for_engine(&self) {
        self.lock().compiles_for_user = false;
    }

    /// From now on the user's code is compiled.
    pub(super) fn compile_for_user(&self) {
        self.lock().compiles_for_user = true;
    }

    /// The working folder and the environment that the cells have.
    pub(super) fn surroundings(&self) -> Surroundings {
        self.lock().surroundings.clone()
    }

    /// Adds text that the user's code has printed to the cell that runs, or ran last.
    pub(super) fn print(&self, stream: Stream, mut text: String) {
        let line = self.lock().limit.cut(&mut text);
        if !text.is_empty() {
            self.emit(Output::Stream(stream, text));
        }
        if let Some(line) = line {
            self.emit(Output::Stream(Stream::Stderr, line));
        }
    }

    /// Adds an output to the cell that runs, or ran last.
    pub(super) fn emit(&self, output: Output) {
        let state = self.lock();
        let Some(outputs) = &state.outputs else {
            return tracing::warn!("an output came before the first cell: {output:?}");
        };
        if outputs.send(output).is_err() {
            tracing::debug!("an output came after its cell's front end had gone");
        }
    }

    fn order(&self, order: &SupervisorOrder) -> bool {
        // This write is outside the lock: a busy supervisor must not block the thread that reads its outputs.
        let peer = self.lock().connection.as_ref().map(|(_, peer)| Arc::clone(peer));
        peer.is_some_and(|peer| write(&peer, order))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn write(peer: &Peer, order: &SupervisorOrder) -> bool {
    let mut stream = peer.lock().unwrap_or_else(PoisonError::into_inner);
    match wire::write(&mut *stream, order) {
        Ok(()) => true,
        Err(error) => {
            tracing::debug!("an order is not taken: {error}");
            false
        }
    }
}
