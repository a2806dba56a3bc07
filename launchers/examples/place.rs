//! A test program that places commands on an engine: `place LAUNCHER`. Each line of standard input is a JSON request such
//! as `{"submit": JOB, "count": 2}`, `{"status": [ID]}`, `{"cancel": [ID]}` or `{"logs": ID, "of": JOB}`, and each line of
//! standard output is the result of one request, or `{"error": TEXT}`.

use ferrotune_launchers::{Job, JobId, Launcher, LauncherError, Resources, Status, launcher};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::error::Error;
use std::io::Write as _;
use std::path::PathBuf;

#[derive(Deserialize)]
#[serde(untagged)]
enum Request {
    Submit { submit: Wanted, count: u64 },
    Status { status: Vec<String> },
    Cancel { cancel: Vec<String> },
    Logs { logs: String, of: Wanted },
}

/// A job in a request.
#[derive(Deserialize)]
struct Wanted {
    name: String,
    command: Vec<String>,
    #[serde(default)]
    environment: BTreeMap<String, String>,
    folder: PathBuf,
    cpus: Option<u64>,
    memory_bytes: Option<u64>,
    gpus: Option<u64>,
}

impl From<Wanted> for Job {
    fn from(wanted: Wanted) -> Self {
        Self {
            name: wanted.name,
            command: wanted.command.into_iter().map(Into::into).collect(),
            environment: wanted.environment.into_iter().collect(),
            folder: wanted.folder,
            resources: Resources { cpus: wanted.cpus, memory_bytes: wanted.memory_bytes, gpus: wanted.gpus },
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let text = std::env::args().nth(1).ok_or("usage: place LAUNCHER")?;
    let mut stdout = std::io::stdout();
    let mut engine = match launcher(&text) {
        Ok(engine) => engine,
        Err(error) => return Ok(writeln!(stdout, "{}", json!({ "error": error.to_string() }))?),
    };
    for line in std::io::stdin().lines() {
        let answer = answer(engine.as_mut(), serde_json::from_str(&line?)?);
        let answer = answer.unwrap_or_else(|error| json!({ "error": error.to_string() }));
        writeln!(stdout, "{answer}")?;
        stdout.flush()?;
    }
    Ok(())
}

fn answer(engine: &mut dyn Launcher, request: Request) -> Result<Value, LauncherError> {
    let ids = |texts: Vec<String>| texts.into_iter().map(JobId::from).collect::<Vec<_>>();
    Ok(match request {
        Request::Submit { submit, count } => {
            engine.submit(&submit.into(), count)?.iter().map(JobId::to_string).collect()
        }
        Request::Status { status } => engine.status(&ids(status))?.into_iter().map(described).collect(),
        Request::Cancel { cancel } => {
            engine.cancel(&ids(cancel))?;
            Value::Null
        }
        Request::Logs { logs, of } => engine.logs(&of.into(), &logs.into())?.into(),
    })
}

fn described(status: Status) -> Value {
    match status {
        Status::Waiting { reason } => json!({ "state": "waiting", "reason": reason }),
        Status::Running => json!({ "state": "running" }),
        Status::Ended { failure } => json!({ "state": "ended", "failure": failure }),
        Status::Gone => json!({ "state": "gone" }),
    }
}
