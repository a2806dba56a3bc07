//! A search whose trials run on other hosts: an engine starts workers, which run the study's trials from its publication.
//! This module follows the workers and has the engine stop them. It runs no trial.

use super::token::Token;
use super::{Supervisor, SupervisorError};
use ferrotune_journal::folder;
use ferrotune_journal::study_folder::{WORKERS, file_error};
use ferrotune_space::event::{Finish, Running};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// The interval at which the supervisor asks the engine and reads the study.
const INTERVAL: Duration = Duration::from_secs(1);
/// The interval at which the supervisor checks for signals.
const TICK: Duration = Duration::from_millis(50);

/// An engine that starts workers of a study on other hosts: `ferrotune worker`, or an equivalent. Its errors are one line
/// each.
pub trait Engine {
    /// Starts the workers. Their files and logs are in `folder`, and `token` signs the code that they run.
    ///
    /// # Errors
    /// If the engine cannot start the workers; then none has started.
    fn start(&mut self, folder: &Path, token: &Token) -> Result<(), String>;

    /// Returns the present state of the workers.
    ///
    /// # Errors
    /// Where the engine does not answer.
    fn look(&mut self) -> Result<Crew, String>;

    /// Stops some of the workers. Other workers can continue their trials.
    ///
    /// # Errors
    /// If the engine cannot stop them.
    fn cancel(&mut self, which: Which) -> Result<(), String>;
}

/// A choice of workers to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// All workers.
    All,
    /// Workers that the engine has not started yet.
    Waiting,
}

/// The state of an engine's workers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Crew {
    /// A one-line description for people.
    pub text: String,
    /// Whether all workers have ended.
    pub have_ended: bool,
    /// The reason of the failure, if all workers have ended and none succeeded.
    pub failure: Option<String>,
}

/// The supervisor's knowledge of the workers' trials.
#[derive(Debug, Default)]
pub(super) struct Elsewhere {
    pub(super) text: String,
    /// The time at which each running trial was first seen.
    pub(super) seen: BTreeMap<u64, Instant>,
}

impl Supervisor<'_> {
    /// Starts the workers and follows them until they end. Stops them if this fails.
    pub(super) fn follow(&mut self, engine: &mut dyn Engine) -> Result<Finish, SupervisorError> {
        if self.hear_of_trials()? {
            return Ok(Finish::MaxTrials);
        }
        // A trial of an earlier search from this folder would have to wait for this search, so it is released.
        self.search.journal.leave_trials()?;
        let folder = self.search.folder.join(WORKERS);
        folder::create_and_sync(&folder).map_err(file_error("make", &folder))?;
        let token = Token::of_study(&self.search.folder)?;
        engine.start(&folder, &token).map_err(failed)?;
        let followed = self.follow_to_the_end(engine);
        if followed.is_err()
            && let Err(reason) = engine.cancel(Which::All)
        {
            tracing::warn!(reason, "the search's workers may still run");
        }
        followed
    }

    fn follow_to_the_end(&mut self, engine: &mut dyn Engine) -> Result<Finish, SupervisorError> {
        let mut cancelled = None;
        let crew = loop {
            self.look_outside(0)?;
            let has_all = self.hear_of_trials()?;
            let to_cancel = match (self.phase.is_stopping(), has_all) {
                (true, _) => Some(Which::All),
                (false, true) => Some(Which::Waiting),
                (false, false) => None,
            };
            if to_cancel != cancelled
                && let Some(which) = to_cancel
            {
                engine.cancel(which).map_err(failed)?;
                cancelled = to_cancel;
            }
            // An engine that does not answer now may answer later, and the workers keep running.
            let crew = engine.look().unwrap_or_else(|text| Crew { text, ..Crew::default() });
            self.elsewhere.get_or_insert_default().text.clone_from(&crew.text);
            self.send_progress(&[]);
            if crew.have_ended || self.phase.is_urgent() {
                break crew;
            }
            self.wait(INTERVAL)?;
        };
        let has_all = self.hear_of_trials()?;
        self.send_progress(&[]);
        match crew.failure.filter(|_| !has_all && !self.phase.is_stopping()) {
            Some(reason) => Err(failed(reason)),
            None => {
                let over = if has_all { Finish::MaxTrials } else { Finish::Exhausted };
                Ok(std::mem::take(&mut self.phase).result(over)?)
            }
        }
    }

    /// Reads what the workers have written into the journal. Returns whether the study has all its trials.
    fn hear_of_trials(&mut self) -> Result<bool, SupervisorError> {
        self.search.journal.read_on()?;
        let known = std::mem::take(&mut self.elsewhere.get_or_insert_default().seen);
        let running = self.search.trials().iter().filter(|trial| trial.runs_elsewhere() && trial.paused_at.is_none());
        let seen: BTreeMap<u64, Instant> = running
            .map(|trial| (trial.number, known.get(&trial.number).copied().unwrap_or_else(Instant::now)))
            .collect();
        for number in known.into_keys().filter(|number| !seen.contains_key(number)) {
            if self.search.record(number).ending.is_some() {
                self.announce_end(number);
            }
        }
        self.elsewhere.get_or_insert_default().seen = seen;
        Ok(self.search.journal.ended() >= self.search.spec.max_trials)
    }

    /// Waits for `time`, or until a signal or the search's time limit stops the search.
    fn wait(&mut self, time: Duration) -> Result<(), SupervisorError> {
        let (end, was_stopping) = (Instant::now() + time, self.phase.is_stopping());
        while Instant::now() < end && self.phase.is_stopping() == was_stopping && !self.phase.is_urgent() {
            std::thread::sleep(TICK);
            self.look_outside(0)?;
        }
        Ok(())
    }

    /// The trials that the workers are running.
    pub(super) fn running_elsewhere(&self, elsewhere: &Elsewhere) -> Vec<Running> {
        elsewhere.seen.keys().map(|number| self.running_trial(*number, None)).collect()
    }
}

fn failed(reason: String) -> SupervisorError {
    SupervisorError::Engine { reason }
}
