//! Starts the example program as a supervisor and reads its events.

use ferrotune_journal::Journal;
use ferrotune_space::event::{Event, Finish, Progress};
use ferrotune_space::objective::{Direction, Objective};
use ferrotune_space::record::TrialRecord;
use ferrotune_space::spec::StudySpec;
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};

/// The example that is supervisor and worker; cargo builds it with the tests.
pub(crate) fn program() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().unwrap().parent().unwrap().join("examples/objective")
}

/// A search of `max_trials` trials that play `scenario`, in a study named after the scenario.
pub(crate) fn spec(directory: &Path, scenario: &str, max_trials: u64) -> StudySpec {
    let objectives = vec![Objective::new("val_accuracy", Direction::Max)];
    StudySpec {
        directory: directory.to_path_buf(),
        oracle: "random".to_owned(),
        max_trials,
        seed: Some(7),
        library: PathBuf::from("/bin/sh"),
        symbol: scenario.to_owned(),
        ..StudySpec::new(scenario, objectives)
    }
}

/// A supervisor that runs.
pub(crate) struct Supervisor {
    child: Child,
    events: BufReader<ChildStdout>,
    pub(crate) seen: Vec<Event>,
}

impl Supervisor {
    pub(crate) fn start(spec: &StudySpec) -> Supervisor {
        Supervisor::start_with(spec, &[])
    }

    /// Starts one with more arguments: the folder of what the user trusts, and who the search comes from.
    pub(crate) fn start_with(spec: &StudySpec, trust: &[&OsStr]) -> Supervisor {
        Supervisor::start_in(spec, trust, &[])
    }

    /// The same with these variables in its environment and in that of its workers.
    pub(crate) fn start_in(spec: &StudySpec, trust: &[&OsStr], environment: &[(&str, &str)]) -> Supervisor {
        let path = spec.directory.join(format!("{}.spec.json", spec.project));
        std::fs::create_dir_all(&spec.directory).unwrap();
        std::fs::write(&path, serde_json::to_vec(spec).unwrap()).unwrap();
        let mut command = Command::new(program());
        command.arg("supervise").arg(path).args(trust).stdin(Stdio::null()).stdout(Stdio::piped());
        command.envs(environment.iter().copied());
        let mut child = command.spawn().unwrap();
        let events = BufReader::new(child.stdout.take().unwrap());
        Supervisor { child, events, seen: Vec::new() }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Reads events until one satisfies `wanted`; panics if the supervisor leaves first.
    pub(crate) fn wait_for(&mut self, wanted: impl Fn(&Event) -> bool) {
        while let Some(event) = self.next_event() {
            if wanted(&event) {
                return;
            }
        }
        panic!("the supervisor left after {:?}", self.seen);
    }

    /// Waits for a trial to report `step`.
    pub(crate) fn wait_for_step(&mut self, step: u64) {
        self.wait_for(|event| match event {
            Event::Progress(Progress { running, .. }) => running.iter().any(|running| running.step >= Some(step)),
            _ => false,
        });
    }

    /// Reads the remaining events and reaps the supervisor.
    pub(crate) fn finish(mut self) -> Done {
        while self.next_event().is_some() {}
        Done { status: self.child.wait().unwrap(), events: self.seen }
    }

    /// Stops listening, and waits for the supervisor to leave.
    pub(crate) fn abandon(self) -> ExitStatus {
        let Supervisor { mut child, events, .. } = self;
        drop(events);
        child.wait().unwrap()
    }

    fn next_event(&mut self) -> Option<Event> {
        let mut line = String::new();
        if self.events.read_line(&mut line).unwrap() == 0 {
            return None;
        }
        let event: Event = serde_json::from_str(&line).unwrap();
        self.seen.push(event.clone());
        Some(event)
    }
}

/// A supervisor that has left.
pub(crate) struct Done {
    pub(crate) status: ExitStatus,
    pub(crate) events: Vec<Event>,
}

impl Done {
    /// The records that were told to the watcher, in order.
    pub(crate) fn ended(&self) -> Vec<&TrialRecord> {
        let records = self.events.iter().filter_map(|event| match event {
            Event::TrialEnded { record } => Some(record),
            _ => None,
        });
        records.collect()
    }

    /// Why the search is over, or the error that it ended with.
    pub(crate) fn last(&self) -> Result<Finish, String> {
        match self.events.last() {
            Some(Event::Finished { reason }) => Ok(reason.clone()),
            Some(Event::Error { message }) => Err(message.clone()),
            other => panic!("the last event is {other:?}"),
        }
    }
}

pub(crate) fn run(spec: &StudySpec) -> Done {
    Supervisor::start(spec).finish()
}

/// The study as it is on disk.
pub(crate) fn on_disk(spec: &StudySpec) -> Vec<TrialRecord> {
    Journal::read(&spec.directory.join(&spec.project)).unwrap().trials
}

/// The processes that carry the tag of a study's trials.
pub(crate) fn tagged(study: &str) -> Vec<String> {
    let tag = format!("FERROTUNE_TRIAL={study}/");
    let processes = std::fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path());
    let carries = |path: &PathBuf| {
        // Other users' processes and those that have just left cannot be read.
        let environment = std::fs::read(path.join("environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable.starts_with(tag.as_bytes()))
    };
    processes.filter(carries).map(|path| path.display().to_string()).collect()
}
