//! The full specification of a search: the description in a `%%tune` cell or `%resume`, completed with values that only the kernel
//! knows. Starts nothing.

use crate::compile::CRATES;
use crate::engine::evaluate::link::TuneRequest;
use crate::engine::handlers::files::expanded;
use anyhow::{Context, Result};
use ferrotune_journal::StorageUrl;
use ferrotune_machine::{mappings, process};
use ferrotune_magics::Resume;
use ferrotune_space::spec::{StudySpec, Supervision};
use ferrotune_space::warm_start::is_path;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The specification of a `%%tune` cell's search, once the cell has handed over its objective.
pub(in crate::engine) fn spec(spec: StudySpec, request: TuneRequest) -> Result<StudySpec> {
    let library = PathBuf::from(request.library);
    if let Some(storage) = &spec.storage {
        // %trials and the other magics read the database's address from the study's folder, where the address has no password.
        StorageUrl::parse(storage)?.remember_password();
    }
    Ok(StudySpec {
        directory: absolute(&spec.directory)?,
        symbol: request.symbol,
        shared: request.shared_fd.map(|fd| process::path_of_file(request.pid, fd)),
        device: request.device,
        seed: spec.seed.or(request.seed),
        from: spec.from.into_iter().map(absolute_study).collect::<Result<_>>()?,
        supervision: Supervision {
            mirror: spec.supervision.mirror.as_deref().map(absolute).transpose()?,
            tensorboard: spec.supervision.tensorboard.as_deref().map(absolute).transpose()?,
            libraries: libraries_of(&library, request.pid)?,
            items: request.items,
            ..spec.supervision
        },
        library,
        ..spec
    })
}

fn absolute(folder: &Path) -> Result<PathBuf> {
    Ok(std::path::absolute(expanded(folder)?)?)
}

fn absolute_study(study: String) -> Result<String> {
    if !is_path(&study) {
        return Ok(study);
    }
    Ok(absolute(Path::new(&study))?.display().to_string())
}

/// The specification of the search that `%resume` continues.
pub(in crate::engine) fn resumed(study: &Path, resume: &Resume) -> Result<StudySpec> {
    let mut spec = ferrotune_tuner::supervisor::spec_of(study)?;
    spec.max_trials = resume.max_trials.unwrap_or(spec.max_trials);
    spec.timeout_s = resume.timeout_s.or(spec.timeout_s);
    spec.supervision.background = resume.background;
    Ok(spec)
}

/// The libraries with which the objective is linked, without the system's: the prelude, Rust's standard library and the notebook's
/// crates, from the memory map of the cell process. The study needs copies of them on another machine or after an update.
fn libraries_of(objective: &Path, pid: u32) -> Result<Vec<PathBuf>> {
    let code =
        std::fs::read(objective).with_context(|| format!("cannot read the objective {}", objective.display()))?;
    let mapped = mappings::of(pid).context("cannot see the cells' libraries")?;
    let ours = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        // Earlier cells may have been linked with a library of fewer crates.
        let is_needed = || code.windows(name.len()).any(|bytes| bytes == name.as_bytes());
        name == "libferrotune.so"
            || name.starts_with("libstd-") && name.ends_with(".so")
            || name.starts_with(&format!("lib{CRATES}")) && is_needed()
    };
    let libraries: BTreeSet<PathBuf> = mapped.into_iter().map(|mapping| mapping.path).filter(ours).collect();
    Ok(libraries.into_iter().collect())
}
