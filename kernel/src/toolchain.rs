//! The user's Rust toolchain: the rustc and cargo themselves rather than rustup's proxies, which cost 20 ms a call.

pub(crate) mod progress;

use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A toolchain, which each kernel looks up once.
#[derive(Clone, Debug)]
pub(crate) struct Toolchain {
    pub(crate) rustc: PathBuf,
    pub(crate) cargo: PathBuf,
    /// The target triple of this machine.
    pub(crate) host: String,
    sysroot: PathBuf,
    /// Folder of the shared standard library.
    pub(crate) library_folder: PathBuf,
    /// File name of the shared standard library, with a hash that identifies the toolchain.
    pub(crate) standard_library: String,
}

impl Toolchain {
    /// Asks the `rustc` on the search path, or the one in `~/.cargo/bin`, which many notebook servers do not have on theirs.
    pub(crate) fn find() -> Result<Self> {
        let output = [Some(PathBuf::from("rustc")), cargo_home().map(|home| home.join("bin/rustc"))]
            .into_iter()
            .flatten()
            .find_map(|rustc| Command::new(rustc).args(["--print=sysroot", "--print=host-tuple"]).output().ok())
            .context(
                "cannot find rustc; install Rust from https://rustup.rs, or put it on the PATH of the Jupyter server",
            )?;
        if !output.status.success() {
            bail!("rustc does not run: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        let text = String::from_utf8(output.stdout).context("rustc names a folder that is not UTF-8")?;
        let mut lines = text.lines();
        let (Some(sysroot), Some(host)) = (lines.next(), lines.next()) else {
            bail!("rustc did not name its sysroot and host; it must be 1.95 or newer");
        };
        Self::of(Path::new(sysroot), host)
    }

    fn of(sysroot: &Path, host: &str) -> Result<Self> {
        let library_folder = sysroot.join("lib/rustlib").join(host).join("lib");
        let standard_library = std::fs::read_dir(&library_folder)
            .with_context(|| format!("cannot read {}", library_folder.display()))?
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .find(|name| name.starts_with("libstd-") && name.ends_with(".so"))
            .with_context(|| format!("no libstd-*.so in {}; reinstall the toolchain", library_folder.display()))?;
        let in_sysroot = |tool: &str| Some(sysroot.join("bin").join(tool)).filter(|path| path.is_file());
        let rustc = in_sysroot("rustc").unwrap_or_else(|| "rustc".into());
        let cargo = in_sysroot("cargo").or_else(|| search(OsStr::new("cargo"))).context("cannot find cargo")?;
        let sysroot = sysroot.to_owned();
        Ok(Self { rustc, cargo, host: host.to_owned(), sysroot, library_folder, standard_library })
    }

    /// A call of cargo with this toolchain.
    pub(crate) fn cargo(&self) -> Command {
        let mut cargo = Command::new(&self.cargo);
        cargo.env("RUSTC", &self.rustc);
        cargo
    }

    /// Folder of the standard library's sources, which rust-analyzer needs. If they are missing, rustup installs them.
    pub(crate) fn standard_library_sources(&self) -> Result<PathBuf> {
        let folder = self.sysroot.join("lib/rustlib/src/rust/library");
        if !folder.join("std/src/lib.rs").is_file() {
            tracing::info!("installing the standard library's sources");
            let added = Command::new("rustup").args(["component", "add", "rust-src"]).output();
            if !added.is_ok_and(|output| output.status.success()) || !folder.join("std/src/lib.rs").is_file() {
                bail!("the standard library's sources are not installed; run `rustup component add rust-src`");
            }
        }
        Ok(folder)
    }
}

fn cargo_home() -> Option<PathBuf> {
    std::env::var_os("CARGO_HOME").map(PathBuf::from).or_else(|| Some(dirs::home_dir()?.join(".cargo")))
}

fn search(program: &OsStr) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?).map(|folder| folder.join(program)).find(|path| path.is_file())
}
