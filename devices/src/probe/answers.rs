//! The request to a child and the child's answer, as JSON.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The request to a child.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Request {
    pub(super) plugin: PathBuf,
    pub(super) task: Task,
}

/// A StableHLO module.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Module {
    /// Path of a file with the module's text or bytecode.
    File(PathBuf),
    /// The module's text.
    Text(String),
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Task {
    Identify,
    Open,
    Check { topology: String, module: Module },
}

impl Task {
    pub(super) fn leaves_devices_alone(&self) -> bool {
        matches!(self, Task::Identify | Task::Check { .. })
    }
}

/// The child's answer to a request.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Answer<T> {
    /// The requested result.
    Done(T),
    /// The plugin has refused the operation.
    Refused {
        /// The plugin's reason, on one line.
        reason: String,
    },
}
