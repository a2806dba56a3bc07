//! What the magics ask for that show the results of a search.

/// Which study is meant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Study {
    /// Its name; none means the notebook's last one.
    pub project: Option<String>,
    /// The folder that holds the study's folder; none means where the last study was, or that of `%%tune`'s default.
    pub directory: Option<String>,
}

/// List the trials of a study, or show one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trials {
    /// The study.
    pub study: Study,
    /// The one trial to show in full.
    pub id: Option<u64>,
    /// The column to sort by, perhaps with `:desc` behind it.
    pub sort: Option<String>,
    /// The condition that the trials must meet.
    pub filter: Option<String>,
    /// The columns to show.
    pub columns: Option<String>,
    /// Most rows, at least 1.
    pub limit: u64,
}

/// Show the best trials of a study.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Best {
    /// The study.
    pub study: Study,
    /// How many, at least 1; none means one, or all of several objectives that no other trial beats.
    pub count: Option<u64>,
    /// Put the parameters of the best one into the next cell.
    pub insert: bool,
}

/// Draw a study.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plot {
    /// The study.
    pub study: Study,
    /// Which plot; the kernel knows which exist.
    pub kind: String,
    /// The parameters to show.
    pub parameters: Option<String>,
    /// The objective by its metric.
    pub objective: Option<String>,
    /// How importance is measured; the kernel knows how it can be.
    pub evaluator: Option<String>,
}

/// Show what the steps of a trial spent their time on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrialProfile {
    /// The study.
    pub study: Study,
    /// The trial; none means the best one that has a profile.
    pub trial: Option<u64>,
}

/// Write a study to a file that other programs read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// The study.
    pub study: Study,
    /// Which format; the kernel knows which exist.
    pub format: String,
    /// The file, or for TensorBoard the folder.
    pub target: String,
}
