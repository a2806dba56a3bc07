//! The code that a search runs: the objective's library and the libraries that it is linked with. Each library is read
//! once, into a sealed memory file, from which the workers load it. So the bytes that were hashed are the bytes that run,
//! even if the study's folder changes later. Decides nothing about trust.

mod plugin;

use super::SupervisorError;
use super::error::read_error;
use super::trust::hexadecimal;
use crate::process::Library;
use ferrotune_journal::study_folder::{LIBRARIES, LIBRARY};
use ferrotune_machine::memory_file;
use ferrotune_space::spec::StudySpec;
use plugin::Plugin;
use sha2::{Digest as _, Sha256};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

/// The size limit of a library, in bytes. No objective or prelude is that large; a larger file is not read into memory.
const LARGEST_BYTES: u64 = 2 << 30;

/// The number of bytes in one read.
pub(super) const CHUNK_BYTES: usize = 1 << 18;

/// The libraries of a search, in memory.
#[derive(Debug)]
pub struct Code {
    pub(super) objective: Library,
    /// The libraries that the objective is linked with, in the order in which they can be loaded.
    pub(super) linked: Vec<Library>,
    /// The identity of this code: the entry point, the names and hashes of the libraries, and those of a plugin file.
    pub(super) facts: String,
    /// The hash and the length in bytes of each library, the objective's first.
    hashes: Vec<(String, u64)>,
    /// The plugin, if the study names a plugin file.
    pub(super) plugin: Option<Box<Plugin>>,
}

impl Code {
    /// Reads the code that `spec` names, for the study in this folder.
    pub(super) fn read(spec: &StudySpec, study: &Path) -> Result<Code, SupervisorError> {
        let (objective, hashed) = sealed(&spec.library, OsStr::new("objective.so")).map_err(read_error(
            "read the objective",
            &spec.library,
            study,
        ))?;
        let mut facts = format!("ferrotune code 1\nentry {:?}\nobjective {}\n", spec.symbol, hashed.0);
        let mut sources: Vec<&Path> = spec.supervision.libraries.iter().map(AsRef::as_ref).collect();
        // The prelude needs Rust's standard library, which must be loaded first. Otherwise the dynamic linker searches the
        // system for one.
        sources.sort_by_key(|source| (!is_standard(source), source.file_name()));
        let (mut linked, mut hashes) = (Vec::new(), vec![hashed]);
        for source in sources {
            let name = source.file_name().unwrap_or_default();
            let (library, hashed) = sealed(source, name).map_err(read_error("read the library", source, study))?;
            facts.push_str(&format!("linked {name:?} {}\n", hashed.0));
            linked.push(library);
            hashes.push(hashed);
        }
        // A plugin of the user's environment (`tpu`, `cuda`, `xla:cpu`) is not the study's choice; a plugin file that the study
        // names is.
        let file = spec.device.strip_prefix("xla:").filter(|plugin| *plugin != "cpu").map(Path::new);
        let read =
            |file| Plugin::read(&spec.device, file).map(Box::new).map_err(read_error("read the plugin", file, study));
        let plugin = file.map(read).transpose()?;
        if let (Some(file), Some(plugin)) = (file, &plugin) {
            facts.push_str(&format!("plugin {file:?} {}\n", plugin.copy.hash));
        }
        Ok(Code { objective, linked, facts, hashes, plugin })
    }

    /// Each library's path in a study's folder, its bytes, their hash, and their number.
    pub(super) fn files(&self) -> impl Iterator<Item = (PathBuf, &File, &str, u64)> {
        let linked = self.linked.iter().map(|library| (Path::new(LIBRARIES).join(&library.name), &library.file));
        let files = [(PathBuf::from(LIBRARY), &self.objective.file)].into_iter().chain(linked);
        files.zip(&self.hashes).map(|((path, file), (hash, bytes))| (path, file, hash.as_str(), *bytes))
    }
}

fn is_standard(library: &Path) -> bool {
    library.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"libstd-"))
}

/// Copies a file into a sealed memory file, which nobody can change. Returns it with the hash of its bytes and their
/// number.
pub(super) fn sealed(source: &Path, name: &OsStr) -> io::Result<(Library, (String, u64))> {
    let mut to = memory_file::create(name)?;
    let hashed = read(&File::open(source)?, LARGEST_BYTES, |chunk| to.write_all(chunk))?;
    memory_file::seal(&to)?;
    Ok((Library { name: name.to_owned(), file: to }, hashed))
}

/// Reads a file of at most `most_bytes` bytes in chunks, from its beginning. Returns the hash of its bytes and their
/// number.
pub(super) fn read(
    from: &File,
    most_bytes: u64,
    mut take: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<(String, u64)> {
    let (mut hasher, mut chunk, mut bytes) = (Sha256::new(), vec![0; CHUNK_BYTES], 0);
    loop {
        let length = match from.read_at(&mut chunk, bytes) {
            Ok(0) => return Ok((hexadecimal(&hasher.finalize()), bytes)),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        bytes += length as u64;
        if bytes > most_bytes {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        hasher.update(&chunk[..length]);
        take(&chunk[..length])?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrotune_space::objective::{Direction, Objective};
    use ferrotune_space::spec::Supervision;
    use std::fs;

    type TestResult = Result<(), Box<dyn std::error::Error + Send + Sync>>;

    fn spec(folder: &Path) -> StudySpec {
        let libraries = ["libferrotune.so", "libstd-1.so"].map(|name| folder.join(name)).to_vec();
        let supervision = Supervision { libraries, ..Supervision::default() };
        let (library, symbol) = (folder.join("any name"), "ferrotune_objective".to_owned());
        StudySpec { library, symbol, supervision, ..StudySpec::new("it", vec![Objective::new("loss", Direction::Min)]) }
    }

    fn write(folder: &Path) -> io::Result<()> {
        fs::write(folder.join("any name"), "objective")?;
        fs::write(folder.join("libferrotune.so"), vec![7; 3 * CHUNK_BYTES + 1])?;
        fs::write(folder.join("libstd-1.so"), "")
    }

    #[test]
    fn what_was_hashed_is_what_can_be_loaded_whatever_becomes_of_the_files() -> TestResult {
        let folder = tempfile::tempdir()?;
        write(folder.path())?;
        let code = Code::read(&spec(folder.path()), folder.path())?;
        fs::write(folder.path().join("any name"), "something else")?;
        fs::write(folder.path().join("libferrotune.so"), "something else")?;
        let path = |library: &Library| ferrotune_machine::own::path_of(&library.file);
        assert_eq!(fs::read(path(&code.objective))?, b"objective");
        assert_eq!(code.linked[0].name, "libstd-1.so", "what the other one needs comes first");
        assert_eq!(fs::read(path(&code.linked[1]))?, vec![7; 3 * CHUNK_BYTES + 1]);
        assert!(fs::write(path(&code.objective), "x").is_err());
        Ok(())
    }

    #[test]
    fn code_is_the_same_only_with_the_same_bytes_names_and_entry_point() -> TestResult {
        let folder = tempfile::tempdir()?;
        let facts = |spec: &StudySpec| Code::read(spec, folder.path()).map(|code| code.facts);
        write(folder.path())?;
        let original = spec(folder.path());
        let known = facts(&original)?;
        let mut reversed = original.clone();
        reversed.supervision.libraries.reverse();
        assert_eq!(facts(&reversed)?, known);
        let entry = StudySpec { symbol: "abort".to_owned(), ..original.clone() };
        assert_ne!(facts(&entry)?, known);
        let mut fewer = original.clone();
        fewer.supervision.libraries.pop();
        assert_ne!(facts(&fewer)?, known);
        for name in ["any name", "libferrotune.so", "libstd-1.so"] {
            fs::write(folder.path().join(name), "another")?;
            assert_ne!(facts(&original)?, known, "{name}");
            write(folder.path())?;
        }
        assert_eq!(facts(&original)?, known);
        let plugin = folder.path().join("plugin.so");
        fs::write(&plugin, "driver")?;
        let driven = StudySpec { device: format!("xla:{}", plugin.display()), ..original.clone() };
        let with_plugin = facts(&driven)?;
        assert_ne!(with_plugin, known);
        fs::write(&plugin, "another driver")?;
        assert_ne!(facts(&driven)?, with_plugin);
        assert_eq!(facts(&StudySpec { device: "xla:cpu".to_owned(), ..original })?, known);
        Ok(())
    }
}
