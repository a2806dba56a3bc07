//! `ferrotune setup`: installs a toolchain with rustup into a folder of Ferrotune's own.
//!
//! rustup runs with its home inside that folder, so that it never sees the user's toolchains and settings. The folder gets its
//! final name only when it is complete.

mod rustup;
pub(crate) mod size;

use crate::commands::{remove_old_preludes, with_progress};
use crate::environment;
use crate::folders::{self, lock};
use crate::prelude::shipped;
use crate::toolchain::{LINKER_CURE, Rule, Toolchain, own};
use anyhow::{Context, Result, bail};
use serde_json::json;
use size::Size;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// rustup's variable with the server from which toolchains are downloaded.
pub(crate) const SERVER_VARIABLE: &str = "RUSTUP_DIST_SERVER";

const SERVER: &str = "https://static.rust-lang.org";

/// The time between two checks whether the user has stopped the installation.
const PAUSE: Duration = Duration::from_millis(100);

/// The error that the user has stopped the installation.
#[derive(Debug, thiserror::Error)]
#[error(
    "the installation of Rust was stopped; nothing of it is used, and the next cell or `ferrotune setup` starts it again"
)]
pub(crate) struct Stopped;

/// Installs a toolchain of this version, unless it is there.
pub(crate) fn run(version: &str) -> Result<()> {
    let setup = Setup::of(version)?;
    let folder = folders::shortened(setup.folder());
    if own::is_complete(setup.folder()) {
        eprintln!("Rust {version} is in {folder} already");
        setup.remove_rest()?;
        remove_old_preludes();
        return Ok(());
    }
    eprintln!("{}", setup.sentence());
    with_progress(|show| setup.carry_out(&mut Follower { show, is_stopped: &|| false }))?;
    eprintln!("installed Rust {version} in {folder}");
    if version != own::VERSION {
        eprintln!("FERROTUNE_TOOLCHAIN={version} in the environment of the Jupyter server makes cells use it");
    }
    remove_old_preludes();
    Ok(())
}

/// Who follows an installation.
pub(crate) struct Follower<'a> {
    /// The function that gets a line whenever the progress changes.
    pub(crate) show: &'a mut dyn FnMut(&str),
    /// Whether the user has asked to stop the installation.
    pub(crate) is_stopped: &'a dyn Fn() -> bool,
}

impl Follower<'_> {
    fn check(&self) -> Result<()> {
        if (self.is_stopped)() { bail!(Stopped) } else { Ok(()) }
    }
}

/// The toolchain to install, and its folder.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    version: String,
    folder: PathBuf,
}

impl Setup {
    /// The toolchain of this version.
    pub(crate) fn of(version: &str) -> Result<Self> {
        // The version becomes the name of a folder.
        if version.is_empty()
            || !version.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-'))
        {
            bail!("{version:?} is no version of Rust; name one like {}", own::VERSION);
        }
        Ok(Self { version: version.to_owned(), folder: own::folder(version)? })
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// A line about what the installation will do.
    pub(crate) fn sentence(&self) -> String {
        format!(
            "installing Rust {} from {} ({} to download, {} on disk) into {}, for Ferrotune alone",
            self.version,
            server(),
            size::DOWNLOAD,
            size::DISK,
            folders::shortened(&self.folder),
        )
    }

    /// Installs the toolchain if it is not installed.
    ///
    /// Fails with [`Stopped`] if the user stops it. Whatever happens, the folder is complete or absent.
    pub(crate) fn carry_out(&self, follower: &mut Follower<'_>) -> Result<()> {
        if own::is_complete(&self.folder) {
            return Ok(());
        }
        if environment::search("cc").is_none() {
            bail!("there is no linker `cc`, which Rust needs; {LINKER_CURE}, then try again");
        }
        let parent = self.folder.parent().context("the data folder has no parent")?;
        fs::create_dir_all(parent).with_context(|| cannot_write(parent))?;
        let _lock = self.wait_for_lock(follower)?;
        if own::is_complete(&self.folder) {
            return Ok(());
        }
        folders::remove_rest(&self.folder)?;
        self.install(follower)
    }

    /// Waits until no other process installs the same toolchain.
    fn wait_for_lock(&self, follower: &mut Follower<'_>) -> Result<File> {
        let mut has_shown = false;
        loop {
            let lock = self.with_ending("lock");
            if let Some(lock) = lock::try_alone(&lock).with_context(|| cannot_write(&lock))? {
                return Ok(lock);
            }
            if !std::mem::replace(&mut has_shown, true) {
                (follower.show)(&format!("waiting for another process, which installs Rust {}", self.version));
            }
            follower.check()?;
            thread::sleep(PAUSE);
        }
    }

    fn install(&self, follower: &mut Follower<'_>) -> Result<()> {
        let building = self.building();
        let installed = self.install_into(&building, follower);
        // The rest of a failed installation is useless: rustup does not trust partial archives, and downloads them again.
        let removed = folders::remove_rest(&building);
        installed.and(removed)
    }

    /// Removes what a process left that was killed after it had moved the toolchain, unless another process is at work there.
    fn remove_rest(&self) -> Result<()> {
        // A toolchain that is there may be in a folder that this user cannot write.
        if !self.building().exists() {
            return Ok(());
        }
        let lock = self.with_ending("lock");
        match lock::try_alone(&lock).with_context(|| cannot_write(&lock))? {
            Some(_lock) => folders::remove_rest(&self.building()),
            None => Ok(()),
        }
    }

    fn install_into(&self, building: &Path, follower: &mut Follower<'_>) -> Result<()> {
        folders::begin(building)?;
        let rustup = rustup::Rustup::find(building, follower)?;
        let sysroot = rustup.install(&self.version, self.components()?, &mut Size::of(building), follower)?;
        let toolchain = Toolchain::of(&sysroot, &own::host(), Rule::Own)?;
        let version = toolchain.version().with_context(|| {
            format!(
                "the rustc of Rust {} does not run on this machine; install Rust from https://rustup.rs",
                self.version
            )
        })?;
        let ready = json!({"version": version, "from": server()});
        folders::mark(&sysroot)?;
        fs::write(sysroot.join(own::READY), format!("{ready:#}\n"))?;
        rustix::fs::sync();
        fs::rename(&sysroot, &self.folder)
            .with_context(|| format!("cannot move the toolchain to {}", self.folder.display()))
    }

    /// The components beyond rustup's minimal profile: the sources of the standard library, which the build of a prelude needs,
    /// unless a prelude for this toolchain came with this program.
    fn components(&self) -> Result<&'static [&'static str]> {
        let has_prelude = self.version == own::VERSION && shipped::find()?.is_some();
        Ok(if has_prelude { &[] } else { &["rust-src"] })
    }

    /// The folder in which the toolchain is until it is complete.
    fn building(&self) -> PathBuf {
        self.with_ending("installing")
    }

    /// The path of the toolchain's folder with another extension.
    fn with_ending(&self, ending: &str) -> PathBuf {
        let mut path = self.folder.as_os_str().to_owned();
        path.push(".");
        path.push(ending);
        PathBuf::from(path)
    }
}

fn cannot_write(path: &Path) -> String {
    format!("cannot write in {}; set XDG_DATA_HOME to a folder that can be written", path.display())
}

/// The server from which toolchains are downloaded.
fn server() -> String {
    std::env::var(SERVER_VARIABLE).ok().filter(|server| !server.is_empty()).unwrap_or_else(|| SERVER.to_owned())
}
