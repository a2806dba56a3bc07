//! Reads copies of journals, in any folder.

use super::replay::Replay;
use super::{Journal, JournalError};
use ferrotune_space::spec::StudySpec;
use std::path::Path;

impl Journal {
    /// The spec of the study in the journal file at `path`, such as a copy. Fails if the journal is damaged or describes no
    /// study.
    pub fn spec_at(path: &Path) -> Result<StudySpec, JournalError> {
        let folder = path.parent().unwrap_or(path);
        let study = Replay::of(path, &folder.to_string_lossy())?.study;
        study.spec.ok_or_else(|| JournalError::Missing { folder: folder.to_owned() })
    }

    /// The number of bytes of complete lines in the journal at `path`; none if it describes no study yet.
    pub fn length_at(path: &Path) -> Result<Option<u64>, JournalError> {
        let replay = Replay::of(path, &path.to_string_lossy())?;
        Ok(replay.study.spec.is_some().then_some(replay.length))
    }
}
