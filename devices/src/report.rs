//! What was found, and the table that shows it.

use crate::{Cpu, CudaDevice, Tpu};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Values are shown up to this length: an environment variable may hold anything.
const SHOWN_CHARS: usize = 80;

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Where it was looked for: a variable, a path, an option.
    pub source: String,
    /// What is there, on one line.
    pub found: String,
    /// What follows from it.
    pub meaning: String,
}

/// All that is known of a machine's devices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Everything looked at, in order.
    pub findings: Vec<Finding>,
    /// The TPU, if there is one.
    pub tpu: Option<Tpu>,
    /// Why there is no TPU; empty if there is one.
    pub no_tpu: String,
    /// The library that drives TPUs, which may be there without one, and the other way round.
    pub libtpu: Option<PathBuf>,
    /// The CUDA devices, by CUDA's own index.
    pub cuda: Vec<CudaDevice>,
    /// Why there is no CUDA device; empty if there is one.
    pub no_cuda: String,
    /// The CPU.
    pub cpu: Cpu,
}

impl Finding {
    pub(crate) fn new(source: impl Into<String>, found: impl AsRef<str>, meaning: impl Into<String>) -> Finding {
        Finding { source: source.into(), found: shown(found.as_ref()), meaning: meaning.into() }
    }
}

impl Report {
    /// The findings as a table of plain text, with a heading.
    pub fn table_text(&self) -> String {
        let heading = ("Source", "Found", "Meaning");
        let rows = std::iter::once(heading).chain(self.rows());
        let width = |column: fn(&(&str, &str, &str)) -> usize| rows.clone().map(|row| column(&row)).max().unwrap_or(0);
        let source_width = width(|row| row.0.chars().count());
        let found_width = width(|row| row.1.chars().count());
        rows.clone()
            .map(|(source, found, meaning)| format!("{source:source_width$}  {found:found_width$}  {meaning}\n"))
            .collect()
    }

    /// The findings as an HTML table, escaped.
    pub fn table_html(&self) -> String {
        let row = |cell: &str, (source, found, meaning): (&str, &str, &str)| {
            let cells = [source, found, meaning].map(|text| format!("<{cell}>{}</{cell}>", escaped(text)));
            format!("<tr>{}</tr>", cells.concat())
        };
        let body: String = self.rows().map(|cells| row("td", cells)).collect();
        let heading = row("th", ("Source", "Found", "Meaning"));
        format!("<table><thead>{heading}</thead><tbody>{body}</tbody></table>")
    }

    fn rows(&self) -> impl Iterator<Item = (&str, &str, &str)> + Clone {
        self.findings.iter().map(|finding| (&*finding.source, &*finding.found, &*finding.meaning))
    }
}

/// The text on one line, cut where it gets long.
pub(crate) fn shown(text: &str) -> String {
    let mut line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(SHOWN_CHARS).collect();
    if text.chars().nth(SHOWN_CHARS).is_some() {
        line.push('…');
    }
    line
}

fn escaped(text: &str) -> String {
    let mut html = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            '\'' => html.push_str("&#39;"),
            _ => html.push(c),
        }
    }
    html
}
