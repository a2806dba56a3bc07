//! Proves whether Ferrotune has made a file or folder: its name has the form of Ferrotune's names, and its content is what Ferrotune
//! writes.

use super::Kind;
use crate::toolchain::own::{self, READY};
use serde_json::Value;
use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

/// The file that Ferrotune writes first into a folder that it makes, and removes last.
pub(super) const MARK: &str = ".ferrotune";
const MARK_TEXT: &str = "Ferrotune has made this folder, and removes it.\n";

/// The beginning of the file with which cargo marks its target folder.
const TAG_OF_CARGO: &str =
    "Signature: 8a477f597d28d172789f06886806bc55\n# This file is a cache directory tag created by cargo.";

/// The proof that Ferrotune has made a file or folder.
pub(super) enum Proof {
    /// Ferrotune has made the file or the whole folder.
    Whole(Kind),
    /// Ferrotune has made the entries of the folder for which the function is true.
    Parts(Kind, fn(&Path) -> bool),
    Missing,
}

pub(super) fn of(path: &Path) -> Proof {
    let Ok(metadata) = fs::symlink_metadata(path) else { return Proof::Missing };
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let is_whole = match kind(name) {
        Some(Kind::Executables) if metadata.is_dir() => return Proof::Parts(Kind::Executables, is_executable),
        Some(Kind::Objects) if metadata.is_dir() => {
            return Proof::Parts(Kind::Objects, ferrotune_reader::is_kept_object);
        }
        Some(Kind::Trust) if metadata.is_dir() => return Proof::Parts(Kind::Trust, is_mark),
        Some(Kind::Devices) if metadata.is_dir() => return Proof::Parts(Kind::Devices, is_of_device_process),
        Some(Kind::Dependencies) if metadata.is_dir() => return Proof::Parts(Kind::Dependencies, is_build),
        Some(Kind::Prelude) => metadata.is_dir() && (ready_has(path, "externs") || is_marked(path)),
        Some(Kind::Toolchain) => metadata.is_dir() && (ready_has(path, "from") || is_marked(path)),
        Some(Kind::PreludeBuild) if name.ends_with(".target") => metadata.is_dir() && is_of_cargo(path),
        Some(Kind::PreludeBuild | Kind::ToolchainBuild) if !name.ends_with(".lock") => is_rest(path),
        Some(Kind::PreludeBuild | Kind::ToolchainBuild) => metadata.is_file() && metadata.len() == 0,
        Some(Kind::Candle) => metadata.is_dir() && path.join("candle-core/src/.made").is_file(),
        Some(Kind::History) if name.ends_with(".lock") => metadata.is_file() && metadata.len() == 0,
        Some(Kind::History) => {
            metadata.is_file() && fs::read(path).is_ok_and(|bytes| bytes.starts_with(b"{\"version\":"))
        }
        _ => false,
    };
    match kind(name).filter(|_| is_whole) {
        Some(kind) => Proof::Whole(kind),
        None => Proof::Missing,
    }
}

/// Whether a file is the socket, the lock or the log of a device process.
fn is_of_device_process(path: &Path) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str());
    let hash = path.file_stem().and_then(|name| name.to_str()?.strip_prefix("device-"));
    let is_right = fs::symlink_metadata(path).is_ok_and(|metadata| match ending {
        None => metadata.file_type().is_socket(),
        Some("lock") => metadata.is_file() && metadata.len() == 0,
        Some("log") => metadata.is_file(),
        Some(_) => false,
    });
    is_right && hash.is_some_and(is_short_hash)
}

/// Writes the mark into a folder that has just been made.
pub(crate) fn mark(folder: &Path) -> io::Result<()> {
    fs::write(folder.join(MARK), MARK_TEXT)
}

/// Whether a folder is the rest of an interrupted attempt to make or to remove a prelude or toolchain.
pub(super) fn is_rest(folder: &Path) -> bool {
    let is_folder = fs::symlink_metadata(folder).is_ok_and(|metadata| metadata.is_dir());
    is_folder && (is_marked(folder) || fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_none()))
}

/// Whether a folder has the mark, which may be cut short by a full disk.
fn is_marked(folder: &Path) -> bool {
    fs::read_to_string(folder.join(MARK)).is_ok_and(|text| MARK_TEXT.starts_with(&text))
}

/// Whether the file that makes a folder complete is Ferrotune's, that is, has a value of this name.
fn ready_has(folder: &Path, name: &str) -> bool {
    let ready = fs::read(folder.join(READY)).ok().and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
    ready.is_some_and(|ready| ready.get(name).is_some())
}

fn is_of_cargo(target: &Path) -> bool {
    fs::read_to_string(target.join("CACHEDIR.TAG")).is_ok_and(|tag| tag.starts_with(TAG_OF_CARGO))
}

/// The kind of the files and folders with names of this form; none for other names.
fn kind(name: &str) -> Option<Kind> {
    let (base, ending) = match name.rsplit_once('.') {
        Some((base, ending @ ("lock" | "target" | "building" | "starting" | "installing"))) => (base, Some(ending)),
        _ => (name, None),
    };
    let build = |whole, unfinished| Some(if ending.is_some() { unfinished } else { whole });
    match base {
        "dependencies" => Some(Kind::Dependencies),
        "xla" => Some(Kind::Executables),
        "objects" => Some(Kind::Objects),
        "history" | "history.jsonl" => Some(Kind::History),
        "trusted" => Some(Kind::Trust),
        "devices" => Some(Kind::Devices),
        _ if version_of_prelude(base).is_some() => build(Kind::Prelude, Kind::PreludeBuild),
        _ if base.strip_prefix("candle-").and_then(version_and_hash).is_some() => Some(Kind::Candle),
        _ if base.starts_with(own::PREFIX) => build(Kind::Toolchain, Kind::ToolchainBuild),
        _ => None,
    }
}

/// The version of Ferrotune in the name of a prelude's folder; none for other names.
pub(super) fn version_of_prelude(name: &str) -> Option<&str> {
    version_and_hash(name.strip_prefix("prelude-")?)
}

/// The version in `VERSION-HASH`.
fn version_and_hash(name: &str) -> Option<&str> {
    let (version, hash) = name.rsplit_once('-')?;
    (is_short_hash(hash) && version.starts_with(|first: char| first.is_ascii_digit())).then_some(version)
}

fn is_short_hash(text: &str) -> bool {
    text.len() == 16 && is_hexadecimal(text)
}

fn is_hexadecimal(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Whether a path is one of the build folders in `dependencies/`.
fn is_build(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.parse::<u8>().is_ok() && path.join("built").is_dir()
}

/// Whether a path is in `xla/`: an executable under its hash, one that is being written, or the folder for what XLA's compiler has measured.
fn is_executable(path: &Path) -> bool {
    let metadata = fs::symlink_metadata(path);
    let is_file = metadata.as_ref().is_ok_and(|metadata| metadata.is_file());
    if path.ends_with("autotuning") && metadata.is_ok_and(|metadata| metadata.is_dir()) {
        let has_files_alone = |mut entries: fs::ReadDir| {
            entries.all(|entry| entry.and_then(|entry| entry.file_type()).is_ok_and(|kind| kind.is_file()))
        };
        return fs::read_dir(path).is_ok_and(has_files_alone);
    }
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let has_ending = |ending: &str| ending == "executable" || ending.ends_with(".partial");
    is_file && name.split_once('.').is_some_and(|(hash, ending)| is_sha256(hash) && has_ending(ending))
}

/// Whether a path is a file of `trusted/`.
fn is_mark(path: &Path) -> bool {
    let is_file = fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_file());
    is_file && path.file_name().and_then(|name| name.to_str()).is_some_and(is_sha256)
}

fn is_sha256(text: &str) -> bool {
    text.len() == 64 && is_hexadecimal(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_ferrotunes_own_form_are_told_from_others() {
        let table = [
            ("prelude-0.1.0-82a036e79eb97e77", Some(Kind::Prelude)),
            ("prelude-0.1.0-82a036e79eb97e77.target", Some(Kind::PreludeBuild)),
            ("prelude-0.1.0-82a036e79eb97e77.starting", Some(Kind::PreludeBuild)),
            ("prelude-0.1.0-82a036e79eb97e77.old", None),
            ("prelude-0.1.0", None),
            ("prelude-mine-82a036e79eb97e77", None),
            ("candle-0.11.1-76e078e5e671fbb0", Some(Kind::Candle)),
            ("candle-core-0.11.1-76e078e5e671fbb0", None),
            ("toolchain-1.95.0", Some(Kind::Toolchain)),
            ("toolchain-1.95.0.installing", Some(Kind::ToolchainBuild)),
            ("history.jsonl", Some(Kind::History)),
            ("history.lock", Some(Kind::History)),
            ("notes.txt", None),
        ];
        for (name, expected) in table {
            assert_eq!(kind(name), expected, "{name}");
        }
    }

    #[test]
    fn a_name_without_its_content_is_no_proof() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["prelude-0.1.0-82a036e79eb97e77", "toolchain-1.95.0", "candle-0.11.1-76e078e5e671fbb0"] {
            let path = folder.path().join(name);
            fs::create_dir(&path).unwrap();
            assert!(matches!(of(&path), Proof::Missing), "{name}");
        }
        for name in ["toolchain-1.95.0.installing", "prelude-0.1.0-82a036e79eb97e77.building"] {
            let path = folder.path().join(name);
            fs::create_dir_all(path.join("rustup")).unwrap();
            assert!(matches!(of(&path), Proof::Missing), "{name}");
            mark(&path).unwrap();
            assert!(matches!(of(&path), Proof::Whole(Kind::ToolchainBuild | Kind::PreludeBuild)), "{name}");
        }
        for (name, is_ours) in [
            ("executable", false),
            ("notes.partial", false),
            (&format!("{:064x}.executable", 1), true),
            (&format!("{:064x}.a1b2c3.partial", 1), true),
            (&format!("{:064x}.txt", 1), false),
        ] {
            let path = folder.path().join(name);
            fs::write(&path, "").unwrap();
            assert_eq!(is_executable(&path), is_ours, "{name}");
        }
        fs::create_dir(folder.path().join("autotuning")).unwrap();
        assert!(is_executable(&folder.path().join("autotuning")));
        let lock = folder.path().join("prelude-0.1.0-82a036e79eb97e77.lock");
        fs::write(&lock, "").unwrap();
        assert!(matches!(of(&lock), Proof::Whole(Kind::PreludeBuild)));
        fs::write(&lock, "of the user").unwrap();
        assert!(matches!(of(&lock), Proof::Missing));
    }
}
