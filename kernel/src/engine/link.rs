//! The kernel's end of the link: takes the frames of cell supervisors and of what compiles cells, and gives them to the
//! cell that runs.

use crate::execution::{Output, Stream};
use anyhow::{Context, Result};
use ferrotune_display::frame::{self, Answer, Frame, Order};
use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

/// How long the supervisor may take to pass on what has been printed.
const SYNC_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the last words of a dead process may take to be read.
const LAST_WORDS_TIMEOUT: Duration = Duration::from_secs(2);
const LAST_WORDS_INTERVAL: Duration = Duration::from_millis(2);

/// What became known of a cell while it ran, beside its outputs.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    /// The last panic on the cell's thread: its message and place.
    panic: Option<(String, Option<String>)>,
    /// How the cell ended, if a panic ended it.
    pub(super) panicked: Option<(String, Option<String>)>,
    pub(super) failed: Option<String>,
    pub(super) died: Option<(Option<i32>, Option<i32>)>,
    /// As `died`, where the snapshot has taken over.
    pub(super) restored: Option<(Option<i32>, Option<i32>)>,
    /// The user has asked for an end of the cell.
    pub(super) interrupted: bool,
    /// The cell was stopped before it ran.
    pub(super) cancelled: bool,
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
    facts: Facts,
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
    syncs: u64,
    synced: Option<mpsc::Sender<u64>>,
    tuner: Option<Tuner>,
}

/// Shared by the engine's thread and the threads that read from supervisors.
#[derive(Clone, Default)]
pub(super) struct Link {
    state: Arc<Mutex<State>>,
}

impl Link {
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

    /// From now on outputs belong to this cell.
    pub(super) fn begin_cell(&self, outputs: UnboundedSender<Output>, allow_stdin: bool) {
        {
            let mut state = self.lock();
            state.outputs = Some(outputs);
            state.allow_stdin = allow_stdin;
            // A process that died between two cells is the reason for which the next one fails.
            let died = state.facts.died.take().filter(|_| !state.died_was_told);
            state.facts = Facts { died, ..Facts::default() };
        }
        self.order(&Order::Begin);
    }

    pub(super) fn set_tuner(&self, tuner: Option<Tuner>) {
        self.lock().tuner = tuner;
    }

    /// Waits until all that the cell process has written is with the front end, and tells what became known.
    pub(super) fn sync(&self) -> Facts {
        let (sender, receiver) = mpsc::channel();
        let number = {
            let mut state = self.lock();
            state.syncs += 1;
            state.synced = Some(sender);
            state.syncs
        };
        if self.order(&Order::Sync { number }) {
            loop {
                match receiver.recv_timeout(SYNC_TIMEOUT) {
                    Ok(answered) if answered != number => {}
                    Ok(_) | Err(RecvTimeoutError::Disconnected) => break,
                    Err(RecvTimeoutError::Timeout) => {
                        tracing::warn!("the cell supervisor does not answer");
                        break;
                    }
                }
            }
        }
        self.lock().facts.clone()
    }

    /// Waits for the last words of a supervisor whose process has ended, and tells what became known.
    pub(super) fn last_words(&self) -> Facts {
        let deadline = Instant::now() + LAST_WORDS_TIMEOUT;
        loop {
            let mut state = self.lock();
            if state.facts.died.is_some() || Instant::now() >= deadline {
                state.died_was_told = true;
                return state.facts.clone();
            }
            drop(state);
            thread::sleep(LAST_WORDS_INTERVAL);
        }
    }

    /// Whether the user has asked for an end of the running cell.
    pub(super) fn is_interrupted(&self) -> bool {
        self.lock().facts.interrupted
    }

    pub(super) fn interrupt(&self) {
        let compilers = {
            let mut state = self.lock();
            state.facts.interrupted = true;
            if state.engine_runs { state.compilers.clone() } else { Vec::new() }
        };
        for (_, peer) in &compilers {
            write(peer, &Order::Interrupt);
        }
        self.order(&Order::Interrupt);
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

    fn order(&self, order: &Order) -> bool {
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
            match frame::read::<Frame>(&mut reader) {
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
            state.synced = None;
        }
    }

    /// Learns from the first frame who has connected.
    fn greet(&self, reader: &mut UnixStream) -> io::Result<u64> {
        let peer = Arc::new(Mutex::new(reader.try_clone()?));
        let first = frame::read::<Frame>(reader)?;
        let mut state = self.lock();
        state.connections += 1;
        let number = state.connections;
        match first {
            Some(Frame::Supervisor) => state.connection = Some((number, peer)),
            Some(Frame::Compiler) => {
                state.compilers.push((number, Arc::clone(&peer)));
                // evcxr compiles a cell again that does not compile.
                let is_too_late = state.engine_runs && state.facts.interrupted;
                drop(state);
                if is_too_late {
                    write(&peer, &Order::Interrupt);
                }
            }
            _ => return Err(io::Error::new(io::ErrorKind::InvalidData, "it does not say what it is")),
        }
        Ok(number)
    }

    fn take(&self, frame: Frame) {
        match frame {
            Frame::Supervisor | Frame::Compiler => tracing::warn!("a connection was greeted twice"),
            Frame::Stream { stream, text } => {
                let stream = match stream {
                    frame::Stream::Stdout => Stream::Stdout,
                    frame::Stream::Stderr => Stream::Stderr,
                };
                self.emit(Output::Stream(stream, text));
            }
            Frame::Display { bundle, display_id, update } => {
                self.emit(Output::Display { data: bundle.data, metadata: bundle.metadata, display_id, update });
            }
            Frame::Result { bundle } => self.emit(Output::Result { data: bundle.data, metadata: bundle.metadata }),
            Frame::Clear { wait } => self.emit(Output::Clear { wait }),
            Frame::Input { prompt, password } => self.aside(move |link| link.ask(prompt, password)),
            Frame::Tune { pid, library, symbol, shared_fd, device } => {
                self.aside(move |link| link.tune(TuneRequest { pid, library, symbol, shared_fd, device }));
            }
            Frame::Panic { message, location } => self.lock().facts.panic = Some((message, location)),
            Frame::Panicked => {
                let facts = &mut self.lock().facts;
                let elsewhere = || ("a panic on another thread ended the cell".to_owned(), None);
                facts.panicked = Some(facts.panic.take().unwrap_or_else(elsewhere));
            }
            // The first error is the cause; a `?` may pass it on.
            Frame::Failed { message } => {
                self.lock().facts.failed.get_or_insert(message);
            }
            Frame::Restored { exit_code, signal } => self.lock().facts.restored = Some((exit_code, signal)),
            Frame::Unguarded => self.warn_unguarded(),
            Frame::Cancelled => self.lock().facts.cancelled = true,
            Frame::Synced { number } => {
                let state = self.lock();
                let refused = state.synced.as_ref().and_then(|synced| synced.send(number).err());
                if refused.is_some() {
                    tracing::debug!("no one waits for the cell supervisor");
                }
            }
            Frame::Died { exit_code, signal } => {
                let mut state = self.lock();
                state.facts.died = Some((exit_code, signal));
                state.died_was_told = false;
            }
        }
    }

    /// Says, once, that a crash would cost the variables.
    fn warn_unguarded(&self) {
        if !std::mem::replace(&mut self.lock().unguarded_was_told, true) {
            let text = "there is too little memory for a snapshot: a crash in this cell would cost the variables\n";
            self.emit(Output::Stream(Stream::Stderr, text.to_owned()));
        }
    }

    /// Does what may take long on a thread of its own: the supervisor must be heard meanwhile.
    fn aside(&self, work: impl FnOnce(Self) + Send + 'static) {
        let link = self.clone();
        if let Err(error) = thread::Builder::new().name("link-answer".into()).spawn(move || work(link)) {
            let reason = format!("the kernel cannot start a thread: {error}");
            self.order(&Order::Answer { answer: Answer::Refused { reason } });
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
        self.order(&Order::Answer { answer: Answer::Line { text } });
    }

    fn tune(&self, request: TuneRequest) {
        let tuner = self.lock().tuner.take();
        let answer = match tuner {
            Some(tuner) => tuner(request),
            None => Answer::Refused { reason: "a search begins with %%tune".to_owned() },
        };
        self.order(&Order::Answer { answer });
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn write(peer: &Peer, order: &Order) -> bool {
    let mut stream = peer.lock().unwrap_or_else(PoisonError::into_inner);
    match frame::write(&mut *stream, order) {
        Ok(()) => true,
        Err(error) => {
            tracing::debug!("an order is not taken: {error}");
            false
        }
    }
}
