//! An object of one version, which is fetched in parts.

use super::AHEAD;
use super::cache::{self, Version};
use super::place::Place;
use super::reason::{Access, changed, reason};
use anyhow::{Result, anyhow};
use bytes::Bytes;
use object_store::{Error, GetOptions, GetRange, ObjectMeta};
use std::ops::Range;
use std::time::{Duration, Instant};

/// The size of a part in bytes. Smaller parts mean many requests, and larger parts wait for one connection.
pub(super) const PART: u64 = 4 << 20;

/// The largest number of attempts for a part whose connection breaks off. The store itself repeats failed requests.
const CUTS: u32 = 5;

/// The time after which no further attempt begins.
const PATIENCE: Duration = Duration::from_secs(30);

/// An object in a store or on a web server, with its version.
pub(super) struct Object {
    place: Place,
    pub(super) version: Version,
    /// The first bytes of the object, which were fetched when it was opened. A server that sends no parts has sent all bytes.
    head: Bytes,
}

impl Object {
    /// Opens an object, with its first part. `None` if there is no such object.
    pub(super) async fn find(place: Place) -> Result<Option<Object>> {
        let known = cache::version(&place.address)
            .and_then(|version| cache::part(&place.address, &version, 0).map(|head| (version, head)));
        let if_none_match = known.as_ref().and_then(|(version, _)| version.e_tag.clone());
        let options = GetOptions { if_none_match, range: Some(GetRange::Bounded(0..PART)), ..GetOptions::default() };
        let found = match (get(&place, options).await, known) {
            (Err(Error::NotModified { .. }), Some((version, head))) => {
                return Ok(Some(Object { place, version, head }));
            }
            // The server sends no parts, or the object has no bytes and so no first part.
            (Err(error), _) if is_about_range(&error) => get(&place, GetOptions::default()).await,
            (found, _) => found,
        };
        match found {
            Err(error @ Error::NotFound { .. }) if !error.to_string().contains("NoSuchBucket") => Ok(None),
            Err(error) => Err(reason(&place, Access::Read, &error)),
            Ok((meta, head)) => {
                let version = Version::of(&meta);
                // For each part missing on disk, a server that sends no parts would send the whole object again.
                if version.e_tag.is_some() && head.len() as u64 == version.size.min(PART) {
                    cache::add(&place.address, &version, 0, &head);
                    cache::note(&place.address, &version);
                }
                Ok(Some(Object { place, version, head }))
            }
        }
    }

    /// The number of parts.
    pub(super) fn parts(&self) -> u64 {
        self.version.size.div_ceil(PART)
    }

    /// The bytes of a part.
    pub(super) async fn part(&self, number: u64) -> Result<Bytes> {
        let range = number * PART..((number + 1) * PART).min(self.version.size);
        if range.end <= self.head.len() as u64 {
            return Ok(self.head.slice(range.start as usize..range.end as usize));
        }
        let length = (range.end - range.start) as usize;
        let kept = cache::part(&self.place.address, &self.version, number);
        if let Some(bytes) = kept.filter(|bytes| bytes.len() == length) {
            return Ok(bytes);
        }
        // A weak entity tag never matches: RFC 9110, section 13.1.1.
        let if_match = self.version.e_tag.clone().filter(|tag| !tag.starts_with("W/"));
        let options = GetOptions { if_match, range: Some(GetRange::Bounded(range)), ..GetOptions::default() };
        let (meta, bytes) =
            get(&self.place, options).await.map_err(|error| reason(&self.place, Access::Read, &error))?;
        if !self.version.is_that_of(&meta) {
            return Err(changed(&self.place));
        }
        cache::add(&self.place.address, &self.version, number, &bytes);
        Ok(bytes)
    }

    /// All bytes of the object.
    pub(super) async fn bytes(&self) -> Result<Vec<u8>> {
        use futures_util::{StreamExt as _, TryStreamExt as _};
        let parts = futures_util::stream::iter(0..self.parts()).map(|number| self.part(number));
        let parts: Vec<Bytes> = parts.buffered(AHEAD as usize).try_collect().await?;
        Ok(parts.concat())
    }

    /// The numbers of the parts that contain these bytes.
    pub(super) fn parts_of(range: &Range<u64>) -> Range<u64> {
        range.start / PART..range.end.div_ceil(PART)
    }
}

fn is_about_range(error: &Error) -> bool {
    matches!(error, Error::NotSupported { .. }) || error.to_string().contains("416 Range Not Satisfiable")
}

/// The answer to a request, with all the bytes that it declares. Repeats the request if the connection breaks off.
async fn get(place: &Place, options: GetOptions) -> object_store::Result<(ObjectMeta, Bytes)> {
    let begin = Instant::now();
    for cut in 1.. {
        let answer = place.store.get_opts(&place.key, options.clone()).await?;
        let (meta, range) = (answer.meta.clone(), answer.range.clone());
        let error = match answer.bytes().await {
            Ok(bytes) if bytes.len() as u64 == range.end - range.start => return Ok((meta, bytes)),
            Ok(bytes) => {
                let source = anyhow!("{} bytes came of {}", bytes.len(), range.end - range.start);
                Error::Generic { store: "object", source: source.into() }
            }
            Err(error) => error,
        };
        if cut == CUTS || begin.elapsed() > PATIENCE {
            return Err(error);
        }
        tokio::time::sleep(Duration::from_millis(100 << cut)).await;
    }
    unreachable!("the loop ends with a return")
}
