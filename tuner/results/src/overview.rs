//! `%studies`: the studies of a folder and their state.

use crate::number;
use crate::values::finished_value;
use chrono::{DateTime, Local};
use ferrotune_display::{Bundle, table};
use ferrotune_journal::Study;
use ferrotune_oracle::analysis::ranking;
use ferrotune_space::record::State;

/// A study, with data that is not in its journal.
#[derive(Debug)]
pub struct Entry {
    /// The name of the study's folder.
    pub name: String,
    /// The study.
    pub study: Study,
    /// A description of the process that runs a search of the study.
    pub runner: Option<String>,
    /// The time of the last change of the study's journal.
    pub changed: Option<DateTime<Local>>,
}

/// The table of the studies.
pub fn overview(entries: &[Entry]) -> Bundle {
    let header = [
        "study",
        "objective",
        "oracle",
        "trials",
        "finished",
        "pruned",
        "failed",
        "running",
        "best",
        "search",
        "last change",
    ];
    table(&header, &entries.iter().map(row).collect::<Vec<_>>())
}

fn row(entry: &Entry) -> Vec<String> {
    let study = &entry.study;
    let count = |state: State| study.trials.iter().filter(|trial| trial.state() == state).count().to_string();
    vec![
        entry.name.clone(),
        study.spec.objectives.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
        study.spec.oracle.clone(),
        format!("{}/{}", study.trials.len(), study.spec.max_trials),
        count(State::Finished),
        count(State::Pruned),
        count(State::Failed),
        count(State::Running),
        best(study),
        entry.runner.clone().unwrap_or_else(|| "none".to_owned()),
        entry.changed.map_or_else(String::new, |time| time.format("%Y-%m-%d %H:%M:%S").to_string()),
    ]
}

/// The best value as a text; with several objectives, the number of trials that no other trial dominates.
fn best(study: &Study) -> String {
    let winners = ranking::best(&study.trials, &study.spec);
    match winners.first() {
        _ if study.spec.objectives.len() > 1 => format!("{} trade-offs", winners.len()),
        Some(trial) => finished_value(trial, 0).map_or_else(String::new, number),
        None => String::new(),
    }
}
