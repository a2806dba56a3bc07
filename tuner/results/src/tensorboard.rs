//! A study in TensorBoard's format: a run for each trial with its metrics as scalars, and the HParams plugin's table.
//!
//! When a study grows, its files usually begin with their earlier content, so the caller can append the rest, and an
//! open TensorBoard shows the new content.

mod hparams;

use crate::columns::times;
use ferrotune_display::tensorboard::{framed, scalar, summary, version};
use ferrotune_journal::Study;
use ferrotune_space::record::TrialRecord;

/// A file for TensorBoard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventFile {
    /// The file's path below the folder that TensorBoard reads.
    pub path: String,
    /// The file's content.
    pub bytes: Vec<u8>,
}

/// All files of a study: the experiment, and a folder for each trial that has begun. There are no files before the first trial begins.
///
/// The journal does not have the times of reports, so every scalar has the time at which its trial began.
pub fn files(study: &Study) -> Vec<EventFile> {
    let Some(begun) = study.times.iter().filter_map(|times| times.started).min() else { return Vec::new() };
    let begun = begun.timestamp();
    let mut files = vec![file(String::new(), begun, &[summary(begun as f64, 0, &hparams::experiment(study))])];
    // A waiting trial has no parameters yet, and TensorBoard would never update them.
    let has_begun = |trial: &&TrialRecord| times(study, trial).started.is_some();
    files.extend(study.trials.iter().filter(has_begun).map(|trial| of_trial(study, trial)));
    files
}

fn of_trial(study: &Study, trial: &TrialRecord) -> EventFile {
    let times = times(study, trial);
    let seconds = |time: chrono::DateTime<chrono::Utc>| time.timestamp_micros() as f64 / 1e6;
    let started = times.started.map_or(0.0, seconds);
    let mut all = vec![summary(started, 0, &hparams::session_start(trial, started))];
    for (step, metrics) in &trial.metrics {
        let scalars = metrics.iter().filter_map(|(name, value)| Some((name.as_str(), (*value)?)));
        all.extend(scalars.map(|(name, value)| summary(started, *step, &scalar(name, value))));
    }
    let last = trial.last_step().unwrap_or(0);
    for (index, objective) in study.spec.objectives.iter().enumerate() {
        let value = trial.values.get(index).copied().filter(|_| trial.ending.is_some());
        let tag = hparams::objective_tag(&objective.metric);
        all.extend(value.map(|value| summary(started, last, &scalar(&tag, value))));
    }
    let ended = times.ended.map_or(started + trial.seconds, seconds);
    all.extend(hparams::session_end(trial, ended).map(|end| summary(ended, last, &end)));
    file(format!("trial-{:04}/", trial.number), started as i64, &all)
}

fn file(folder: String, begun: i64, events: &[Vec<u8>]) -> EventFile {
    let mut bytes = framed(&version(begun as f64));
    bytes.extend(events.iter().flat_map(|event| framed(event)));
    EventFile { path: format!("{folder}events.out.tfevents.{begun}.ferrotune"), bytes }
}
