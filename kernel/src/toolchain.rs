//! The Rust toolchain that compiles cells: rustc and cargo themselves rather than rustup's proxies, which cost 20 ms a call.

mod choice;
pub(crate) mod own;
pub(crate) mod progress;

use crate::environment;
use anyhow::{Context, Result, bail};
pub(crate) use choice::Rule;
use choice::{Candidates, Choice};
use std::cell::OnceCell;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The user's variable with the toolchain to use: a folder, a version that `ferrotune setup` has installed, or a name of rustup's.
pub(crate) const VARIABLE: &str = "FERROTUNE_TOOLCHAIN";

/// How a machine gets the linker that Rust needs.
pub(crate) const LINKER_CURE: &str = "install gcc (Debian and Ubuntu: apt-get install build-essential)";

/// A toolchain, which each kernel looks up once.
#[derive(Clone, Debug)]
pub(crate) struct Toolchain {
    /// The rule by which this toolchain was chosen.
    pub(crate) rule: Rule,
    pub(crate) rustc: PathBuf,
    pub(crate) cargo: PathBuf,
    /// The target triple of this machine.
    pub(crate) host: String,
    pub(crate) sysroot: PathBuf,
    /// Folder of the shared standard library.
    pub(crate) library_folder: PathBuf,
    /// File name of the shared standard library, with a hash that identifies the toolchain.
    pub(crate) standard_library: String,
}

impl Toolchain {
    /// The toolchain to use.
    ///
    /// Fails if `ferrotune setup` has to install a toolchain first.
    pub(crate) fn find(shipped: Option<&str>) -> Result<Self> {
        Self::look(shipped)?.with_context(|| {
            let version = own::VERSION;
            format!("cannot find rustc; `ferrotune setup` installs Rust {version} for Ferrotune alone, or install Rust from https://rustup.rs")
        })
    }

    /// The toolchain to use: the one that `FERROTUNE_TOOLCHAIN` names, or the one that `ferrotune setup` has installed, or the
    /// user's own if the shipped prelude is for this toolchain or no prelude is shipped. None if there is no such toolchain.
    ///
    /// Fails if the named toolchain cannot be used.
    pub(crate) fn look(shipped: Option<&str>) -> Result<Option<Self>> {
        let own = own::folder(own::VERSION);
        let users = OnceCell::new();
        let candidates = Candidates {
            named: std::env::var_os(VARIABLE),
            own: own.as_ref().is_ok_and(|folder| own::is_complete(folder)),
            shipped,
            users: &|wanted| {
                let users: Option<&Self> = users.get_or_init(Self::users).as_ref();
                users.is_some_and(|users| wanted.is_none_or(|wanted| users.standard_library == wanted))
            },
        };
        match candidates.choose() {
            Choice::Named(name) => {
                named(&name).with_context(|| format!("{VARIABLE}={} cannot be used", name.display())).map(Some)
            }
            Choice::Own => {
                let own = own?;
                let broken = || format!("{} does not work; delete it, then run `ferrotune setup`", own.display());
                Self::ask(&own.join("bin/rustc"), Rule::Own).with_context(broken).map(Some)
            }
            Choice::Users => Ok(users.into_inner().flatten()),
            Choice::Missing => Ok(None),
        }
    }

    /// The user's own toolchain: that of the rustc on the search path, or in `~/.cargo/bin`, which many notebook servers do not have on
    /// their search path.
    fn users() -> Option<Self> {
        let rustcs = environment::search("rustc").into_iter().chain(cargo_home().map(|home| home.join("bin/rustc")));
        rustcs.filter(|rustc| rustc.is_file()).find_map(|rustc| match Self::ask(&rustc, Rule::Users) {
            Ok(toolchain) => Some(toolchain),
            Err(error) => {
                tracing::warn!("{} is not used: {error:#}", rustc.display());
                None
            }
        })
    }

    /// The toolchain of a rustc, which may be rustup's proxy.
    fn ask(rustc: &Path, rule: Rule) -> Result<Self> {
        let mut command = Command::new(rustc);
        if rule != Rule::Users {
            environment::without_rustup(&mut command);
        }
        let output = command.args(["--print=sysroot", "--print=host-tuple"]).output();
        let output = output.with_context(|| format!("cannot run {}", rustc.display()))?;
        if !output.status.success() {
            bail!("rustc does not run: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        let text = String::from_utf8(output.stdout).context("rustc names a folder that is not UTF-8")?;
        let mut lines = text.lines();
        let (Some(sysroot), Some(host)) = (lines.next(), lines.next()) else {
            bail!("rustc did not name its sysroot and host; it must be 1.95 or newer");
        };
        Self::of(Path::new(sysroot), host, rule)
    }

    /// Whether the program is there that expands procedural macros for rust-analyzer.
    pub(crate) fn expands_macros(&self) -> bool {
        ["libexec", "lib"].iter().any(|folder| self.sysroot.join(folder).join("rust-analyzer-proc-macro-srv").is_file())
    }

    /// The toolchain in a folder.
    pub(crate) fn of(sysroot: &Path, host: &str, rule: Rule) -> Result<Self> {
        let library_folder = sysroot.join("lib/rustlib").join(host).join("lib");
        let standard_library = std::fs::read_dir(&library_folder)
            .with_context(|| format!("cannot read {}", library_folder.display()))?
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .find(|name| name.starts_with("libstd-") && name.ends_with(".so"))
            .with_context(|| format!("no libstd-*.so in {}; reinstall the toolchain", library_folder.display()))?;
        let in_sysroot = |tool: &str| Some(sysroot.join("bin").join(tool)).filter(|path| path.is_file());
        let rustc = in_sysroot("rustc").unwrap_or_else(|| "rustc".into());
        let cargo = in_sysroot("cargo").or_else(|| environment::search("cargo")).context("cannot find cargo")?;
        let sysroot = sysroot.to_owned();
        Ok(Self { rule, rustc, cargo, host: host.to_owned(), sysroot, library_folder, standard_library })
    }

    /// The version of the toolchain's rustc, as in `1.95.0`.
    pub(crate) fn version(&self) -> Option<String> {
        version_of(&self.rustc)
    }

    /// A call of cargo with this toolchain.
    pub(crate) fn cargo(&self) -> Command {
        let mut cargo = Command::new(&self.cargo);
        environment::without_rustup(cargo.env("RUSTC", &self.rustc));
        cargo
    }

    /// Folder of the standard library's sources, which rust-analyzer needs. If they are missing, rustup installs them.
    pub(crate) fn standard_library_sources(&self) -> Result<PathBuf> {
        let folder = self.sysroot.join("lib/rustlib/src/rust/library");
        if !folder.join("std/src/lib.rs").is_file() {
            if self.rule == Rule::Own {
                let folder = self.sysroot.display();
                bail!("the standard library's sources are not in {folder}; delete it, then run `ferrotune setup`");
            }
            tracing::info!("installing the standard library's sources");
            let added =
                Command::new("rustup").args(["component", "add", "rust-src", "--toolchain"]).arg(self.name()).output();
            if !added.is_ok_and(|output| output.status.success()) || !folder.join("std/src/lib.rs").is_file() {
                bail!("the standard library's sources are not installed; run `rustup component add rust-src`");
            }
        }
        Ok(folder)
    }

    /// The toolchain's name in rustup.
    fn name(&self) -> &OsStr {
        self.sysroot.file_name().unwrap_or_default()
    }
}

/// The toolchain that the user names.
fn named(name: &OsStr) -> Result<Toolchain> {
    let folder = Path::new(name);
    if folder.components().count() > 1 || folder.is_absolute() {
        let rustc = folder.join("bin/rustc");
        if !rustc.is_file() {
            bail!("there is no bin/rustc in this folder; name the folder that `rustc --print=sysroot` prints");
        }
        return Toolchain::ask(&rustc, Rule::Named);
    }
    let own = own::folder(&name.to_string_lossy())?;
    if own::is_complete(&own) {
        return Toolchain::ask(&own.join("bin/rustc"), Rule::Named);
    }
    let output = Command::new("rustup").args(["which", "rustc", "--toolchain"]).arg(name).output();
    let cure = format!("`ferrotune setup --toolchain {}` installs it", name.display());
    match output {
        Ok(output) if output.status.success() => {
            Toolchain::ask(Path::new(String::from_utf8_lossy(&output.stdout).trim()), Rule::Named)
        }
        Ok(_) => bail!("rustup has no such toolchain; {cure}"),
        Err(_) => bail!("there is no rustup that knows this toolchain; {cure}"),
    }
}

fn version_of(rustc: &Path) -> Option<String> {
    let output = Command::new(rustc).arg("-vV").output().ok().filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?;
    text.lines().find_map(|line| line.strip_prefix("release: ")).map(str::to_owned)
}

fn cargo_home() -> Option<PathBuf> {
    std::env::var_os("CARGO_HOME").map(PathBuf::from).or_else(|| Some(dirs::home_dir()?.join(".cargo")))
}
