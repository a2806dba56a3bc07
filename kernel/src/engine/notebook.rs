//! The notebook's state that neither evcxr nor the cell supervisor has: numbers of cells, the memory limit and the last
//! study.

use super::evaluate::origins::Origins;
use super::handlers::standing::Standing;
use crate::execution::LiveDisplay;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

#[derive(Default)]
pub(super) struct Notebook {
    /// The number of the last cell that `%undo` counts.
    cells: u64,
    /// Number of the cell that runs or ran last; none if `%undo` does not count it.
    pub(super) cell: Option<u64>,
    /// The number that Jupyter shows beside the cell that runs or ran last; none if it shows none.
    pub(super) count: Option<u32>,
    /// How many bytes a cell may hold, as `%memory limit` says.
    pub(super) memory_limit: Option<u64>,
    /// Number of the last table of `%memory`. The thread of a watched table ends once there is a later one.
    pub(super) tables: Arc<AtomicU64>,
    /// Which study is meant where none is named.
    pub(super) standing: Standing,
    /// Where its variables come from, and how they went.
    pub(super) origins: Origins,
    /// The folder before the last `%cd`.
    pub(super) previous_folder: Option<PathBuf>,
    /// The statement before the running cell that begins to record it, under `%%profile`.
    pub(super) recording: Option<String>,
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
