//! Positions in the user's source: the line of a cell, or a file and its line. Reads no source.

use std::panic::Location;
use std::sync::OnceLock;

/// The lines of a cell's objective in the compiled file.
#[derive(Debug)]
struct Origin {
    file: &'static str,
    line: u32,
    cell_line: u32,
}

static ORIGIN: OnceLock<Origin> = OnceLock::new();

/// Records that line `line` of `file` is line `cell_line` of the objective's cell, and so on for the following lines,
/// so that messages have the line of the cell. `%%tune` calls it.
#[doc(hidden)]
pub fn in_cell(file: &'static str, line: u32, cell_line: u32) {
    ORIGIN.get_or_init(|| Origin { file, line, cell_line });
}

/// `line 3 of the cell`, if the position is in the objective's cell.
pub(crate) fn line_of_cell(location: &Location<'_>) -> Option<String> {
    let origin = ORIGIN.get().filter(|origin| origin.file == location.file() && origin.line < location.line())?;
    Some(format!("line {} of the cell", location.line() - origin.line + origin.cell_line))
}

/// `line 3 of the cell`, or `src/main.rs:12`.
pub(crate) fn place(location: &Location<'_>) -> String {
    line_of_cell(location).unwrap_or_else(|| format!("{}:{}", location.file(), location.line()))
}
