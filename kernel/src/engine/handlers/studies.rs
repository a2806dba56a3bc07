//! The magics that show a study. They read the study's journal, and `ferrotune_results` turns the journal into tables, plots and
//! files.

mod model_folder;
mod weights;

pub(crate) use model_folder::export_folder;

use crate::disk::write_whole;
use crate::engine::handlers::files::expanded;
use crate::search_process::write_event_files;
use anyhow::{Context, Result, bail};
use chrono::{DateTime, Local};
use ferrotune_display::Bundle;
use ferrotune_journal::study_folder::{is_study, last_change};
use ferrotune_journal::{Journal, Study, holder_of};
use ferrotune_machine::format;
use ferrotune_magics::{Best, Export, Plot, Trials};
use ferrotune_results::best::Weights;
use ferrotune_results::listing::Listing;
use ferrotune_results::overview::Entry;
use ferrotune_results::plot::{self, Focus};
use ferrotune_results::tensorboard;
use ferrotune_space::checkpoint::step_of;
use ferrotune_space::record::{DeviceUse, Ending, MemoryCheck, TrialRecord};
use ferrotune_tuner::supervisor::output_of;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The folder of the projects whose searches name no other one.
const PROJECTS: &str = "studies";

/// The trials of a study as a table, or one trial in full.
pub(in crate::engine) fn trials(folder: &Path, request: &Trials) -> Result<Bundle> {
    if let Some(number) = request.id {
        return trial(folder, number);
    }
    let listing = Listing {
        sort: request.sort.as_deref(),
        filter: request.filter.as_deref(),
        columns: request.columns.as_deref(),
        limit: Some(whole(request.limit)),
    };
    Ok(listing.table(&Journal::read(folder)?)?)
}

/// One trial in full.
fn trial(folder: &Path, number: u64) -> Result<Bundle> {
    let study = Journal::read(folder)?;
    let Some(trial) = study.trials.iter().find(|trial| trial.number == number) else {
        bail!("study {} has no trial {number}; it has {}", study.spec.project, study.trials.len());
    };
    let mut lines = vec![format!("trial {number} of {}: {}", study.spec.project, ending(trial))];
    let values = study.spec.objectives.iter().zip(&trial.values);
    lines.extend(
        values.map(|(objective, value)| format!("{} = {}", objective.metric, ferrotune_results::number(*value))),
    );
    lines.extend(trial.parameters.iter().map(|(name, parameter)| format!("  {name} = {}", parameter.value)));
    lines.extend(trial.user_attributes.iter().map(|(name, value)| format!("  {name}: {value}")));
    lines.push(format!("{:.1} s, peak memory {}", trial.seconds, format::bytes(trial.peak_bytes)));
    lines.extend(trial.memory.as_ref().map(memory_line));
    lines.extend(trial.device.as_ref().map(device_line));
    if !trial.retried.is_empty() {
        let endings: Vec<String> = trial.retried.iter().map(ToString::to_string).collect();
        lines.push(format!("tried again after: {}", endings.join("; ")));
    }
    lines.extend(weights::of(folder, &study, trial)?.map(|found| format!("weights: {}", weights::shown(found))));
    for (step, metrics) in &trial.metrics {
        let metrics = metrics.iter().map(|(name, value)| {
            format!("{name}={}", value.map_or_else(|| "none".to_owned(), ferrotune_results::number))
        });
        lines.push(format!("  step {step}: {}", metrics.collect::<Vec<_>>().join(", ")));
    }
    match output_of(folder, number) {
        Ok(bytes) if !bytes.is_empty() => {
            lines.push(format!("output:\n{}", String::from_utf8_lossy(&bytes).trim_end()))
        }
        Ok(_) => {}
        Err(error) => lines.push(format!("its output cannot be read: {error}")),
    }
    Ok(Bundle::text(lines.join("\n")))
}

/// The line about the machine's available memory before and after the trial.
fn memory_line(memory: &MemoryCheck) -> String {
    let (before, after) = (format::bytes(memory.before_bytes), format::bytes(memory.after_bytes));
    let left = if memory.left.is_empty() { "nothing".to_owned() } else { memory.left.join(", ") };
    format!("memory available: {before} before it, {after} after it; left behind: {left}")
}

/// The line about the device, and its memory in use before and after the trial.
fn device_line(device: &DeviceUse) -> String {
    let facts: Vec<&str> = [&device.kind, &device.version].into_iter().flatten().map(String::as_str).collect();
    let facts = if facts.is_empty() { String::new() } else { format!(" ({})", facts.join(", ")) };
    let memory = match (device.before_bytes, device.after_bytes) {
        (Some(before), Some(after)) => {
            format!(", memory in use: {} before it, {} after it", format::bytes(before), format::bytes(after))
        }
        _ => String::new(),
    };
    let peak = device.peak_bytes.map(|peak| format!(", {} of its memory at most", format::bytes(peak)));
    format!("device: {}{facts}{memory}{}", device.name, peak.unwrap_or_default())
}

fn ending(trial: &TrialRecord) -> String {
    trial.ending.as_ref().map_or_else(|| "unfinished".to_owned(), ToString::to_string)
}

/// The best trials of a study, best first. With `insert`, also Rust that declares the best trial and its parameters as variables.
pub(in crate::engine) fn best(folder: &Path, request: &Best) -> Result<(Bundle, Option<String>)> {
    let study = Journal::read(folder)?;
    // `best` reads only the checkpoints of the shown trials; the first unreadable checkpoint is the error.
    let unreadable = Cell::new(None);
    let weights = |trial: &TrialRecord| {
        let weights = weights::of(folder, &study, trial).unwrap_or_else(|error| {
            unreadable.set(unreadable.take().or(Some(error)));
            None
        });
        weights.map(weights::shown)
    };
    let count = request.count.map(whole);
    let best = ferrotune_results::best::best(&study, count, weights)?;
    if let Some(error) = unreadable.into_inner() {
        return Err(error);
    }
    let parameters = || ferrotune_results::best::parameters(&study, count, &name_of(folder));
    let code = request.insert.then(parameters).transpose()?;
    Ok((best, code))
}

/// The name by which `ferrotune::best` finds a study's folder: that of a project in `studies`, or the folder's path.
fn name_of(folder: &Path) -> String {
    let folder = weights::from_cells(std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned()));
    if let Some(name) = folder.strip_prefix(PROJECTS).ok().filter(|name| name.components().count() == 1) {
        return name.display().to_string();
    }
    // A single name stands for a project.
    let is_name = folder.components().count() == 1;
    if is_name { format!("./{}", folder.display()) } else { folder.display().to_string() }
}

/// The folder of a study that a user names: a project in the folder `studies`, or a path.
pub(crate) fn folder_named(study: &Path) -> PathBuf {
    let is_name = study.components().count() == 1 && study.file_name() == Some(study.as_os_str());
    if is_name { Path::new(PROJECTS).join(study) } else { study.to_owned() }
}

/// The best trial of a study as JSON, for `ferrotune::best` in a cell: its number, value, parameters, metrics and checkpoint.
pub(crate) fn best_as_json(folder: &Path) -> Result<serde_json::Value> {
    if !is_study(folder) {
        bail!("there is no study in {}; `%studies` lists those that there are", folder.display());
    }
    let study = Journal::read(folder)?;
    let trial = ferrotune_results::best::first(&study)?;
    let weights = weights::of(folder, &study, trial)?;
    let step = weights.as_ref().map(|weights| step_of(&weights.path)).transpose()?.flatten();
    let metrics = step.and_then(|step| trial.metrics.get(&step)).or_else(|| trial.metrics.values().last());
    let values = trial.parameters.iter().map(|(name, parameter)| (name.clone(), parameter.value.clone()));
    let pruned = || {
        (trial.ending != Some(Ending::Finished))
            .then(|| format!("no trial has finished; this one is {}", ending(trial)))
    };
    let note = weights.as_ref().and_then(|weights| weights.note.clone()).or_else(pruned);
    Ok(serde_json::json!({
        "trial": trial.number,
        "value": trial.value(),
        "values": values.collect::<BTreeMap<_, _>>(),
        "metrics": metrics,
        "checkpoint": weights.as_ref().map(|weights| &weights.path),
        "note": note,
    }))
}

/// The search space of a study.
pub(in crate::engine) fn space(folder: &Path) -> Result<Bundle> {
    Ok(ferrotune_results::space::space(&Journal::read(folder)?)?)
}

/// One plot of a study.
pub(in crate::engine) fn plot(folder: &Path, request: &Plot) -> Result<Bundle> {
    let kind = plot::Plot::named(&request.kind)?;
    let focus = Focus {
        parameters: request.parameters.as_deref(),
        objective: request.objective.as_deref(),
        evaluator: request.evaluator.as_deref(),
    };
    Ok(kind.of(&Journal::read(folder)?, focus)?.bundle())
}

/// Writes a study to a file.
pub(in crate::engine) fn export(folder: &Path, request: &Export) -> Result<Bundle> {
    let study = Journal::read(folder)?;
    let target = &expanded(&request.target)?;
    let trials = study.trials.len();
    if request.format == "tensorboard" {
        write_event_files(target, &tensorboard::files(&study))?;
        let text = format!("wrote {trials} trials to {0}; see them with `tensorboard --logdir {0}`", target.display());
        return Ok(Bundle::text(text));
    }
    if request.format == "model" && (request.target.ends_with('/') || target.is_dir()) {
        return Ok(Bundle::text(export_folder(folder, target)?.join("\n")));
    }
    if request.format == "model" {
        return export_model(folder, &study, target);
    }
    let bytes = ferrotune_results::export::Format::named(&request.format)?.bytes(&study)?;
    write(target, &bytes)?;
    let size = format::bytes(bytes.len() as u64);
    Ok(Bundle::text(format!("wrote {trials} trials to {}, {size}", target.display())))
}

fn write(target: &Path, bytes: &[u8]) -> Result<()> {
    write_whole(target, bytes).with_context(|| format!("cannot write {}", target.display()))
}

/// The best trial of a study, the bytes of its checkpoint, and a note if these are not the weights of its value.
fn best_checkpoint<'s>(folder: &Path, study: &'s Study) -> Result<(&'s TrialRecord, Vec<u8>, Option<String>)> {
    let trial = ferrotune_results::best::first(study)?;
    let Some(Weights { path, note }) = weights::of(folder, study, trial)? else {
        bail!(
            "trial {} of {} has no checkpoint; train it with `Fit::run_in`, save one in the objective with trial.checkpoint(&vars)?, \
             or keep more with --keep-best",
            trial.number,
            study.spec.project
        );
    };
    let bytes = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok((trial, bytes, note))
}

/// Writes the best trial's model to a file.
fn export_model(folder: &Path, study: &Study, target: &Path) -> Result<Bundle> {
    let (trial, bytes, note) = best_checkpoint(folder, study)?;
    let bytes = ferrotune_results::export::model(study, trial, &bytes)?;
    write(target, &bytes)?;
    let size = format::bytes(bytes.len() as u64);
    let note = note.iter().map(|note| format!("; its weights are {note}")).collect::<String>();
    Ok(Bundle::text(format!("wrote the model of trial {} to {}, {size}{note}", trial.number, target.display())))
}

/// The folders of all studies in a folder, by name.
pub(in crate::engine) fn folders_in(directory: &Path) -> Result<Vec<PathBuf>> {
    let listed = std::fs::read_dir(directory).with_context(|| {
        format!("cannot read the folder {}; name another one with --directory", directory.display())
    })?;
    let mut folders = Vec::new();
    for entry in listed {
        let path = entry?.path();
        if is_study(&path) {
            folders.push(path);
        }
    }
    folders.sort();
    Ok(folders)
}

/// The names of the studies in a folder, the most recently changed first. The list is empty if the folder cannot be read.
pub(in crate::engine) fn names_in(directory: &Path) -> Vec<String> {
    let folders = folders_in(directory).unwrap_or_default();
    let mut folders: Vec<(Option<SystemTime>, PathBuf)> =
        folders.into_iter().map(|folder| (last_change(&folder), folder)).collect();
    folders.sort_by(|(one, _), (other, _)| other.cmp(one));
    folders.iter().filter_map(|(_, folder)| Some(folder.file_name()?.to_string_lossy().into_owned())).collect()
}

/// A table of all studies in a folder, with the errors of the studies that cannot be read.
pub(in crate::engine) fn overview(directory: &Path) -> Result<Bundle> {
    let folders = folders_in(directory)?;
    if folders.is_empty() {
        bail!("there is no study in {}; name another folder with --directory", directory.display());
    }
    let (read, failed): (Vec<_>, Vec<_>) = folders.iter().map(|folder| entry(folder)).partition(Result::is_ok);
    let bundle = ferrotune_results::overview::overview(&read.into_iter().flatten().collect::<Vec<_>>());
    let failed: Vec<String> =
        failed.into_iter().filter_map(Result::err).map(|error| crate::chain::in_one_line(&error)).collect();
    Ok(if failed.is_empty() { bundle } else { ferrotune_results::with_note(&bundle, &failed.join("\n")) })
}

fn entry(folder: &Path) -> Result<Entry> {
    let study = Journal::read(folder)?;
    Ok(Entry {
        name: folder.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        study,
        runner: holder_of(folder)?.map(|holder| format!("process {} on {}", holder.pid, holder.host)),
        changed: last_change(folder).map(DateTime::<Local>::from),
    })
}

fn whole(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}
