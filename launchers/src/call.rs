//! Calls of an engine's own programs. Each call has a time limit, because these programs wait for an engine that does not
//! answer.

use crate::LauncherError;
use ferrotune_machine::child;
use std::io::{self, Read, Write as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

/// The time limit of a call. Slurm's programs give up after some 10 s in most cases.
const LIMIT: Duration = Duration::from_secs(60);

/// The names of an engine and its package, for errors.
pub(crate) struct Programs {
    pub(crate) engine: &'static str,
    /// The package with the programs.
    pub(crate) package: &'static str,
    /// The command that shows whether the engine answers.
    pub(crate) check: &'static str,
}

impl Programs {
    /// The path of a program. A job's variable PATH must not decide which program is run.
    pub(crate) fn path_of(&self, program: &'static str) -> Result<PathBuf, LauncherError> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let found = std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file());
        found.ok_or(LauncherError::NoProgram { program, package: self.package })
    }

    /// Runs a program with this input, and returns its standard output.
    pub(crate) fn output(
        &self,
        program: &'static str,
        mut command: Command,
        input: Vec<u8>,
    ) -> Result<String, LauncherError> {
        tracing::debug!(?program, arguments = ?command.get_args(), "calls an engine's program");
        let failed = |error: io::Error| LauncherError::Failed { program, reason: error.to_string() };
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(failed)?;
        // Standard output and standard error are read at the same time, so that the program does not wait for this process.
        let (text, errors) = (reader(child.stdout.take()), reader(child.stderr.take()));
        if let Some(mut stdin) = child.stdin.take() {
            match stdin.write_all(&input) {
                // A program that exits before it has read all of its input reports why it has failed.
                Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(failed(error)),
                _ => {}
            }
        }
        let Some(status) = child::wait(&mut child, LIMIT).map_err(failed)? else {
            child::kill(&mut child).map_err(failed)?;
            return Err(LauncherError::Silent { program, limit_s: LIMIT.as_secs(), check: self.check });
        };
        let (text, errors) = (self.joined(text)?, self.joined(errors)?);
        match status.success() {
            true => Ok(text),
            false => Err(LauncherError::Failed { program, reason: reason(&errors, status) }),
        }
    }

    fn joined(&self, reader: JoinHandle<io::Result<Vec<u8>>>) -> Result<String, LauncherError> {
        match reader.join() {
            Ok(Ok(bytes)) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
            Ok(Err(error)) => Err(LauncherError::Answer { engine: self.engine, answer: error.to_string() }),
            Err(_) => Err(LauncherError::Answer { engine: self.engine, answer: "its reader has panicked".into() }),
        }
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

/// The error output of a program, in one line.
fn reason(errors: &str, status: std::process::ExitStatus) -> String {
    let lines: Vec<_> = errors.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    if lines.is_empty() { status.to_string() } else { lines.join("; ") }
}
