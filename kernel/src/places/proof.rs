//! Whether a thing in Ferrotune's folders was made by Ferrotune: its name has the form that Ferrotune gives, and its content what
//! Ferrotune writes.

use super::Kind;
use crate::toolchain::own;
use std::fs;
use std::path::Path;

/// What speaks for a thing.
pub(super) enum Proof {
    /// It was made as a whole.
    Whole(Kind),
    /// What fits in it was made.
    Parts(Kind, fn(&Path) -> bool),
    Missing,
}

pub(super) fn of(path: &Path) -> Proof {
    let Ok(metadata) = fs::symlink_metadata(path) else { return Proof::Missing };
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let is_whole = match kind(name) {
        Some(Kind::Executables) if metadata.is_dir() => return Proof::Parts(Kind::Executables, is_executable),
        Some(Kind::Trust) if metadata.is_dir() => return Proof::Parts(Kind::Trust, is_mark),
        Some(Kind::Dependencies) if metadata.is_dir() => return Proof::Parts(Kind::Dependencies, is_build),
        Some(Kind::Prelude | Kind::Toolchain) => metadata.is_dir() && path.join(own::READY).is_file(),
        Some(Kind::PreludeBuild) if name.ends_with(".target") => {
            metadata.is_dir() && path.join("CACHEDIR.TAG").is_file()
        }
        Some(Kind::PreludeBuild) if name.ends_with(".building") => {
            metadata.is_dir() && only(path, &["source", "library", "analysis", "ready.json"])
        }
        Some(Kind::PreludeBuild) if name.ends_with(".starting") => metadata.is_dir() && entries(path, is_starting_cell),
        Some(Kind::ToolchainBuild) if name.ends_with(".installing") => {
            metadata.is_dir() && only(path, &["rustup", "rustup-program", "cargo"])
        }
        Some(Kind::PreludeBuild | Kind::ToolchainBuild) => metadata.is_file() && metadata.len() == 0,
        Some(Kind::Candle) => metadata.is_dir() && path.join("src/.made").is_file(),
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

/// What has a name of this form.
fn kind(name: &str) -> Option<Kind> {
    let (base, ending) = match name.rsplit_once('.') {
        Some((base, ending @ ("lock" | "target" | "building" | "starting" | "installing"))) => (base, Some(ending)),
        _ => (name, None),
    };
    let build = |whole, unfinished| Some(if ending.is_some() { unfinished } else { whole });
    match base {
        "dependencies" => Some(Kind::Dependencies),
        "xla" => Some(Kind::Executables),
        "history" | "history.jsonl" => Some(Kind::History),
        "trusted" => Some(Kind::Trust),
        _ if version_of_prelude(base).is_some() => build(Kind::Prelude, Kind::PreludeBuild),
        _ if base.strip_prefix("candle-core-").and_then(version_and_hash).is_some() => Some(Kind::Candle),
        _ if base.starts_with(own::PREFIX) => build(Kind::Toolchain, Kind::ToolchainBuild),
        _ => None,
    }
}

/// The version of Ferrotune in the name of a prelude's folder; none if that is no such name.
pub(super) fn version_of_prelude(name: &str) -> Option<&str> {
    let rest = name.strip_prefix("prelude-")?;
    version_and_hash(rest.strip_prefix("cuda-").unwrap_or(rest))
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

fn only(folder: &Path, names: &[&str]) -> bool {
    entries(folder, |path| names.iter().any(|name| path.file_name().is_some_and(|own| own == *name)))
}

/// Whether all that is in a folder is of one kind.
fn entries(folder: &Path, is_of_kind: impl Fn(&Path) -> bool) -> bool {
    fs::read_dir(folder)
        .is_ok_and(|mut entries| entries.all(|entry| entry.is_ok_and(|entry| is_of_kind(&entry.path()))))
}

/// A file of `prelude-….starting/`: what was compiled, the errors, or a file of a process that writes.
fn is_starting_cell(path: &Path) -> bool {
    let is_hash = path.file_stem().and_then(|stem| stem.to_str()).is_some_and(is_short_hash);
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    path.is_file() && is_hash && (matches!(extension, "so" | "errors") || extension.parse::<u32>().is_ok())
}

/// A folder of `dependencies/`.
fn is_build(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.parse::<u8>().is_ok() && path.join("built").is_dir()
}

/// A file of `xla/`.
fn is_executable(path: &Path) -> bool {
    let is_partial = path.extension().is_some_and(|extension| extension == "partial");
    path.is_file()
        && (is_partial || path.extension().is_some_and(|extension| extension == "executable") && has_hash(path))
}

/// A file of `trusted/`.
fn is_mark(path: &Path) -> bool {
    path.is_file() && has_hash(path)
}

fn has_hash(path: &Path) -> bool {
    path.file_stem().and_then(|stem| stem.to_str()).is_some_and(|stem| stem.len() == 64 && is_hexadecimal(stem))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_ferrotunes_own_form_are_told_from_others() {
        let table = [
            ("prelude-0.1.0-82a036e79eb97e77", Some(Kind::Prelude)),
            ("prelude-cuda-0.1.0-82a036e79eb97e77", Some(Kind::Prelude)),
            ("prelude-0.1.0-82a036e79eb97e77.target", Some(Kind::PreludeBuild)),
            ("prelude-0.1.0-82a036e79eb97e77.starting", Some(Kind::PreludeBuild)),
            ("prelude-0.1.0-82a036e79eb97e77.old", None),
            ("prelude-0.1.0", None),
            ("prelude-mine-82a036e79eb97e77", None),
            ("candle-core-0.11.1-76e078e5e671fbb0", Some(Kind::Candle)),
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
        for name in ["prelude-0.1.0-82a036e79eb97e77", "toolchain-1.95.0", "candle-core-0.11.1-76e078e5e671fbb0"] {
            let path = folder.path().join(name);
            fs::create_dir(&path).unwrap();
            assert!(matches!(of(&path), Proof::Missing), "{name}");
        }
        let lock = folder.path().join("prelude-0.1.0-82a036e79eb97e77.lock");
        fs::write(&lock, "").unwrap();
        assert!(matches!(of(&lock), Proof::Whole(Kind::PreludeBuild)));
        fs::write(&lock, "of the user").unwrap();
        assert!(matches!(of(&lock), Proof::Missing));
    }
}
