//! `history_request`: selects the cells that a client asks for. This module reads no files.

use std::collections::HashSet;
use std::ops::RangeInclusive;

use serde::Deserialize;

use super::Entry;

/// The fields of `history_request` in the messaging specification; clients send null for fields that they do not set.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "hist_access_type", rename_all = "lowercase")]
pub(crate) enum Query {
    /// The last `n` cells.
    Tail {
        #[serde(default)]
        n: Option<usize>,
    },
    /// Lines `start..stop` of a session: 0 is this session, -1 the session before it.
    Range {
        #[serde(default)]
        session: Option<i64>,
        #[serde(default)]
        start: Option<i64>,
        #[serde(default)]
        stop: Option<i64>,
    },
    /// The last `n` cells that match a glob pattern.
    Search {
        #[serde(default)]
        pattern: Option<String>,
        #[serde(default)]
        n: Option<usize>,
        #[serde(default)]
        unique: Option<bool>,
    },
}

const DEFAULT_TAIL: usize = 10;

impl Query {
    /// A query for these lines of this session.
    pub(crate) fn of_session(lines: &RangeInclusive<u32>) -> Self {
        let (start, stop) = (i64::from(*lines.start()), i64::from(*lines.end()) + 1);
        Self::Range { session: Some(0), start: Some(start), stop: Some(stop) }
    }

    /// The entries that the query selects, in the order of `entries`. `current` is this session.
    pub(super) fn select(&self, entries: Vec<Entry>, current: u64) -> Vec<Entry> {
        match self {
            Self::Tail { n } => last(entries, n.unwrap_or(DEFAULT_TAIL)),
            Self::Range { session, start, stop } => {
                let Some(session) = absolute(session.unwrap_or(0), current) else {
                    return Vec::new();
                };
                let lines = start.unwrap_or(1)..stop.unwrap_or(i64::MAX);
                entries
                    .into_iter()
                    .filter(|entry| entry.session == session && lines.contains(&i64::from(entry.line)))
                    .collect()
            }
            Self::Search { pattern, n, unique } => {
                let pattern: Vec<char> = pattern.as_deref().unwrap_or("*").chars().collect();
                let mut seen = HashSet::new();
                let mut found: Vec<Entry> = entries
                    .into_iter()
                    .rev()
                    .filter(|entry| matches(&pattern, &entry.source))
                    .filter(|entry| *unique != Some(true) || seen.insert(entry.source.clone()))
                    .take(n.unwrap_or(usize::MAX))
                    .collect();
                found.reverse();
                found
            }
        }
    }
}

fn absolute(session: i64, current: u64) -> Option<u64> {
    if session > 0 { u64::try_from(session).ok() } else { current.checked_sub(session.unsigned_abs()) }
}

fn last(mut entries: Vec<Entry>, n: usize) -> Vec<Entry> {
    entries.split_off(entries.len().saturating_sub(n))
}

/// Whether a glob pattern with `*` and `?` matches the whole text. The time grows with pattern × text, not exponentially.
fn matches(pattern: &[char], text: &str) -> bool {
    let text: Vec<char> = text.chars().collect();
    let (mut at, mut read) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while read < text.len() {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at, read));
                at += 1;
            }
            Some(&wanted) if wanted == '?' || wanted == text[read] => {
                at += 1;
                read += 1;
            }
            _ => {
                let Some((star_at, star_read)) = star else { return false };
                star = Some((star_at, star_read + 1));
                at = star_at + 1;
                read = star_read + 1;
            }
        }
    }
    pattern[at..].iter().all(|wanted| *wanted == '*')
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn select(request: serde_json::Value) -> String {
        let entry = |session, line, source: &str| Entry { session, line, source: source.into() };
        let entries = vec![
            entry(3, 1, "let a = 1;"),
            entry(3, 2, "a"),
            entry(4, 1, "let b = 2;"),
            entry(4, 2, "a"),
            entry(4, 3, "b"),
        ];
        let query: Query = serde_json::from_value(request).unwrap();
        let found = query.select(entries, 4);
        found.iter().map(|entry| format!("{}/{}", entry.session, entry.line)).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn requests_find_these_cells() {
        let table = [
            (json!({"hist_access_type": "tail", "n": 2, "raw": true, "output": false}), "4/2 4/3"),
            (json!({"hist_access_type": "tail", "n": 100}), "3/1 3/2 4/1 4/2 4/3"),
            (json!({"hist_access_type": "tail", "n": 0}), ""),
            (json!({"hist_access_type": "tail", "n": null}), "3/1 3/2 4/1 4/2 4/3"),
            (json!({"hist_access_type": "range", "session": 0, "start": 1, "stop": 3}), "4/1 4/2"),
            (json!({"hist_access_type": "range", "session": 0, "start": 0, "stop": null}), "4/1 4/2 4/3"),
            (json!({"hist_access_type": "range", "session": -1, "start": 2, "stop": null}), "3/2"),
            (json!({"hist_access_type": "range", "session": 3, "start": 1, "stop": 2}), "3/1"),
            (json!({"hist_access_type": "range", "session": -9, "start": 1, "stop": 2}), ""),
            (json!({"hist_access_type": "range", "session": i64::MIN, "start": 1, "stop": 2}), ""),
            (json!({"hist_access_type": "range", "session": 0, "start": 3, "stop": 1}), ""),
            (json!({"hist_access_type": "search", "pattern": "let*", "n": 10}), "3/1 4/1"),
            (json!({"hist_access_type": "search", "pattern": "a", "unique": true}), "4/2"),
            (json!({"hist_access_type": "search", "pattern": "?", "n": 2}), "4/2 4/3"),
            (json!({"hist_access_type": "search", "pattern": "*=*;*", "n": 1}), "4/1"),
            (json!({"hist_access_type": "search", "pattern": ""}), ""),
        ];
        for (request, found) in table {
            assert_eq!(select(request.clone()), found, "{request}");
        }
    }

    #[test]
    fn hostile_pattern_ends() {
        let pattern: Vec<char> = "*a".repeat(200).chars().chain(['b']).collect();
        assert!(!matches(&pattern, &"a".repeat(5_000)));
    }
}
