//! What a `%%tune` cell, or `%resume`, asks of the tuner, in the tuner's own terms. Starts nothing.

use crate::engine::link::TuneRequest;
use anyhow::{Context, Result};
use ferrotune_magics::{Constraint, Direction, Objective, Resume, Setting, Summary, Tune};
use ferrotune_tuner::given::{Given, Values, parse_value};
use ferrotune_tuner::spec::{self, StudySpec};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The search that a `%%tune` cell describes, once the cell has handed over its objective.
pub(in crate::engine) fn spec(tune: &Tune, request: TuneRequest) -> Result<StudySpec> {
    let constraint = |constraint: &Constraint| spec::Constraint {
        metric: constraint.metric.clone(),
        direction: direction(constraint.direction),
        bound: constraint.bound,
    };
    Ok(StudySpec {
        project: tune.project.clone(),
        directory: std::path::absolute(&tune.directory)?,
        objectives: tune.objectives.iter().map(objective).collect(),
        constraints: tune.constraints.iter().map(constraint).collect(),
        given: given(tune),
        executions: tune.executions,
        oracle: tune.oracle.clone(),
        pruner: tune.pruner.clone(),
        terminator: tune.terminator.clone(),
        max_trials: tune.max_trials,
        seed: tune.seed,
        timeout_s: tune.timeout_s,
        trial_timeout_s: tune.trial_timeout_s,
        memory_budget_bytes: tune.memory_bytes,
        overwrite: tune.overwrite,
        library: PathBuf::from(request.library),
        symbol: request.symbol,
        shared: request.shared_fd.map(|fd| PathBuf::from(format!("/proc/{}/fd/{fd}", request.pid))),
        device: request.device,
        supervision: spec::Supervision {
            concurrency: tune.concurrency,
            threads: tune.threads,
            retries: tune.retries,
            max_consecutive_failures: tune.max_consecutive_failures,
            keep_best: tune.keep_best,
            mirror: tune.mirror.as_ref().map(std::path::absolute).transpose()?,
            background: tune.background,
            libraries: libraries_of(request.pid)?,
        },
    })
}

fn given(tune: &Tune) -> Given {
    let values = |settings: &Vec<Setting>| -> Values {
        settings.iter().map(|setting| (setting.name.clone(), parse_value(&setting.value))).collect()
    };
    Given {
        fixed: values(&tune.fixed),
        tune_only: tune.tune_only.clone(),
        enqueued: tune.enqueued.iter().map(values).collect(),
    }
}

fn objective(objective: &Objective) -> spec::Objective {
    let summary = match objective.summary {
        Summary::Best => spec::Summary::Best,
        Summary::Last => spec::Summary::Last,
        Summary::Mean => spec::Summary::Mean,
    };
    spec::Objective { metric: objective.metric.clone(), direction: direction(objective.direction), summary }
}

fn direction(direction: Direction) -> spec::Direction {
    match direction {
        Direction::Min => spec::Direction::Min,
        Direction::Max => spec::Direction::Max,
    }
}

/// The search that `%resume` goes on with.
pub(in crate::engine) fn resumed(study: &Path, resume: &Resume) -> Result<StudySpec> {
    let mut spec = ferrotune_tuner::supervisor::spec_of(study)?;
    spec.max_trials = resume.max_trials.unwrap_or(spec.max_trials);
    spec.timeout_s = resume.timeout_s.or(spec.timeout_s);
    spec.supervision.background = resume.background;
    Ok(spec)
}

/// What the objective is linked with beyond the system's own: the prelude and Rust's standard library, as the process of
/// the cells has them. On another machine, or after an update, the study needs its own.
fn libraries_of(pid: u32) -> Result<Vec<PathBuf>> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).context("cannot see the cells' libraries")?;
    let paths = maps.lines().filter_map(|line| Some(&line[line.find('/')?..]));
    let ours = |path: &&str| {
        let name = path.rsplit('/').next().unwrap_or_default();
        name == "libferrotune.so" || name.starts_with("libstd-") && name.ends_with(".so")
    };
    let libraries: BTreeSet<PathBuf> = paths.filter(ours).map(PathBuf::from).collect();
    Ok(libraries.into_iter().collect())
}
