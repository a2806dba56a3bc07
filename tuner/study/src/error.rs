//! The errors of building or running a study. A failed trial is not an error: its record has an ending.

use ferrotune_journal::JournalError;
use ferrotune_oracle::OracleError;
use ferrotune_space::event::Finish;
use ferrotune_trial::TrialError;
use ferrotune_tuner::in_process::SearchError;
use std::io;

/// The reason why a study cannot be built or run.
#[derive(Debug, thiserror::Error)]
pub enum StudyError {
    /// The study has no objective.
    #[error("the study has no objective; name one with .objective(\"loss\", Direction::Min)")]
    NoObjective,
    /// The project's name is not a valid folder name.
    #[error("`{project}` is not the name of a folder; name the project without `/`, and its place with .directory()")]
    Project {
        /// The project's name.
        project: String,
    },
    /// An option needs processes for the trials, but the trials run in the program's process.
    #[error(".{option}() needs a process for each trial, which it could end; drop it or .in_process()")]
    NeedsProcesses {
        /// The option.
        option: &'static str,
    },
    /// `Study::ask` needs the trials in the program's own process.
    #[error("trials that are asked for run in the program's own process; build the study with .in_process()")]
    NotInProcess,
    /// The search has ended.
    #[error("the search is over, so there is no trial to ask for; {}", cure(.finish))]
    Over {
        /// The reason why the search ended.
        finish: Finish,
    },
    /// The oracle needs the results of running trials before it can choose the next trial.
    #[error(
        "the oracle waits for the results of trials that were asked for ({}); end them with .tell() or .tell_failed() first",
        trials.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    )]
    Waiting {
        /// The numbers of the running trials.
        trials: Vec<u64>,
    },
    /// The result of a trial is wrong.
    #[error("{reason}")]
    Refused {
        /// The reason.
        reason: String,
    },
    /// A trial's objective runs a study that needs processes.
    #[error("a trial's objective cannot start processes for trials of its own; build that study with .in_process()")]
    Nested,
    /// The oracle, its pruner or its terminator refuses the search.
    #[error(transparent)]
    Oracle(#[from] OracleError),
    /// The journal cannot be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The search cannot begin or continue.
    #[error(transparent)]
    Search(#[from] SearchError),
    /// A request of a trial in this process cannot be answered.
    #[error(transparent)]
    Trial(#[from] TrialError),
    /// The supervisor's process reports why it cannot begin or continue.
    #[error("{message}")]
    Supervisor {
        /// One line: the supervisor's error.
        message: String,
    },
    /// The supervisor's process cannot be started, or has ended.
    #[error("{what}: {source}; run the program again, which goes on with the search")]
    Process {
        /// The operation that failed.
        what: &'static str,
        /// The system's reason.
        source: io::Error,
    },
}

impl StudyError {
    /// A function for `map_err` that adds the name of the failed operation.
    pub(crate) fn process(what: &'static str) -> impl FnOnce(io::Error) -> StudyError {
        move |source| StudyError::Process { what, source }
    }
}

/// The cure: how to get more trials.
fn cure(finish: &Finish) -> &'static str {
    match finish {
        Finish::MaxTrials => "raise .max_trials()",
        Finish::Exhausted => "the oracle has nothing more to try",
        Finish::Timeout => "raise .timeout()",
        Finish::Interrupted => "a callback has stopped it",
        Finish::Stopped => "a trial has stopped it",
    }
}
