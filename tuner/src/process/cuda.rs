//! How much memory of a CUDA device is taken, as NVIDIA's own program tells it: the driver is opened by that one, and
//! not by the supervisor, which must not hang or die with it.

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags};
use std::io::{self, Read as _};
use std::process::{Command, Stdio};
use std::time::Duration;

/// A driver in trouble hangs whoever asks it.
const DEADLINE: Duration = Duration::from_secs(5);

/// The memory in use, by all processes together, in bytes; none where `device` is no CUDA device, or nobody tells.
pub(super) fn used_bytes(device: &str) -> Option<u64> {
    let ordinal = device.strip_prefix("cuda")?.trim_start_matches(':');
    let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
    let chosen = chosen(if ordinal.is_empty() { "0" } else { ordinal }, visible.as_deref())?;
    let mut command = Command::new("nvidia-smi");
    command.args(["--query-gpu=memory.used", "--format=csv,noheader,nounits", "--id", &chosen]);
    match answer(&mut command, DEADLINE) {
        Ok(text) => text.trim().parse::<u64>().ok()?.checked_mul(1 << 20),
        Err(error) => {
            tracing::debug!(device, %error, "nobody tells how much memory of the device is taken");
            None
        }
    }
}

/// What the device with CUDA's number `ordinal` is called by the driver: `CUDA_VISIBLE_DEVICES` counts anew.
fn chosen(ordinal: &str, visible: Option<&str>) -> Option<String> {
    match visible.filter(|list| !list.trim().is_empty()) {
        Some(list) => list.split(',').nth(ordinal.parse().ok()?).map(|entry| entry.trim().to_owned()),
        None => Some(ordinal.to_owned()),
    }
}

/// What a program prints, if it can be run and ends well and in time. It prints less than a pipe holds.
fn answer(command: &mut Command, deadline: Duration) -> io::Result<String> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let pidfd = rustix::process::pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?;
    let timeout = Timespec::try_from(deadline).map_err(|_| io::ErrorKind::InvalidInput)?;
    let ended = rustix::event::poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&timeout))? > 0;
    if !ended {
        // One that waits for its driver does not end even now: it is reaped with what trials leave.
        child.kill()?;
        return Err(io::ErrorKind::TimedOut.into());
    }
    let status = child.wait()?;
    let mut text = String::new();
    if let Some(mut stdout) = child.stdout.take() {
        stdout.read_to_string(&mut text)?;
    }
    if status.success() { Ok(text) } else { Err(io::Error::other(format!("it ended with {status}"))) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn visible_devices_are_counted_anew() {
        assert_eq!(chosen("1", None).as_deref(), Some("1"));
        assert_eq!(chosen("1", Some("")).as_deref(), Some("1"));
        assert_eq!(chosen("1", Some("3, GPU-5")).as_deref(), Some("GPU-5"));
        assert_eq!(chosen("2", Some("3,5")), None);
        assert_eq!(used_bytes("cpu"), None);
    }

    #[test]
    fn program_that_hangs_costs_the_deadline() -> io::Result<()> {
        let started = Instant::now();
        let late = answer(Command::new("sleep").arg("60"), Duration::from_millis(50));
        assert_eq!(late.map_err(|error| error.kind()), Err(io::ErrorKind::TimedOut));
        assert!(started.elapsed() < Duration::from_secs(5));
        assert_eq!(answer(Command::new("echo").arg("1234"), DEADLINE)?, "1234\n");
        assert!(answer(&mut Command::new("false"), DEADLINE).is_err());
        Ok(())
    }
}
