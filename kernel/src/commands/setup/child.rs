//! A child process of the installation, which ends when the user stops the installation.

use super::{Follower, PAUSE, Stopped};
use anyhow::{Context, Result, bail};
use std::io::Read;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;

/// Runs a program of [`crate::bound`] to its end, and returns how it ended and its messages. `look` is called repeatedly meanwhile.
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
