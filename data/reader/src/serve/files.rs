//! Files by their names and patterns, decompressed if needed. A name is a path, or the address of an object.

use super::hidden::is_left_out;
use super::remote::{self, Coming, Remote};
use crate::is_remote;
use anyhow::{Context as _, Error, Result, bail};
use bytes::Bytes;
use parquet::file::reader::{ChunkReader, Length};
use std::fs::{self, File};
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use url::{Position, Url};

/// The files that match a pattern, in the order of their names.
pub(super) fn matching(pattern: &str) -> Result<Vec<PathBuf>> {
    if is_remote(pattern) {
        return Ok(remote::matching(pattern)?.into_iter().map(PathBuf::from).collect());
    }
    let pattern = local(pattern)?;
    let Some(text) = pattern.to_str() else { bail!("the path {} is not UTF-8", pattern.display()) };
    if pattern.is_file() {
        return Ok(vec![pattern]); // the name may have brackets
    }
    let found = glob::glob(text).with_context(|| format!("`{text}` is no pattern for files"))?;
    let mut files = found.collect::<std::result::Result<Vec<PathBuf>, _>>().context("a folder cannot be searched")?;
    files.retain(|path| path.is_file() && !is_left_out(&path.to_string_lossy(), text));
    if files.is_empty() { bail!("there is no file `{text}`") } else { Ok(files) }
}

/// The path of a local file, which may be given as an address that begins with `file://`.
pub(super) fn local(name: &str) -> Result<PathBuf> {
    if !name.starts_with("file://") {
        return Ok(name.into());
    }
    // `?` and `#` are parts of patterns and paths here.
    let url = Url::parse(&name.replace('?', "%3F").replace('#', "%23"));
    let path = url.ok().and_then(|url| Url::parse(&url[..Position::AfterPath]).ok()?.to_file_path().ok());
    path.with_context(|| format!("`{name}` is no address of a file here; write file:///FOLDER/FILE"))
}

/// A file by its name, or, if only that exists, the compressed file with `.gz` after the name.
pub(super) fn named(name: &str) -> Result<PathBuf> {
    let file = |name: &str| if is_remote(name) { Ok(name.into()) } else { local(name) };
    let (plain, compressed) = (file(name)?, file(&format!("{name}.gz"))?);
    Ok(if !exists(&plain)? && exists(&compressed)? { compressed } else { plain })
}

/// The address of an object, or `None` for a path.
pub(super) fn address(path: &Path) -> Option<&str> {
    path.to_str().filter(|name| is_remote(name))
}

/// The name of a file in messages.
pub(super) fn name(path: &Path) -> String {
    address(path).map_or_else(|| path.display().to_string(), |address| remote::name(address).to_owned())
}

/// Whether a file or an object exists.
pub(super) fn exists(path: &Path) -> Result<bool> {
    address(path).map_or_else(|| Ok(path.exists()), remote::exists)
}

/// The error of a read that failed. Errors of objects already name the object.
pub(super) fn unread(name: &str, error: impl Into<Error>) -> Error {
    let error = error.into();
    if format!("{error:#}").contains(name) { error } else { error.context(format!("cannot read {name}")) }
}

/// All bytes of a file, without decompression.
pub(super) fn read(path: &Path) -> Result<Vec<u8>> {
    match address(path) {
        Some(address) => Coming::begin(address).bytes(),
        None => fs::read(path).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// The bytes of a file, which are decompressed if its name ends in `.gz` or `.zst`.
pub(super) fn open(path: &Path) -> Result<Box<dyn Read>> {
    let name = name(path);
    let file: Box<dyn Read> = match Input::open(path)? {
        Input::Local(file) => Box::new(file),
        Input::Remote(remote) => Box::new(remote.reader()),
    };
    Ok(match name.rsplit_once('.').map(|(_, ending)| ending) {
        Some("gz") => Box::new(flate2::read::MultiGzDecoder::new(BufReader::new(file))),
        Some("zst") => Box::new(zstd::Decoder::new(file).with_context(|| format!("cannot decompress {name}"))?),
        _ => file,
    })
}

/// A file that can be read from any position.
pub(super) enum Input {
    Local(File),
    Remote(Remote),
}

impl Input {
    pub(super) fn open(path: &Path) -> Result<Input> {
        Ok(match address(path) {
            Some(address) => Input::Remote(Remote::open(address)?),
            None => Input::Local(File::open(path).with_context(|| format!("cannot open {}", path.display()))?),
        })
    }
}

impl Length for Input {
    fn len(&self) -> u64 {
        match self {
            Input::Local(file) => Length::len(file),
            Input::Remote(remote) => remote.len(),
        }
    }
}

impl ChunkReader for Input {
    type T = Box<dyn Read>;

    fn get_read(&self, start: u64) -> parquet::errors::Result<Box<dyn Read>> {
        match self {
            Input::Local(file) => Ok(Box::new(file.get_read(start)?)),
            Input::Remote(remote) => remote.get_read(start),
        }
    }

    fn get_bytes(&self, start: u64, length: usize) -> parquet::errors::Result<Bytes> {
        match self {
            Input::Local(file) => file.get_bytes(start, length),
            Input::Remote(remote) => remote.get_bytes(start, length),
        }
    }
}
