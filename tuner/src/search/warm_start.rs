//! Reads the trials that a search takes from other studies. Writes nothing, and runs no code of those studies.

use super::SearchError;
use ferrotune_journal::study_folder;
use ferrotune_journal::{Journal, JournalError, Study};
use ferrotune_oracle::analysis::ranking::ranked;
use ferrotune_space::objective::Objective;
use ferrotune_space::record::{State, TrialRecord};
use ferrotune_space::spec::StudySpec;
use ferrotune_space::warm_start::{WarmStart, folder_of, is_path};
use std::collections::BTreeMap;

/// The spec of the search, with the trials that it takes from the studies named by `from`.
///
/// A study that has begun with another study before keeps the trials that it took then. Fails if another study
/// cannot be read, has other objectives, or has no trial that the search can learn from.
pub(crate) fn warmed(asked: &StudySpec) -> Result<StudySpec, SearchError> {
    if asked.from.is_empty() {
        return Ok(asked.clone());
    }
    let earlier = earlier(asked)?;
    let mut warm_starts: Vec<WarmStart> = Vec::new();
    for study in &asked.from {
        let folder = |study: &str| folder_of(&asked.directory, study);
        let is_same = |known: &str| known == study || study_folder::is_same_file(&folder(known), &folder(study));
        if warm_starts.iter().any(|known| is_same(&known.study)) {
            let reason = "it is named twice; name it once".to_owned();
            return Err(SearchError::Source { study: study.clone(), reason });
        }
        let kept = earlier.iter().find(|earlier| earlier.study == *study).cloned();
        warm_starts.push(kept.map_or_else(|| read(asked, study), Ok)?);
    }
    Ok(StudySpec { warm_starts, ..asked.clone() })
}

/// The trials that the study itself took from other studies before.
fn earlier(asked: &StudySpec) -> Result<Vec<WarmStart>, SearchError> {
    let folder = asked.directory.join(&asked.project);
    if asked.overwrite || !study_folder::is_study(&folder) {
        return Ok(Vec::new());
    }
    match Journal::read(&folder) {
        Ok(known) => Ok(known.spec.warm_starts),
        // The journal has no search, for example because only Optuna has written it.
        Err(JournalError::Missing { .. }) => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}

fn read(asked: &StudySpec, study: &str) -> Result<WarmStart, SearchError> {
    let refused = |reason: String| SearchError::Source { study: study.to_owned(), reason };
    let folder = folder_of(&asked.directory, study);
    let own = asked.directory.join(&asked.project);
    if study_folder::is_same_file(&folder, &own) || folder == own {
        return Err(refused("this is the study itself; name another one".to_owned()));
    }
    let unreadable = |source| SearchError::UnreadableSource { study: study.to_owned(), source };
    let found = match &asked.storage {
        _ if study_folder::is_study(&folder) => Journal::read(&folder).map(Some),
        // A study that other machines have made is in the database alone.
        Some(storage) if !is_path(study) => known(Journal::read_in(storage, study, &folder)),
        _ => Ok(None),
    };
    let Some(Study { spec: theirs, trials, .. }) = found.map_err(unreadable)? else {
        let (folder, directory) = (folder.display(), asked.directory.display());
        let of_database = if asked.storage.is_some() { " or of the database" } else { "" };
        return Err(refused(format!(
            "there is no study in {folder}; name a study of {directory}{of_database}, or a folder with a slash, as in ./{study}"
        )));
    };
    let Some(positions) = positions(&theirs.objectives, &asked.objectives) else {
        let text = |spec: &StudySpec| spec.objectives.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let (found, wanted) = (text(&theirs), text(asked));
        return Err(refused(format!(
            "it optimises {found}, not {wanted}; give --objective {found}, or name another study"
        )));
    };
    let taken = taken(&trials, &positions, asked);
    let Some(best) = ranked(&taken, asked, 1).first().map(|trial| trial.parameters.clone()) else {
        let count = trials.len();
        return Err(refused(format!(
            "none of its {count} trials has finished with finite values, a parameter to tune, the metrics of --constraint and the values of --fix; name another study"
        )));
    };
    let best = best.into_iter().filter(|(name, _)| asked.given.leaves_open(name));
    let best = best.map(|(name, parameter)| (name, parameter.value)).collect();
    Ok(WarmStart::of(study, &taken, best))
}

/// A study, unless there is none of this name.
fn known(read: Result<Option<Study>, JournalError>) -> Result<Option<Study>, JournalError> {
    match read {
        Err(JournalError::Missing { .. }) => Ok(None),
        read => read,
    }
}

/// The finished trials with finite values, in the order of the search's objectives, and with the last report of each metric
/// that the search has a constraint on.
fn taken(trials: &[TrialRecord], positions: &[usize], asked: &StudySpec) -> Vec<TrialRecord> {
    let taken = |trial: &TrialRecord| {
        let values: Vec<f64> =
            positions.iter().map(|position| trial.values.get(*position).copied()).collect::<Option<_>>()?;
        let metrics = asked.constraints.iter().map(|constraint| &constraint.metric);
        let metrics: BTreeMap<String, Option<f64>> =
            metrics.filter_map(|metric| Some((metric.clone(), Some(trial.last_reported(metric)?)))).collect();
        let taken = TrialRecord {
            parameters: trial.parameters.clone(),
            metrics: if metrics.is_empty() { BTreeMap::new() } else { BTreeMap::from([(0, metrics)]) },
            ending: trial.ending.clone(),
            values,
            ..TrialRecord::new(trial.number)
        };
        let is_whole = trial.state() == State::Finished
            && taken.parameters.keys().any(|name| asked.given.leaves_open(name))
            && taken.values.iter().all(|value| value.is_finite())
            && taken.violation(&asked.objectives, &asked.constraints).is_finite()
            && asked.given.agrees_with_source(&taken.parameters);
        is_whole.then_some(taken)
    };
    trials.iter().filter_map(taken).collect()
}

/// The position in `theirs` of each objective of a new search; `None` if the other study has another metric or direction.
fn positions(theirs: &[Objective], ours: &[Objective]) -> Option<Vec<usize>> {
    let is_same = |a: &Objective, b: &Objective| a.metric == b.metric && a.direction == b.direction;
    let positions = ours.iter().map(|own| theirs.iter().position(|other| is_same(own, other)));
    positions.collect::<Option<Vec<usize>>>().filter(|_| theirs.len() == ours.len())
}
