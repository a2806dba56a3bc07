//! What a copy of a journal says, wherever it lies.

use super::replay::Replay;
use super::{Journal, JournalError};
use ferrotune_space::spec::StudySpec;
use std::path::Path;

impl Journal {
    /// The search of the journal in the file at `path`, such as a copy of one. Fails with what is wrong with it.
    pub fn spec_at(path: &Path) -> Result<StudySpec, JournalError> {
        let folder = path.parent().unwrap_or(path);
        let study = Replay::of(path, &folder.to_string_lossy())?.study;
        study.spec.ok_or_else(|| JournalError::Missing { folder: folder.to_owned() })
    }

    /// How many bytes of whole lines the journal at `path` has; none where it describes no study yet.
    pub fn length_at(path: &Path) -> Result<Option<u64>, JournalError> {
        let replay = Replay::of(path, &path.to_string_lossy())?;
        Ok(replay.study.spec.is_some().then_some(replay.length))
    }
}
