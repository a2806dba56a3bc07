//! Jobs that are placed on an engine, and the status of their commands.

use crate::{JobId, LauncherError};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// A command that runs a given number of times.
#[derive(Clone, Debug, Default)]
pub struct Job {
    /// The name that the engine shows to people. It consists of letters, digits, `-`, `_` and `.`.
    pub name: String,
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// The variables of the command's environment. Whether they may contain secrets depends on the engine: Slurm shows them
    /// to the job's user and to administrators, Ray to everyone who can reach its dashboard.
    pub environment: Vec<(String, String)>,
    /// The working directory: an absolute path that exists on all hosts. Its folder `logs` receives the output, except with
    /// Ray, which stores the output itself.
    pub folder: PathBuf,
    /// The resources that each command needs.
    pub resources: Resources,
}

/// The resources of a command; the engine's default applies to a missing value.
#[derive(Clone, Copy, Debug, Default)]
pub struct Resources {
    /// The number of processors.
    pub cpus: Option<u64>,
    /// The memory of the host, in bytes.
    pub memory_bytes: Option<u64>,
    /// The number of graphics processors.
    pub gpus: Option<u64>,
}

/// A name with the present time as its suffix, which no earlier submission has.
pub(crate) fn unique(name: &str) -> String {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{name}-{:x}", time.as_nanos())
}

/// Refuses ids that do not belong to an engine.
pub(crate) fn check_ids(ids: &[JobId], engine: &'static str, is_one: fn(&JobId) -> bool) -> Result<(), LauncherError> {
    match ids.iter().find(|id| !is_one(id)) {
        Some(id) => Err(LauncherError::Id { id: id.clone(), engine }),
        None => Ok(()),
    }
}

/// The status of a command.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Status {
    /// The engine has not started the command, or will start it again.
    Waiting {
        /// The engine's own text about the reason.
        reason: Option<String>,
    },
    /// The command runs, or is about to end.
    Running,
    /// The command has ended.
    Ended {
        /// The reason of a failure, in words: `exit status 3`, `signal 9`, `cancelled`.
        failure: Option<String>,
    },
    /// The engine does not know the command, or no longer knows it.
    Gone,
}

impl Status {
    /// The status of a command that ended without cancellation.
    pub(crate) fn ended(code: i64, signal: Option<i64>) -> Self {
        let failure = match (code, signal) {
            (_, Some(signal)) => Some(format!("signal {signal}")),
            (0, None) => None,
            (code, None) => Some(format!("exit status {code}")),
        };
        Self::Ended { failure }
    }

    /// The status of a cancelled command that has ended, whatever its exit status.
    pub(crate) fn cancelled() -> Self {
        Self::Ended { failure: Some("cancelled".into()) }
    }
}

impl Job {
    /// Refuses a job that no engine can run.
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

    /// The path of the file with the output of one command.
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

/// Whether a text is a single, plain name, so that it may be part of a path or of an address without changing where that
/// leads.
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

/// The variables by which programs and libraries are found, and those of the user's language and time zone.
const KEPT: [&str; 9] = ["HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "LOGNAME", "PATH", "SHELL", "TZ", "USER"];

/// The environment variables of this process that commands receive. Other variables may contain secrets, which an engine would store
/// or show.
pub(crate) fn kept_environment() -> impl Iterator<Item = (&'static str, OsString)> {
    KEPT.into_iter().filter_map(|name| Some((name, std::env::var_os(name)?)))
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
