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

/// The path of the example program, which is supervisor and worker; cargo builds it with the tests.
pub(crate) fn program() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().unwrap().parent().unwrap().join("examples/objective")
}

/// The specification of a search of `max_trials` trials that run `scenario`, in a study named after the scenario.
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

/// A running supervisor.
pub(crate) struct Supervisor {
    child: Child,
    events: BufReader<ChildStdout>,
    pub(crate) seen: Vec<Event>,
}

impl Supervisor {
    pub(crate) fn start(spec: &StudySpec) -> Supervisor {
        Supervisor::start_with(spec, &[])
    }

    /// Starts a supervisor with more arguments: the folder of trusted code, and the origin of the search.
    pub(crate) fn start_with(spec: &StudySpec, trust: &[&OsStr]) -> Supervisor {
        Supervisor::start_in(spec, trust, &[])
    }

    /// Starts a supervisor with more arguments, and with these variables in its environment and in that of its workers.
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

    /// Reads events until one satisfies `wanted`; panics if the supervisor ends first.
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

    /// Closes the supervisor's output, and waits for the supervisor to end.
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

/// A supervisor that has ended, with its events.
pub(crate) struct Done {
    pub(crate) status: ExitStatus,
    pub(crate) events: Vec<Event>,
}

impl Done {
    /// The records of ended trials that the supervisor reported, in order.
    pub(crate) fn ended(&self) -> Vec<&TrialRecord> {
        let records = self.events.iter().filter_map(|event| match event {
            Event::TrialEnded { record } => Some(record),
            _ => None,
        });
        records.collect()
    }

    /// The reason for the end of the search, or the error that ended it.
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

/// The records of the study on disk.
pub(crate) fn on_disk(spec: &StudySpec) -> Vec<TrialRecord> {
    Journal::read(&spec.directory.join(&spec.project)).unwrap().trials
}

/// The processes whose environment has the tag of the study's trials.
pub(crate) fn tagged(study: &str) -> Vec<String> {
    let tag = format!("FERROTUNE_TRIAL={study}/");
    let processes = std::fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path());
    let carries = |path: &PathBuf| {
        // Other users' processes, and those that have just ended, cannot be read.
        let environment = std::fs::read(path.join("environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable.starts_with(tag.as_bytes()))
    };
    processes.filter(carries).map(|path| path.display().to_string()).collect()
}
