//! Compiled programs, kept so that each one is compiled once: in memory, and in a folder for later processes.

use crate::budget::Budget;
use crate::program::Program;
use crate::recent::Recent;
use crate::stablehlo;
use candle_core::{Error, Result};
use ferrotune_devices::pjrt::{Client, CompileOptions, LoadedExecutable};
use ferrotune_profile::{self as profile, Part};
use sha2::{Digest as _, Sha256};
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// The most executables that a folder keeps, and the most bytes; the ones that were used longest ago go first.
const MOST_KEPT: usize = 256;
const MOST_BYTES: u64 = 1 << 30;

/// How the names of kept executables end, and of those that are being written.
const EXTENSION: &str = "executable";
const PARTIAL: &str = "partial";

/// A file that is still being written after this time belongs to a process that was killed.
const ABANDONED: Duration = Duration::from_secs(3600);

/// The length of the checksum before an executable.
const CHECKSUM_BYTES: usize = 32;

/// The programs that a device has compiled or loaded since it was opened, as many as [`Recent`] keeps.
pub(crate) struct Executables {
    /// Where executables are kept, and what tells this plugin on this machine from others.
    kept: Option<(PathBuf, String)>,
    /// How programs are compiled, and for which devices.
    options: CompileOptions,
    budget: Budget,
    ready: Mutex<Recent<u64, Arc<LoadedExecutable>>>,
    compilations: AtomicU64,
    /// Whether the devices are those of several processes.
    is_joint: bool,
}

impl Executables {
    /// Programs that are compiled with these options. Keeps executables in `folder`, if one is given; `plugin` tells the plugin
    /// from others.
    pub(crate) fn new(folder: Option<&Path>, plugin: &str, options: CompileOptions, budget: Budget) -> Executables {
        let kept = folder.map(|folder| (folder.to_owned(), format!("{plugin}\n{}", processor())));
        Executables::of(kept, options, budget)
    }

    fn of(kept: Option<(PathBuf, String)>, options: CompileOptions, budget: Budget) -> Executables {
        let (ready, compilations) = (Mutex::new(Recent::new()), AtomicU64::new(0));
        Executables { kept, options, budget, ready, compilations, is_joint: false }
    }

    /// The same for devices of several processes, which make sure that they all compile the same programs in the same order: a
    /// program that only some of them run would wait for the others for ever, or compute with what is meant for another one.
    pub(crate) fn jointly(self) -> Executables {
        Executables { is_joint: true, ..self }
    }

    /// None yet, for other devices of the same plugin.
    pub(crate) fn on(&self, device_ids: Vec<i32>) -> Executables {
        let (kept, budget) = (self.kept.clone(), self.budget.clone());
        Executables::of(kept, self.options.clone().on(device_ids), budget)
    }

    /// The executable of a program, compiled at most once.
    ///
    /// # Errors
    /// Those of the plugin's compiler, and if the device has too little memory for the program.
    pub(crate) fn get(&self, client: &Client, program: &Program) -> Result<Arc<LoadedExecutable>> {
        let fingerprint = program.fingerprint();
        if let Some(executable) = self.ready.lock().unwrap_or_else(PoisonError::into_inner).get(&fingerprint) {
            return Ok(executable.clone());
        }
        let executable = Arc::new(self.load_or_compile(client, program)?);
        self.budget.check(&executable)?;
        let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(ready.insert(fingerprint, executable).clone())
    }

    /// How many programs have been compiled, and not loaded.
    pub(crate) fn compilations(&self) -> u64 {
        self.compilations.load(Ordering::Relaxed)
    }

    fn load_or_compile(&self, client: &Client, program: &Program) -> Result<LoadedExecutable> {
        let _compiling = profile::span(Part::Compile);
        let text = stablehlo::text(program);
        self.agree(client, &text)?;
        let name = |plugin: &str| format!("{plugin}\n{:?} {:?}", self.options.device_ids, self.options.overrides);
        let path = self.kept.as_ref().map(|(folder, plugin)| path(folder, &name(plugin), &text));
        if let Some(executable) = path.as_deref().and_then(|path| load(client, path)) {
            return Ok(executable);
        }
        let executable = client.compile(text.as_bytes(), &self.options).map_err(Error::wrap)?;
        self.compilations.fetch_add(1, Ordering::Relaxed);
        if let Some(path) = path {
            // A plugin that cannot write its executables, or a full disk, costs the next process a compilation.
            let _ = executable.executable().serialize().map_err(io::Error::other).and_then(|bytes| keep(&path, &bytes));
        }
        Ok(executable)
    }

    /// Makes sure that the other processes compile this program now, too, if there are others.
    fn agree(&self, client: &Client, text: &str) -> Result<()> {
        match client.store().filter(|_| self.is_joint) {
            None => Ok(()),
            Some(store) => {
                let mut hasher = Sha256::new_with_prefix(format!("{:?}", self.options));
                hasher.update(text);
                store.agree("program", &hasher.finalize()).map_err(Error::wrap)
            }
        }
    }
}

fn path(folder: &Path, plugin: &str, text: &str) -> PathBuf {
    let mut hasher = Sha256::new();
    hasher.update(plugin);
    hasher.update([0]);
    hasher.update(text);
    let name: String = hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    folder.join(name).with_extension(EXTENSION)
}

/// The executable in a file, if the file is there, whole, and the plugin takes it; any other one is compiled anew.
fn load(client: &Client, path: &Path) -> Option<LoadedExecutable> {
    let bytes = fs::read(path).ok()?;
    let executable = client.load(checked(&bytes)?).ok()?;
    // When it was used last decides which ones are kept.
    let _ = fs::File::open(path).and_then(|file| file.set_modified(SystemTime::now()));
    Some(executable)
}

/// The executable behind its checksum: a plugin may end the process for a file that a crash of the machine has torn.
fn checked(bytes: &[u8]) -> Option<&[u8]> {
    let (checksum, executable) = bytes.split_at_checked(CHECKSUM_BYTES)?;
    (checksum == Sha256::digest(executable).as_slice()).then_some(executable)
}

/// Writes an executable under another name first, so that no process loads half of one.
fn keep(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let Some(folder) = path.parent() else { return Ok(()) };
    fs::create_dir_all(folder)?;
    let prefix = format!("{}.", path.file_stem().unwrap_or_default().display());
    let mut partial = tempfile::Builder::new().prefix(&prefix).suffix(&format!(".{PARTIAL}")).tempfile_in(folder)?;
    partial.write_all(&Sha256::digest(bytes))?;
    partial.write_all(bytes)?;
    partial.persist(path)?;
    trim(folder)
}

/// Removes the executables that were used longest ago, beyond what is kept, and files that nobody writes any more.
fn trim(folder: &Path) -> io::Result<()> {
    let mut kept = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if !has_hash(&path) {
            continue; // this has not written it
        }
        let has = |extension: &str| path.extension().is_some_and(|own| own == extension);
        // Another process may have removed it meanwhile.
        let Ok(file) = fs::metadata(&path) else { continue };
        let used = file.modified()?;
        if has(EXTENSION) {
            kept.push((used, file.len(), path));
        } else if has(PARTIAL) && used.elapsed().is_ok_and(|age| age > ABANDONED) {
            removed(fs::remove_file(path))?;
        }
    }
    kept.sort_by(|left, right| right.cmp(left));
    let mut bytes = 0;
    for (place, (_, length, path)) in kept.into_iter().enumerate() {
        bytes += length;
        if place >= MOST_KEPT || bytes > MOST_BYTES {
            removed(fs::remove_file(path))?;
        }
    }
    Ok(())
}

/// Whether a file has a name that [`path`] or [`keep`] gives.
fn has_hash(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let hash = name.split_once('.').map_or(name, |(hash, _)| hash);
    hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Another process may have removed the file first.
fn removed(outcome: io::Result<()>) -> io::Result<()> {
    match outcome {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        outcome => outcome,
    }
}

/// What the code of a CPU's executable depends on: a folder may be shared by machines with other processors.
fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("flags") || line.starts_with("Features"));
    line.unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_executables_used_longest_ago_are_removed() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let path = |index: usize| folder.path().join(format!("{index:064x}")).with_extension(EXTENSION);
        let start = SystemTime::now() - std::time::Duration::from_secs(10_000);
        for index in 0..MOST_KEPT + 3 {
            fs::write(path(index), "")?;
            let used = start + std::time::Duration::from_secs(index as u64);
            fs::File::open(path(index))?.set_modified(used)?;
        }
        let partial = |name: &str| folder.path().join(format!("{name}.partial"));
        let [abandoned, written] = ["a", "b"].map(|end| partial(&format!("{:064x}.{end}", 0)));
        let of_the_user = partial("thesis");
        for path in [&abandoned, &written, &of_the_user] {
            fs::write(path, "half of an exe")?;
        }
        for path in [&abandoned, &of_the_user] {
            fs::File::open(path)?.set_modified(start)?;
        }
        keep(&path(MOST_KEPT + 3), b"new")?;
        let gone: Vec<usize> = (0..MOST_KEPT + 4).filter(|index| !path(*index).exists()).collect();
        assert_eq!(gone, [0, 1, 2, 3]);
        assert!(written.exists() && !abandoned.exists());
        assert!(of_the_user.exists());
        Ok(())
    }

    #[test]
    fn a_torn_file_is_no_executable() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("one").with_extension(EXTENSION);
        keep(&path, b"code")?;
        let mut bytes = fs::read(&path)?;
        assert_eq!(checked(&bytes), Some(&b"code"[..]));
        bytes.pop();
        assert_eq!((checked(&bytes), checked(b""), checked(&[0; 40])), (None, None, None));
        Ok(())
    }

    #[test]
    fn another_program_or_plugin_has_another_file() {
        let folder = Path::new("/cache");
        assert_eq!(path(folder, "cpu", "module"), path(folder, "cpu", "module"));
        assert_ne!(path(folder, "cpu", "module"), path(folder, "cpu", "other"));
        assert_ne!(path(folder, "cpu", "module"), path(folder, "tpu", "module"));
        assert_ne!(path(folder, "cpu", "module"), path(folder, "cp", "umodule"));
    }
}
