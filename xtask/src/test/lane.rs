//! Commands that run one after the other beside the tests, with what those leave of the processors. What they print is in a file, and is
//! shown where one fails, so that what failed comes last.

use crate::step;
use anyhow::{Context, Result, anyhow};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

/// Commands that run beside the tests.
pub(super) struct Lane {
    log: PathBuf,
    thread: JoinHandle<Result<()>>,
    is_stopped: Arc<AtomicBool>,
}

impl Lane {
    /// Starts the first command.
    pub(super) fn start(log: &Path, commands: Vec<Command>) -> Result<Self> {
        let output = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
        let is_stopped = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&is_stopped);
        let run = move || {
            let wanted = commands.iter().take_while(|_| !stopped.load(Ordering::Relaxed));
            wanted.map(|command| nice(command, &output)).try_for_each(|command| step::run(&mut command?))
        };
        Ok(Self { log: log.to_owned(), thread: thread::spawn(run), is_stopped })
    }

    /// Starts no more commands, because the tests have failed.
    pub(super) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }

    /// Waits for the last command.
    pub(super) fn join(self) -> Result<()> {
        let result = self.thread.join().map_err(|_| anyhow!("the thread of the commands beside the tests panicked"))?;
        let printed = String::from_utf8_lossy(&fs::read(&self.log)?).into_owned();
        if result.is_err() {
            eprint!("{printed}");
        } else {
            // How many tests have passed.
            printed
                .lines()
                .filter(|line| line.starts_with("====") && line.contains("passed"))
                .for_each(|line| eprintln!("{line}"));
        }
        result
    }
}

/// The same command, with what the others leave of the processors and with its output in a file.
fn nice(command: &Command, output: &File) -> Result<Command> {
    let mut nice = Command::new("nice");
    nice.args(["-n", "19"]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => nice.env(name, value),
            None => nice.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        nice.current_dir(folder);
    }
    nice.stdout(output.try_clone()?).stderr(output.try_clone()?);
    Ok(nice)
}
