//! Positions in the user's source: the line of a cell, or a file and its line. Reads no source.

#[cfg(feature = "plugins")]
use std::backtrace::Backtrace;
use std::panic::Location;
use std::path::Path;
use std::sync::OnceLock;

/// The lines of a cell's objective in the compiled file.
#[derive(Debug)]
struct Origin {
    file: &'static str,
    line: u32,
    cell_line: u32,
}

impl Origin {
    fn line_of_cell(&self, file: &str, line: u32) -> Option<String> {
        // A backtrace has the whole path of the file.
        let is_within = Path::new(file).ends_with(self.file) && self.line < line;
        is_within.then(|| format!("line {} of the cell", line - self.line + self.cell_line))
    }
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
    ORIGIN.get()?.line_of_cell(location.file(), location.line())
}

/// `line 3 of the cell`, for the innermost call of a backtrace that is in the objective's cell.
#[cfg(feature = "plugins")]
pub(crate) fn place_in_backtrace(backtrace: &Backtrace) -> Option<String> {
    let origin = ORIGIN.get()?;
    // The standard library gives the calls only as text.
    let text = backtrace.to_string();
    let calls = text.lines().filter_map(|line| line.trim_start().strip_prefix("at "));
    calls.filter_map(file_and_line).find_map(|(file, line)| origin.line_of_cell(file, line))
}

/// The file and line of `file:line:column`.
#[cfg(feature = "plugins")]
fn file_and_line(place: &str) -> Option<(&str, u32)> {
    let (file, line) = place.rsplit_once(':')?.0.rsplit_once(':')?;
    Some((file, line.parse().ok()?))
}

/// `line 3 of the cell`, or `src/main.rs:12`.
pub(crate) fn place(location: &Location<'_>) -> String {
    line_of_cell(location).unwrap_or_else(|| format!("{}:{}", location.file(), location.line()))
}

#[cfg(test)]
mod tests {
    use super::Origin;

    #[test]
    fn lines_count_from_the_cells_own_in_the_objectives_file_alone() {
        let origin = Origin { file: "cells/0a/lib.rs", line: 113, cell_line: 1 };
        for file in ["cells/0a/lib.rs", "/tmp/kernel/cells/0a/lib.rs"] {
            assert_eq!(origin.line_of_cell(file, 117).as_deref(), Some("line 5 of the cell"), "{file}");
        }
        for (file, line) in [("cells/0a/lib.rs", 113), ("cells/0b/lib.rs", 117), ("/tmp/subcells/0a/lib.rs", 117)] {
            assert_eq!(origin.line_of_cell(file, line), None, "{file}:{line}");
        }
    }
}
