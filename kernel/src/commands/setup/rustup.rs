//! Finds or fetches rustup and runs it: the rustup on the search path, or one that is fetched for this installation alone.
//! `rustup-init` and `rustup` are one program, which acts by the name under which it is called.

use super::{Follower, PAUSE, SERVER_VARIABLE, Size, Stopped, server};
use crate::bound;
use crate::environment;
use crate::toolchain::own;
use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};
use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;

/// rustup's variable with the server from which `rustup-init` is downloaded.
const ROOT_VARIABLE: &str = "RUSTUP_UPDATE_ROOT";

const ROOT: &str = "https://static.rust-lang.org/rustup";

/// How long a server may be silent, in seconds.
const PATIENCE_S: &str = "30";

pub(super) struct Rustup {
    program: PathBuf,
    /// The folder with rustup's home and cargo's.
    folder: PathBuf,
}

impl Rustup {
    /// Finds the rustup on the search path, or else fetches one into the folder.
    pub(super) fn find(folder: &Path, follower: &mut Follower<'_>) -> Result<Self> {
        let program = match environment::search("rustup") {
            Some(program) => program,
            None => fetch(folder, follower)?,
        };
        Ok(Self { program, folder: folder.to_owned() })
    }

    /// Installs a toolchain with these components beyond rustup's minimal profile, and returns its folder.
    pub(super) fn install(
        &self,
        version: &str,
        components: &[&str],
        size: &mut Size,
        follower: &mut Follower<'_>,
    ) -> Result<PathBuf> {
        let home = self.folder.join("rustup");
        let name = format!("{version}-{}", own::host());
        let mut command = bound::command(&self.program);
        environment::without_rustup(&mut command)
            .args(["toolchain", "install", &name, "--profile=minimal", "--no-self-update"])
            .args(components.iter().map(|component| format!("--component={component}")))
            .current_dir(&self.folder) // a `rust-toolchain.toml` of the notebook's folder names another toolchain
            .env("RUSTUP_HOME", &home)
            .env("CARGO_HOME", self.folder.join("cargo"))
            .env("RUSTUP_TERM_COLOR", "never");
        let mut show = |follower: &mut Follower<'_>| {
            if let Some(line) = size.line() {
                (follower.show)(&line);
            }
        };
        let (status, messages) = run_to_its_end(&mut command, follower, &mut show)?;
        if !status.success() {
            let channel = format!("{}/dist/channel-rust-{version}.toml", server());
            let cure = format!(
                "connect this machine to the network, or name a mirror in {SERVER_VARIABLE}, then run `ferrotune setup`"
            );
            bail!("rustup cannot install Rust {version}, which {channel} describes: {}; {cure}", reason(&messages));
        }
        Ok(home.join("toolchains").join(name))
    }
}

/// Fetches rustup into the folder.
fn fetch(folder: &Path, follower: &mut Follower<'_>) -> Result<PathBuf> {
    let root = std::env::var(ROOT_VARIABLE).ok().filter(|root| !root.is_empty()).unwrap_or_else(|| ROOT.to_owned());
    let url = format!("{root}/dist/{}/rustup-init", own::host());
    let rustup = folder.join("rustup-program/rustup");
    fs::create_dir_all(rustup.parent().context("the program is in a folder")?)?;
    (follower.show)(&format!("downloading {url}"));
    let published = rustup.with_extension("sha256");
    download(&format!("{url}.sha256"), &published, follower)?;
    download(&url, &rustup, follower)?;
    let published = fs::read_to_string(&published).unwrap_or_default();
    let published = published.split_whitespace().next().unwrap_or_default();
    let found: String = Sha256::digest(fs::read(&rustup)?).iter().map(|byte| format!("{byte:02x}")).collect();
    if published != found {
        bail!(
            "{url} has the SHA-256 {found}, and {url}.sha256 says {published:?}; nothing was installed, try again later"
        );
    }
    fs::set_permissions(&rustup, Permissions::from_mode(0o755))?;
    Ok(rustup)
}

fn download(url: &str, file: &Path, follower: &mut Follower<'_>) -> Result<()> {
    let Some(mut command) = downloader(url, file) else {
        bail!(
            "there is neither rustup nor curl nor wget to fetch {url}; install one of them, or put that file on the PATH as an executable named rustup"
        );
    };
    let (status, messages) = run_to_its_end(&mut command, follower, &mut |_| {})?;
    if !status.success() {
        let cure = format!("connect this machine to the network, or name a mirror in {ROOT_VARIABLE}");
        bail!("cannot fetch {url}: {}; {cure}, then run `ferrotune setup`", reason(&messages));
    }
    Ok(())
}

/// The program that fetches a file; none if this machine has none.
fn downloader(url: &str, file: &Path) -> Option<Command> {
    if let Some(curl) = environment::search("curl") {
        let mut command = bound::command(&curl);
        command.args(["--fail", "--silent", "--show-error", "--location", "--connect-timeout", PATIENCE_S]);
        command.args(["--speed-limit", "1", "--speed-time", PATIENCE_S, "--output"]).arg(file).arg(url);
        return Some(command);
    }
    let wget = environment::search("wget")?;
    let mut command = bound::command(&wget);
    command
        .args(["--no-verbose", "--tries=2", "--timeout", PATIENCE_S, "--output-document"])
        .arg(file)
        .arg(OsStr::new(url));
    Some(command)
}

/// The reason why a program failed, in one line of its messages.
fn reason(messages: &str) -> String {
    let lines: Vec<&str> = messages.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let begins = |line: &&&str| line.starts_with("error:") || line.starts_with("curl:") || line.starts_with("wget:");
    let first = lines.iter().find(begins).or(lines.last()).copied().unwrap_or("it says nothing");
    let first = first.strip_prefix("error:").unwrap_or(first).trim().trim_end_matches(':');
    match lines.last().filter(|last| **last != first && !last.ends_with(first)) {
        Some(last) => format!("{first} ({last})"),
        None => first.to_owned(),
    }
}

/// Runs a program of [`crate::bound`] to its end, and returns how it ended and its messages. `look` is called repeatedly meanwhile.
fn run_to_its_end(
    command: &mut Command,
    follower: &mut Follower<'_>,
    look: &mut dyn FnMut(&mut Follower<'_>),
) -> Result<(ExitStatus, String)> {
    let name = command.get_args().nth(2).unwrap_or_default().to_owned();
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let mut child = child.with_context(|| format!("cannot run {}", name.display()))?;
    let mut stderr = child.stderr.take().context("stderr is piped")?;
    let messages = thread::spawn(move || {
        let mut bytes = Vec::new();
        stderr.read_to_end(&mut bytes).map(|_| String::from_utf8_lossy(&bytes).into_owned())
    });
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if (follower.is_stopped)() {
            child.kill()?;
            child.wait()?;
            bail!(Stopped);
        }
        look(follower);
        thread::sleep(PAUSE);
    };
    let messages = messages.join().map_err(|_| anyhow::anyhow!("the reader of messages panicked"))??;
    Ok((status, messages))
}
