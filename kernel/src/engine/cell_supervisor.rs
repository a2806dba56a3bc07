//! The engine's handle of the cell supervisor, a child process that answers requests over the link. Dropping the handle ends the
//! process.

use super::evaluate::link::CellLink;
use crate::cell_supervisor;
use crate::failure::{ErrorName, Failure};
use anyhow::{Context, Result};
use ferrotune_link::{MemoryReport, SupervisorReply, SupervisorRequest};
use ferrotune_machine::own;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

pub(super) struct CellSupervisor {
    program: Command,
    link: CellLink,
    child: Child,
}

/// The command line of a cell supervisor whose cells are linked with these libraries. The supervisor connects to the kernel's socket.
pub(super) fn program(libraries: &[PathBuf; 2], socket: &Path) -> Command {
    let mut program = Command::new(own::PROGRAM);
    program.arg("cell-supervisor").args(libraries).env(cell_supervisor::KERNEL_VARIABLE, socket);
    program.process_group(0).stdin(Stdio::null()).stdout(Stdio::null());
    program
}

/// Starts the program, and waits until it has connected.
fn launch(program: &mut Command, link: &CellLink) -> Result<Child> {
    link.forget_supervisor();
    let child = program.spawn().context("cannot start the supervisor of the cells")?;
    link.wait_for_supervisor()?;
    Ok(child)
}

impl CellSupervisor {
    /// Starts the program, and waits until it has connected.
    pub(super) fn start(mut program: Command, link: &CellLink) -> Result<Self> {
        let child = launch(&mut program, link)?;
        Ok(Self { program, link: link.clone(), child })
    }

    /// Starts the program again if its process has ended, and returns the exit status of the ended process.
    pub(super) fn restart_if_ended(&mut self) -> Result<Option<ExitStatus>> {
        let Ok(Some(status)) = self.child.try_wait() else { return Ok(None) };
        self.child = launch(&mut self.program, &self.link)?;
        Ok(Some(status))
    }

    /// Kills the process, for tests of a supervisor that has ended.
    #[cfg(test)]
    pub(super) fn kill(&mut self) {
        self.child.kill().and_then(|()| self.child.wait()).unwrap();
    }

    /// Sends a request and waits for the reply.
    pub(super) fn ask(&self, request: SupervisorRequest) -> Result<SupervisorReply, Failure> {
        match self.link.request(request) {
            Some(SupervisorReply::Refused { reason }) => Err(Failure::new(ErrorName::MagicError, reason)),
            Some(reply) => Ok(reply),
            None => {
                let text = "the supervisor of the cells does not answer; restart the kernel";
                Err(Failure::new(ErrorName::EngineError, text))
            }
        }
    }

    /// The memory of the cell process and of its snapshots.
    pub(super) fn report(&self) -> Result<MemoryReport, Failure> {
        match self.ask(SupervisorRequest::Report)? {
            SupervisorReply::Report { report } => Ok(report),
            _ => Err(Failure::new(ErrorName::EngineError, "the supervisor of the cells gave another answer")),
        }
    }
}

impl Drop for CellSupervisor {
    fn drop(&mut self) {
        if let Err(error) = self.child.kill().and_then(|()| self.child.wait()) {
            tracing::warn!("the supervisor of the cells may still run: {error}");
        }
    }
}
