//! A finding: one detail of a machine that was examined, with texts of one line each. Every detector makes findings.

use serde::{Deserialize, Serialize};

/// The greatest number of characters that are shown of a value, since an environment variable may hold any text.
const SHOWN_CHARS: usize = 80;

/// One detail of a machine that was examined.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The source of the finding: a variable, a path or an option.
    pub source: String,
    /// The content of the source, on one line.
    pub found: String,
    /// The conclusion from the content.
    pub meaning: String,
}

impl Finding {
    pub(crate) fn new(source: impl Into<String>, found: impl AsRef<str>, meaning: impl Into<String>) -> Finding {
        Finding { source: source.into(), found: shown(found.as_ref()), meaning: meaning.into() }
    }
}

/// A text of several lines as one line, with bars between the parts.
pub(crate) fn one_line(text: &str) -> String {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" | ")
}

/// The text on one line, cut where it is too long.
pub(crate) fn shown(text: &str) -> String {
    let mut line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(SHOWN_CHARS).collect();
    if text.chars().nth(SHOWN_CHARS).is_some() {
        line.push('…');
    }
    line
}
