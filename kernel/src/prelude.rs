//! The prelude on disk, the library that cells are linked with: built once for a toolchain and a version of Ferrotune, and shared by
//! all kernels.
//!
//! The prelude's folder in the user's cache is whole or absent: it is built under another name and then renamed. A lock makes two
//! kernels that start together build the prelude once. A package of Ferrotune brings a prelude for the toolchain of `ferrotune
//! setup`, so nothing in a prelude depends on its own path or on that of its toolchain.

mod analysis;
mod build;
pub(crate) mod shipped;

use crate::environment::{self, STANDARD_LIBRARY_VARIABLE};
use crate::folders::{self, lock};
use crate::toolchain::Toolchain;
use anyhow::{Context, Result};
use ferrotune_candle::Changes;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Paths and texts of the prelude's sources, packed by the build script.
const SOURCES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/prelude_sources.rs"));

/// Crates that are part of every cell.
pub(crate) const CRATES: [&str; 3] = ["candle_core", "candle_nn", "ferrotune"];

/// Version of the folder's layout; a new version makes a new folder.
const LAYOUT: u8 = 3;

/// A prelude that is ready to be linked.
#[derive(Clone, Debug)]
pub(crate) struct Prelude {
    folder: PathBuf,
    contents: Contents,
}

/// The content of `ready.json`, which the build writes last.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Contents {
    /// The version and the digest that identify this prelude.
    key: String,
    /// File name of the shared standard library that the prelude is linked with.
    standard_library: String,
    /// File of each crate in [`CRATES`], inside `library/`.
    externs: BTreeMap<String, String>,
}

impl Prelude {
    /// Opens the prelude for this toolchain, and builds it first if it is missing.
    ///
    /// `progress` gets a line whenever the progress of the build changes.
    pub(crate) fn ensure(toolchain: &Toolchain, progress: &mut dyn FnMut(&str)) -> Result<Self> {
        let folder = Self::place(toolchain)?;
        if let Some(prelude) = Self::open(&folder)? {
            return Ok(prelude);
        }
        let parent = folder.parent().context("the cache folder has no parent")?;
        fs::create_dir_all(parent).with_context(|| {
            format!("cannot create {}; set XDG_CACHE_HOME to a folder that can be written", parent.display())
        })?;
        let lock = with_ending(&folder, "lock");
        let _lock = lock::alone(&lock).with_context(|| format!("cannot lock {}", lock.display()))?;
        if let Some(prelude) = Self::open(&folder)? {
            return Ok(prelude);
        }
        build::build(toolchain, &folder, progress)?;
        Self::open(&folder)?.context("the prelude was built but is not there")
    }

    /// The folder of the prelude for this toolchain, whether it exists or not: the prelude that came with this program, if it is for
    /// this toolchain, or else a prelude in the user's cache.
    pub(crate) fn place(toolchain: &Toolchain) -> Result<PathBuf> {
        let key = key(toolchain);
        match shipped::find()?.filter(|shipped| shipped.contents.key == key) {
            Some(shipped) => Ok(shipped.folder),
            None => Ok(folders::cache()?.join(format!("prelude-{key}"))),
        }
    }

    /// Opens the prelude in a folder, if it is whole.
    pub(crate) fn open(folder: &Path) -> Result<Option<Self>> {
        let ready = folder.join("ready.json");
        let text = match fs::read_to_string(&ready) {
            Ok(text) => text,
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", ready.display())),
        };
        let contents = serde_json::from_str(&text)
            .with_context(|| format!("{} is damaged; delete {}", ready.display(), folder.display()))?;
        Ok(Some(Self { folder: folder.to_owned(), contents }))
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Folder with the prelude's dylib and the metadata of its crates.
    pub(crate) fn library_folder(&self) -> PathBuf {
        self.folder.join("library")
    }

    /// Folder of the sources that rust-analyzer reads.
    pub(crate) fn analysis(&self) -> PathBuf {
        self.folder.join("analysis")
    }

    /// Path of the prelude's dylib.
    pub(crate) fn library(&self) -> PathBuf {
        self.library_folder().join("libferrotune.so")
    }

    /// The libraries that a process must load before cells can run in it, in this order: Rust's standard library and the dylib.
    pub(crate) fn libraries(&self) -> Result<[PathBuf; 2]> {
        let folder = environment::path(STANDARD_LIBRARY_VARIABLE)?;
        Ok([folder.join(&self.contents.standard_library), self.library()])
    }

    /// File name of the shared standard library that the prelude is linked with.
    pub(crate) fn standard_library(&self) -> &str {
        &self.contents.standard_library
    }

    /// Folder of the compiled first cells that kernels keep for this prelude. It is in the user's cache, since a prelude may be
    /// read-only.
    pub(crate) fn starting_cells(&self) -> Result<PathBuf> {
        let folder = folders::cache()?.join(format!("prelude-{}", self.contents.key));
        Ok(with_ending(&folder, "starting"))
    }

    /// Names and files of the crates that are part of every cell.
    pub(crate) fn externs(&self) -> impl Iterator<Item = (&str, PathBuf)> {
        self.contents.externs.iter().map(|(name, file)| (name.as_str(), self.library_folder().join(file)))
    }
}

/// The path of the prelude's folder with `.` and `ending` behind it.
fn with_ending(folder: &Path, ending: &str) -> PathBuf {
    let mut path = folder.as_os_str().to_owned();
    path.push(".");
    path.push(ending);
    PathBuf::from(path)
}

/// Identifies a prelude by its layout, its toolchain, Ferrotune's version, its sources and the changes to candle.
fn key(toolchain: &Toolchain) -> String {
    let mut hasher = Sha256::new();
    hasher.update([LAYOUT]);
    hasher.update(&toolchain.standard_library);
    for (path, text) in SOURCES {
        hasher.update((path.len() as u64).to_le_bytes());
        hasher.update(path);
        hasher.update((text.len() as u64).to_le_bytes());
        hasher.update(text);
    }
    update_with_changes(&mut hasher, &Changes::packed());
    format!("{}-{}", env!("CARGO_PKG_VERSION"), short_hash(hasher))
}

/// Adds the changes to candle to a digest.
fn update_with_changes(hasher: &mut Sha256, changes: &Changes) {
    for (name, hash) in changes.hashes() {
        hasher.update((name.len() as u64).to_le_bytes());
        hasher.update(name);
        hasher.update(hash);
    }
}

/// The first bytes of a digest, for the name of a folder.
pub(crate) fn short_hash(hasher: Sha256) -> String {
    hasher.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}
