//! Processes that read files: [`Reader`] is one, and [`Readers`] are several that work ahead of who takes their blocks.

use crate::{DataError, Result};
use candle_core::{DType, Device, Tensor};
use ferrotune_reader::{Array, Block, Contents, Reply, Request, SUBCOMMAND, Source, read_reply, write_request};
use std::io::{self, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::str::FromStr as _;
use std::sync::Arc;

/// What a reader's pipe holds, if the system allows it: it works on while that much waits to be taken.
const PIPE_BYTES: usize = 1 << 20;

/// A process that has a source open. It ends when this is dropped.
pub(crate) struct Reader {
    child: Child,
    requests: ChildStdin,
    replies: BufReader<ChildStdout>,
}

impl Reader {
    /// Fails if the source cannot be opened.
    pub(crate) fn start(source: &Source) -> Result<(Reader, Contents)> {
        let mut child = Command::new(program())
            .arg0("ferrotune")
            .arg(SUBCOMMAND)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|source| DataError::NoReader { source })?;
        let (Some(requests), Some(replies)) = (child.stdin.take(), child.stdout.take()) else {
            unreachable!("both have just been piped")
        };
        // It fails for a user who has many large pipes. A smaller one works, too.
        rustix::pipe::fcntl_setpipe_size(&replies, PIPE_BYTES).ok();
        let mut reader = Reader { child, requests, replies: BufReader::new(replies) };
        reader.ask(&Request::Open(source.clone()))?;
        match reader.reply()? {
            Reply::Opened(contents) => Ok((reader, contents)),
            other => Err(DataError::Unread { reason: format!("a reader answered {other:?} in place of its contents") }),
        }
    }

    /// Sends a request, whose block comes after those of earlier requests.
    pub(crate) fn ask(&mut self, request: &Request) -> Result<()> {
        write_request(&mut self.requests, request).map_err(|error| self.ended(&error))
    }

    /// Waits for the block of the first request that has none yet; `None` if the source has no such block.
    pub(crate) fn take(&mut self) -> Result<Option<Block>> {
        match self.reply()? {
            Reply::Block(block) => Ok(Some(block)),
            _ => Ok(None),
        }
    }

    fn reply(&mut self) -> Result<Reply> {
        match read_reply(&mut self.replies) {
            Ok(Reply::Failed(reason)) => Err(DataError::Unread { reason }),
            Ok(reply) => Ok(reply),
            Err(error) => Err(self.ended(&error)),
        }
    }

    /// Why there is no answer.
    fn ended(&mut self, error: &io::Error) -> DataError {
        let reason = match self.child.try_wait() {
            Ok(Some(status)) => format!("the process that reads the files has ended ({status})"),
            Ok(None) => format!("the process that reads the files does not answer: {error}"),
            Err(error) => format!("the process that reads the files is not known: {error}"),
        };
        DataError::Unread { reason }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // It has nothing that could be lost. Both fail only if somebody in this process has waited for all children.
        self.child.kill().and_then(|()| self.child.wait()).ok();
    }
}

/// The program that is a reader: this one, if it is Ferrotune's.
fn program() -> PathBuf {
    if let Some(program) = std::env::var_os("FERROTUNE_READER") {
        return program.into();
    }
    let own = Path::new("/proc/self/exe");
    let is_ferrotunes = own.read_link().is_ok_and(|path| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.trim_end_matches(" (deleted)") == "ferrotune")
    });
    if is_ferrotunes { own.into() } else { "ferrotune".into() }
}

/// Readers of one source that take turns, so that each request is answered in its order while the others work.
pub(crate) struct Readers {
    source: Arc<Source>,
    /// How many there may be.
    count: usize,
    readers: Vec<Reader>,
    asked: u64,
    taken: u64,
}

impl Readers {
    pub(crate) fn new(source: Arc<Source>, count: usize) -> Readers {
        Readers { source, count, readers: Vec::new(), asked: 0, taken: 0 }
    }

    /// The requests without a block.
    pub(crate) fn waiting(&self) -> u64 {
        self.asked - self.taken
    }

    pub(crate) fn ask(&mut self, request: &Request) -> Result<()> {
        let turn = (self.asked % self.count as u64) as usize;
        if turn == self.readers.len() {
            self.readers.push(Reader::start(&self.source)?.0);
        }
        self.readers[turn].ask(request)?;
        self.asked += 1;
        Ok(())
    }

    /// The block of the first request that has none yet.
    pub(crate) fn take(&mut self) -> Result<Option<Block>> {
        let turn = (self.taken % self.count as u64) as usize;
        self.taken += 1;
        self.readers[turn].take()
    }
}

/// As many readers as candle has threads, of which a trial may have a part of the machine's, and at most one for each core.
pub(crate) fn cores() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    candle_core::utils::get_num_threads().clamp(1, cores)
}

/// An array as a tensor on the CPU.
pub(crate) fn tensor(array: &Array) -> Result<Tensor> {
    let unread = |reason: String| DataError::Unread { reason };
    let dtype = DType::from_str(&array.shape.dtype).map_err(|error| unread(error.to_string()))?;
    let tensor = Tensor::from_raw_buffer(&array.bytes, dtype, &array.shape.dims, &Device::Cpu);
    tensor.map_err(|error| unread(error.to_string()))
}
