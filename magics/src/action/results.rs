//! Requests of the magics that show the results of a search.

/// The study that a magic uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Study {
    /// The study's name; none means the notebook's last study.
    pub project: Option<String>,
    /// The folder that holds the study's folder; none means the folder that holds the last study, or the default of `%%tune`.
    pub directory: Option<String>,
}

/// The request of `%trials` to list the trials of a study, or to show one trial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trials {
    /// The study.
    pub study: Study,
    /// The trial to show in full; none lists the trials.
    pub id: Option<u64>,
    /// The column to sort by, perhaps with `:desc` behind it.
    pub sort: Option<String>,
    /// The condition that the trials must meet.
    pub filter: Option<String>,
    /// The columns to show.
    pub columns: Option<String>,
    /// The largest number of rows, at least 1.
    pub limit: u64,
}

/// The request of `%best` to show the best trials of a study.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Best {
    /// The study.
    pub study: Study,
    /// The number of trials, at least 1; none means one trial, or with several objectives all trials that no other trial beats.
    pub count: Option<u64>,
    /// Whether to put the parameters of the best trial into the next cell.
    pub insert: bool,
}

/// The request of `%plot` to draw a plot of a study.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plot {
    /// The study.
    pub study: Study,
    /// The kind of plot; the kernel checks that the kind exists.
    pub kind: String,
    /// The parameters to show.
    pub parameters: Option<String>,
    /// The metric of the objective to show.
    pub objective: Option<String>,
    /// The evaluator of the parameters' importance; the kernel checks that the evaluator exists.
    pub evaluator: Option<String>,
}

/// The request of `%profile` to show the time that a trial's steps spent in each part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrialProfile {
    /// The study.
    pub study: Study,
    /// The trial; none means the best trial that has a profile.
    pub trial: Option<u64>,
}

/// The request of `%export` to write a study to a file for other programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// The study.
    pub study: Study,
    /// The format of the file; the kernel checks that the format exists.
    pub format: String,
    /// The path of the file, or for TensorBoard of the folder.
    pub target: String,
}
