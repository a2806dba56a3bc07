//! What is placed on an engine, and what becomes of it.

use crate::LauncherError;
use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// One command, which runs as often as asked.
#[derive(Clone, Debug, Default)]
pub struct Job {
    /// The engine shows it to people. Letters, digits, `-`, `_` and `.`.
    pub name: String,
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// Variables of the command's environment. They may hold secrets where the engine keeps them: Slurm shows them to the job's
    /// user and to administrators, Ray to everyone who reaches its dashboard.
    pub environment: Vec<(String, String)>,
    /// The working directory, an absolute path that exists on all hosts. Its folder `logs` gets the output, save with Ray, which
    /// keeps it itself.
    pub folder: PathBuf,
    /// What each command needs.
    pub resources: Resources,
}

/// What a command needs; the engine's default where nothing is said.
#[derive(Clone, Copy, Debug, Default)]
pub struct Resources {
    /// Processors.
    pub cpus: Option<u64>,
    /// Memory of the host.
    pub memory_bytes: Option<u64>,
    /// Graphics processors.
    pub gpus: Option<u64>,
}

/// An engine's name for one run of a job's command. It can be stored as text and made again from it.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct JobId(String);

impl JobId {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<T: Into<String>> From<T> for JobId {
    fn from(text: T) -> Self {
        Self(text.into())
    }
}

/// A name with the time behind it, which no earlier submission has.
pub(crate) fn unique(name: &str) -> String {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{name}-{:x}", time.as_nanos())
}

/// Refuses ids that are none of an engine's.
pub(crate) fn check_ids(ids: &[JobId], engine: &'static str, is_one: fn(&JobId) -> bool) -> Result<(), LauncherError> {
    match ids.iter().find(|id| !is_one(id)) {
        Some(id) => Err(LauncherError::Id { id: id.clone(), engine }),
        None => Ok(()),
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// What has become of a command.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Status {
    /// The engine has not started it, or will start it again.
    Waiting {
        /// The engine's reason, in its words.
        reason: Option<String>,
    },
    /// It runs, or is about to end.
    Running,
    /// It has ended.
    Ended {
        /// Why it is no success, in words: `exit status 3`, `signal 9`, `cancelled`.
        failure: Option<String>,
    },
    /// The engine does not know it, or not any more.
    Gone,
}

impl Status {
    /// How a command ended by itself.
    pub(crate) fn ended(code: i64, signal: Option<i64>) -> Self {
        let failure = match (code, signal) {
            (_, Some(signal)) => Some(format!("signal {signal}")),
            (0, None) => None,
            (code, None) => Some(format!("exit status {code}")),
        };
        Self::Ended { failure }
    }

    /// How a command ended that was cancelled, whatever its exit status.
    pub(crate) fn cancelled() -> Self {
        Self::Ended { failure: Some("cancelled".into()) }
    }
}

impl Job {
    /// Refuses what no engine can run.
    pub(crate) fn check(&self) -> Result<(), LauncherError> {
        let wrong = |problem: String| Err(LauncherError::Job { name: self.name.clone(), problem });
        if self.name.is_empty() || self.name.starts_with(['-', '.']) || !self.name.chars().all(is_name_character) {
            return wrong(
                "its name must be of letters, digits, `-`, `_` and `.`, and begin with a letter or a digit".into(),
            );
        }
        if self.command.first().is_none_or(|program| program.is_empty()) {
            return wrong("it has no command; give a program and its arguments".into());
        }
        if !self.folder.is_absolute() {
            return wrong(format!(
                "its folder {} is not an absolute path; other hosts need one",
                self.folder.display()
            ));
        }
        if let Some((name, _)) = self.environment.iter().find(|(name, _)| !is_variable(name)) {
            return wrong(format!("`{name}` cannot name a variable; use letters, digits and `_`"));
        }
        let words = self.command.iter().map(|word| word.as_bytes());
        let values = self.environment.iter().map(|(_, value)| value.as_bytes());
        if words.chain(values).chain([self.folder.as_os_str().as_bytes()]).any(|bytes| bytes.contains(&0)) {
            return wrong("its command, a variable or its folder has a zero byte, which no program can get".into());
        }
        Ok(())
    }

    /// The file that gets the output of one command.
    pub(crate) fn log_path(&self, id: &JobId) -> PathBuf {
        self.log_folder().join(format!("{}-{id}.log", self.name))
    }

    /// The folder of the logs.
    pub(crate) fn log_folder(&self) -> PathBuf {
        self.folder.join("logs")
    }

    /// Makes the folder of the logs.
    pub(crate) fn make_log_folder(&self) -> Result<(), LauncherError> {
        let path = self.log_folder();
        std::fs::create_dir_all(&path).map_err(LauncherError::file(&path))
    }
}

/// Whether a path has no part that leads elsewhere, so that it may be part of a path or of an address.
pub(crate) fn is_plain(text: &str) -> bool {
    Path::new(text).components().count() == 1 && text.chars().all(is_name_character) && !text.starts_with(['-', '.'])
}

fn is_name_character(character: char) -> bool {
    character.is_ascii_alphanumeric() || "-_.".contains(character)
}

fn is_variable(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|first: char| first.is_ascii_digit())
        && name.chars().all(|character| character.is_ascii_alphanumeric() || character == '_')
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    #[test]
    fn job_that_no_engine_can_run_is_refused() {
        let good = Job { name: "a".into(), command: vec!["x".into()], folder: "/".into(), ..Job::default() };
        assert!(good.check().is_ok());
        let variable = |name: &str, value: &str| vec![(name.into(), value.into())];
        let refused = |job: Job, expected: Expect| expected.assert_eq(&job.check().unwrap_err().to_string());
        refused(
            Job { name: "a b".into(), ..good.clone() },
            expect![
                "the job `a b` cannot run: its name must be of letters, digits, `-`, `_` and `.`, and begin with a letter or a digit"
            ],
        );
        refused(
            Job { command: vec![], ..good.clone() },
            expect!["the job `a` cannot run: it has no command; give a program and its arguments"],
        );
        refused(
            Job { folder: "x".into(), ..good.clone() },
            expect!["the job `a` cannot run: its folder x is not an absolute path; other hosts need one"],
        );
        refused(
            Job { environment: variable("A,B", ""), ..good.clone() },
            expect!["the job `a` cannot run: `A,B` cannot name a variable; use letters, digits and `_`"],
        );
        refused(
            Job { environment: variable("A", "\0"), ..good },
            expect![
                "the job `a` cannot run: its command, a variable or its folder has a zero byte, which no program can get"
            ],
        );
    }
}
