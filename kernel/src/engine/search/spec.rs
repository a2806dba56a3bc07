//! Completes the search that a `%%tune` cell or `%resume` describes with what only the kernel knows. Starts nothing.

use crate::engine::files::expanded;
use crate::engine::link::TuneRequest;
use anyhow::{Context, Result};
use ferrotune_magics::{Resume, Tune};
use ferrotune_tuner::spec::{StudySpec, Supervision};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The search that a `%%tune` cell describes, once the cell has handed over its objective.
pub(in crate::engine) fn spec(tune: &Tune, request: TuneRequest) -> Result<StudySpec> {
    let spec = tune.spec.clone();
    Ok(StudySpec {
        directory: absolute(&spec.directory)?,
        library: PathBuf::from(request.library),
        symbol: request.symbol,
        shared: request.shared_fd.map(|fd| PathBuf::from(format!("/proc/{}/fd/{fd}", request.pid))),
        device: request.device,
        supervision: Supervision {
            mirror: spec.supervision.mirror.as_deref().map(absolute).transpose()?,
            libraries: libraries_of(request.pid)?,
            ..spec.supervision
        },
        ..spec
    })
}

fn absolute(folder: &Path) -> Result<PathBuf> {
    Ok(std::path::absolute(expanded(folder)?)?)
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
