//! The kernel's end of the link, which sends orders to cell supervisors and compilers and reads the frames about the running cell.

mod limit;
mod reader;

use super::places::{Found, Places};
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

/// How long the last frame about a dead process may take to arrive.
const LAST_FRAME_TIMEOUT: Duration = Duration::from_secs(2);
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// The outcome of a cell, without its outputs.
#[derive(Clone, Debug, Default)]
pub(in crate::engine) struct CellOutcome {
    /// The last panic on the cell's thread: its message and location.
    panic: Option<(String, Option<String>)>,
    /// The panic that ended the cell.
    pub(in crate::engine) panicked: Option<(String, Option<String>)>,
    /// The places on the stack of the panic, each as `file:line:column`.
    pub(in crate::engine) backtrace: Vec<String>,
    /// The error that ended the cell, and the location of its `?`.
    pub(in crate::engine) failed: Option<(String, Option<String>)>,
    /// How the process ended, if the variables were lost with the process.
    pub(in crate::engine) died: Option<CellEnding>,
    /// How the process ended, if its snapshot has replaced it, and the names of the threads that the snapshot lacks.
    pub(in crate::engine) restored: Option<(CellEnding, Vec<String>)>,
    /// Whether the user has interrupted the cell.
    pub(in crate::engine) interrupted: bool,
    /// Whether the cell was stopped before it ran.
    pub(in crate::engine) cancelled: bool,
    /// The variables whose types have been redefined. If there are such variables, the cell was not run.
    changed: Vec<String>,
    /// The warnings of the last compilation, as rustc's JSON.
    warnings: Vec<Value>,
    /// The trace of a cell under `%%profile`.
    pub(in crate::engine) profile: Option<String>,
    /// For a cell under `%%profile --tensorboard`: that the device's profile has been written to its file, or why it has not.
    pub(in crate::engine) device_profile: Option<Result<(), String>>,
    /// The samples of each run of a cell under `%%profile --flame`, as JSON.
    pub(in crate::engine) samples: Vec<String>,
    /// The reason why a run under `%%profile --flame` has no samples.
    pub(in crate::engine) unsampled: Option<String>,
}

/// A search that a cell wants to begin.
#[derive(Debug)]
pub(in crate::engine) struct TuneRequest {
    pub(in crate::engine) pid: u32,
    pub(in crate::engine) library: String,
    pub(in crate::engine) symbol: String,
    pub(in crate::engine) shared_fd: Option<i32>,
    pub(in crate::engine) device: String,
    pub(in crate::engine) seed: Option<u64>,
    pub(in crate::engine) items: Vec<ItemLines>,
}

/// A function that begins a search and returns the answer for the cell.
type Tuner = Box<dyn Fn(TuneRequest) -> Answer + Send>;

/// A connection to a process that accepts orders.
type Peer = Arc<Mutex<UnixStream>>;

#[derive(Default)]
struct State {
    outputs: Option<UnboundedSender<Output>>,
    allow_stdin: bool,
    outcome: CellOutcome,
    /// Whether a cell has already failed for the reason in `outcome.died`.
    died_was_told: bool,
    /// Whether the user knows that cells run without a snapshot.
    unguarded_was_told: bool,
    /// The connection to the cell supervisor.
    connection: Option<(u64, Peer)>,
    /// The connections to the processes that compile the cell.
    compilers: Vec<(u64, Peer)>,
    /// Whether the code that is compiled is the user's, which an interrupt may stop.
    compiles_for_user: bool,
    connections: u64,
    requests: u64,
    /// The sender for the reply to each request, by the number of the request.
    replies: HashMap<u64, mpsc::Sender<SupervisorReply>>,
    tuner: Option<Tuner>,
    surroundings: Surroundings,
    limit: Limit,
    places: Places,
}

/// The state of the link, shared by the engine's thread and the threads that read from supervisors.
#[derive(Clone, Default)]
pub(in crate::engine) struct CellLink {
    state: Arc<Mutex<State>>,
}

impl CellLink {
    /// Listens at a path.
    pub(in crate::engine) fn listen(path: &Path) -> Result<Self> {
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

    /// Begins a cell, to which all further outputs belong. The cell can be undone under its number, if it has one.
    pub(in crate::engine) fn begin_cell(&self, cell: Option<u64>, outputs: UnboundedSender<Output>, allow_stdin: bool) {
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

    /// Sets the number under which the next run can be undone. Without a number, the next run cannot be undone.
    pub(in crate::engine) fn begin(&self, cell: Option<u64>) {
        self.order(&SupervisorOrder::Begin { cell });
    }

    /// Forgets the connection of a supervisor that has ended or is about to end.
    pub(in crate::engine) fn forget_supervisor(&self) {
        self.lock().connection = None;
    }

    /// Waits until a supervisor has connected.
    pub(in crate::engine) fn wait_for_supervisor(&self) -> Result<()> {
        let deadline = Instant::now() + START_TIMEOUT;
        while self.lock().connection.is_none() {
            if Instant::now() >= deadline {
                bail!("the cell supervisor does not start");
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// Records lines of the running cell before they run: the user's lines, and the prepared lines for evcxr.
    pub(in crate::engine) fn will_run(&self, number: Option<u32>, cell: &str, prepared: &str) {
        self.lock().places.add(number, cell, prepared);
    }

    /// A location, `file:line:column`, as text for users; none for a location in generated lines.
    pub(in crate::engine) fn place(&self, location: &str) -> Option<String> {
        self.lock().places.text(location)
    }

    /// The given locations that are in lines of the notebook's cells.
    pub(in crate::engine) fn places(&self, locations: &[String]) -> Vec<Found> {
        let mut state = self.lock();
        let mut places: Vec<Found> = locations.iter().filter_map(|location| state.places.find(location)).collect();
        places.dedup();
        places
    }

    pub(in crate::engine) fn set_tuner(&self, tuner: Option<Tuner>) {
        self.lock().tuner = tuner;
    }

    /// Waits until the front end has all output of the cell process, and returns the cell's outcome.
    pub(in crate::engine) fn sync(&self) -> CellOutcome {
        self.request(SupervisorRequest::Sync);
        self.lock().outcome.clone()
    }

    /// Sends the supervisor a request, and waits for the reply; none if there is no supervisor or it does not reply in time.
    pub(in crate::engine) fn request(&self, request: SupervisorRequest) -> Option<SupervisorReply> {
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

    /// Waits until the supervisor has reported how the cell process ended, and returns the cell's outcome.
    pub(in crate::engine) fn outcome_of_death(&self) -> CellOutcome {
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

    /// Returns and clears the variables whose redefined types kept the cell from running.
    pub(in crate::engine) fn take_changed(&self) -> Vec<String> {
        self.request(SupervisorRequest::Sync);
        std::mem::take(&mut self.lock().outcome.changed)
    }

    /// Returns and clears the warnings of the last compilation.
    pub(in crate::engine) fn take_warnings(&self) -> Vec<Value> {
        std::mem::take(&mut self.lock().outcome.warnings)
    }

    /// Whether the user has interrupted the running cell.
    pub(in crate::engine) fn is_interrupted(&self) -> bool {
        self.lock().outcome.interrupted
    }

    pub(in crate::engine) fn interrupt(&self) {
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
    pub(in crate::engine) fn outputs(&self) -> Option<UnboundedSender<Output>> {
        self.lock().outputs.clone()
    }

    /// Marks the code that is compiled as the engine's own, which an interrupt does not stop.
    pub(in crate::engine) fn compile_for_engine(&self) {
        self.lock().compiles_for_user = false;
    }

    /// Marks the code that is compiled as the user's, which an interrupt may stop.
    pub(in crate::engine) fn compile_for_user(&self) {
        self.lock().compiles_for_user = true;
    }

    /// The working folder and the environment of the cells.
    pub(in crate::engine) fn surroundings(&self) -> Surroundings {
        self.lock().surroundings.clone()
    }

    /// Adds printed text of the user's code to the running cell, or to the last cell.
    pub(in crate::engine) fn print(&self, stream: Stream, mut text: String) {
        let line = self.lock().limit.cut(&mut text);
        if !text.is_empty() {
            self.emit(Output::Stream(stream, text));
        }
        if let Some(line) = line {
            self.emit(Output::Stream(Stream::Stderr, line));
        }
    }

    /// Adds an output to the running cell, or to the last cell.
    pub(in crate::engine) fn emit(&self, output: Output) {
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
