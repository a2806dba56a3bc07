//! The cells that the user ran, in all sessions: one JSON line for each cell in `ferrotune/history.jsonl` of the user's
//! data folder, which all kernels share. Outputs are not kept. If the file cannot be written, only this session's cells
//! are found.
//!
//! One thread owns the file, so that no cell waits for a disk.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc;

use crate::folders::lock;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

mod query;

pub(crate) use query::Query;

/// The largest history file. A session that finds a larger file at its start keeps the newer half.
const MAX_BYTES: u64 = 8 << 20;

/// One cell as it was typed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) session: u64,
    pub(crate) line: u32,
    pub(crate) source: String,
}

/// A line of the file. A session reserves its number with a first line that has no cell.
#[derive(Serialize, Deserialize)]
struct Record {
    version: u32,
    session: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    source: Option<String>,
}

const VERSION: u32 = 1;

enum Task {
    Append { line: u32, source: String },
    Find { query: Query, found: oneshot::Sender<Vec<Entry>> },
}

/// The sender of tasks to the history thread.
#[derive(Clone, Debug)]
pub(crate) struct CellHistory {
    tasks: mpsc::Sender<Task>,
}

impl CellHistory {
    /// Opens the user's history.
    pub(crate) fn of_user() -> io::Result<Self> {
        Self::open(dirs::data_dir().map(|folder| folder.join("ferrotune")))
    }

    /// Opens the history in `folder`; without one, only this session is remembered.
    ///
    /// Fails if no thread can be started.
    pub(crate) fn open(folder: Option<PathBuf>) -> io::Result<Self> {
        let (tasks, queue) = mpsc::channel();
        std::thread::Builder::new().name("history".into()).spawn(move || {
            let mut store = Store::open(folder);
            for task in queue {
                match task {
                    Task::Append { line, source } => store.append(line, source),
                    Task::Find { query, found } => {
                        if found.send(query.select(store.entries(), store.session)).is_err() {
                            tracing::debug!("the client that asked for history has gone");
                        }
                    }
                }
            }
        })?;
        Ok(Self { tasks })
    }

    /// Remembers cell `line` of this session.
    pub(crate) fn append(&self, line: u32, source: String) {
        if self.tasks.send(Task::Append { line, source }).is_err() {
            tracing::warn!(line, "cell is not in the history: its thread has ended");
        }
    }

    /// The cells that `query` selects, oldest first: first the cells of other sessions, then this session's.
    pub(crate) async fn find(&self, query: Query) -> Vec<Entry> {
        let (found, entries) = oneshot::channel();
        if self.tasks.send(Task::Find { query, found }).is_err() {
            tracing::warn!("history cannot be searched: its thread has ended");
        }
        entries.await.unwrap_or_default()
    }
}

struct Store {
    path: Option<PathBuf>,
    session: u64,
    own: Vec<Entry>,
}

impl Store {
    fn open(folder: Option<PathBuf>) -> Self {
        let path = folder.map(|folder| folder.join("history.jsonl"));
        let session = path.as_deref().map(begin_session);
        match session {
            Some(Ok(session)) => Self { path, session, own: Vec::new() },
            Some(Err(error)) => {
                tracing::warn!(?path, %error, "history of other sessions is not available");
                Self { path: None, session: 1, own: Vec::new() }
            }
            None => Self { path: None, session: 1, own: Vec::new() },
        }
    }

    fn append(&mut self, line: u32, source: String) {
        let entry = Entry { session: self.session, line, source };
        if let Some(path) = &self.path {
            let record = Record {
                version: VERSION,
                session: entry.session,
                line: Some(line),
                source: Some(entry.source.clone()),
            };
            if let Err(error) = lock(path).and_then(|_lock| write_record(path, &record)) {
                tracing::warn!(?path, %error, "cell is not in the history file");
            }
        }
        self.own.push(entry);
    }

    /// All cells: the cells of other sessions by session and line, then this session's in the order in which they ran.
    /// So the newest cells of a front end are its own even while later sessions run cells, as in IPython.
    fn entries(&self) -> Vec<Entry> {
        let others = match self.path.as_deref().map(read_records) {
            Some(Ok(records)) => records,
            Some(Err(error)) => {
                tracing::warn!(path = ?self.path, %error, "history file cannot be read");
                Vec::new()
            }
            None => Vec::new(),
        };
        let mut entries: Vec<Entry> = others
            .into_iter()
            .filter(|record| record.session != self.session)
            .filter_map(|Record { session, line, source, .. }| Some(Entry { session, line: line?, source: source? }))
            .collect();
        entries.sort_by_key(|entry| (entry.session, entry.line));
        entries.extend(self.own.iter().cloned());
        entries
    }
}

/// Reserves the next session number, and drops the older half of a file that is too large.
fn begin_session(path: &Path) -> io::Result<u64> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let _lock = lock(path)?;
    let records = read_records(path)?;
    let session = records.iter().map(|record| record.session).max().unwrap_or(0).saturating_add(1);
    if fs::metadata(path).is_ok_and(|metadata| metadata.len() > MAX_BYTES) {
        keep_newer_half(path, &records)?;
    }
    write_record(path, &Record { version: VERSION, session, line: None, source: None })?;
    Ok(session)
}

/// Locks the history, through a second file: another kernel may replace the history file, and a lock would go with it.
fn lock(path: &Path) -> io::Result<File> {
    lock::alone(&path.with_extension("lock"))
}

fn write_record(path: &Path, record: &Record) -> io::Result<()> {
    let mut text = serde_json::to_vec(record)?;
    text.push(b'\n');
    let mut file = OpenOptions::new().create(true).read(true).append(true).open(path)?;
    if ends_torn(path)? {
        text.insert(0, b'\n');
    }
    file.write_all(&text)
}

/// Whether the file ends within a line, because its last writer was killed.
fn ends_torn(path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::FileExt;
    let file = File::open(path)?;
    let length = file.metadata()?.len();
    let mut last = [b'\n'];
    if length > 0 {
        file.read_exact_at(&mut last, length - 1)?;
    }
    Ok(last != [b'\n'])
}

/// Reads the records of the file. Lines that are torn or of an unknown version are skipped.
fn read_records(path: &Path) -> io::Result<Vec<Record>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut records = Vec::new();
    for line in BufReader::new(file).split(b'\n') {
        match serde_json::from_slice::<Record>(&line?) {
            Ok(record) if record.version == VERSION => records.push(record),
            Ok(_) | Err(_) => tracing::trace!(?path, "line of the history file skipped"),
        }
    }
    Ok(records)
}

fn keep_newer_half(path: &Path, records: &[Record]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut text = Vec::new();
    for record in &records[records.len() / 2..] {
        serde_json::to_writer(&mut text, record)?;
        text.push(b'\n');
    }
    // If the newer cells are the larger ones, half of the lines may still be too much.
    let mut cut = usize::try_from(MAX_BYTES / 2).map_or(0, |limit| text.len().saturating_sub(limit));
    while cut > 0 && text.get(cut - 1).is_some_and(|byte| *byte != b'\n') {
        cut += 1;
    }
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(&text[cut.min(text.len())..])?;
    file.as_file().sync_data()?;
    file.persist(path)?;
    Ok(())
}

#[cfg(test)]
mod tests;
