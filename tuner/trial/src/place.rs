//! Positions in the user's source: the line of a cell, or a file and its line. Does not read the source.

#[cfg(feature = "plugins")]
use std::backtrace::Backtrace;
use std::panic::Location;
use std::path::Path;
use std::sync::OnceLock;

use ferrotune_space::spec::ItemLines;

/// The lines of a cell's objective in the compiled file.
#[derive(Debug)]
struct Origin {
    file: &'static str,
    line: u32,
    cell_line: u32,
}

impl Origin {
    fn line_of_cell(&self, file: &str, line: u32) -> Option<String> {
        // A backtrace contains the whole path of the file.
        let is_within = Path::new(file).ends_with(self.file) && self.line < line;
        is_within.then(|| format!("line {} of the cell", line - self.line + self.cell_line))
    }

    fn line_of_item(&self, file: &str, line: u32, items: &[ItemLines]) -> Option<String> {
        let is_within = Path::new(file).ends_with(self.file);
        items.iter().filter(|_| is_within).find_map(|lines| lines.place(line))
    }
}

static ORIGIN: OnceLock<Origin> = OnceLock::new();

/// The lines of the objective's file that contain items of earlier cells. The trials of a process have one objective.
static ITEMS: OnceLock<Vec<ItemLines>> = OnceLock::new();

/// Records the lines of the objective's file that contain items of earlier cells, so that messages name their cells.
pub(crate) fn has_items(items: Vec<ItemLines>) {
    ITEMS.get_or_init(|| items);
}

/// Records that line `line` of `file` is line `cell_line` of the objective's cell, and so on for the following lines,
/// so that messages name the line of the cell. `%%tune` calls it.
#[doc(hidden)]
pub fn in_cell(file: &'static str, line: u32, cell_line: u32) {
    ORIGIN.get_or_init(|| Origin { file, line, cell_line });
}

/// The text `line 3 of the cell` for a position in the objective's cell, or `In [2] line 3` for an item of an earlier cell.
pub(crate) fn line_of_cell(location: &Location<'_>) -> Option<String> {
    in_notebook(ORIGIN.get()?, location.file(), location.line())
}

fn in_notebook(origin: &Origin, file: &str, line: u32) -> Option<String> {
    let items = ITEMS.get().map(Vec::as_slice).unwrap_or_default();
    origin.line_of_cell(file, line).or_else(|| origin.line_of_item(file, line, items))
}

/// The text `line 3 of the cell` or `In [2] line 3` for the innermost call of a backtrace that is in the notebook.
#[cfg(feature = "plugins")]
pub(crate) fn place_in_backtrace(backtrace: &Backtrace) -> Option<String> {
    innermost_in_notebook(|| {
        // The standard library returns the calls only as text.
        let text = backtrace.to_string();
        text.lines().filter_map(|line| line.trim_start().strip_prefix("at ")).map(str::to_owned).collect()
    })
}

/// The text `line 3 of the cell` or `In [2] line 3` for the innermost call in the notebook. Each call is `file:line:column`. A program
/// without a notebook looks no calls up.
#[cfg(feature = "plugins")]
pub(crate) fn innermost_in_notebook(calls: impl FnOnce() -> Vec<String>) -> Option<String> {
    let origin = ORIGIN.get()?;
    calls().iter().filter_map(|call| file_and_line(call)).find_map(|(file, line)| in_notebook(origin, file, line))
}

/// The file and the line in a text `file:line:column`.
#[cfg(feature = "plugins")]
fn file_and_line(place: &str) -> Option<(&str, u32)> {
    let (file, line) = place.rsplit_once(':')?.0.rsplit_once(':')?;
    Some((file, line.parse().ok()?))
}

/// The text `line 3 of the cell`, or `src/main.rs:12` for a position outside the notebook.
pub(crate) fn place(location: &Location<'_>) -> String {
    line_of_cell(location).unwrap_or_else(|| format!("{}:{}", location.file(), location.line()))
}

#[cfg(test)]
mod tests {
    use super::{ItemLines, Origin};

    #[test]
    fn lines_count_from_the_cells_own_in_the_objectives_file_alone() {
        let origin = Origin { file: "cells/0a/lib.rs", line: 113, cell_line: 1 };
        for file in ["cells/0a/lib.rs", "/tmp/kernel/cells/0a/lib.rs"] {
            assert_eq!(origin.line_of_cell(file, 117).as_deref(), Some("line 5 of the cell"), "{file}");
        }
        for (file, line) in [("cells/0a/lib.rs", 113), ("cells/0b/lib.rs", 117), ("/tmp/subcells/0a/lib.rs", 117)] {
            assert_eq!(origin.line_of_cell(file, line), None, "{file}:{line}");
        }
        let items = [(40, 3, Some(2), 5), (50, 1, None, 1)];
        let items = items.map(|(line, count, cell, cell_line)| ItemLines { line, count, cell, cell_line });
        let place = |file, line| origin.line_of_item(file, line, &items);
        assert_eq!(place("/tmp/kernel/cells/0a/lib.rs", 42).as_deref(), Some("In [2] line 7"));
        assert_eq!(place("cells/0a/lib.rs", 50).as_deref(), Some("line 1 of an earlier cell"));
        assert_eq!((place("cells/0a/lib.rs", 43), place("cells/0b/lib.rs", 42)), (None, None));
    }
}
