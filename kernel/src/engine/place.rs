//! Where a line of the source that evcxr generates is in the cell. evcxr puts each statement and item of the cell behind those
//! of earlier cells, on lines of their own, and else leaves the lines as they are.

/// A place in the cell.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Counted from 1.
    pub(super) line: usize,
    /// How many characters the text of the generated line is further to the right in the cell; negative to the left.
    pub(super) shift: isize,
}

/// The place of a generated line, counted from 1; none if it is of an earlier cell, evcxr's own, or not certain.
pub(super) fn in_cell(cell: &str, generated: &str, line: usize) -> Option<Place> {
    let index = line.checked_sub(1)?;
    let text = generated.lines().nth(index)?;
    let wanted = text.trim();
    if wanted.is_empty() {
        return None;
    }
    let indent = |line: &str| line.chars().take_while(|character| character.is_whitespace()).count().cast_signed();
    let lines = cell.lines().zip(1..);
    let same: Vec<(&str, usize)> = lines.clone().filter(|(line, _)| line.trim() == wanted).collect();
    if !same.is_empty() {
        // The cell's own lines come last.
        let behind = generated.lines().skip(index + 1).filter(|line| line.trim() == wanted).count();
        let (found, line) = same.into_iter().rev().nth(behind)?;
        return Some(Place { line, shift: indent(found) - indent(text) });
    }
    // One of several statements of a line.
    let mut within = lines.filter_map(|(line, number)| Some((line, line.find(wanted)?, number)));
    let (found, start, line) = within.next()?;
    let is_only = within.next().is_none() && found.rfind(wanted) == Some(start);
    let column = found[..start].chars().count().cast_signed();
    is_only.then(|| Place { line, shift: column - indent(text) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_cell_are_found_behind_those_of_earlier_cells() {
        let cell = "boom();\n  boom();\nlet a = 1; check(a);";
        let generated = "fn earlier() {\nboom();\n}\nfn run() {\n    boom();\n    boom();\nlet a = 1;\n check(a);\n}\n";
        let place = |line: usize| in_cell(cell, generated, line).map(|place| (place.line, place.shift));
        assert_eq!([1, 2, 5, 6], [1, 2, 5, 6].map(|line| line));
        assert_eq!([place(1), place(2), place(5), place(6)], [None, None, Some((1, -4)), Some((2, -2))]);
        assert_eq!([place(7), place(8), place(0), place(99)], [Some((3, 0)), Some((3, 10)), None, None]);
        assert_eq!(in_cell("f(x); f(x);", "f(x);", 1), None);
    }
}
