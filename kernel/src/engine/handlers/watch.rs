//! `%tune status|wait|stop`, for searches in the background or of another notebook, which are read from their study's folder.

use crate::engine::evaluate::link::CellLink;
use crate::execution::{LiveDisplay, Output, Stream};
use crate::failure::{ErrorName, Failure};
use crate::search_process::progress;
use anyhow::{Context, Result, bail};
use ferrotune_display::Bundle;
use ferrotune_journal::{Holder, Journal, holder_of};
use ferrotune_machine::child;
use ferrotune_magics::SearchVerb;
use ferrotune_space::event::Status;
use ferrotune_space::spec::StudySpec;
use ferrotune_tuner::supervisor::{last_status, study_progress};
use rustix::process::{Pid, Signal};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The time between two reads of the search's progress by `%tune wait`.
const INTERVAL: Duration = Duration::from_millis(500);

/// How long `%tune stop` waits for the search to end.
const LONGEST_STOP: Duration = Duration::from_secs(30);

/// Carries out `%tune VERB` for the search in a study's folder.
pub(in crate::engine) fn act(
    verb: SearchVerb,
    folder: &Path,
    display: &mut LiveDisplay,
    link: &CellLink,
) -> Result<(), Failure> {
    let result = Journal::read(folder).map_err(anyhow::Error::from).and_then(|study| match verb {
        SearchVerb::Status => {
            let holder = holder_of(folder)?;
            let bundle = holder.map_or_else(|| at_rest(folder), |holder| running(folder, &study.spec, &holder));
            link.emit(Output::display(bundle?));
            Ok(())
        }
        SearchVerb::Stop => {
            link.emit(Output::Stream(Stream::Stdout, stop(folder, link)?));
            Ok(())
        }
        SearchVerb::Wait => wait(folder, &study.spec, display, link),
    });
    match result {
        Err(_) if verb == SearchVerb::Wait && link.is_interrupted() => {
            let text = "no longer waited for; the search goes on until %tune stop";
            Err(Failure::new(ErrorName::Interrupted, text))
        }
        result => result.map_err(|error| Failure::from_error(ErrorName::TuneError, &error)),
    }
}

/// The given studies that have a running search.
pub(in crate::engine) fn running_of(folders: &[PathBuf]) -> Vec<PathBuf> {
    // A deleted folder has no search.
    let runs = |folder: &&PathBuf| holder_of(folder).is_ok_and(|holder| holder.is_some());
    folders.iter().filter(runs).cloned().collect()
}

/// The progress of a search that the process `holder` runs.
fn running(folder: &Path, spec: &StudySpec, holder: &Holder) -> Result<Bundle> {
    let status = last_status(folder).context("cannot read where the search stands")?;
    let progress = status.context("the search has not begun a trial yet")?.progress;
    let mut lines = progress::lines(&progress, spec, None);
    lines.push(format!("runs as process {} on {}", holder.pid, holder.host));
    Ok(progress::bundle(&progress, &lines))
}

/// The progress of a study without a running search, and how its last search ended.
fn at_rest(folder: &Path) -> Result<Bundle> {
    let study = Journal::read(folder)?;
    let status = last_status(folder).context("cannot read how the search ended")?;
    let line = match &status {
        None => "no search of it runs".to_owned(),
        Some(Status { error: Some(error), .. }) => format!("ended with an error: {error}"),
        Some(Status { finish: Some(_), .. }) => "does not run any more".to_owned(),
        Some(Status { finish: None, .. }) => "was killed; %resume goes on with it".to_owned(),
    };
    let finish = status.and_then(|status| status.finish);
    let progress = study_progress(&study.trials, &study.spec);
    let mut lines = progress::lines(&progress, &study.spec, finish.as_ref());
    lines.push(line);
    Ok(progress::bundle(&progress, &lines))
}

/// Asks the search to stop after the current step of each trial, and waits until the search has ended. If that takes long, or if the
/// user interrupts the wait, the returned text says that the search is still ending.
fn stop(folder: &Path, link: &CellLink) -> Result<String> {
    let Some(holder) = holder_of(folder)? else { return Ok("no search of this study runs\n".to_owned()) };
    if !holder.is_here() {
        bail!("the search runs as process {} on {}; stop it there", holder.pid, holder.host);
    }
    let pid = i32::try_from(holder.pid).ok().and_then(Pid::from_raw).context("the search's lock names no process")?;
    rustix::process::kill_process(pid, Signal::INT).context("the search cannot be asked to stop")?;
    let asked_at = Instant::now();
    while holder_of(folder)?.is_some_and(|now| now == holder) {
        if asked_at.elapsed() > LONGEST_STOP || link.is_interrupted() {
            let pid = holder.pid;
            return Ok(format!(
                "process {pid} is still ending: it stops after the current step of each trial; %tune wait follows it\n"
            ));
        }
        wait_for_exit(&holder)?;
    }
    Ok(format!("process {} has stopped; %resume goes on with the study\n", holder.pid))
}

/// Shows the search until no process runs the search any more.
fn wait(folder: &Path, spec: &StudySpec, display: &mut LiveDisplay, link: &CellLink) -> Result<()> {
    while let Some(holder) = holder_of(folder)? {
        if link.is_interrupted() {
            bail!("interrupted");
        }
        // A search that has just begun has nothing to show yet.
        if let Ok(bundle) = running(folder, spec, &holder) {
            link.emit(display.show(bundle));
        }
        wait_for_exit(&holder)?;
    }
    link.emit(display.end(at_rest(folder)?));
    match last_status(folder)?.and_then(|status| status.error) {
        Some(error) => bail!("{error}"),
        None => Ok(()),
    }
}

/// Waits for the interval, or until the process of the search ends.
fn wait_for_exit(holder: &Holder) -> Result<()> {
    let pid = i32::try_from(holder.pid).ok().and_then(Pid::from_raw).filter(|_| holder.is_here());
    let Some(pid) = pid else {
        std::thread::sleep(INTERVAL);
        return Ok(());
    };
    child::wait_for_exit(pid, INTERVAL).context("cannot wait for the search")
}
