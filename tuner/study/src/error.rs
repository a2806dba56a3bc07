//! Why a study cannot be built or run. A failed trial is not an error: its record has an ending.

use ferrotune_journal::JournalError;
use ferrotune_oracle::OracleError;
use ferrotune_space::event::Finish;
use ferrotune_trial::TrialError;
use ferrotune_tuner::in_process::SearchError;
use std::io;

/// Why a study cannot be built or run.
#[derive(Debug, thiserror::Error)]
pub enum StudyError {
    /// Nothing was named to optimise.
    #[error("the study has no objective; name one with .objective(\"loss\", Direction::Min)")]
    NoObjective,
    /// A project's name is one folder's name.
    #[error("`{project}` is not the name of a folder; name the project without `/`, and its place with .directory()")]
    Project {
        /// The name.
        project: String,
    },
    /// An option that only a supervisor of processes can keep.
    #[error(".{option}() needs a process for each trial, which it could end; drop it or .in_process()")]
    NeedsProcesses {
        /// The option.
        option: &'static str,
    },
    /// A loop of one's own needs the trials in one's own process.
    #[error("trials that are asked for run in the program's own process; build the study with .in_process()")]
    NotInProcess,
    /// The search is over.
    #[error("the search is over, so there is no trial to ask for; {}", cure(.finish))]
    Over {
        /// Why.
        finish: Finish,
    },
    /// The oracle chooses the next trial by the results of trials that run.
    #[error(
        "the oracle waits for the results of trials that were asked for ({}); end them with .tell() or .tell_failed() first",
        trials.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    )]
    Waiting {
        /// Their numbers.
        trials: Vec<u64>,
    },
    /// The result of a trial is wrong.
    #[error("{reason}")]
    Refused {
        /// Why.
        reason: String,
    },
    /// A study that needs processes, inside a trial.
    #[error("a trial's objective cannot start processes for trials of its own; build that study with .in_process()")]
    Nested,
    /// The oracle, its pruner or its terminator refuses the search.
    #[error(transparent)]
    Oracle(#[from] OracleError),
    /// The journal cannot be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The search cannot begin or go on.
    #[error(transparent)]
    Search(#[from] SearchError),
    /// A trial of this process cannot be answered.
    #[error(transparent)]
    Trial(#[from] TrialError),
    /// The supervisor's process says why it cannot begin or go on.
    #[error("{message}")]
    Supervisor {
        /// One line.
        message: String,
    },
    /// The supervisor's process cannot be started, or is gone.
    #[error("{what}: {source}; run the program again, which goes on with the search")]
    Process {
        /// What was tried.
        what: &'static str,
        /// The system's reason.
        source: io::Error,
    },
}

impl StudyError {
    /// For `map_err`: names what was tried.
    pub(crate) fn process(what: &'static str) -> impl FnOnce(io::Error) -> StudyError {
        move |source| StudyError::Process { what, source }
    }
}

/// What to do to ask for more trials.
fn cure(finish: &Finish) -> &'static str {
    match finish {
        Finish::MaxTrials => "raise .max_trials()",
        Finish::Exhausted => "the oracle has nothing more to try",
        Finish::Timeout => "raise .timeout()",
        Finish::Interrupted => "a callback has stopped it",
        Finish::Stopped => "a trial has stopped it",
    }
}
