//! Child processes with a deadline. Never waits without a deadline: a process that a driver holds does not end even when it
//! is killed. Also the environment of processes that compute.

use crate::handle::Handle;
use rustix::process::Pid;
use std::ffi::OsString;
use std::io::{self, Read as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

/// The longest wait for a killed process to end. A process that takes longer is held by a driver.
const GRACE: Duration = Duration::from_millis(200);

/// The environment variables with the log levels of libtpu and XLA on standard error; level 3 shows only fatal errors.
const QUIET: [&str; 3] = ["TF_CPP_MIN_LOG_LEVEL", "TPU_MIN_LOG_LEVEL", "TPU_STDERR_LOG_LEVEL"];

/// glibc's variable for its settings, and the one by which malloc asks the system for pages of 2 MiB. The system gives them where
/// `/sys/kernel/mm/transparent_hugepage/enabled` is `madvise`; glibc before 2.35 ignores the setting.
const TUNABLES: &str = "GLIBC_TUNABLES";
const LARGE_PAGES: &str = "glibc.malloc.hugetlb=1";

/// Gives the memory of a process that computes pages of 2 MiB, unless the user has decided about them. Otherwise a tensor has a page for
/// each 4 KiB, and the pages of a new tensor take longer than to fill it (benchmarks/steps.md, "What malloc keeps").
pub fn large_pages(command: &mut Command) {
    if let Some(tunables) = with_large_pages(std::env::var_os(TUNABLES)) {
        command.env(TUNABLES, tunables);
    }
}

/// The user's settings of glibc and ours; none if the user's contain the same one.
fn with_large_pages(users: Option<OsString>) -> Option<OsString> {
    match users.filter(|users| !users.is_empty()) {
        None => Some(LARGE_PAGES.into()),
        Some(users) if users.to_string_lossy().contains("glibc.malloc.hugetlb") => None,
        Some(mut users) => {
            users.push(":");
            users.push(LARGE_PAGES);
            Some(users)
        }
    }
}

/// Keeps device libraries from writing to standard error in a process that this command starts, unless the user has set a
/// log level. Their functions still return errors.
pub fn quiet_drivers(command: &mut Command) {
    for name in QUIET.into_iter().filter(|name| std::env::var_os(name).is_none()) {
        command.env(name, "3");
    }
}

/// Undoes [`quiet_drivers`] for a process whose standard error is shown only if it fails: the libraries then write warnings
/// and errors.
pub fn loud_drivers(command: &mut Command) {
    for name in QUIET.into_iter().filter(|name| std::env::var_os(name).is_none_or(|level| level == "3")) {
        command.env(name, "1");
    }
}

/// Runs a program and returns its standard output, which must be smaller than a pipe's buffer (64 KiB).
///
/// # Errors
/// If the program cannot be run, does not end within the deadline, which kills it, or ends without success.
pub fn output(command: &mut Command, deadline: Duration) -> io::Result<String> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let status = match wait(&mut child, deadline)? {
        Some(status) => status,
        None => {
            kill(&mut child)?;
            return Err(io::ErrorKind::TimedOut.into());
        }
    };
    let mut text = String::new();
    if let Some(mut stdout) = child.stdout.take() {
        stdout.read_to_string(&mut text)?;
    }
    if status.success() { Ok(text) } else { Err(io::Error::other(format!("it ended with {status}"))) }
}

/// Kills a child process and reaps it. A child that does not end remains a child of this process; the result is then none.
///
/// # Errors
/// If the system refuses to kill the child, or to wait for it.
pub fn kill(child: &mut Child) -> io::Result<Option<ExitStatus>> {
    child.kill()?;
    wait(child, GRACE)
}

/// Waits until a child process has ended, and reaps it; none if the child still runs after `limit`.
///
/// # Errors
/// If the system refuses to wait.
pub fn wait(child: &mut Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    wait_for_exit(Pid::from_child(child), limit)?;
    child.try_wait()
}

/// Waits until a process has ended, for `limit` at most. Reaps nothing.
///
/// # Errors
/// If the system refuses to wait.
pub fn wait_for_exit(pid: Pid, limit: Duration) -> io::Result<()> {
    Handle::open(pid)?.map_or(Ok(()), |process| process.wait(limit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn program_that_hangs_costs_the_deadline() -> io::Result<()> {
        let started = Instant::now();
        let late = output(Command::new("sleep").arg("60"), Duration::from_millis(50));
        assert_eq!(late.map_err(|error| error.kind()), Err(io::ErrorKind::TimedOut));
        assert!(started.elapsed() < Duration::from_secs(5));
        let deadline = Duration::from_secs(60);
        assert_eq!(output(Command::new("echo").arg("1234"), deadline)?, "1234\n");
        assert!(output(&mut Command::new("false"), deadline).is_err());
        let absent = output(&mut Command::new("/nowhere"), deadline);
        assert_eq!(absent.map_err(|error| error.kind()), Err(io::ErrorKind::NotFound));
        Ok(())
    }

    #[test]
    fn large_pages_leave_the_users_settings_in_place() {
        let with = |users: &str| with_large_pages(Some(users.into()));
        assert_eq!(with_large_pages(None), Some(LARGE_PAGES.into()));
        assert_eq!(with(""), Some(LARGE_PAGES.into()));
        assert_eq!(with("glibc.malloc.check=1"), Some("glibc.malloc.check=1:glibc.malloc.hugetlb=1".into()));
        assert_eq!(with("glibc.malloc.hugetlb=0"), None);
    }

    #[test]
    fn killed_child_is_reaped() -> io::Result<()> {
        let mut child = Command::new("sleep").arg("60").spawn()?;
        assert_eq!(wait(&mut child, Duration::from_millis(1))?, None);
        // On a busy machine, the grace of `kill` may be too short.
        let status = kill(&mut child)?.map_or_else(|| child.wait(), Ok)?;
        assert!(!status.success());
        assert_eq!(wait_for_exit(Pid::from_child(&child), Duration::ZERO)?, ());
        Ok(())
    }
}
