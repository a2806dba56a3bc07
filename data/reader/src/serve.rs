//! The reader's process, which answers requests until its standard input ends.

mod arrays;
mod arrow;
mod columns;
mod csv;
mod files;
mod hidden;
mod images;
mod json;
mod objects;
mod parquet;
mod records;
mod remote;
mod table;

use crate::wire::{Block, Contents, Format, Reply, Request, Source};
use crate::{VERSION, is_remote};
use anyhow::{Context as _, Error, Result, anyhow, bail};
pub use objects::{get_object, put_object};
use remote::Coming;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::any::Any;
use std::io::{self, BufReader};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use table::Choice;

/// Caches the objects that [`main`] fetches from stores and web servers, in a folder of their own with at most `limit` bytes.
pub fn keep_objects(folder: PathBuf, limit: u64) {
    remote::keep(folder, limit);
}

/// Whether a file's name has the form of names in the folder of [`keep_objects`].
pub fn is_kept_object(path: &Path) -> bool {
    remote::is_kept(path)
}

/// Answers the requests of the standard input on the standard output.
pub fn main() -> ExitCode {
    // The reply has the panic's message.
    std::panic::set_hook(Box::new(|_| {}));
    if let Err(error) = open_as_many_files_as_allowed() {
        eprintln!("ferrotune reader: it opens no more files at once than usual: {error}");
    }
    let (requests, mut replies) = (requests(), io::stdout().lock());
    let mut server = Server::default();
    for request in requests {
        let (request, object) = match request {
            Ok(request) => request,
            Err(error) => {
                eprintln!("ferrotune reader: a request is damaged: {error}");
                return ExitCode::FAILURE;
            }
        };
        let reply = server.answer_with(request, object).unwrap_or_else(|error| Reply::Failed(one_line(&error)));
        match crate::write_reply(&mut replies, reply) {
            Ok(()) => {}
            // The sender of the request has ended.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("ferrotune reader: cannot answer: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

/// An error as one line, because those of some decoders have several.
fn one_line(error: &Error) -> String {
    let text = format!("{error:#}");
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.join(" ")
}

/// A request, with the object that it needs, which is fetched while earlier requests are answered.
type Asked = (Request, Option<Coming>);

/// The requests of the standard input, up to its end or to the first damaged request.
fn requests() -> Receiver<io::Result<Asked>> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let mut lines = BufReader::new(io::stdin().lock());
        while let Some(request) = crate::read_request(&mut lines).transpose() {
            let object = match &request {
                Ok(Request::Image(path)) => files::address(path).map(Coming::begin),
                _ => None,
            };
            let is_damaged = request.is_err();
            // The channel closes when the reader sends no more replies.
            if sender.send(request.map(|request| (request, object))).is_err() || is_damaged {
                return;
            }
        }
    });
    receiver
}

/// Raises the limit of open files, because the files of a pattern stay open.
fn open_as_many_files_as_allowed() -> rustix::io::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })
}

/// A server that answers requests about one source at a time.
#[derive(Default)]
pub struct Server {
    opened: Option<Opened>,
    /// The name of the open source's files in messages.
    name: String,
}

impl Server {
    /// The reply to a request.
    ///
    /// # Errors
    /// If the source, or the requested part of it, cannot be read. The error names the file.
    pub fn answer(&mut self, request: Request) -> Result<Reply> {
        self.answer_with(request, None)
    }

    fn answer_with(&mut self, request: Request, object: Option<Coming>) -> Result<Reply> {
        let what = match &request {
            Request::Open { source, .. } => {
                self.name = name(source);
                self.name.clone()
            }
            Request::Block(number) => format!("block {number} of {}", self.name),
            Request::Image(path) => files::name(path),
        };
        let answer = AssertUnwindSafe(|| match request {
            Request::Open { version, .. } if version != VERSION => {
                bail!("`ferrotune reader` has version {VERSION}, and the dataset has {version}; install the same one")
            }
            Request::Open { source, .. } => {
                let (source, contents) = Opened::new(source)?;
                self.opened = Some(source);
                Ok(Reply::Opened(contents))
            }
            Request::Block(number) => Ok(self.source()?.block(number)?.map_or(Reply::End, Reply::Block)),
            Request::Image(path) => Ok(Reply::Block(self.source()?.image(&path, object)?)),
        });
        catch_unwind(answer)
            .unwrap_or_else(|payload| Err(anyhow!("the library that decodes {what} panicked: {}", text(&*payload))))
    }

    fn source(&mut self) -> Result<&mut Opened> {
        self.opened.as_mut().context("no source is open")
    }
}

/// The name of a source's files in messages.
fn name(source: &Source) -> String {
    match source {
        Source::Table { files, .. } | Source::Columns { files, .. } | Source::Records { files, .. } => {
            files::name(Path::new(files))
        }
        Source::Array { file, .. } => files::name(Path::new(file)),
        Source::Folder { folder } => files::name(Path::new(folder)),
        Source::Images { .. } => "the images".to_owned(),
    }
}

fn text(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("without a message")
}

/// An open source.
enum Opened {
    Csv(csv::Csv),
    Parquet(parquet::Parquet),
    Arrow(arrow::Arrow),
    Records(records::Records),
    Array(Option<Block>),
    Images(images::Images),
    Folder,
}

impl Opened {
    fn new(source: Source) -> Result<(Opened, Contents)> {
        Ok(match source {
            Source::Table { format, files, groups, missing } => {
                Opened::table(format, &files, Choice::Groups(groups), missing.map(f32::from_bits))?
            }
            Source::Columns { format, files, without } => Opened::table(format, &files, Choice::AllBut(without), None)?,
            Source::Records { framing, files } => {
                (Opened::Records(records::Records::open(files::matching(&files)?, framing)?), Contents::default())
            }
            Source::Array { file, layout } => {
                let (columns, arrays) = arrays::read(&files::named(&file)?, layout)?;
                (Opened::Array(Some(arrays)), Contents { columns, ..Contents::default() })
            }
            Source::Folder { folder } if is_remote(&folder) => (Opened::Folder, images::list_objects(&folder)?),
            Source::Folder { folder } => (Opened::Folder, images::list(&files::local(&folder)?)?),
            Source::Images { channels, height, width } => {
                (Opened::Images(images::Images::new(channels, height, width)?), Contents::default())
            }
        })
    }

    fn table(format: Format, files: &str, choice: Choice, missing: Option<f32>) -> Result<(Opened, Contents)> {
        let files = files::matching(files)?;
        Ok(match format {
            Format::Csv { delimiter } => {
                let (csv, columns) = csv::Csv::open(files, delimiter, choice, missing)?;
                (Opened::Csv(csv), Contents { columns, ..Contents::default() })
            }
            Format::Parquet => {
                let (parquet, columns) = parquet::Parquet::open(files, choice, missing)?;
                let rows = Some(parquet.rows());
                (Opened::Parquet(parquet), Contents { columns, rows, ..Contents::default() })
            }
            Format::Arrow => {
                let (arrow, columns) = arrow::Arrow::open(files, choice, missing)?;
                let rows = arrow.rows()?;
                (Opened::Arrow(arrow), Contents { columns, rows, ..Contents::default() })
            }
            Format::JsonLines => {
                let (columns, block) = json::read(&files, &choice)?;
                (Opened::Array(block), Contents { columns, ..Contents::default() })
            }
        })
    }

    fn block(&mut self, number: u64) -> Result<Option<Block>> {
        match self {
            Opened::Csv(csv) => csv.block(number),
            Opened::Parquet(parquet) => parquet.block(number),
            Opened::Arrow(arrow) => arrow.block(number),
            Opened::Records(records) => records.block(number),
            Opened::Array(array) => Ok(array.take()),
            Opened::Images(_) | Opened::Folder => bail!("images have paths, not numbers"),
        }
    }

    fn image(&mut self, path: &Path, object: Option<Coming>) -> Result<Block> {
        let Opened::Images(images) = self else {
            bail!("{} is asked of a source that has no images", files::name(path));
        };
        let bytes = object.map_or_else(|| files::read(path), Coming::bytes)?;
        images.read(path, &bytes)
    }
}
