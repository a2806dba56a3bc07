//! A child process of the installation: it ends with this process, and when the user stops the installation.

use super::{Follower, PAUSE, Stopped};
use crate::runtime::OWN_PROGRAM;
use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, getppid};
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;

/// A call of a program through this one, which makes it end with this process.
pub(super) fn command(program: &OsStr) -> Command {
    let mut command = Command::new(OWN_PROGRAM);
    command.arg("bound").arg(std::process::id().to_string()).arg(program);
    command
}

/// Becomes a program that ends with the process that has started it, whose id is given.
pub(crate) fn become_bound(parent: i32, program: &OsStr, arguments: &[OsString]) -> Result<std::convert::Infallible> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // A parent that has ended before the call sends no signal.
    if getppid() != Pid::from_raw(parent) {
        bail!("{} was not started: the process that wanted it has ended", program.display());
    }
    let error = Command::new(program).args(arguments).exec();
    bail!("cannot run {}: {error}", program.display())
}

/// Runs a program to its end, and returns how it ended and its messages. `look` is called again and again meanwhile.
pub(super) fn run(
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
