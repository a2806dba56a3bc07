//! The report on a machine, as data and as tables.

use crate::finding::Finding;
use crate::tpu::cure_of;
use crate::{Cards, Cpu, CudaDevice, Tpu, cuda};
use ferrotune_machine::format::precise_bytes;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The report on a machine's devices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// All findings, in the order of detection.
    pub findings: Vec<Finding>,
    /// The TPU, if there is one.
    pub tpu: Option<Tpu>,
    /// The reason why there is no TPU; empty if there is one.
    pub no_tpu: String,
    /// Path of the library that drives TPUs; a machine may have the library without a TPU, or a TPU without the library.
    pub libtpu: Option<PathBuf>,
    /// Reasons why an attached TPU may fail to open, each with its cure.
    pub tpu_suspects: Vec<String>,
    /// The reason why the attached TPU failed to open, with the cure.
    pub tpu_failure: Option<String>,
    /// NVIDIA's cards, by CUDA's own index.
    pub cuda: Vec<CudaDevice>,
    /// The reason why there is no CUDA device; empty if there is one.
    pub no_cuda: String,
    /// The cards of each maker, NVIDIA's first, with their plugins.
    pub cards: Vec<Cards>,
    /// The CPU.
    pub cpu: Cpu,
}

impl Report {
    /// Fills in the memory of the CUDA devices. NVIDIA's program has 5 s to answer; without an answer the memory stays unknown.
    pub fn ask_cuda_memory(&mut self) {
        cuda::fill_in_memory(&mut self.cuda);
    }

    /// The devices that may be opened, best first, each with its plugin's library: the attached TPU, then the cards.
    pub fn drivers(&self) -> Vec<(String, PathBuf)> {
        let is_attached = self.tpu.as_ref().is_some_and(|tpu| tpu.chips.is_some());
        let tpu = self.libtpu.clone().filter(|_| is_attached).map(|libtpu| ("tpu".to_owned(), libtpu));
        let cards = self.cards.iter().filter(|cards| cards.obstacle.is_none());
        let cards = cards.filter_map(|cards| Some((cards.device.clone(), cards.plugin.clone()?)));
        tpu.into_iter().chain(cards).collect()
    }

    /// Records that one of the [`drivers`](Report::drivers) failed to open, with the cure if it is known.
    pub fn note_failure(&mut self, device: &str, failure: &str) {
        match self.cards.iter_mut().find(|cards| cards.device == device) {
            Some(cards) => cards.note_failure(failure, &self.cuda),
            None => self.note_tpu_failure(failure.to_owned()),
        }
    }

    /// The cure for libtpu's message if it is known, else the cures of all suspects.
    fn note_tpu_failure(&mut self, failure: String) {
        let cures = match cure_of(&failure) {
            Some(cure) => cure.to_owned(),
            None => self.tpu_suspects.join("; "),
        };
        self.tpu_failure = Some(if cures.is_empty() { failure } else { format!("{failure}; {cures}") });
    }

    /// A table with a line for each device, and the reason for each kind of device that is absent.
    pub fn devices_text(&self) -> String {
        let mut rows = vec![["Device", "Name", "Memory", "Detail"].map(str::to_owned)];
        let Cpu { cores, simd, .. } = &self.cpu;
        let detail = format!("{cores} core{}, {}", if *cores == 1 { "" } else { "s" }, listed(simd));
        rows.push(["cpu".into(), self.cpu.model.clone(), self.cpu.memory_text(), detail]);
        for device in &self.cuda {
            let memory = device.memory_bytes.map_or_else(|| "unknown".to_owned(), precise_bytes);
            let driver = device.driver.as_deref().unwrap_or("unknown");
            let detail = format!("driver {driver}, {}", plugin_text(self.cards.first()));
            rows.push([device.to_string(), device.name.clone(), memory, detail]);
        }
        if self.cuda.is_empty() {
            rows.push(["cuda".into(), "none".into(), String::new(), self.no_cuda.clone()]);
        }
        for cards in self.cards.iter().filter(|cards| cards.device != "cuda") {
            rows.push([cards.device.clone(), cards.to_string(), "unknown".into(), plugin_text(Some(cards))]);
        }
        let libtpu = self.libtpu.as_ref().map_or_else(|| "no libtpu".to_owned(), |path| path.display().to_string());
        rows.push(match &self.tpu {
            Some(tpu) => ["tpu".into(), tpu.to_string(), String::new(), libtpu],
            None => ["tpu".into(), "none".into(), String::new(), self.no_tpu.clone()],
        });
        aligned(&rows)
    }

    /// The findings as a table of plain text, with a heading.
    pub fn table_text(&self) -> String {
        let heading = ("Source", "Found", "Meaning");
        let row = |(source, found, meaning): (&str, &str, &str)| [source, found, meaning].map(str::to_owned);
        aligned(&std::iter::once(heading).chain(self.rows()).map(row).collect::<Vec<_>>())
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

/// The plugin of cards, or what is in its way.
fn plugin_text(cards: Option<&Cards>) -> String {
    let plugin = cards.and_then(|cards| cards.plugin.as_ref()).map(|path| path.display().to_string());
    let obstacle = cards.and_then(|cards| cards.obstacle.clone());
    plugin.or(obstacle).unwrap_or_default()
}

fn listed(simd: &[String]) -> String {
    if simd.is_empty() { "no known vector units".to_owned() } else { simd.join(", ") }
}

/// A table whose columns are as wide as their widest cell; the last column is not padded.
fn aligned<const COLUMNS: usize>(rows: &[[String; COLUMNS]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; COLUMNS] = std::array::from_fn(|column| if column + 1 < COLUMNS { width(column) } else { 0 });
    let line = |row: &[String; COLUMNS]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    rows.iter().map(line).collect()
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
