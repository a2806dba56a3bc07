//! The notebook's state that neither evcxr nor the cell supervisor has: numbers of cells, the memory limit and the last
//! study.

use crate::execution::LiveDisplay;
use crate::failure::{ErrorName, Failure};
use ferrotune_magics::Study;
use ferrotune_tuner::spec::StudySpec;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

#[derive(Default)]
pub(super) struct Notebook {
    /// The number of the last cell that `%undo` counts.
    cells: u64,
    /// Number of the cell that runs or ran last; none if `%undo` does not count it.
    pub(super) cell: Option<u64>,
    /// How many bytes a cell may hold, as `%memory limit` says.
    pub(super) memory_limit: Option<u64>,
    /// Number of the last table of `%memory`. The thread of a watched table ends once there is a later one.
    pub(super) tables: Arc<AtomicU64>,
    /// Folder of the study of the last search.
    pub(super) last_study: Option<PathBuf>,
    /// The folder before the last `%cd`.
    pub(super) previous_folder: Option<PathBuf>,
    /// The files that `%run` runs now, the innermost last.
    pub(super) running_files: Vec<PathBuf>,
    searches: u64,
}

impl Notebook {
    /// Numbers the cell that begins; none if `%undo` does not count it.
    pub(super) fn begin_cell(&mut self, can_be_undone: bool) -> Option<u64> {
        self.cells += u64::from(can_be_undone);
        self.cell = can_be_undone.then_some(self.cells);
        self.cell
    }

    /// A new display for a search.
    pub(super) fn search_display(&mut self) -> LiveDisplay {
        self.searches += 1;
        LiveDisplay::new(format!("ferrotune-search-{}-{}", std::process::id(), self.searches))
    }

    /// The named folder of studies, or else that of the last study, or else the default of `%%tune`.
    pub(super) fn directory(&self, named: Option<&str>) -> PathBuf {
        let last = self.last_study.as_deref().and_then(Path::parent);
        named.map(Path::new).or(last).map_or_else(|| StudySpec::default().directory, Path::to_path_buf)
    }

    /// The folder of the named study, or else of the last one.
    pub(super) fn folder_of(&self, study: &Study) -> Result<PathBuf, Failure> {
        match (&study.project, &self.last_study) {
            (Some(project), _) => Ok(self.directory(study.directory.as_deref()).join(project)),
            (None, _) if study.directory.is_some() => Err(Failure::new(
                ErrorName::MagicError,
                "--directory alone names no study; name one with --project, %studies lists those of a folder",
            )),
            (None, Some(last)) => Ok(last.clone()),
            (None, None) => {
                let text = "no search has run in this notebook; name one with --project";
                Err(Failure::new(ErrorName::MagicError, text))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_study_that_is_not_named_is_the_last_one() {
        let mut notebook = Notebook::default();
        let folder = |notebook: &Notebook, project: Option<&str>, directory: Option<&str>| {
            let study = Study { project: project.map(str::to_owned), directory: directory.map(str::to_owned) };
            notebook.folder_of(&study).map_err(|failure| failure.text)
        };
        assert_eq!(folder(&notebook, Some("a"), None), Ok("studies/a".into()));
        assert_eq!(folder(&notebook, Some("a"), Some("/x")), Ok("/x/a".into()));
        let none = "no search has run in this notebook; name one with --project".to_owned();
        assert_eq!(folder(&notebook, None, None), Err(none));
        notebook.last_study = Some("/y/last".into());
        assert_eq!(folder(&notebook, None, None), Ok("/y/last".into()));
        assert_eq!(folder(&notebook, Some("a"), None), Ok("/y/a".into()));
        assert!(folder(&notebook, None, Some("/x")).is_err_and(|text| text.starts_with("--directory alone")));
    }

    #[test]
    fn only_cells_that_can_be_undone_have_numbers() {
        let mut notebook = Notebook::default();
        assert_eq!([true, false, true].map(|counts| notebook.begin_cell(counts)), [Some(1), None, Some(2)]);
    }
}
