//! The notebook's state that neither evcxr nor the cell supervisor has: numbers of cells, the memory limit and the last
//! study.

use crate::execution::LiveDisplay;
use crate::failure::{ErrorName, Failure};
use ferrotune_magics::Study;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Folder of studies if no magic names one.
const DEFAULT_DIRECTORY: &str = "studies";

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

    /// The named folder of studies, or else that of the last study.
    pub(super) fn directory(&self, named: Option<&str>) -> PathBuf {
        let last = self.last_study.as_deref().and_then(Path::parent);
        named.map(Path::new).or(last).unwrap_or(Path::new(DEFAULT_DIRECTORY)).to_path_buf()
    }

    pub(super) fn folder_of(&self, study: &Study) -> Result<PathBuf, Failure> {
        self.study_folder(study.project.as_deref(), study.directory.as_deref())
    }

    /// The folder of the named study, or else of the last one.
    pub(super) fn study_folder(&self, project: Option<&str>, directory: Option<&str>) -> Result<PathBuf, Failure> {
        match (project, &self.last_study) {
            (Some(project), _) => Ok(self.directory(directory).join(project)),
            (None, _) if directory.is_some() => Err(Failure::new(
                ErrorName::Magic,
                "--directory alone names no study; name one with --project, %studies lists those of a folder",
            )),
            (None, Some(last)) => Ok(last.clone()),
            (None, None) => {
                let text = "no search has run in this notebook; name one with --project";
                Err(Failure::new(ErrorName::Magic, text))
            }
        }
    }
}
