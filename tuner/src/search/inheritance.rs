//! The checkpoints that a trial begins with. Under population-based training, a copied trial begins with the checkpoints of
//! its parent. Any other trial keeps only the checkpoints that the journal knows, because a killed worker or an earlier
//! execution may have left more.

use super::{Search, SearchError};
use ferrotune_journal::folder;
use ferrotune_journal::study_folder::{self, file_error, link, refuse_links_of_trial, remove_leftovers};
use ferrotune_space::checkpoint::checkpoint_generation;
use std::fs;
use std::io;
use std::path::Path;

impl Search {
    /// Puts the checkpoints with which a trial begins into its folder; returns the name of the last one if it comes from
    /// another trial. Fails if the folder leads out of the study.
    pub(super) fn provide_checkpoints(&mut self, number: u64) -> Result<Option<String>, SearchError> {
        let folder = study_folder::of_trial(&self.folder, number);
        refuse_links_of_trial(&folder)?;
        let record = self.record(number);
        remove_leftovers(&folder, record.checkpoint.as_deref())
            .map_err(file_error("remove unfinished checkpoints in", &folder))?;
        let has_begun = record.unended_workers > 0 || !record.parameters.is_empty() || !record.metrics.is_empty();
        if has_begun || !record.executions.is_empty() || record.parent.is_some() {
            return Ok(None);
        }
        self.oracle.parent(number, self.journal.trials()).map_or(Ok(None), |parent| self.inherit(number, parent))
    }

    /// Makes a trial begin with the last checkpoint of its parent. If the parent has no checkpoint, the trial begins
    /// without one.
    ///
    /// The files exist before the journal names them: after a crash in between, this step is repeated and changes nothing.
    fn inherit(&mut self, number: u64, parent: u64) -> Result<Option<String>, SearchError> {
        let folder_of = |trial: u64| study_folder::of_trial(&self.folder, trial);
        // A parent that was restored from a mirror may name a checkpoint that was not restored.
        let file = self.record(parent).checkpoint.clone().filter(|file| folder_of(parent).join(file).is_file());
        if let Some(last) = file.as_deref().and_then(checkpoint_generation) {
            let (source, target) = (folder_of(parent), folder_of(number));
            refuse_links_of_trial(&source)?;
            let adopted = folder::create_and_sync(&target).and_then(|()| adopt(&source, &target, last));
            adopted.map_err(file_error("copy the parent's checkpoints to", &target))?;
        }
        self.journal.inherited(number, parent, file.as_deref())?;
        Ok(file)
    }
}

/// Gives `target` the checkpoints in `source` up to the generation `last`: if the last one is damaged, the one before it is
/// needed.
pub(super) fn adopt(source: &Path, target: &Path, last: u64) -> io::Result<()> {
    for entry in fs::read_dir(source)? {
        let name = entry?.file_name();
        if name.to_str().and_then(checkpoint_generation).is_some_and(|generation| generation <= last) {
            link(&source.join(&name), &target.join(&name))?;
        }
    }
    folder::sync(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkpoints_are_adopted_up_to_the_last_and_as_often_as_asked() -> io::Result<()> {
        let directory = tempfile::tempdir()?;
        let (parent, child) = (directory.path().join("3"), directory.path().join("12"));
        [&parent, &child].into_iter().try_for_each(fs::create_dir)?;
        let names = [2, 4, 5].map(|generation| format!("checkpoint-{generation:06}.safetensors"));
        names.iter().try_for_each(|name| fs::write(parent.join(name), name))?;
        fs::write(parent.join("output.log"), "not for others")?;
        for _ in 0..2 {
            adopt(&parent, &child, 4)?;
        }
        let entries: Vec<fs::DirEntry> = fs::read_dir(&child)?.collect::<Result<_, _>>()?;
        let mut found: Vec<_> = entries.iter().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        found.sort();
        assert_eq!(found, names[..2]);
        // Files that the parent writes or removes later do not affect the child.
        fs::remove_file(parent.join(&names[1]))?;
        assert_eq!(fs::read_to_string(child.join(&names[1]))?, names[1]);
        Ok(())
    }
}
