//! The processes that read files: a [`Reader`] is one process, and [`Readers`] are several that work ahead.

use crate::{DataError, Result};
use candle_core::{DType, Device, Tensor};
use ferrotune_machine::own;
use ferrotune_reader::{
    Array, Block, Contents, Reply, Request, SUBCOMMAND, Source, VERSION, is_remote, read_reply, write_request,
};
use std::io::{self, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::str::FromStr as _;
use std::sync::Arc;

/// The capacity of a reader's pipe, if the system allows it. The reader works ahead until the pipe is full.
const PIPE_BYTES: usize = 1 << 20;

/// Files to read. Their paths are relative to the working folder at the time when the dataset was made.
#[derive(Debug)]
pub(crate) struct Files {
    pub(crate) source: Source,
    /// The working folder, or `None` if it is gone or paths are absolute.
    pub(crate) folder: Option<PathBuf>,
    /// The number of rows in each block, if known.
    pub(crate) rows: Option<Vec<u64>>,
}

impl Files {
    /// Opens a source. Fails if that is not possible.
    pub(crate) fn open(source: Source) -> Result<(Files, Contents)> {
        let mut files = Files { source, folder: std::env::current_dir().ok(), rows: None };
        let (_, contents) = Reader::of(&files)?;
        files.rows.clone_from(&contents.rows);
        Ok((files, contents))
    }

    /// The name of the files in messages.
    fn name(&self) -> &str {
        match &self.source {
            Source::Table { files, .. } | Source::Columns { files, .. } | Source::Records { files, .. } => files,
            Source::Array { file, .. } => file,
            Source::Folder { folder } => folder,
            Source::Images { .. } => "images",
        }
    }

    fn changed(&self) -> DataError {
        let reason = format!("{} has changed since the dataset was made; make the dataset again", self.name());
        DataError::Unread { reason }
    }
}

/// A process that has a source open. The process ends when the reader is dropped.
pub(crate) struct Reader {
    files: String,
    child: Child,
    requests: ChildStdin,
    replies: BufReader<ChildStdout>,
}

impl Reader {
    /// Starts a reader. Fails if the source cannot be opened.
    pub(crate) fn start(source: Source) -> Result<(Reader, Contents)> {
        Reader::of(&Files { source, folder: None, rows: None })
    }

    /// Starts a reader of these files. Fails if they cannot be opened, or have changed.
    fn of(files: &Files) -> Result<(Reader, Contents)> {
        let mut command = Command::new(program());
        command.arg0("ferrotune").arg(SUBCOMMAND).stdin(Stdio::piped()).stdout(Stdio::piped());
        if let Some(folder) = &files.folder {
            command.current_dir(folder);
        }
        let mut child = command.spawn().map_err(|source| DataError::NoReader { source })?;
        let (Some(requests), Some(replies)) = (child.stdin.take(), child.stdout.take()) else {
            unreachable!("both have just been piped")
        };
        // The call fails for a user who has many large pipes. A smaller pipe works, too.
        rustix::pipe::fcntl_setpipe_size(&replies, PIPE_BYTES).ok();
        let name = files.name().to_owned();
        let mut reader = Reader { files: name, child, requests, replies: BufReader::new(replies) };
        reader.ask(&Request::Open { version: VERSION.to_owned(), source: files.source.clone() })?;
        match reader.reply()? {
            Reply::Opened(contents) if files.rows.is_some() && files.rows != contents.rows => Err(files.changed()),
            Reply::Opened(contents) => Ok((reader, contents)),
            other => Err(reader.unexpected(&other)),
        }
    }

    /// Sends a request. Its block comes after those of earlier requests.
    pub(crate) fn ask(&mut self, request: &Request) -> Result<()> {
        match write_request(&mut self.requests, request) {
            // The reader has ended. The reason is reported when its first missing reply is read.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            written => written.map_err(|error| self.ended(&error)),
        }
    }

    /// Waits for the block of the oldest request without a reply; `None` if the source has no such block.
    pub(crate) fn take(&mut self) -> Result<Option<Block>> {
        match self.reply()? {
            Reply::Block(block) => Ok(Some(block)),
            Reply::End => Ok(None),
            other @ (Reply::Opened(_) | Reply::Failed(_)) => Err(self.unexpected(&other)),
        }
    }

    fn unexpected(&self, reply: &Reply) -> DataError {
        DataError::Unread { reason: format!("the process that reads {} gave a wrong answer: {reply:?}", self.files) }
    }

    fn reply(&mut self) -> Result<Reply> {
        match read_reply(&mut self.replies) {
            Ok(Reply::Failed(reason)) => Err(DataError::Unread { reason }),
            Ok(reply) => Ok(reply),
            Err(error) => Err(self.ended(&error)),
        }
    }

    /// The error of a reader that does not reply.
    fn ended(&mut self, error: &io::Error) -> DataError {
        // The reader closes its pipes before its exit status is available.
        let has_ended = error.kind() == io::ErrorKind::UnexpectedEof;
        let reason = match if has_ended { self.child.wait().map(Some) } else { self.child.try_wait() } {
            Ok(Some(status)) => format!("the process that reads {} has ended ({status})", self.files),
            Ok(None) => format!("the process that reads {} does not answer: {error}", self.files),
            Err(error) => format!("the process that reads {} is not known: {error}", self.files),
        };
        DataError::Unread { reason }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // The reader has no data to lose. The calls fail only if other code in this process has waited for all children.
        self.child.kill().and_then(|()| self.child.wait()).ok();
    }
}

/// The program that runs as a reader: this program, if it is `ferrotune`.
fn program() -> PathBuf {
    if let Some(program) = std::env::var_os("FERROTUNE_READER") {
        return program.into();
    }
    let own = Path::new(own::PROGRAM);
    let is_ferrotunes = own.read_link().is_ok_and(|path| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.trim_end_matches(" (deleted)") == "ferrotune")
    });
    if is_ferrotunes { own.into() } else { "ferrotune".into() }
}

/// Readers of one source that take turns, so that replies come in the order of the requests while several readers work.
pub(crate) struct Readers {
    files: Arc<Files>,
    /// The largest number of readers.
    count: usize,
    readers: Vec<Reader>,
    asked: u64,
    taken: u64,
}

impl Readers {
    pub(crate) fn new(files: Arc<Files>, count: usize) -> Readers {
        Readers { files, count, readers: Vec::new(), asked: 0, taken: 0 }
    }

    /// The number of requests without a block.
    pub(crate) fn waiting(&self) -> u64 {
        self.asked - self.taken
    }

    pub(crate) fn ask(&mut self, request: &Request) -> Result<()> {
        let turn = (self.asked % self.count as u64) as usize;
        if turn == self.readers.len() {
            self.readers.push(Reader::of(&self.files)?.0);
        }
        self.readers[turn].ask(request)?;
        self.asked += 1;
        Ok(())
    }

    /// The block of the oldest request without a reply.
    pub(crate) fn take(&mut self) -> Result<Option<Block>> {
        let turn = (self.taken % self.count as u64) as usize;
        self.taken += 1;
        self.readers[turn].take()
    }

    pub(crate) fn is_untouched(&self) -> bool {
        self.asked == 0
    }

    /// The error of a source that has fewer blocks, or fewer rows, than before.
    pub(crate) fn changed(&self) -> DataError {
        self.files.changed()
    }
}

/// The number of readers: the number of candle's threads, which in a trial are a share of the machine's, but at most one for each core.
pub(crate) fn cores() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    candle_core::utils::get_num_threads().clamp(1, cores)
}

/// A path as text, because requests are text.
pub(crate) fn path(path: &Path) -> Result<String> {
    let text = path.to_str().map(str::to_owned);
    text.ok_or_else(|| DataError::Unread { reason: format!("the path {} is not UTF-8", path.display()) })
}

/// Whether a file is at an address, such as in a store.
pub(crate) fn is_object(file: &Path) -> bool {
    file.to_str().is_some_and(is_remote)
}

/// An array as a tensor on the CPU.
pub(crate) fn tensor(array: &Array) -> Result<Tensor> {
    let unread = |reason: String| DataError::Unread { reason };
    let dtype = DType::from_str(&array.shape.dtype).map_err(|error| unread(error.to_string()))?;
    let tensor = Tensor::from_raw_buffer(&array.bytes, dtype, &array.shape.dims, &Device::Cpu);
    tensor.map_err(|error| unread(error.to_string()))
}
