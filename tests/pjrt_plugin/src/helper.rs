//! The helper process, and the frames that go to and fro; `tests/xla_cpu_helper.py` is the other end.

use crate::error::Failure;
use serde_json::{Value, json};
use std::io::{self, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, PoisonError};

/// A helper that runs; it ends when this is dropped.
pub(crate) struct Helper {
    pipes: Mutex<(ChildStdin, ChildStdout)>,
    _child: Child,
}

impl Helper {
    /// Starts `python script arguments`: the number of devices, and where there are several processes the port of the store, the
    /// number of this process, and that of all.
    pub(crate) fn start(python: &str, script: &str, arguments: &[i64]) -> Result<Helper, Failure> {
        let mut command = Command::new(python);
        let arguments = arguments.iter().map(ToString::to_string);
        command.arg(script).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let failed = |error: io::Error| Failure::internal(format!("cannot start {python} {script}: {error}"));
        let mut child = command.spawn().map_err(failed)?;
        let missing = || failed(io::ErrorKind::BrokenPipe.into());
        let pipes = (child.stdin.take().ok_or_else(missing)?, child.stdout.take().ok_or_else(missing)?);
        Ok(Helper { pipes: Mutex::new(pipes), _child: child })
    }

    /// Asks one thing and waits for the answer.
    pub(crate) fn ask(&self, mut request: Value, raw: &[&[u8]]) -> Result<(Value, Vec<u8>), Failure> {
        request["bytes"] = json!(raw.iter().map(|part| part.len()).sum::<usize>());
        let mut pipes = self.pipes.lock().unwrap_or_else(PoisonError::into_inner);
        let (answer, raw) = exchange(&mut pipes, &request, raw)
            .map_err(|error| Failure::internal(format!("the helper does not answer: {error}")))?;
        match answer["error"].as_str() {
            Some(text) => Err(Failure { code: number(&answer["code"]), message: text.to_owned() }),
            None => Ok((answer, raw)),
        }
    }
}

fn exchange(
    (requests, answers): &mut (ChildStdin, ChildStdout),
    request: &Value,
    raw: &[&[u8]],
) -> io::Result<(Value, Vec<u8>)> {
    write_frame(requests, request, raw)?;
    read_frame(answers)
}

/// Writes a frame whose head says how many bytes there are.
pub(crate) fn write_frame(to: &mut impl Write, head: &Value, raw: &[&[u8]]) -> io::Result<()> {
    let head = head.to_string();
    to.write_all(&(head.len() as u32).to_le_bytes())?;
    to.write_all(head.as_bytes())?;
    raw.iter().try_for_each(|part| to.write_all(part))?;
    to.flush()
}

pub(crate) fn read_frame(from: &mut impl Read) -> io::Result<(Value, Vec<u8>)> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let mut head = vec![0; u32::from_le_bytes(length) as usize];
    from.read_exact(&mut head)?;
    let head: Value = serde_json::from_slice(&head)?;
    let mut raw = vec![0; number(&head["bytes"])];
    from.read_exact(&mut raw)?;
    Ok((head, raw))
}

/// A whole number of the helper's; 0 where there is none.
pub(crate) fn number<T: TryFrom<i64> + Default>(value: &Value) -> T {
    value.as_i64().and_then(|value| value.try_into().ok()).unwrap_or_default()
}
