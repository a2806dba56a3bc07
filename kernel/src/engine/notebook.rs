//! The notebook's state that neither evcxr nor the cell supervisor has, such as numbers of cells, the memory limit and the last
//! study.

use super::evaluate::origins::Origins;
use super::handlers::current_studies::CurrentStudies;
use crate::execution::LiveDisplay;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

#[derive(Default)]
pub(super) struct Notebook {
    /// The number of the last cell that `%undo` counts.
    pub(super) cells: u64,
    /// Number of the running cell, or of the last cell; none if `%undo` does not count that cell.
    pub(super) cell: Option<u64>,
    /// The number that Jupyter shows beside the running cell, or beside the last cell; none if Jupyter shows no number.
    pub(super) count: Option<u32>,
    /// The number of bytes that a cell may hold, as set by `%memory limit`.
    pub(super) memory_limit: Option<u64>,
    /// Number of the last table of `%memory`. The thread of a watched table ends once there is a later table.
    pub(super) tables: Arc<AtomicU64>,
    /// The current studies, which magics without a study's name use.
    pub(super) current_studies: CurrentStudies,
    /// The cell that made each variable, and the reason why a variable is gone.
    pub(super) origins: Origins,
    /// The folder before the last `%cd`.
    pub(super) previous_folder: Option<PathBuf>,
    /// The statement that starts the recording of a cell under `%%profile`. It is inserted before the cell's first token.
    pub(super) recording: Option<String>,
    /// Whether the last cell may have replaced the hook with which the prelude reports panics.
    pub(super) changes_hook: bool,
    /// The files that `%run` runs now, the innermost last.
    pub(super) running_files: Vec<PathBuf>,
    searches: u64,
}

impl Notebook {
    /// Begins a cell and returns its number; none if `%undo` does not count the cell.
    pub(super) fn begin_cell(&mut self, can_be_undone: bool) -> Option<u64> {
        self.cells += u64::from(can_be_undone);
        self.cell = can_be_undone.then_some(self.cells);
        self.cell
    }

    /// A new display for a search.
    pub(super) fn search_display(&mut self) -> LiveDisplay {
        self.searches += 1;
        LiveDisplay::lasting(format!("ferrotune-search-{}-{}", std::process::id(), self.searches))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_cells_that_can_be_undone_have_numbers() {
        let mut notebook = Notebook::default();
        assert_eq!([true, false, true].map(|counts| notebook.begin_cell(counts)), [Some(1), None, Some(2)]);
    }
}
