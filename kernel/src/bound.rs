//! Bound programs: programs that end with the process that has started them, also if that process is killed.

use anyhow::{Result, bail};
use ferrotune_machine::own;
use rustix::process::{Pid, getppid};
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// A command that runs a program through this one, so that the program ends with this process. The caller adds the program's
/// arguments.
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(own::PROGRAM);
    command.arg("bound").arg(std::process::id().to_string()).arg(program);
    command
}

/// Replaces this process by a program that ends with the process `parent`, which has started this one.
pub(crate) fn run(parent: i32, program: &OsStr, arguments: &[OsString]) -> Result<std::convert::Infallible> {
    own::end_with_parent()?;
    // A parent that has ended before the call sends no signal.
    if getppid() != Pid::from_raw(parent) {
        bail!("{} was not started: the process that wanted it has ended", program.display());
    }
    let error = Command::new(program).args(arguments).exec();
    bail!("cannot run {}: {error}", program.display())
}
