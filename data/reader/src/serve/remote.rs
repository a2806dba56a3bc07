//! Objects of stores and files of web servers, read by the crate `object_store`: fetched in parts, several at once, and cached on
//! disk. All parts are of one version of the object; another version is an error.

mod cache;
mod object;
mod place;
mod reason;
mod upload;

use super::hidden::is_left_out;
use anyhow::{Context as _, Result, bail};
use bytes::{Bytes, BytesMut};
pub(crate) use cache::{is_own as is_kept, keep};
use futures_util::TryStreamExt as _;
use glob::{MatchOptions, Pattern};
use object::{Object, PART};
use object_store::path::Path as Key;
use parquet::file::reader::{ChunkReader, Length};
use place::Place;
use reason::Access;
use std::collections::VecDeque;
use std::io::{self, Read};
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
pub(super) use upload::{piece, put};

/// The number of parts that are fetched in advance.
const AHEAD: u64 = 6;

/// The number of parts of an object that stay in memory.
const PRESENT: usize = 16;

/// The threads that fetch while the process decodes.
fn runtime() -> Result<&'static Runtime> {
    static RUNTIME: OnceLock<io::Result<Runtime>> = OnceLock::new();
    let start = || Builder::new_multi_thread().worker_threads(2).thread_name("objects").enable_all().build();
    RUNTIME.get_or_init(start).as_ref().map_err(|error| anyhow::anyhow!("cannot start threads: {error}"))
}

/// The name of an object for messages.
pub(super) fn name(address: &str) -> &str {
    let is_web = address.starts_with("http://") || address.starts_with("https://");
    if is_web { address.split(['?', '#']).next().unwrap_or(address) } else { address }
}

/// Whether the object exists.
pub(super) fn exists(address: &str) -> Result<bool> {
    let place = Place::of(address)?;
    Ok(runtime()?.block_on(Object::find(place))?.is_some())
}

/// The addresses of the objects that match a pattern, sorted.
pub(super) fn matching(pattern: &str) -> Result<Vec<String>> {
    let Some(special) = name(pattern).find(['*', '?', '[']) else { return Ok(vec![pattern.to_owned()]) };
    if pattern.starts_with("http") {
        bail!("`{pattern}` is no address: a web server has no list of its files; name each of them");
    }
    let folder = pattern[..special].rfind('/').unwrap_or_default();
    let within = Place::of(&pattern[..folder])?;
    let key = pattern.splitn(4, '/').nth(3).unwrap_or_default();
    let glob = Pattern::new(key).with_context(|| format!("`{pattern}` is no pattern for objects"))?;
    let options = MatchOptions { require_literal_separator: true, ..MatchOptions::new() };
    let mut found = keys(&within)?;
    found.retain(|found| glob.matches_with(found.as_ref(), options) && !is_left_out(found.as_ref(), key));
    if found.is_empty() {
        bail!("there is no object `{pattern}`")
    }
    Ok(found.iter().map(|key| within.sibling(key)).collect())
}

/// The addresses of all objects in a folder, each with its path within the folder.
pub(super) fn within(folder: &str) -> Result<Vec<(String, String)>> {
    if folder.starts_with("http") {
        bail!(
            "{folder} is on a web server, which has no list of its files; download the folder, or put it into a store"
        );
    }
    let place = Place::of(folder.trim_end_matches('/'))?;
    let begin = place.key.as_ref().len();
    let relative = |key: &Key| key.as_ref()[begin..].trim_start_matches('/').to_owned();
    Ok(keys(&place)?.iter().map(|key| (place.sibling(key), relative(key))).collect())
}

fn keys(place: &Place) -> Result<Vec<Key>> {
    let listed = place.store.list(Some(&place.key)).map_ok(|object| object.location);
    let mut keys: Vec<Key> =
        runtime()?.block_on(listed.try_collect()).map_err(|error| reason::reason(place, Access::Read, &error))?;
    keys.sort();
    Ok(keys)
}

/// All bytes of an object, while other threads fetch them.
pub(super) struct Coming(Result<JoinHandle<Result<Vec<u8>>>>);

impl Coming {
    pub(super) fn begin(address: &str) -> Coming {
        let begin = || {
            let place = Place::of(address)?;
            Ok(runtime()?.spawn(async move { find(place).await?.bytes().await }))
        };
        Coming(begin())
    }

    /// Waits for all bytes.
    pub(super) fn bytes(self) -> Result<Vec<u8>> {
        runtime()?.block_on(self.0?)?
    }
}

async fn find(place: Place) -> Result<Object> {
    let absent = reason::absent(&place);
    Object::find(place).await?.ok_or(absent)
}

/// An object with some of its parts in memory.
#[derive(Clone)]
pub(super) struct Remote {
    object: Arc<Object>,
    parts: Arc<Mutex<Parts>>,
}

impl Remote {
    pub(super) fn open(address: &str) -> Result<Remote> {
        let place = Place::of(address)?;
        let absent = reason::absent(&place);
        Remote::find(address)?.ok_or(absent)
    }

    /// Opens the object at an address. `None` if it does not exist.
    pub(super) fn find(address: &str) -> Result<Option<Remote>> {
        let object = runtime()?.block_on(Object::find(Place::of(address)?))?;
        Ok(object.map(|object| Remote { object: Arc::new(object), parts: Arc::default() }))
    }

    /// A reader of the object from its beginning to its end.
    pub(super) fn reader(&self) -> impl Read + use<> {
        Sequential { remote: self.clone(), next: 0, ahead: AHEAD }
    }

    /// The bytes of a range. Fetches the range's parts and `ahead` more at once.
    fn bytes(&self, range: Range<u64>, ahead: u64) -> Result<Bytes> {
        let numbers = Object::parts_of(&range);
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let asked = |number: u64| number..number + 1 + ahead.max(AHEAD.min(numbers.end - number - 1));
        let mut bytes = BytesMut::new();
        for number in numbers.clone() {
            let part = parts.take(&self.object, number, asked(number))?;
            let begin = number * PART;
            let from = (range.start.max(begin) - begin) as usize;
            let to = (range.end - begin).min(part.len() as u64) as usize;
            if numbers.end - numbers.start == 1 {
                return Ok(part.slice(from..to));
            }
            bytes.extend_from_slice(&part[from..to]);
        }
        Ok(bytes.freeze())
    }
}

/// Parts of an object: those in memory that were used last, and those that are being fetched, each with the latest at the end.
#[derive(Default)]
struct Parts {
    present: VecDeque<(u64, Bytes)>,
    coming: VecDeque<(u64, JoinHandle<Result<Bytes>>)>,
}

impl Parts {
    /// Starts to fetch the parts `asked`, and returns the part `number`.
    fn take(&mut self, object: &Arc<Object>, number: u64, asked: Range<u64>) -> Result<Bytes> {
        for number in asked.start..asked.end.min(object.parts()) {
            let is_here = self.present.iter().any(|(present, _)| *present == number);
            if !is_here && !self.coming.iter().any(|(coming, _)| *coming == number) {
                let object = Arc::clone(object);
                self.coming.push_back((number, runtime()?.spawn(async move { object.part(number).await })));
            }
        }
        let coming = self.coming.iter().position(|(coming, _)| *coming == number);
        let part = match coming.and_then(|at| self.coming.remove(at)) {
            Some((_, part)) => runtime()?.block_on(part)??,
            None => {
                let at = self.present.iter().position(|(present, _)| *present == number);
                let part = at.and_then(|at| self.present.remove(at));
                part.with_context(|| format!("an object has no part {number}"))?.1
            }
        };
        self.present.push_back((number, part.clone()));
        if self.present.len() > PRESENT {
            self.present.pop_front();
        }
        // Parts that nobody has read are given up, the oldest first.
        let unneeded = self.coming.len().saturating_sub(PRESENT);
        self.coming.drain(..unneeded).for_each(|(_, part)| part.abort());
        Ok(part)
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        self.coming.iter().for_each(|(_, part)| part.abort());
    }
}

/// A reader of an object's bytes in order.
struct Sequential {
    remote: Remote,
    next: u64,
    ahead: u64,
}

impl Read for Sequential {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let end = (self.next + bytes.len() as u64).min(self.remote.len());
        // A read stays within one part, so that its bytes are copied only once.
        let end = end.min((self.next / PART + 1) * PART);
        if end <= self.next {
            return Ok(0);
        }
        let read = self.remote.bytes(self.next..end, self.ahead).map_err(io::Error::other)?;
        bytes[..read.len()].copy_from_slice(&read);
        self.next = end;
        Ok(read.len())
    }
}

impl Length for Remote {
    fn len(&self) -> u64 {
        self.object.version.size
    }
}

impl ChunkReader for Remote {
    type T = Box<dyn Read>;

    fn get_read(&self, start: u64) -> parquet::errors::Result<Box<dyn Read>> {
        // The reader of a column needs little in advance, because a column ends soon.
        Ok(Box::new(Sequential { remote: self.clone(), next: start, ahead: 1 }))
    }

    fn get_bytes(&self, start: u64, length: usize) -> parquet::errors::Result<Bytes> {
        let end = start + length as u64;
        if end > self.len() {
            return Err(parquet::errors::ParquetError::EOF(format!("it has {} bytes, not {end}", self.len())));
        }
        self.bytes(start..end, 0).map_err(|error| parquet::errors::ParquetError::External(error.into()))
    }
}
