//! A machine as detection reads it: a folder, an environment and possibly a metadata server.

use crate::finding::Finding;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The address of Google's metadata server. It is not looked up by name, because outside Google Cloud the look-up may take any time.
const METADATA_ADDRESS: &str = "169.254.169.254";

/// A machine that detection examines.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The folder that contains `sys`, `proc` and `dev`; absolute paths in the environment are also resolved below this folder.
    pub root: PathBuf,
    /// The environment variables. An empty value counts as absent.
    pub environment: BTreeMap<String, String>,
    /// The metadata server, which is asked only if a detail of the machine suggests Google Cloud.
    pub metadata: Metadata,
}

/// Whether the metadata server may be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Metadata {
    /// The metadata server is never asked.
    Skip,
    /// The IP address of the metadata server, with `:port` if the port is not 80.
    Host(String),
}

impl Machine {
    /// The machine that this process runs on.
    pub fn this() -> Machine {
        let text = |value: std::ffi::OsString| value.to_string_lossy().into_owned();
        let environment: BTreeMap<String, String> =
            std::env::vars_os().map(|(name, value)| (text(name), text(value))).collect();
        let host = environment.get("GCE_METADATA_HOST").filter(|host| !host.is_empty());
        let metadata = Metadata::Host(host.map_or(METADATA_ADDRESS, String::as_str).to_owned());
        Machine { root: PathBuf::from("/"), environment, metadata }
    }

    /// The value of a variable that is not empty.
    pub(crate) fn variable(&self, name: &str) -> Option<&str> {
        self.environment.get(name).map(|value| value.trim()).filter(|value| !value.is_empty())
    }

    pub(crate) fn is_empty_variable(&self, name: &str) -> bool {
        self.environment.get(name).is_some_and(|value| value.trim().is_empty())
    }
}

/// A reader of files below the machine's root. A file that exists and cannot be read becomes a finding.
pub(crate) struct Tree<'a> {
    root: &'a Path,
    problems: RefCell<Vec<Finding>>,
}

impl<'a> Tree<'a> {
    pub(crate) fn new(root: &'a Path) -> Tree<'a> {
        Tree { root, problems: RefCell::new(Vec::new()) }
    }

    pub(crate) fn into_problems(self) -> Vec<Finding> {
        self.problems.into_inner()
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// A small file's text, by its absolute path: the reader of files that `ferrotune_machine` expects.
    pub(crate) fn file(&self, path: &Path) -> Option<String> {
        self.text(&path.to_string_lossy())
    }

    /// A small file's text, without the white space around it.
    pub(crate) fn text(&self, path: &str) -> Option<String> {
        let bytes = self.present(path, std::fs::read(self.path(path)))?;
        Some(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// The names in a folder, sorted.
    pub(crate) fn names(&self, path: &str) -> Vec<String> {
        let Some(entries) = self.present(path, std::fs::read_dir(self.path(path))) else {
            return Vec::new();
        };
        let mut names: Vec<String> = entries
            .filter_map(|entry| self.present(path, entry))
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    /// The targets of the links in a folder; empty where this user may not read them, as for other users' processes.
    pub(crate) fn links(&self, path: &str) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.path(path)) else {
            return Vec::new();
        };
        let target = |entry: std::io::Result<std::fs::DirEntry>| std::fs::read_link(entry.ok()?.path()).ok();
        entries.filter_map(target).map(|target| target.to_string_lossy().into_owned()).collect()
    }

    /// The target of a link; none if there is no such link, or if this user may not read it.
    pub(crate) fn link(&self, path: &str) -> Option<String> {
        let target = std::fs::read_link(self.path(path)).ok()?;
        Some(target.to_string_lossy().into_owned())
    }

    pub(crate) fn is_file(&self, path: &str) -> bool {
        self.present(path, std::fs::metadata(self.path(path))).is_some_and(|metadata| metadata.is_file())
    }

    fn present<T>(&self, path: &str, result: std::io::Result<T>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => None,
            Err(error) => {
                let finding = Finding::new(path, error.to_string(), "cannot be read, so what it would tell is unknown");
                self.problems.borrow_mut().push(finding);
                None
            }
        }
    }
}

/// The number after `prefix` in names such as `accel0`.
pub(crate) fn numbered(name: &str, prefix: &str) -> Option<usize> {
    let digits = name.strip_prefix(prefix)?;
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    // Only a number with more digits than any device has fails to parse.
    digits.parse().ok()
}
