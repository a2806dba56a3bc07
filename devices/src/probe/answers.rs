//! What a child is asked, and how it answers, as JSON.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// What a child is to do.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Request {
    pub(super) plugin: PathBuf,
    pub(super) task: Task,
}

/// A StableHLO module.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Module {
    /// A file with its text or bytecode.
    File(PathBuf),
    /// Its text.
    Text(String),
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Task {
    Identify,
    Open,
    Check { topology: String, module: Module },
    SelfTest,
}

impl Task {
    pub(super) fn leaves_devices_alone(&self) -> bool {
        matches!(self, Task::Identify | Task::Check { .. })
    }
}

/// What a child has to say to a request.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Answer<T> {
    /// What was asked for.
    Done(T),
    /// The plugin cannot do it.
    Refused {
        /// Its reason, on one line.
        reason: String,
    },
}
