//! Calls of Slurm's programs, which get a limited time: they wait for a controller that does not answer.

use super::ENGINE;
use crate::{LauncherError, environment};
use ferrotune_machine::child;
use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

/// Slurm's programs give up after some 10 s in most cases.
const LIMIT: Duration = Duration::from_secs(60);
/// Variables with defaults of the programs' options, which would change what we read.
const DEFAULTS: [&str; 3] = ["SACCT_", "SCANCEL_", "SQUEUE_"];

/// Submits a script whose command gets these variables and few others; gives what `sbatch` prints.
pub(super) fn sbatch(
    arguments: &[OsString],
    variables: &[(String, String)],
    script: Vec<u8>,
) -> Result<String, LauncherError> {
    // What sbatch needs itself. SLURM_* of a job that submits another would speak of the wrong job.
    let needed = |name: &str| name.starts_with("SBATCH_") || ["SLURM_CONF", "SLURM_CLUSTERS"].contains(&name);
    let mut command = Command::new(path_of("sbatch")?);
    command.args(arguments).env_clear().envs(environment::kept());
    command.envs(std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(needed)));
    command.envs(variables.iter().map(|(name, value)| (name, value)));
    output("sbatch", command, script)
}

/// What one of Slurm's programs prints.
pub(super) fn run<T: AsRef<OsStr>>(
    program: &'static str,
    arguments: impl IntoIterator<Item = T>,
) -> Result<String, LauncherError> {
    let mut command = Command::new(path_of(program)?);
    command.args(arguments);
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| DEFAULTS.iter().any(|defaults| name.starts_with(defaults))) {
            command.env_remove(name);
        }
    }
    output(program, command, Vec::new())
}

/// The program's path. A job's variable PATH must not decide which program is run.
fn path_of(program: &'static str) -> Result<PathBuf, LauncherError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file());
    found.ok_or(LauncherError::NoProgram { program, package: "Slurm's commands (slurm-client)" })
}

fn output(program: &'static str, mut command: Command, input: Vec<u8>) -> Result<String, LauncherError> {
    tracing::debug!(?program, arguments = ?command.get_args(), "calls Slurm");
    let failed = |error: io::Error| LauncherError::Failed { program, reason: error.to_string() };
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
    // Both are read at the same time, so that the program does not wait for us.
    let (text, errors) = (reader(child.stdout.take()), reader(child.stderr.take()));
    if let Some(mut stdin) = child.stdin.take() {
        match stdin.write_all(&input) {
            // A program that has not read all says why it has failed.
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(failed(error)),
            _ => {}
        }
    }
    let Some(status) = child::wait(&mut child, LIMIT).map_err(failed)? else {
        child::kill(&mut child).map_err(failed)?;
        return Err(LauncherError::Silent { program, limit_s: LIMIT.as_secs() });
    };
    let (text, errors) = (joined(text)?, joined(errors)?);
    match status.success() {
        true => Ok(text),
        false => Err(LauncherError::Failed { program, reason: reason(&errors, status) }),
    }
}

fn reader(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<io::Result<Vec<u8>>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            pipe.read_to_end(&mut bytes)?;
        }
        Ok(bytes)
    })
}

fn joined(reader: JoinHandle<io::Result<Vec<u8>>>) -> Result<String, LauncherError> {
    match reader.join() {
        Ok(Ok(bytes)) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Ok(Err(error)) => Err(LauncherError::Answer { engine: ENGINE, answer: error.to_string() }),
        Err(_) => Err(LauncherError::Answer { engine: ENGINE, answer: "its reader has panicked".into() }),
    }
}

/// What a program says of its failure, in one line.
fn reason(errors: &str, status: std::process::ExitStatus) -> String {
    let lines: Vec<_> = errors.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    if lines.is_empty() { status.to_string() } else { lines.join("; ") }
}
