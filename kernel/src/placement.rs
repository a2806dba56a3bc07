//! Places workers on an engine, such as Slurm. `ferrotune worker --on` submits them and reports the state of each; with
//! `%%tune --on` the search's supervisor follows them. This module runs no trial itself.

mod search;

pub(crate) use search::engine_of;

use anyhow::{Context as _, Result};
use ferrotune_journal::StorageUrl;
use ferrotune_launchers::{Job, JobId, Launcher, LauncherError, Resources, Status};
use ferrotune_reader::store_variables;
use ferrotune_tuner::supervisor::{TOKEN_VARIABLE, Token};
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// The time between two questions to the engine.
const INTERVAL: Duration = Duration::from_secs(1);

/// The environment variables that workers get: for the address of the database, as far as it is not in `--storage`, for logs, and
/// for what trials check on a device.
const VARIABLES: [&str; 10] = [
    "FERROTUNE_CHECK_INDEXES",
    "FERROTUNE_LOG",
    "PGDATABASE",
    "PGHOST",
    "PGPASSFILE",
    PASSWORD_VARIABLE,
    "PGPORT",
    "PGSSLMODE",
    "PGSSLROOTCERT",
    "PGUSER",
];
const PASSWORD_VARIABLE: &str = "PGPASSWORD";

/// The job of workers of a study at `storage`, which is published in `store` if not in its database. Logs and trials are in
/// `folder`; `options` are those of `ferrotune worker`. All users of a host see a command, so a password is in a variable, as are a
/// store's credentials.
pub(crate) fn job(
    (storage, study, store): (&str, &str, Option<&str>),
    options: &[(&str, Option<String>)],
    token: &Token,
    folder: &Path,
    resources: Resources,
) -> Result<Job> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let url = StorageUrl::parse(storage)?;
    let (storage, study_option) = (("--storage", Some(url.to_string())), ("--study", Some(study.to_owned())));
    let options = [storage, study_option].into_iter().chain(options.iter().cloned());
    let given = options.filter_map(|(name, value)| Some([name.into(), OsString::from(value?)]));
    let folder_option = ["--directory".into(), folder.into()];
    let command = [program.into_os_string(), "worker".into()];
    let variables = VARIABLES.iter().filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?)));
    let mut environment: Vec<(String, String)> = variables.collect();
    if let Some(password) = url.password() {
        environment.retain(|(name, _)| name != PASSWORD_VARIABLE);
        environment.push((PASSWORD_VARIABLE.to_owned(), password.to_owned()));
    }
    environment.extend(store.map(store_variables).unwrap_or_default());
    environment.push((TOKEN_VARIABLE.to_owned(), token.text()));
    let letter = |letter: char| if letter.is_ascii_alphanumeric() || "-_.".contains(letter) { letter } else { '_' };
    Ok(Job {
        name: format!("ferrotune-{}", study.chars().map(letter).collect::<String>()),
        command: command.into_iter().chain(given.flatten()).chain(folder_option).collect(),
        environment,
        folder: folder.to_owned(),
        resources,
    })
}

/// The submitted workers, and the last known status of each.
struct Placed {
    launcher: Box<dyn Launcher>,
    job: Job,
    ids: Vec<JobId>,
    known: Vec<Option<Status>>,
}

impl Placed {
    fn submit(mut launcher: Box<dyn Launcher>, job: Job, count: u64) -> Result<Placed, LauncherError> {
        let ids = launcher.submit(&job, count)?;
        let known = vec![None; ids.len()];
        Ok(Placed { launcher, job, ids, known })
    }

    /// Asks the engine for the status of the workers; returns the workers whose status has changed.
    fn look(&mut self) -> Result<Vec<(usize, Status)>, LauncherError> {
        let found = self.launcher.status(&self.ids)?.into_iter().enumerate();
        let changes: Vec<(usize, Status)> =
            found.filter(|(index, now)| self.known[*index].as_ref() != Some(now)).collect();
        changes.iter().for_each(|(index, now)| self.known[*index] = Some(now.clone()));
        Ok(changes)
    }

    fn have_ended(&self) -> bool {
        self.known.iter().all(|status| matches!(status, Some(Status::Ended { .. } | Status::Gone)))
    }

    /// The last line of the log of a worker that has failed.
    fn reason(&self, index: usize) -> Result<Option<String>, LauncherError> {
        let Some(Status::Ended { failure: Some(_) } | Status::Gone) = &self.known[index] else { return Ok(None) };
        let log = self.launcher.logs(&self.job, &self.ids[index])?;
        Ok(log.lines().last().map(str::to_owned))
    }

    /// Cancels the workers whose last known status fits.
    fn cancel(&mut self, which: impl Fn(&Option<Status>) -> bool) -> Result<(), LauncherError> {
        let ids = self.ids.iter().zip(&self.known).filter(|(_, status)| which(status)).map(|(id, _)| id.clone());
        let ids: Vec<JobId> = ids.collect();
        if ids.is_empty() { Ok(()) } else { self.launcher.cancel(&ids) }
    }
}

/// Submits `count` workers and follows them to their ends. The first SIGINT or SIGTERM cancels the workers, and the second leaves
/// them to the engine.
pub(crate) fn follow(launcher: Box<dyn Launcher>, job: Job, count: u64) -> Result<ExitCode> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot wait for signals")?;
    runtime.block_on(async {
        let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        let mut placed = Placed::submit(launcher, job, count)?;
        let mut is_stopping = false;
        loop {
            for (index, status) in placed.look()? {
                eprintln!("worker {}: {}", placed.ids[index], described(&status));
                placed.reason(index)?.iter().for_each(|line| eprintln!("  {line}"));
            }
            if placed.have_ended() {
                break;
            }
            tokio::select! {
                () = tokio::time::sleep(INTERVAL) => continue,
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            if is_stopping {
                eprintln!("the workers are left to their engine");
                return Ok(ExitCode::FAILURE);
            }
            is_stopping = true;
            eprintln!("the workers are cancelled");
            placed.cancel(|_| true)?;
        }
        let is_well = |status: &Option<Status>| matches!(status, Some(Status::Ended { failure: None }));
        Ok(if placed.known.iter().all(is_well) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    })
}

fn described(status: &Status) -> String {
    match status {
        Status::Waiting { reason: Some(reason) } => format!("waits ({reason})"),
        Status::Waiting { reason: None } => "waits".to_owned(),
        Status::Running => "runs".to_owned(),
        Status::Ended { failure: None } => "done".to_owned(),
        Status::Ended { failure: Some(failure) } => format!("ended: {failure}"),
        Status::Gone => "its engine does not know it any more".to_owned(),
    }
}
