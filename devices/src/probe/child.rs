//! The child process, which serves one request and answers with one line of JSON. The child may crash.

use super::answers::{Answer, Module, Request, Task};
use crate::check;
use crate::finding::one_line;
use crate::opened::{Identity, OpenDevice, Opened};
use crate::pjrt::{Client, Plugin};
use ferrotune_machine::own;
use serde_json::Value;
use std::error::Error;
use std::fs::File;
use std::io::{self, Write as _};
use std::process::ExitCode;

/// Reads a request from standard input, and answers on standard output. The program must call this before anything else: from then on,
/// text that libraries print to standard output goes to standard error.
pub fn main() -> ExitCode {
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ferrotune probe: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve() -> Result<(), Box<dyn Error>> {
    // The parent may be killed, and an orphan must not keep the device.
    own::end_with_parent()?;
    let mut answers = File::from(rustix::io::dup(io::stdout())?);
    rustix::stdio::dup2_stdout(io::stderr())?;
    let request: Request = serde_json::from_reader(io::stdin())?;
    let answer = match answer(&request) {
        Ok(value) => Answer::Done(value),
        Err(error) => Answer::Refused { reason: one_line(&error.to_string()) },
    };
    let mut line = serde_json::to_vec(&answer)?;
    line.push(b'\n');
    answers.write_all(&line)?;
    Ok(())
}

fn answer(request: &Request) -> Result<Value, Box<dyn Error>> {
    let plugin = Plugin::load(&request.plugin)?;
    Ok(match &request.task {
        Task::Identify => serde_json::to_value(identify(plugin)?)?,
        // The devices are closed before the answer is sent: the parent kills this process when it has the answer.
        Task::Open => serde_json::to_value(describe(plugin, &plugin.client(&[])?)?)?,
        Task::Check { topology, module } => {
            let module = match module {
                Module::File(file) => {
                    &std::fs::read(file).map_err(|error| format!("cannot read {}: {error}", file.display()))?
                }
                Module::Text(text) => text.as_bytes(),
            };
            serde_json::to_value(check::compile(plugin, topology, module)?)?
        }
    })
}

fn identify(plugin: Plugin) -> Result<Identity, Box<dyn Error>> {
    Ok(Identity { api: plugin.api_version(), attributes: plugin.attributes()? })
}

pub(crate) fn describe(plugin: Plugin, client: &Client) -> Result<Opened, Box<dyn Error>> {
    let mut devices = Vec::new();
    for device in client.devices()? {
        let description = device.description()?;
        // Some plugins do not report memory, but their devices can still be used.
        let memory_bytes = device.memory().map_or(None, |memory| memory.limit_bytes);
        devices.push(OpenDevice { id: description.id, kind: description.kind, memory_bytes });
    }
    Ok(Opened {
        identity: identify(plugin)?,
        platform: client.platform()?,
        version: one_line(&client.version()?),
        devices,
    })
}
