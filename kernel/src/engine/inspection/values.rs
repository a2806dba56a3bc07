//! Completion of the values of magics: names of the tuner, names of the notebook, and paths of files.

use crate::engine::handlers::current_studies::CurrentStudies;
use crate::engine::handlers::{files, studies};
use ferrotune_magics::Values;
use ferrotune_oracle::pruner::Pruner;
use ferrotune_oracle::terminator::Terminator;
use ferrotune_results::export::Format;
use ferrotune_results::plot::Plot;
use std::path::Path;

/// The values that begin with `word`, sorted, in a notebook with these checkpoints and current studies.
pub(super) fn of(values: Values, word: &str, checkpoints: &[String], current_studies: &CurrentStudies) -> Vec<String> {
    let names: Vec<String> = match values {
        Values::Any => Vec::new(),
        Values::Words(words) => owned(words.iter().copied()),
        Values::Oracle => owned(ferrotune_oracle::names()),
        Values::Pruner => owned(Pruner::names()),
        Values::Terminator => owned(Terminator::NAMES),
        Values::Plot => owned(Plot::names()),
        Values::Format => owned(Format::names().chain(["model", "tensorboard"])),
        Values::Magic => owned(ferrotune_magics::table().iter().map(ferrotune_magics::Magic::name)),
        Values::Study => studies_in(&current_studies.directory(None)),
        Values::Checkpoint => checkpoints.to_vec(),
        Values::Path => paths(word),
    };
    let mut names: Vec<String> = names.into_iter().filter(|name| name.starts_with(word)).collect();
    names.sort_unstable();
    // A magic reads a word with blanks in quotation marks; such a word cannot itself contain a quotation mark.
    let quoted = |name: String| if name.contains(char::is_whitespace) { format!("\"{name}\"") } else { name };
    names.into_iter().filter(|name| !name.contains(['"', '\''])).map(quoted).collect()
}

/// The studies in a folder. The list is empty if that folder does not exist.
fn studies_in(folder: &Path) -> Vec<String> {
    let folders = studies::folders_in(folder).unwrap_or_default();
    folders.iter().filter_map(|folder| Some(folder.file_name()?.to_str()?.to_owned())).collect()
}

fn owned<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    names.into_iter().map(str::to_owned).collect()
}

/// The files and folders in the folder that `typed` begins with; a folder ends with `/`. The list is empty if that folder cannot be read.
pub(super) fn paths(typed: &str) -> Vec<String> {
    let (folder, name) = typed.rfind('/').map_or(("", typed), |end| typed.split_at(end + 1));
    let read = files::expanded(if folder.is_empty() { "." } else { folder }).map(std::fs::read_dir);
    let entries = read.into_iter().flatten().flatten().flatten();
    let path = |entry: std::fs::DirEntry| {
        let file = entry.file_name().into_string().ok()?;
        let end = if entry.path().is_dir() { "/" } else { "" };
        (!file.starts_with('.') || name.starts_with('.')).then(|| format!("{folder}{file}{end}"))
    };
    entries.filter_map(path).collect()
}
