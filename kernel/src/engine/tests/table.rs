//! A notebook under test: the real engine and the real link, with a table of answers in place of evcxr, and a peer on the link's
//! socket in place of the cell supervisor. No compiler and no cell process runs.

use crate::engine::cell_supervisor::CellSupervisor;
use crate::engine::evaluate::evaluator::{Evaluated, Evaluator};
use crate::engine::evaluate::evaluator_state::EvaluatorState;
use crate::engine::evaluate::link::CellLink;
use crate::engine::{Engine, Inspector, Interrupts};
use crate::execution::{Cell, Output, Payload, Stream, Work};
use crate::runtime::Runtime;
use evcxr::{ContextState, Error, SharedAnalyzer, Variable};
use ferrotune_link::{
    KernelFrame, MemoryReport, SnapshotKey, SnapshotReport, SupervisorOrder, SupervisorReply, SupervisorRequest, wire,
};
use serde_json::json;
use std::collections::{BTreeMap, VecDeque};
use std::io::{PipeReader, Read, pipe};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// The source that the evaluator expects next, and its answer.
pub(super) struct Row {
    /// The expected end of the source.
    source: String,
    /// The frames that the cell process and its supervisor send meanwhile.
    frames: Vec<KernelFrame>,
    /// The variables that the evaluator knows afterwards, if they have changed.
    variables: Option<Vec<Variable>>,
    /// The evaluator's answer; none if the evaluator panics.
    answer: Option<Result<Evaluated, Error>>,
}

/// A row for a source with this end, which runs without an error.
pub(super) fn ran(source: &str) -> Row {
    let evaluated = Evaluated { run_time: Some(Duration::from_millis(3)), ..Evaluated::default() };
    Row { source: source.to_owned(), frames: Vec::new(), variables: None, answer: Some(Ok(evaluated)) }
}

/// A row for a source with this end, which fails with an error.
pub(super) fn fails(source: &str, error: Error) -> Row {
    Row { answer: Some(Err(error)), ..ran(source) }
}

/// A row for a source with this end, at which the evaluator panics.
pub(super) fn panics(source: &str) -> Row {
    Row { answer: None, ..ran(source) }
}

impl Row {
    /// Makes the evaluator return this text as the value of the last expression.
    pub(super) fn value(mut self, text: &str) -> Self {
        if let Some(Ok(evaluated)) = &mut self.answer {
            evaluated.value = [("text/plain".to_owned(), text.to_owned())].into();
        }
        self
    }

    /// Removes the run time from the answer, as for a source without statements.
    pub(super) fn without_statements(mut self) -> Self {
        if let Some(Ok(evaluated)) = &mut self.answer {
            evaluated.run_time = None;
        }
        self
    }

    pub(super) fn sends(mut self, frame: KernelFrame) -> Self {
        self.frames.push(frame);
        self
    }

    /// Sets the variables that the evaluator knows afterwards, all of type `i32`.
    pub(super) fn knows(mut self, names: &[&str]) -> Self {
        let variable = |name: &&str| Variable {
            name: (*name).to_owned(),
            type_name: "i32".to_owned(),
            is_mut: false,
            borrows: BTreeMap::new(),
        };
        let mut variables: Vec<Variable> = names.iter().map(variable).collect();
        variables.sort_unstable_by(|left, right| left.name.cmp(&right.name));
        self.variables = Some(variables);
        self
    }
}

/// An evaluator that takes its answers from a table.
struct Answers {
    rows: Arc<Mutex<VecDeque<Row>>>,
    peer: Peer,
    variables: Vec<Variable>,
}

impl Evaluator for Answers {
    fn run(&mut self, source: &str) -> Result<Evaluated, Error> {
        let row = self.rows.lock().unwrap().pop_front();
        let row = row.unwrap_or_else(|| panic!("the evaluator is given {source:?} and should be given no more"));
        assert!(
            source.ends_with(&row.source),
            "the evaluator is given {source:?} and should be given {:?}",
            row.source
        );
        for frame in &row.frames {
            self.peer.send(frame);
        }
        self.variables = row.variables.unwrap_or_else(|| std::mem::take(&mut self.variables));
        row.answer.expect("this row panics")
    }

    fn forget_unused(&mut self, _idle: Duration) -> anyhow::Result<()> {
        Ok(())
    }

    fn analysis(&self) -> Option<(SharedAnalyzer, ContextState)> {
        None
    }

    fn state(&mut self, _last: &EvaluatorState) -> EvaluatorState {
        EvaluatorState::new(String::new(), self.variables.clone(), Vec::new())
    }

    fn last_source(&self) -> String {
        String::new()
    }

    fn variables(&self) -> Vec<Variable> {
        self.variables.clone()
    }

    fn set_variables(&mut self, variables: Vec<Variable>) {
        self.variables = variables;
    }

    fn item_names(&self) -> Vec<&str> {
        Vec::new()
    }
}

/// The replacement for the cell supervisor. It records each order, and grants each request unless a test has set another reply.
#[derive(Clone, Default)]
struct Peer(Arc<Mutex<PeerState>>);

#[derive(Default)]
struct PeerState {
    stream: Option<UnixStream>,
    orders: Vec<String>,
    snapshots: Vec<SnapshotReport>,
    /// The reply to the next request to return to an earlier state.
    return_reply: Option<SupervisorReply>,
}

impl Peer {
    /// Connects each time the supervisor's program reports its start, until no such program can start any more.
    fn connect(&self, socket: PathBuf, mut started: PipeReader) {
        let peer = self.clone();
        thread::spawn(move || {
            while started.read(&mut [0]).is_ok_and(|count| count > 0) {
                let stream = UnixStream::connect(&socket).unwrap();
                peer.0.lock().unwrap().stream = Some(stream.try_clone().unwrap());
                peer.send(&KernelFrame::Supervisor);
                let peer = peer.clone();
                thread::spawn(move || peer.serve(stream));
            }
        });
    }

    fn send(&self, frame: &KernelFrame) {
        let mut state = self.0.lock().unwrap();
        wire::write(state.stream.as_mut().unwrap(), frame).unwrap();
    }

    fn serve(&self, mut stream: UnixStream) {
        while let Ok(Some(order)) = wire::read::<SupervisorOrder>(&mut stream) {
            let mut state = self.0.lock().unwrap();
            state.orders.push(text_of(&order));
            let SupervisorOrder::Request { number, request } = order else { continue };
            let reply = match request {
                SupervisorRequest::Return { .. } => state.return_reply.take().unwrap_or(SupervisorReply::Done),
                SupervisorRequest::Report => {
                    let report = MemoryReport { snapshots: state.snapshots.clone(), ..MemoryReport::default() };
                    SupervisorReply::Report { report }
                }
                _ => SupervisorReply::Done,
            };
            drop(state);
            self.send(&KernelFrame::Reply { number, reply });
        }
    }
}

fn text_of(order: &SupervisorOrder) -> String {
    match order {
        SupervisorOrder::Answer { answer, .. } => format!("answer {answer:?}"),
        SupervisorOrder::Begin { cell: Some(cell) } => format!("begin {cell}"),
        SupervisorOrder::Begin { cell: None } => "begin".to_owned(),
        SupervisorOrder::Interrupt => "interrupt".to_owned(),
        SupervisorOrder::Request { request, .. } => match request {
            SupervisorRequest::Sync => "sync".to_owned(),
            SupervisorRequest::Keep { name } => format!("keep {name}"),
            SupervisorRequest::Return { to: SnapshotKey::Before { cell } } => format!("return before {cell}"),
            SupervisorRequest::Return { to: SnapshotKey::Named { name } } => format!("return to {name}"),
            SupervisorRequest::Return { to: SnapshotKey::Latest } => "return to the latest".to_owned(),
            SupervisorRequest::Limit { bytes: Some(bytes) } => format!("limit {bytes}"),
            SupervisorRequest::Limit { bytes: None } => "no limit".to_owned(),
            SupervisorRequest::Sample { .. } => "sample".to_owned(),
            SupervisorRequest::Trim { .. } => "trim".to_owned(),
            SupervisorRequest::Report => "report".to_owned(),
        },
    }
}

/// An engine whose evaluator takes its answers from a table.
pub(super) struct Table {
    pub(super) engine: Engine,
    pub(super) interrupts: Interrupts,
    rows: Arc<Mutex<VecDeque<Row>>>,
    peer: Peer,
    /// Whether `%undo` counts the cells.
    pub(super) can_be_undone: bool,
    _folder: TempDir,
}

impl Table {
    /// An engine at the start of a notebook, without variables.
    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let runtime = Runtime::in_folder(folder.path());
        let link = CellLink::listen(&runtime.socket()).unwrap();
        let interrupts = Interrupts::default();
        interrupts.set_link(link.clone());
        link.compile_for_user();
        let (peer, rows) = (Peer::default(), Arc::default());
        let supervisor = CellSupervisor::start(Self::program(&peer, &runtime.socket()), &link).unwrap();
        let answers = Answers { rows: Arc::clone(&rows), peer: peer.clone(), variables: Vec::new() };
        let engine =
            Engine::new(Box::new(answers), supervisor, &link, &interrupts, &Inspector::start(), &runtime, None);
        Self { engine, interrupts, rows, peer, can_be_undone: true, _folder: folder }
    }

    /// A program that reports its start, and then waits until it is killed, as a cell supervisor does.
    fn program(peer: &Peer, socket: &Path) -> Command {
        let (started, says) = pipe().unwrap();
        peer.connect(socket.to_owned(), started);
        let mut program = Command::new("sh");
        program.args(["-c", "echo; exec 1>&-; exec sleep 600"]).stdout(says);
        program
    }

    /// An engine after a first cell, which has declared variables of type `i32`.
    pub(super) fn with_variables(names: &[&str]) -> Self {
        let mut table = Self::new();
        table.check("declare!();", [ran("declare!();").knows(names)], ["done"]);
        table.orders();
        table
    }

    /// Runs a cell and compares its outputs. The evaluator must be given the rows' sources and nothing else.
    #[track_caller]
    pub(super) fn check<const R: usize, const O: usize>(&mut self, code: &str, rows: [Row; R], expected: [&str; O]) {
        let (work, mut outputs) = self.work(code, rows);
        self.engine.take(work);
        assert_eq!(texts_of(&mut outputs), expected, "the outputs of {code:?}");
        assert_eq!(self.left(), Vec::<String>::new(), "what the evaluator was not given in {code:?}");
    }

    /// A cell that is sent now, and the receiver of its outputs.
    pub(super) fn work<const R: usize>(&mut self, code: &str, rows: [Row; R]) -> (Work, UnboundedReceiver<Output>) {
        *self.rows.lock().unwrap() = VecDeque::from(rows);
        let (outputs, receiver) = unbounded_channel();
        let cell = Cell {
            code: code.to_owned(),
            allow_stdin: false,
            can_be_undone: self.can_be_undone,
            count: Some(1),
            sent_at: Instant::now(),
            subshell: None,
        };
        (Work::Execute { cell, outputs }, receiver)
    }

    /// The sources that the evaluator was not given.
    fn left(&self) -> Vec<String> {
        self.rows.lock().unwrap().drain(..).map(|row| row.source).collect()
    }

    /// The orders to the cell supervisor since the last call.
    pub(super) fn orders(&mut self) -> Vec<String> {
        // The reply to this request comes after all earlier orders have been recorded.
        self.engine.link.request(SupervisorRequest::Sync);
        let mut orders = std::mem::take(&mut self.peer.0.lock().unwrap().orders);
        assert_eq!(orders.pop().as_deref(), Some("sync"));
        orders
    }

    /// Gives the cell supervisor snapshots of the states before these cells.
    pub(super) fn keeps_snapshots_before(&mut self, cells: &[u64]) {
        let snapshot = |cell: &u64| SnapshotReport {
            key: SnapshotKey::Before { cell: *cell },
            pid: 1,
            age_s: 1.0,
            cost_us: 100,
            private_bytes: 0,
            share_bytes: 0,
        };
        self.peer.0.lock().unwrap().snapshots = cells.iter().map(snapshot).collect();
    }

    /// Sets the reply to the next request to return to an earlier state.
    pub(super) fn set_return_reply(&mut self, reply: SupervisorReply) {
        self.peer.0.lock().unwrap().return_reply = Some(reply);
    }
}

/// Each output as one line, up to the cell's end.
pub(super) fn texts_of(outputs: &mut UnboundedReceiver<Output>) -> Vec<String> {
    let mut texts = Vec::new();
    while let Ok(output) = outputs.try_recv() {
        let plain = |data: &serde_json::Map<String, serde_json::Value>| match data.get("text/plain") {
            Some(text) => text.as_str().unwrap_or_default().to_owned(),
            None => json!(data).to_string(),
        };
        texts.push(match output {
            Output::Stream(Stream::Stdout, text) => format!("stdout: {}", text.trim_end()),
            Output::Stream(Stream::Stderr, text) => format!("stderr: {}", text.trim_end()),
            Output::Display { data, .. } => format!("shown: {}", plain(&data)),
            Output::Result { data, .. } => format!("result: {}", plain(&data)),
            Output::Payload(Payload::Page(data)) => format!("page: {}", plain(&data)),
            Output::Done(Ok(())) => "done".to_owned(),
            Output::Done(Err(failure)) => format!("{}: {}", failure.name, failure.text),
            other => format!("{other:?}"),
        });
    }
    texts
}
