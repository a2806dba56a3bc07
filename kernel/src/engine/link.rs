//! The kernel's end of the link: takes the frames of cell supervisors and of what compiles cells, and gives them to the
//! cell that runs.

use super::report;
use crate::execution::{Output, Stream};
use anyhow::{Context, Result, bail};
use ferrotune_link::{Answer, CellEnding, KernelFrame, SupervisorOrder, SupervisorReply, SupervisorRequest, wire};
use std::collections::HashMap;
use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

/// How long the supervisor may take to do what it is asked for.
const REPLY_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a supervisor may take to start.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// How long the last words of a dead process may take to be read.
const LAST_WORDS_TIMEOUT: Duration = Duration::from_secs(2);
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// What became known of a cell while it ran, beside its outputs.
#[derive(Clone, Debug, Default)]
pub(super) struct CellOutcome {
    /// The last panic on the cell's thread: its message and place.
    panic: Option<(String, Option<String>)>,
    /// How the cell ended, if a panic ended it.
    pub(super) panicked: Option<(String, Option<String>)>,
    pub(super) failed: Option<String>,
    /// How the process ended, if the variables went with it.
    pub(super) died: Option<CellEnding>,
    /// How it ended, where its snapshot has taken over, and the names of the threads that were lost.
    pub(super) restored: Option<(CellEnding, Vec<String>)>,
    /// The user has asked for an end of the cell.
    pub(super) interrupted: bool,
    /// The cell was stopped before it ran.
    pub(super) cancelled: bool,
    /// The cell was not run, since the types of these variables have been defined anew.
    changed: Vec<String>,
}

/// A search that a cell wants to begin.
#[derive(Debug)]
pub(super) struct TuneRequest {
    pub(super) pid: u32,
    pub(super) library: String,
    pub(super) symbol: String,
    pub(super) shared_fd: Option<i32>,
    pub(super) device: String,
}

/// Begins a search and gives the answer for the cell.
type Tuner = Box<dyn Fn(TuneRequest) -> Answer + Send>;

/// Who takes orders.
type Peer = Arc<Mutex<UnixStream>>;

#[derive(Default)]
struct State {
    outputs: Option<UnboundedSender<Output>>,
    allow_stdin: bool,
    facts: CellOutcome,
    /// Whether a cell has failed for the reason of `facts.died`.
    died_was_told: bool,
    /// Whether the user knows that cells run without a snapshot.
    unguarded_was_told: bool,
    connection: Option<(u64, Peer)>,
    /// What compiles the cell.
    compilers: Vec<(u64, Peer)>,
    /// What is compiled is the user's, and theirs to stop.
    engine_runs: bool,
    connections: u64,
    requests: u64,
    /// Who waits for the answer of each request.
    replies: HashMap<u64, mpsc::Sender<SupervisorReply>>,
    tuner: Option<Tuner>,
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

    /// From now on outputs belong to this cell, which can be undone under its number if it has one.
    pub(super) fn begin_cell(&self, cell: Option<u64>, outputs: UnboundedSender<Output>, allow_stdin: bool) {
        {
            let mut state = self.lock();
            state.outputs = Some(outputs);
            state.allow_stdin = allow_stdin;
            // A process that died between two cells is the reason for which the next one fails.
            let died = state.facts.died.take().filter(|_| !state.died_was_told);
            state.facts = CellOutcome { died, ..CellOutcome::default() };
        }
        self.order(&SupervisorOrder::Begin { cell });
    }

    /// What runs next can be undone under this number, or not at all.
    pub(super) fn begin(&self, cell: Option<u64>) {
        self.order(&SupervisorOrder::Begin { cell });
    }

    /// The supervisor has ended, or is about to.
    pub(super) fn forget_supervisor(&self) {
        self.lock().connection = None;
    }

    /// Waits until a supervisor takes orders.
    pub(super) fn wait_for_supervisor(&self) -> Result<()> {
        let deadline = Instant::now() + START_TIMEOUT;
        while self.lock().connection.is_none() {
            if Instant::now() >= deadline {
                bail!("the supervisor of the cells does not start");
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    pub(super) fn set_tuner(&self, tuner: Option<Tuner>) {
        self.lock().tuner = tuner;
    }

    /// Waits until all that the cell process has written is with the front end, and tells what became known.
    pub(super) fn sync(&self) -> CellOutcome {
        self.request(SupervisorRequest::Sync);
        self.lock().facts.clone()
    }

    /// Asks the supervisor for something, and waits for its answer; none where there is no supervisor.
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

    /// Waits for the last words of a supervisor whose process has ended, and tells what became known.
    pub(super) fn last_words(&self) -> CellOutcome {
        let deadline = Instant::now() + LAST_WORDS_TIMEOUT;
        loop {
            let mut state = self.lock();
            if state.facts.died.is_some() || Instant::now() >= deadline {
                state.died_was_told = true;
                return state.facts.clone();
            }
            drop(state);
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// The variables for which the cell was not run; told once.
    pub(super) fn take_changed(&self) -> Vec<String> {
        self.request(SupervisorRequest::Sync);
        std::mem::take(&mut self.lock().facts.changed)
    }

    /// Whether the user has asked for an end of the running cell.
    pub(super) fn is_interrupted(&self) -> bool {
        self.lock().facts.interrupted
    }

    pub(super) fn interrupt(&self) {
        let compilers = {
            let mut state = self.lock();
            state.facts.interrupted = true;
            if !state.engine_runs {
                return; // what runs is the engine's own, and the notebook needs it whole
            }
            state.compilers.clone()
        };
        for (_, peer) in &compilers {
            write(peer, &SupervisorOrder::Interrupt);
        }
        self.order(&SupervisorOrder::Interrupt);
    }

    /// Where the outputs of the present cell go.
    pub(super) fn outputs(&self) -> Option<UnboundedSender<Output>> {
        self.lock().outputs.clone()
    }

    /// What is compiled from now on is the engine's own.
    pub(super) fn engine_starts(&self) {
        self.lock().engine_runs = false;
    }

    /// What is compiled from now on is the user's.
    pub(super) fn engine_runs(&self) {
        self.lock().engine_runs = true;
    }

    /// Gives an output to the cell that runs, or ran last.
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
        // Written outside the lock: a supervisor that is busy must not hold up the reader of its outputs.
        let peer = self.lock().connection.as_ref().map(|(_, peer)| Arc::clone(peer));
        peer.is_some_and(|peer| write(&peer, order))
    }

    fn connected(self, stream: UnixStream) {
        let spawned = thread::Builder::new().name("link-reader".into()).spawn(move || self.follow(stream));
        if let Err(error) = spawned {
            tracing::error!("outputs of cells cannot be read: {error}");
        }
    }

    fn follow(self, mut reader: UnixStream) {
        let number = match self.greet(&mut reader) {
            Ok(number) => number,
            Err(error) => return tracing::warn!("a cell supervisor or compiler could not connect: {error}"),
        };
        loop {
            match wire::read::<KernelFrame>(&mut reader) {
                Ok(Some(frame)) => self.take(frame),
                Ok(None) => break,
                Err(error) => {
                    tracing::debug!("the cell supervisor's connection broke: {error}");
                    break;
                }
            }
        }
        let mut state = self.lock();
        state.compilers.retain(|(compiler, _)| *compiler != number);
        if state.connection.as_ref().is_some_and(|(current, _)| *current == number) {
            state.connection = None;
            // Whoever waits for this supervisor's answer waits in vain.
            state.replies.clear();
        }
    }

    /// Learns from the first frame who has connected.
    fn greet(&self, reader: &mut UnixStream) -> io::Result<u64> {
        let peer = Arc::new(Mutex::new(reader.try_clone()?));
        let first = wire::read::<KernelFrame>(reader)?;
        let mut state = self.lock();
        state.connections += 1;
        let number = state.connections;
        match first {
            Some(KernelFrame::Supervisor) => state.connection = Some((number, peer)),
            Some(KernelFrame::Compiler) => {
                state.compilers.push((number, Arc::clone(&peer)));
                // evcxr compiles a cell again that does not compile.
                let is_too_late = state.engine_runs && state.facts.interrupted;
                drop(state);
                if is_too_late {
                    write(&peer, &SupervisorOrder::Interrupt);
                }
            }
            _ => return Err(io::Error::new(io::ErrorKind::InvalidData, "it does not say what it is")),
        }
        Ok(number)
    }

    fn take(&self, frame: KernelFrame) {
        match frame {
            KernelFrame::Supervisor | KernelFrame::Compiler => tracing::warn!("a connection was greeted twice"),
            KernelFrame::Stream { stream, text } => self.emit(Output::Stream(stream, text)),
            KernelFrame::Display { data, metadata, display_id, update } => {
                self.emit(Output::Display { data, metadata, display_id, update });
            }
            KernelFrame::Result { data, metadata } => self.emit(Output::Result { data, metadata }),
            KernelFrame::Clear { wait } => self.emit(Output::Clear { wait }),
            KernelFrame::Input { prompt, password } => self.aside(move |link| link.ask(prompt, password)),
            KernelFrame::Tune { pid, library, symbol, shared_fd, device } => {
                self.aside(move |link| link.tune(TuneRequest { pid, library, symbol, shared_fd, device }));
            }
            KernelFrame::Panic { message, location } => self.lock().facts.panic = Some((message, location)),
            KernelFrame::Panicked => {
                let facts = &mut self.lock().facts;
                let elsewhere = || ("a panic on another thread ended the cell".to_owned(), None);
                facts.panicked = Some(facts.panic.take().unwrap_or_else(elsewhere));
            }
            // The first error is the cause; a `?` may pass it on.
            KernelFrame::Failed { message } => {
                self.lock().facts.failed.get_or_insert(message);
            }
            KernelFrame::Restored { ending, threads, running: true } => {
                self.lock().facts.restored = Some((ending, threads));
            }
            KernelFrame::Restored { ending, threads, running: false } => self.tell_restored(&ending, &threads),
            KernelFrame::Unguarded { reason } => self.warn_unguarded(&reason),
            KernelFrame::Cancelled => self.lock().facts.cancelled = true,
            KernelFrame::Changed { names } => self.lock().facts.changed = names,
            KernelFrame::Reply { number, reply } => {
                let waiting = self.lock().replies.remove(&number);
                if waiting.is_none_or(|waiting| waiting.send(reply).is_err()) {
                    tracing::debug!("no one waits for the cell supervisor");
                }
            }
            KernelFrame::Died { ending } => {
                let mut state = self.lock();
                state.facts.died = Some(ending);
                state.died_was_told = false;
            }
        }
    }

    /// A thread of an earlier cell has ended the process while no cell ran.
    fn tell_restored(&self, ending: &CellEnding, threads: &[String]) {
        let text = format!("{}\n", report::taken_over_between_cells(ending, threads));
        self.emit(Output::Stream(Stream::Stderr, text));
    }

    /// Says, once, that a crash would cost the variables.
    fn warn_unguarded(&self, reason: &str) {
        if !std::mem::replace(&mut self.lock().unguarded_was_told, true) {
            let text = format!("no snapshot was made, a crash in the next cell would cost the variables: {reason}\n");
            self.emit(Output::Stream(Stream::Stderr, text));
        }
    }

    /// Does what may take long on a thread of its own: the supervisor must be heard meanwhile.
    fn aside(&self, work: impl FnOnce(Self) + Send + 'static) {
        let link = self.clone();
        if let Err(error) = thread::Builder::new().name("link-answer".into()).spawn(move || work(link)) {
            let reason = format!("the kernel cannot start a thread: {error}");
            self.order(&SupervisorOrder::Answer { answer: Answer::Refused { reason } });
        }
    }

    fn ask(&self, prompt: String, password: bool) {
        let text = if self.lock().allow_stdin {
            let (reply, line) = oneshot::channel();
            self.emit(Output::Input { prompt, password, reply });
            line.blocking_recv().ok()
        } else {
            None
        };
        self.order(&SupervisorOrder::Answer { answer: Answer::Line { text } });
    }

    fn tune(&self, request: TuneRequest) {
        let tuner = self.lock().tuner.take();
        let answer = match tuner {
            Some(tuner) => tuner(request),
            None => Answer::Refused { reason: "a search begins with %%tune".to_owned() },
        };
        self.order(&SupervisorOrder::Answer { answer });
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
