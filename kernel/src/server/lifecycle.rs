//! Ends or interrupts the kernel without a message: on signals, and at the end of the front end's process.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, getppid, test_kill_process};
use tokio::signal::unix::{SignalKind, signal};

use super::kernel::Kernel;

const PARENT_POLL: Duration = Duration::from_secs(1);

/// Watches signals and the front end's process until the kernel ends. Jupyter puts its process id into `JPY_PARENT_PID`.
pub(super) async fn watch(kernel: Arc<Kernel>) {
    let parent = std::env::var("JPY_PARENT_PID").ok().and_then(|pid| FrontEnd::of(&pid));
    let (mut terminate, mut interrupt) = match (signal(SignalKind::terminate()), signal(SignalKind::interrupt())) {
        (Ok(terminate), Ok(interrupt)) => (terminate, interrupt),
        (Err(error), _) | (_, Err(error)) => {
            tracing::error!(%error, "signals cannot be received; the kernel ends by message only");
            return std::future::pending().await;
        }
    };
    let mut poll = tokio::time::interval(PARENT_POLL);
    loop {
        tokio::select! {
            _ = terminate.recv() => kernel.stop(),
            _ = interrupt.recv() => kernel.interrupt(Instant::now()).await,
            _ = poll.tick() => {
                if parent.as_ref().is_some_and(|front_end| !front_end.is_alive()) {
                    tracing::warn!("the process that started this kernel has ended; the kernel ends too");
                    kernel.stop();
                }
            }
        }
    }
}

/// The front end's process.
enum FrontEnd {
    /// The front end is the parent of this process, which gets another parent when the front end ends.
    Parent(Pid),
    /// The front end is not the parent: that is another process, such as a shell.
    Ancestor(Pid),
}

impl FrontEnd {
    fn of(pid: &str) -> Option<Self> {
        let pid = Pid::from_raw(pid.trim().parse().ok().filter(|pid| *pid > 0)?)?;
        Some(if getppid() == Some(pid) { Self::Parent(pid) } else { Self::Ancestor(pid) })
    }

    fn is_alive(&self) -> bool {
        match self {
            Self::Parent(pid) => getppid() == Some(*pid),
            Self::Ancestor(pid) => test_kill_process(*pid) != Err(Errno::SRCH),
        }
    }
}
