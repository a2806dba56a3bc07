//! `cargo xtask wheel` builds the package for PyPI, which contains the built program, kernelspec and prelude.
//!
//! Programs run with the C library with which they were linked, and with newer ones. zig, a C compiler on PyPI, has the symbols of
//! every version, so it can link the program and the prelude for an old version. Rust's own libraries need glibc 2.17.

mod glibc;

use crate::environment::{self, BUILD_OF_PROGRAM, Environment};
use crate::step;
use anyhow::{Context, Result, ensure};
use glibc::Glibc;
use std::env::{self, consts::ARCH};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The oldest C library on which the wheel runs: that of RHEL 8, Debian 10 and Ubuntu 18.10.
const OLDEST: Glibc = Glibc { major: 2, minor: 28 };

/// The size of the largest file that PyPI accepts.
const LARGEST_BYTES: u64 = 100_000_000;

/// The script that rustc calls as `cc`. zig would link its own unwinder into each library. A panic passes from Rust's standard library
/// through the prelude and cells, and only the unwinder that began can continue, which is the system's libgcc_s.
const LINKER: &str = r#"#!/bin/sh
case " $* " in
*" -shared "*)
    for word do
        shift
        [ "$word" != -lgcc_s ] || word='UNWINDER'
        set -- "$@" "$word"
    done ;;
esac
exec 'ZIG' zig cc -- -target TARGET "$@"
"#;

/// `python -m wheel`, with libdeflate in place of zlib: the same format in 4 % fewer bytes.
const PACK: &str = r#"
import deflate, runpy, zipfile

class Compressor:
    def __init__(self):
        self.data = bytearray()

    def compress(self, data):
        self.data += data
        return b""

    def flush(self):
        return bytes(deflate.deflate_compress(bytes(self.data), 12))

zipfile._get_compressor = lambda kind, level=None: Compressor() if kind == zipfile.ZIP_DEFLATED else None
runpy.run_module("wheel", run_name="__main__")
"#;

pub(crate) fn run(root: &Path) -> Result<()> {
    let wheel = Wheel::prepare(root)?;
    step::step("build the program", || wheel.build_program())?;
    let file = step::step("build the prelude and pack", || wheel.pack())?;
    eprintln!("wrote {}", file.display());
    Ok(())
}

/// A cargo command that uses the program of [`Wheel::build_program`]: it has the same `FERROTUNE_GLIBC`. With another value, cargo
/// compiles the program again.
pub(crate) fn cargo(root: &Path) -> Command {
    let mut cargo = environment::cargo(root);
    cargo.env("FERROTUNE_GLIBC", OLDEST.to_string());
    cargo
}

/// The folders and tools of a build.
pub(crate) struct Wheel {
    root: PathBuf,
    folder: PathBuf,
    tools: Environment,
}

impl Wheel {
    /// Installs the tools into a separate environment.
    pub(crate) fn prepare(root: &Path) -> Result<Self> {
        let tools = step::step("tools of the wheel", || Environment::prepare_wheel(root))?;
        let wheel = Self { root: root.to_owned(), folder: root.join("target/wheel"), tools };
        wheel.write_linker()?;
        Ok(wheel)
    }

    /// Writes the script `cc`, which calls zig.
    fn write_linker(&self) -> Result<()> {
        let linker = self.linker().join("cc");
        fs::create_dir_all(self.linker())?;
        let unwinder = step::output(Command::new("cc").arg("-print-file-name=libgcc_s.so.1"))?;
        ensure!(Path::new(unwinder.trim()).is_file(), "cc knows no libgcc_s.so.1; install gcc");
        let (zig, target) = (self.tools.program("cargo-zigbuild"), format!("{ARCH}-linux-gnu.{OLDEST}"));
        let script = LINKER
            .replace("UNWINDER", unwinder.trim())
            .replace("ZIG", &zig.to_string_lossy())
            .replace("TARGET", &target);
        fs::write(&linker, script).with_context(|| format!("cannot write {}", linker.display()))?;
        step::run(Command::new("chmod").arg("+x").arg(&linker))
    }

    fn linker(&self) -> PathBuf {
        self.folder.join("linker")
    }

    /// Runs a command that links with zig.
    fn run_with_linker(&self, mut command: Command) -> Result<()> {
        let path = env::var_os("PATH").unwrap_or_default();
        let path = env::join_paths(std::iter::once(self.linker()).chain(env::split_paths(&path)))?;
        step::run(command.env("PATH", path).env("CARGO_ZIGBUILD_PYTHON_PATH", self.tools.program("python")))
    }

    /// Builds `target/release/ferrotune` for the oldest C library, and keeps a copy, because other tasks build it for this machine's.
    pub(crate) fn build_program(&self) -> Result<()> {
        let mut build = cargo(&self.root);
        build.args(BUILD_OF_PROGRAM);
        self.run_with_linker(build)?;
        fs::copy(self.root.join("target/release/ferrotune"), self.program()).context("cannot copy the program")?;
        Ok(())
    }

    fn program(&self) -> PathBuf {
        self.folder.join("ferrotune")
    }

    /// Builds the prelude, and packs the wheel. Returns the wheel's path.
    pub(crate) fn pack(&self) -> Result<PathBuf> {
        let [sources, pure, files] = ["python", "pure", "files"].map(|name| self.folder.join(name));
        for folder in [&sources, &pure, &files] {
            remove(folder)?;
        }
        let mut package = self.tools.private(Command::new(self.program()));
        package.arg("package").arg(&files).env("XDG_CACHE_HOME", self.folder.join("cache"));
        self.run_with_linker(package)?;
        // setuptools writes into the folder of the sources, so it gets a copy.
        step::run(Command::new("cp").args(["--recursive"]).arg(self.root.join("python")).arg(&sources))?;
        for licence in ["LICENSE-APACHE", "LICENSE-MIT"] {
            fs::copy(self.root.join(licence), sources.join(licence))?;
        }
        let mut pip =
            self.python(&["-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir"]);
        step::run(pip.arg(&pure).arg(&sources))?;
        step::run(self.python(&["-m", "wheel", "unpack", "--dest"]).arg(&pure).arg(only_file(&pure, ".whl")?))?;
        let unpacked = only_file(&pure, "")?;
        self.add(&unpacked, &files)?;
        glibc::check(&unpacked, OLDEST)?;
        let finished = self.folder.join("dist");
        remove(&finished)?;
        fs::create_dir_all(&finished)?;
        step::run(self.python(&["-c", PACK, "pack", "--dest-dir"]).arg(&finished).arg(&unpacked))?;
        let file = only_file(&finished, ".whl")?;
        let bytes = fs::metadata(&file)?.len();
        eprintln!("{} has {:.1} MB", file.display(), bytes as f64 / 1e6);
        ensure!(bytes <= LARGEST_BYTES, "{} is too large for PyPI, which takes {LARGEST_BYTES} bytes", file.display());
        Ok(file)
    }

    fn python(&self, arguments: &[&str]) -> Command {
        let mut python = self.tools.python();
        python.args(arguments);
        python
    }

    /// Adds the program, the prelude and the kernelspec to a wheel of Python files, and marks the wheel as one for this kind of machine.
    fn add(&self, unpacked: &Path, files: &Path) -> Result<()> {
        let name = unpacked.file_name().and_then(|name| name.to_str()).context("a wheel's folder has a name")?;
        let data = unpacked.join(format!("{name}.data"));
        fs::create_dir_all(data.join("scripts"))?;
        fs::copy(self.program(), data.join("scripts/ferrotune"))?;
        fs::rename(files, data.join("data"))?;
        let description = unpacked.join(format!("{name}.dist-info/WHEEL"));
        let text = fs::read_to_string(&description)?;
        let platform = format!("manylinux_{}_{}_{ARCH}", OLDEST.major, OLDEST.minor);
        let marked = text.replace("-none-any", &format!("-none-{platform}")).replace("Purelib: true", "Purelib: false");
        ensure!(marked.contains(&platform), "{} names no platform", description.display());
        fs::write(&description, marked).context("cannot mark the wheel")
    }
}

/// Removes a folder of an earlier build.
fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", folder.display()))
        }
        _ => Ok(()),
    }
}

/// The only entry of a folder whose name has this ending; with an empty ending, the only subfolder.
fn only_file(folder: &Path, ending: &str) -> Result<PathBuf> {
    let paths = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    let is_it = |path: &&PathBuf| {
        if ending.is_empty() { path.is_dir() } else { path.to_string_lossy().ends_with(ending) }
    };
    let mut found = paths.iter().filter(is_it);
    match (found.next(), found.next()) {
        (Some(path), None) => Ok(path.clone()),
        _ => anyhow::bail!("{} should have one entry that ends with {ending:?}", folder.display()),
    }
}
