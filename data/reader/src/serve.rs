//! The reader's process: answers requests until its standard input ends.

mod arrays;
mod csv;
mod files;
mod images;
mod parquet;
mod records;
mod table;
#[cfg(test)]
mod tests;

use crate::VERSION;
use crate::wire::{Block, Contents, Format, Reply, Request, Source};
use anyhow::{Context as _, Result, anyhow, bail};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::any::Any;
use std::io::{self, BufReader};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::ExitCode;

/// Answers the requests of the standard input on the standard output.
pub fn main() -> ExitCode {
    // The reply has the message.
    std::panic::set_hook(Box::new(|_| {}));
    if let Err(error) = open_as_many_files_as_allowed() {
        eprintln!("ferrotune reader: it opens no more files at once than usual: {error}");
    }
    let (mut requests, mut replies) = (BufReader::new(io::stdin().lock()), io::stdout().lock());
    let mut opened = None;
    loop {
        let request = match crate::read_request(&mut requests) {
            Ok(Some(request)) => request,
            Ok(None) => return ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("ferrotune reader: a request is damaged: {error}");
                return ExitCode::FAILURE;
            }
        };
        let reply = answer(&mut opened, request).unwrap_or_else(|error| Reply::Failed(format!("{error:#}")));
        match crate::write_reply(&mut replies, reply) {
            Ok(()) => {}
            // Nobody waits for it any more.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("ferrotune reader: cannot answer: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
}

/// The files of a pattern stay open.
fn open_as_many_files_as_allowed() -> rustix::io::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })
}

fn answer(opened: &mut Option<Opened>, request: Request) -> Result<Reply> {
    let what = match &request {
        Request::Open { .. } => "the source".to_owned(),
        Request::Block(number) => format!("block {number}"),
        Request::Image(path) => path.display().to_string(),
    };
    let answer = AssertUnwindSafe(|| match request {
        Request::Open { version, .. } if version != VERSION => {
            bail!("`ferrotune reader` has version {VERSION}, and the dataset has {version}; install the same one")
        }
        Request::Open { source, .. } => {
            let (source, contents) = Opened::new(source)?;
            *opened = Some(source);
            Ok(Reply::Opened(contents))
        }
        Request::Block(number) => Ok(opened_source(opened)?.block(number)?.map_or(Reply::End, Reply::Block)),
        Request::Image(path) => Ok(Reply::Block(opened_source(opened)?.image(&path)?)),
    });
    catch_unwind(answer)
        .unwrap_or_else(|payload| Err(anyhow!("the library that decodes {what} panicked: {}", text(&*payload))))
}

fn opened_source(opened: &mut Option<Opened>) -> Result<&mut Opened> {
    opened.as_mut().context("no source is open")
}

fn text(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("without a message")
}

/// An open source.
enum Opened {
    Csv(csv::Csv),
    Parquet(parquet::Parquet),
    Records(records::Records),
    Array(Option<Block>),
    Images(images::Images),
    Folder,
}

impl Opened {
    fn new(source: Source) -> Result<(Opened, Contents)> {
        Ok(match source {
            Source::Table { format: Format::Csv { delimiter }, files, groups, missing } => {
                let (csv, columns) =
                    csv::Csv::open(files::matching(&files)?, delimiter, groups, missing.map(f32::from_bits))?;
                (Opened::Csv(csv), Contents { columns, ..Contents::default() })
            }
            Source::Table { format: Format::Parquet, files, groups, missing } => {
                let (parquet, columns) =
                    parquet::Parquet::open(files::matching(&files)?, &groups, missing.map(f32::from_bits))?;
                let rows = Some(parquet.rows());
                (Opened::Parquet(parquet), Contents { columns, rows, ..Contents::default() })
            }
            Source::Records { framing, files } => {
                (Opened::Records(records::Records::open(files::matching(&files)?, framing)), Contents::default())
            }
            Source::Array { file, layout } => {
                let array = arrays::read(Path::new(&file), layout)?;
                (Opened::Array(Some(vec![array])), Contents::default())
            }
            Source::Folder { folder } => (Opened::Folder, images::list(Path::new(&folder))?),
            Source::Images { channels, height, width } => {
                (Opened::Images(images::Images::new(channels, height, width)?), Contents::default())
            }
        })
    }

    fn block(&mut self, number: u64) -> Result<Option<Block>> {
        match self {
            Opened::Csv(csv) => csv.block(number),
            Opened::Parquet(parquet) => parquet.block(number),
            Opened::Records(records) => records.block(number),
            Opened::Array(array) => Ok(array.take()),
            Opened::Images(_) | Opened::Folder => bail!("images have paths, not numbers"),
        }
    }

    fn image(&mut self, path: &Path) -> Result<Block> {
        match self {
            Opened::Images(images) => images.read(path),
            _ => bail!("{} is asked of a source that has no images", path.display()),
        }
    }
}
