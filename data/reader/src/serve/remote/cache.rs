//! A cache of objects' parts on disk, so that the next pass, trial or session does not fetch them again. A part is used only if the
//! server confirms its version. The least recently used parts make room for others.

use anyhow::{Context as _, Result};
use bytes::Bytes;
use object_store::ObjectMeta;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

/// The age at which a partial file of a killed reader is removed.
const ABANDONED: Duration = Duration::from_hours(1);

static CACHE: OnceLock<Cache> = OnceLock::new();

/// A folder with parts of objects.
struct Cache {
    folder: PathBuf,
    limit: u64,
    /// The bytes that this process has added since it last checked the folder's size. The first addition makes a check.
    added: AtomicU64,
    /// Whether a write has failed, so that only one message is printed.
    is_broken: AtomicBool,
}

/// Sets the folder of the cache, which only this module uses, and its limit in bytes. Without this call, nothing is cached.
pub(crate) fn keep(folder: PathBuf, limit: u64) {
    let (added, is_broken) = (AtomicU64::new(u64::MAX / 2), AtomicBool::new(false));
    // There is only one call.
    CACHE.get_or_init(|| Cache { folder, limit, added, is_broken });
}

/// The data that identify the version of an object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Version {
    pub(super) size: u64,
    pub(super) e_tag: Option<String>,
    modified: i64,
}

impl Version {
    pub(super) fn of(meta: &ObjectMeta) -> Version {
        Version { size: meta.size, e_tag: meta.e_tag.clone(), modified: meta.last_modified.timestamp() }
    }

    /// Whether an object's metadata are of this version. A server without times reports the epoch or the present time.
    pub(super) fn is_that_of(&self, meta: &ObjectMeta) -> bool {
        let is_same = match &self.e_tag {
            Some(tag) => meta.e_tag.as_ref() == Some(tag),
            None => meta.e_tag.is_none() && meta.last_modified.timestamp() == self.modified,
        };
        is_same && meta.size == self.size
    }
}

/// The version of an object whose parts may be in the cache.
pub(super) fn version(address: &str) -> Option<Version> {
    let bytes = CACHE.get()?.read(&version_file(address))?;
    serde_json::from_slice(&bytes).ok()
}

/// Records the version of an object.
pub(super) fn note(address: &str, version: &Version) {
    if let (Some(cache), Ok(text)) = (CACHE.get(), serde_json::to_vec(version)) {
        cache.write(&version_file(address), &text);
    }
}

/// A part of an object, if it is in the cache and undamaged.
pub(super) fn part(address: &str, version: &Version, number: u64) -> Option<Bytes> {
    CACHE.get()?.read(&part_file(address, version, number)?).map(Bytes::from)
}

/// Adds a part of an object to the cache.
pub(super) fn add(address: &str, version: &Version, number: u64, bytes: &[u8]) {
    if let (Some(cache), Some(name)) = (CACHE.get(), part_file(address, version, number)) {
        cache.write(&name, bytes);
    }
}

fn version_file(address: &str) -> String {
    format!("{}.version", hash(&[address]))
}

/// The name of a part's file; `None` if the server gives the object no entity tag.
fn part_file(address: &str, version: &Version, number: u64) -> Option<String> {
    let tag = version.e_tag.as_deref()?;
    Some(format!("{}.{number}", hash(&[address, tag, &version.size.to_string()])))
}

fn hash(texts: &[&str]) -> String {
    let mut hasher = Sha256::new();
    for text in texts {
        hasher.update((text.len() as u64).to_le_bytes());
        hasher.update(text);
    }
    hasher.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

impl Cache {
    /// The bytes of a file, whose last four bytes are their checksum.
    fn read(&self, name: &str) -> Option<Vec<u8>> {
        let mut file = File::open(self.folder.join(name)).ok()?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).ok()?;
        let (content, checksum) = bytes.split_last_chunk()?;
        let is_whole = crc32c::crc32c(content) == u32::from_le_bytes(*checksum);
        bytes.truncate(bytes.len() - 4);
        // The time marks the file as recently used. In a folder that is read-only, nothing is removed, so the time is not needed.
        file.set_modified(SystemTime::now()).ok();
        is_whole.then_some(bytes)
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        if self.is_broken.load(Ordering::Relaxed) || bytes.len() as u64 > self.limit / 10 {
            return;
        }
        if let Err(error) = self.try_write(name, bytes)
            && !self.is_broken.swap(true, Ordering::Relaxed)
        {
            eprintln!("ferrotune reader: objects are fetched each time, because they cannot be kept: {error:#}");
        }
    }

    fn try_write(&self, name: &str, bytes: &[u8]) -> Result<()> {
        static TEMPORARY: AtomicU64 = AtomicU64::new(0);
        let cannot = || format!("cannot write to {}", self.folder.display());
        // Objects may be secret, so only the user may read the folder.
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder).with_context(cannot)?;
        let size = bytes.len() as u64 + 4;
        if self.added.fetch_add(size, Ordering::Relaxed).saturating_add(size) > self.limit / 20 {
            self.added.store(size, Ordering::Relaxed);
            self.make_room(size).with_context(cannot)?;
        }
        let number = TEMPORARY.fetch_add(1, Ordering::Relaxed);
        let temporary = self.folder.join(format!("{name}.{}-{number}.new", std::process::id()));
        let written =
            write_with_checksum(&temporary, bytes).and_then(|()| fs::rename(&temporary, self.folder.join(name)));
        if written.is_err() {
            fs::remove_file(&temporary).ok(); // the first error has the reason
        }
        written.with_context(cannot)
    }

    /// Removes the least recently used files until a fifth of the limit is free.
    fn make_room(&self, coming: u64) -> io::Result<()> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            // Another process may have removed the file.
            let Ok(data) = entry.metadata() else { continue };
            let used = data.modified()?;
            if !is_own(&entry.path()) || !data.is_file() {
                continue;
            }
            let is_new = entry.path().extension().is_some_and(|ending| ending == "new");
            if is_new && used.elapsed().is_ok_and(|age| age > ABANDONED) {
                remove(&entry.path())?;
            } else {
                files.push((used, data.len(), entry.path()));
            }
        }
        let mut size: u64 = files.iter().map(|(_, size, _)| *size).sum();
        if size + coming <= self.limit - self.limit / 10 {
            return Ok(());
        }
        files.sort();
        for (_, length, path) in files {
            if size + coming <= self.limit / 5 * 4 {
                break;
            }
            remove(&path)?;
            size -= length;
        }
        Ok(())
    }
}

/// Whether a name has the form of this module's files: a hash, with `version`, a part's number, or the ending of a partial file.
pub(crate) fn is_own(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    let Some((hash, ending)) = name.and_then(|name| name.split_once('.')) else { return false };
    let is_ending = ending == "version" || ending.ends_with(".new") || ending.bytes().all(|byte| byte.is_ascii_digit());
    is_ending && hash.len() == 32 && hash.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

fn write_with_checksum(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.write_all(&crc32c::crc32c(bytes).to_le_bytes())
}
