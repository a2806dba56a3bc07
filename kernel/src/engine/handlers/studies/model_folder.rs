//! `ferrotune export`: a folder with the model of a study's best trial.

use super::best_checkpoint;
use crate::disk::write_whole;
use crate::folders::absent;
use anyhow::{Context as _, Result, bail};
use ferrotune_journal::Journal;
use ferrotune_journal::study_folder::is_study;
use ferrotune_machine::format;
use ferrotune_results::export::{FILES, TRIAL_FILE, folder};
use std::fs;
use std::io;
use std::path::Path;

/// Writes the model of a study's best trial into a folder: a new or empty one, or one of an earlier export, whose files it replaces.
/// Returns a line about the trial and about each file.
pub(crate) fn export_folder(study_folder: &Path, to: &Path) -> Result<Vec<String>> {
    if !is_study(study_folder) {
        bail!(
            "there is no study in {}; name a project in `studies`, or the path of a study's folder, such as ./digits",
            study_folder.display()
        );
    }
    let study = Journal::read(study_folder)?;
    let (trial, checkpoint, note) = best_checkpoint(study_folder, &study)?;
    let files = folder(&study, trial, &checkpoint)?;
    prepare(to)?;
    // A folder that an export has not finished has no model, rather than that of an earlier one.
    for name in FILES.iter().filter(|name| **name != TRIAL_FILE) {
        absent(fs::remove_file(to.join(name))).with_context(|| format!("cannot remove {name} of an earlier export"))?;
    }
    let mut lines = vec![format!("trial {} of {} is in {}", trial.number, study.spec.project, to.display())];
    lines.extend(note.map(|note| format!("note: {note}")));
    for (name, bytes) in files {
        let path = to.join(name);
        write_whole(&path, &bytes).with_context(|| format!("cannot write {}", path.display()))?;
        lines.push(format!("{name}, {}", format::bytes(bytes.len() as u64)));
    }
    Ok(lines)
}

/// Makes the folder. Fails if it has files that no export wrote.
fn prepare(to: &Path) -> Result<()> {
    match fs::read_dir(to) {
        Ok(mut entries) => {
            if entries.next().is_none() || is_export(&to.join(TRIAL_FILE)) {
                return Ok(());
            }
            bail!("{} has files that `ferrotune export` did not write; name another folder with --to", to.display())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            fs::create_dir_all(to).with_context(|| format!("cannot make the folder {}", to.display()))
        }
        Err(error) => Err(error).with_context(|| format!("cannot write into {}", to.display())),
    }
}

fn is_export(path: &Path) -> bool {
    let about = fs::read(path).ok().and_then(|bytes| serde_json::from_slice::<serde_json::Value>(&bytes).ok());
    about.is_some_and(|about| about["ferrotune_export"].is_u64())
}
