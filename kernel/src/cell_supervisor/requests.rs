//! The kernel's orders and requests to the supervisor, and how the supervisor follows them.

use super::Supervisor;
use super::phase::Event;
use anyhow::Result;
use ferrotune_link::{KernelFrame, MemoryReport, SupervisorOrder, SupervisorReply, SupervisorRequest};
use std::time::Instant;

impl Supervisor {
    /// Follows the orders that have been read. While the supervisor is busy, the orders wait.
    pub(super) fn take_kernel_orders(&mut self) -> Result<()> {
        while !self.protocol.is_busy() {
            let Some(order) = self.kernel.take_order()? else { break };
            match order {
                SupervisorOrder::Interrupt => self.raise(Event::Interrupted { now: Instant::now() })?,
                SupervisorOrder::Begin { cell } => self.raise(Event::Begun { cell })?,
                SupervisorOrder::Answer { number, answer } => self.connections.answer_question(number, &answer)?,
                SupervisorOrder::Request { number, request } => {
                    if let Some(reply) = self.comply(number, request)? {
                        self.kernel.tell(&KernelFrame::Reply { number, reply })?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Carries out a request of the kernel, and returns the reply; none if the reply comes later, as an effect.
    fn comply(&mut self, number: u64, request: SupervisorRequest) -> Result<Option<SupervisorReply>> {
        let refused = |reason: &str| Ok(Some(SupervisorReply::Refused { reason: reason.to_owned() }));
        let now = Instant::now();
        match request {
            SupervisorRequest::Sync => self.drain_whole()?,
            SupervisorRequest::Keep { name } => {
                self.take_reports()?;
                if !self.name_latest(&name) {
                    return refused("there is no snapshot of the variables as they are now; free some memory");
                }
            }
            SupervisorRequest::Return { to } if !self.snapshots.has(&to) => {
                return refused("that state is not kept any more; %checkpoints lists those that are");
            }
            SupervisorRequest::Return { to } => {
                self.raise(Event::ReturnRequested { number, to, now })?;
                return Ok(None);
            }
            SupervisorRequest::Limit { bytes } => self.watch.limit(bytes),
            SupervisorRequest::Sample { period_ms } => self.sample_ms = period_ms,
            SupervisorRequest::Trim { forget } => {
                self.raise(Event::TrimRequested { number, forget, now })?;
                return Ok(None);
            }
            SupervisorRequest::Report => return Ok(Some(SupervisorReply::Report { report: self.report() })),
        }
        Ok(Some(SupervisorReply::Done))
    }

    fn report(&mut self) -> MemoryReport {
        let (snapshots, held_bytes) = self.snapshots.report(self.cells.pid);
        MemoryReport {
            supervisor_pid: std::process::id(),
            cells_pid: self.cells.number(),
            held_bytes,
            limit_bytes: self.watch.limit_bytes(),
            snapshots,
        }
    }
}
