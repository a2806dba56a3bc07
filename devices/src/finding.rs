//! One thing that was looked at, with its texts on one line each. Everything that looks at a machine makes these.

use serde::{Deserialize, Serialize};

/// Longer values are cut: an environment variable may hold anything.
const SHOWN_CHARS: usize = 80;

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Where detection looked: a variable, a path, an option.
    pub source: String,
    /// What is there, on one line.
    pub found: String,
    /// What follows from it.
    pub meaning: String,
}

impl Finding {
    pub(crate) fn new(source: impl Into<String>, found: impl AsRef<str>, meaning: impl Into<String>) -> Finding {
        Finding { source: source.into(), found: shown(found.as_ref()), meaning: meaning.into() }
    }
}

/// Text of several lines on one line, with bars between them.
pub(crate) fn one_line(text: &str) -> String {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" | ")
}

/// The text on one line, cut where it gets long.
pub(crate) fn shown(text: &str) -> String {
    let mut line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(SHOWN_CHARS).collect();
    if text.chars().nth(SHOWN_CHARS).is_some() {
        line.push('…');
    }
    line
}
