//! Ids of jobs.

use std::fmt;

/// An engine's id for one run of a job's command. It can be stored as text and parsed again.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct JobId(String);

impl JobId {
    /// The text of the id.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<T: Into<String>> From<T> for JobId {
    fn from(text: T) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}
