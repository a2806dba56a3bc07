//! A cache of compiled programs, in memory and in a folder for later processes, so that each program is compiled once.

use crate::budget::Budget;
use crate::places;
use crate::program::Program;
use crate::recent::Recent;
use crate::stablehlo;
use crate::work::Executable;
use candle_core::{Error, Result};
use ferrotune_devices::pjrt::{Code, CompileOptions, Override, PjrtError};
use ferrotune_devices::runtime::{Client, LoadedExecutable};
use ferrotune_machine::processor::Processor;
use ferrotune_profile::{self as profile, Part};
use sha2::{Digest as _, Sha256};
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// The greatest number of executables in a folder, and of their bytes; those that were used longest ago are removed first.
const MOST_KEPT: usize = 256;
const MOST_BYTES: u64 = 1 << 30;

/// The extensions of the files of kept executables, and of files that are being written.
const EXTENSION: &str = "executable";
const PARTIAL: &str = "partial";

/// The age from which on a partly written file counts as left behind by a process that was killed.
const ABANDONED: Duration = Duration::from_secs(3600);

/// A program of at most so many floating-point operations in products is small for NVIDIA's compiler, and one of at most so many is tiny.
/// With the same settings in `XLA_FLAGS`, on one H100, a step of an MLP with 32 GFLOP compiled in 1.8 s instead of 4.4 s without Triton's
/// products, and was as fast; without measurements as well, it compiled in 1.3 s, and was slower by a fifth. The time of a tiny program is
/// that of its launches.
const SMALL_FLOPS: f64 = 34e9;
const TINY_FLOPS: f64 = 1e9;

/// The length of the checksum before an executable, in bytes.
const CHECKSUM_BYTES: usize = 32;

/// A cache of the executables that a device has compiled or loaded since it was opened, as many as [`Recent`] keeps.
pub(crate) struct Executables {
    /// The folder of kept executables, and the identity of this plugin and processor; none to keep no executables.
    kept: Option<(PathBuf, String)>,
    /// The options of the compilation, with the devices.
    options: CompileOptions,
    budget: Budget,
    ready: Mutex<Recent<u64, Arc<Executable>>>,
    compilations: AtomicU64,
    /// Whether devices of several processes compute together.
    is_joint: bool,
    /// Whether the compiler is NVIDIA's, which measures variants of each product.
    measures: bool,
}

impl Executables {
    /// An empty cache of programs that are compiled with these options. The cache keeps executables in `folder`, if one is given;
    /// `plugin` is the identity of the plugin.
    pub(crate) fn new(folder: Option<&Path>, plugin: &str, options: CompileOptions, budget: Budget) -> Executables {
        let kept = folder.map(|folder| (folder.to_owned(), format!("{plugin}\n{}", processor())));
        Executables::of(kept, options, budget)
    }

    fn of(kept: Option<(PathBuf, String)>, options: CompileOptions, budget: Budget) -> Executables {
        let (ready, compilations) = (Mutex::new(Recent::new()), AtomicU64::new(0));
        Executables { kept, options, budget, ready, compilations, is_joint: false, measures: false }
    }

    /// The cache for devices of several processes, which make sure that all of them compile the same programs in the same order: a
    /// program that only some of them run would wait for the others for ever, or use data that belong to another program.
    pub(crate) fn jointly(self) -> Executables {
        Executables { is_joint: true, ..self }
    }

    /// The cache for the compiler of a platform. NVIDIA's (`cuda`) measures variants of each product: small programs are compiled without
    /// that.
    pub(crate) fn of_platform(self, platform: &str) -> Executables {
        Executables { measures: platform == "cuda", ..self }
    }

    /// An empty cache of executables for other devices of this plugin.
    pub(crate) fn on(&self, device_ids: Vec<i32>) -> Executables {
        let (kept, budget) = (self.kept.clone(), self.budget.clone());
        Executables { measures: self.measures, ..Executables::of(kept, self.options.clone().on(device_ids), budget) }
    }

    /// The options for a program with so many floating-point operations in products.
    fn options_for(&self, flops: f64) -> CompileOptions {
        let mut options = self.options.clone();
        if self.measures && flops <= SMALL_FLOPS {
            options.overrides.push(("xla_gpu_enable_triton_gemm".to_owned(), Override::Flag(false)));
        }
        if self.measures && flops <= TINY_FLOPS {
            options.overrides.push(("xla_gpu_autotune_level".to_owned(), Override::Integer(0)));
        }
        options
    }

    /// The executable of a program, compiled at most once.
    ///
    /// # Errors
    /// The errors of the plugin's compiler, and the shortage if the device has too little memory for the program.
    pub(crate) fn get(&self, client: &Client, program: &Program) -> Result<Arc<Executable>> {
        let fingerprint = program.fingerprint();
        {
            let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(executable) = ready.get(&fingerprint).cloned().filter(|executable| executable.is_loaded()) {
                return Ok(executable);
            }
            ready.remove(&fingerprint);
        }
        let executable = Arc::new(self.load_or_compile(client, program)?);
        self.budget.check(&executable)?;
        let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(ready.insert(fingerprint, executable).clone())
    }

    /// The number of programs that have been compiled, without those that were loaded.
    pub(crate) fn compilations(&self) -> u64 {
        self.compilations.load(Ordering::Relaxed)
    }

    /// A line for each program in the cache for which the CPU would have been faster, at most this many: those with the longest
    /// compilation.
    pub(crate) fn hints(&self, most: usize) -> Vec<String> {
        let ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        let mut hints: Vec<_> = ready.values().filter_map(|executable| executable.hint()).collect();
        hints.sort_by(|left, right| right.cmp(left));
        hints.into_iter().take(most).map(|(_, hint)| hint).collect()
    }

    fn load_or_compile(&self, client: &Client, program: &Program) -> Result<Executable> {
        let _compiling = profile::span(Part::Compile);
        let text = stablehlo::text(program);
        let options = self.options_for(program.products_flops());
        self.agree(client, &text)?;
        // A text is the place of a folder, which changes no program.
        let is_text = |value: &Override| matches!(value, Override::Text(_));
        let overrides: Vec<_> = options.overrides.iter().filter(|(_, value)| !is_text(value)).collect();
        let name = |plugin: &str| format!("{plugin}\n{:?} {overrides:?}", self.options.device_ids);
        let path = self.kept.as_ref().map(|(folder, plugin)| path(folder, &name(plugin), &text));
        if let Some(executable) = path.as_deref().and_then(|path| load(client, path)) {
            return Ok(Executable::new(executable, program, None));
        }
        let begun = Instant::now();
        let compile = |options: &CompileOptions| client.compile(text.as_bytes(), options);
        let executable = match compile(&options) {
            // A compiler of another version may not know the settings for small programs.
            Err(PjrtError::Refused { code: Code::INVALID_ARGUMENT, .. }) if options != self.options => {
                compile(&self.options)
            }
            compiled => compiled,
        };
        let executable = executable.map_err(Error::wrap)?;
        let compilation = begun.elapsed();
        self.compilations.fetch_add(1, Ordering::Relaxed);
        places::count_program();
        if let Some(path) = path {
            // If a plugin cannot write its executables, or the disk is full, the next process compiles the program again.
            let _ = executable.serialize().map_err(io::Error::other).and_then(|bytes| keep(&path, &bytes));
        }
        Ok(Executable::new(executable, program, Some(compilation)))
    }

    /// Makes sure that the other processes, if there are any, compile the same program now.
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

/// Loads the executable from a file, if the file exists, is whole, and the plugin accepts it. Otherwise the program is compiled.
fn load(client: &Client, path: &Path) -> Option<LoadedExecutable> {
    let bytes = fs::read(path).ok()?;
    let executable = client.load(checked(&bytes)?).ok()?;
    // The time of the last use decides which executables are kept.
    let _ = fs::File::open(path).and_then(|file| file.set_modified(SystemTime::now()));
    Some(executable)
}

/// The executable after its checksum, if they agree: a plugin may abort the process for a file that a machine's crash has damaged.
fn checked(bytes: &[u8]) -> Option<&[u8]> {
    let (checksum, executable) = bytes.split_at_checked(CHECKSUM_BYTES)?;
    (checksum == Sha256::digest(executable).as_slice()).then_some(executable)
}

/// Writes an executable under another name first, so that no process loads a partly written file.
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

/// Removes the executables that were used longest ago, beyond the limits, and files that were left half written.
fn trim(folder: &Path) -> io::Result<()> {
    let mut kept = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if !has_hash(&path) {
            continue; // this crate has not written the file
        }
        let has = |extension: &str| path.extension().is_some_and(|own| own == extension);
        // Another process may have removed the file in the meantime.
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

/// Whether a file has a name in the form that [`path`] or [`keep`] gives.
fn has_hash(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let hash = name.split_once('.').map_or(name, |(hash, _)| hash);
    hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The result of removing a file, without the error that another process has removed it first.
fn removed(outcome: io::Result<()>) -> io::Result<()> {
    match outcome {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        outcome => outcome,
    }
}

/// The features of this processor, on which the code of an executable depends: machines with other processors may share the folder.
fn processor() -> String {
    Processor::of(&ferrotune_machine::file).features
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::Checks;
    use crate::graph::{Node, Op};
    use crate::mesh::Cores;
    use crate::plugin;
    use crate::program::Numbers;
    use ferrotune_devices::pjrt::{Element, Plugin};

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
    fn small_programs_are_compiled_without_measurements() -> Result<()> {
        let (left, right) = (node(&[64, 100]), node(&[100, 32]));
        let product = Node::new(Op::Dot { batches: 0 }, vec![left, right], &[64, 32], Element::F32);
        let program = Program::new(&[product], &[], &[], &Cores::Replicas(1), Checks::LeftOut, Numbers::Shared);
        assert_eq!(program.products_flops(), 2. * 64. * 100. * 32.);

        let executables = |platform: &str| {
            Executables::of(None, CompileOptions::default(), Budget::new(platform, None)).of_platform(platform)
        };
        let names = |platform: &str, flops: f64| -> Vec<String> {
            executables(platform).options_for(flops).overrides.into_iter().map(|(name, _)| name).collect()
        };
        let [triton, level] = ["xla_gpu_enable_triton_gemm", "xla_gpu_autotune_level"];
        assert_eq!(names("cuda", 0.), [triton, level]);
        assert_eq!(names("cuda", TINY_FLOPS + 1.), [triton]);
        assert!(names("cuda", SMALL_FLOPS + 1.).is_empty() && names("rocm", 0.).is_empty());

        // XLA's compilers share their settings, so XLA:CPU knows the names, too.
        let client = Plugin::load(&plugin::path()?).and_then(|plugin| plugin.client(&[])).map_err(Error::wrap)?;
        let client = Client::from(client);
        let compile = |options: &CompileOptions| client.compile(stablehlo::text(&program).as_bytes(), options);
        let mut options = executables("cuda").options_for(0.);
        compile(&options).map_err(Error::wrap)?;
        options.overrides.push(("xla_gpu_of_no_version".to_owned(), Override::Flag(true)));
        assert!(matches!(compile(&options), Err(PjrtError::Refused { code: Code::INVALID_ARGUMENT, .. })));
        Ok(())
    }

    fn node(dims: &[usize]) -> Arc<Node> {
        Node::new(Op::Described, Vec::new(), dims, Element::F32)
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
