//! `ferrotune worker --on LAUNCHER`: places workers on an engine, says what becomes of each, and cancels them where it is told to
//! stop. Runs no trial itself.

use anyhow::{Context as _, Result};
use ferrotune_launchers::{Job, JobId, Launcher, Status};
use ferrotune_tuner::supervisor::{TOKEN_VARIABLE, Token};
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// How often the engine is asked.
const INTERVAL: Duration = Duration::from_secs(1);

/// What a worker reads of the environment: the address of the database, as far as it is not in `--storage`.
const VARIABLES: [&str; 9] = [
    "FERROTUNE_LOG",
    "PGDATABASE",
    "PGHOST",
    "PGPASSFILE",
    "PGPASSWORD",
    "PGPORT",
    "PGSSLMODE",
    "PGSSLROOTCERT",
    "PGUSER",
];

/// The job of a study's workers, whose logs and trials are in `folder`.
pub(crate) fn job(study: &str, arguments: Vec<OsString>, token: &Token, folder: &Path) -> Result<Job> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let letter = |letter: char| if letter.is_ascii_alphanumeric() || "-_.".contains(letter) { letter } else { '_' };
    let variables = VARIABLES.iter().filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?)));
    Ok(Job {
        name: format!("ferrotune-{}", study.chars().map(letter).collect::<String>()),
        command: [program.into_os_string(), "worker".into()].into_iter().chain(arguments).collect(),
        environment: variables.chain([(TOKEN_VARIABLE.to_owned(), token.text())]).collect(),
        folder: folder.to_owned(),
        ..Job::default()
    })
}

/// Submits `count` workers and follows them to their ends. The first SIGINT or SIGTERM cancels them, and the second one leaves them
/// to the engine.
pub(crate) fn follow(launcher: &mut dyn Launcher, job: &Job, count: u64) -> Result<ExitCode> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot wait for signals")?;
    runtime.block_on(async {
        let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        let ids = launcher.submit(job, count)?;
        let mut known = vec![None; ids.len()];
        let mut is_stopping = false;
        while !take_in(launcher, job, &ids, &mut known)? {
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
            launcher.cancel(&ids)?;
        }
        let is_well = |status: &Option<Status>| matches!(status, Some(Status::Ended { failure: None }));
        Ok(if known.iter().all(is_well) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    })
}

/// Prints what has changed, with the end of the log of a worker that has failed; says whether all have ended.
fn take_in(launcher: &mut dyn Launcher, job: &Job, ids: &[JobId], known: &mut [Option<Status>]) -> Result<bool> {
    let found = launcher.status(ids)?;
    for ((id, now), before) in ids.iter().zip(&found).zip(known) {
        if before.as_ref() == Some(now) {
            continue;
        }
        eprintln!("worker {id}: {}", described(now));
        if let Status::Ended { failure: Some(_) } | Status::Gone = now {
            let log = launcher.logs(job, id)?;
            log.lines().last().into_iter().for_each(|line| eprintln!("  {line}"));
        }
        *before = Some(now.clone());
    }
    Ok(found.iter().all(|status| matches!(status, Status::Ended { .. } | Status::Gone)))
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
