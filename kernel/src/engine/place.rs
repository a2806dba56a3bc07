//! Where a line of the source that evcxr generates is in the cell. evcxr leaves lines as they are, but puts the items of all cells,
//! in any order, before a function with the statements of this cell, each on lines of its own.

use super::evaluator_state::STATEMENTS;

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
    let (cell, generated): (Vec<&str>, Vec<&str>) = (cell.lines().collect(), generated.lines().collect());
    if generated.get(index)?.trim().is_empty() {
        return None;
    }
    let statements = generated.iter().position(|line| line.starts_with(STATEMENTS)).unwrap_or(generated.len());
    if index < statements { of_item(&cell, &generated[..=index]) } else { of_statement(&cell, &generated[index..]) }
}

/// The place of the last of these lines, which is a part of an item: the cell has the lines from the item's head on, once.
fn of_item(cell: &[&str], generated: &[&str]) -> Option<Place> {
    let is_inner = |line: &&&str| line.is_empty() || line.starts_with(char::is_whitespace);
    let depth = generated.iter().rev().take_while(is_inner).count();
    let (text, block) = (generated.last()?, &generated[generated.len().checked_sub(depth + 1)?..]);
    let is_same = |window: &&[&str]| {
        // A statement may stand before an item on its line.
        let has_head = window[0].trim() == block[0].trim() || depth == 0 && window[0].contains(block[0].trim());
        has_head && window.iter().zip(block).skip(1).all(|(own, line)| own.trim() == line.trim())
    };
    let mut places = (depth + 1..).zip(cell.windows(depth + 1)).filter(|(_, window)| is_same(window));
    let (line, window) = places.next().filter(|_| places.next().is_none())?;
    let found = window.last()?;
    let start = found.find(text.trim())?;
    Some(Place { line, shift: characters(&found[..start]) - indent(text) })
}

/// The place of the first of these lines, which is a part of a statement.
fn of_statement(cell: &[&str], generated: &[&str]) -> Option<Place> {
    let (text, behind) = generated.split_first()?;
    let alike: [fn(&str, &str) -> bool; 2] = [|own, line| own == line, |own, line| own.trim() == line.trim()];
    for is_same in alike {
        let same: Vec<usize> = (0..cell.len()).filter(|line| is_same(cell[*line], text)).collect();
        if !same.is_empty() {
            // Statements come in their order.
            let later = behind.iter().filter(|line| is_same(line, text)).count();
            let line = same.into_iter().rev().nth(later)?;
            return Some(Place { line: line + 1, shift: indent(cell[line]) - indent(text) });
        }
    }
    // One of several statements of a line.
    let wanted = text.trim();
    let mut within = cell.iter().zip(1..).filter_map(|(line, number)| Some((line, line.find(wanted)?, number)));
    let (found, start, line) = within.next()?;
    let is_only = within.next().is_none() && found.rfind(wanted) == Some(start);
    is_only.then(|| Place { line, shift: characters(&found[..start]) - indent(text) })
}

fn indent(line: &str) -> isize {
    characters(&line[..line.len() - line.trim_start().len()])
}

fn characters(text: &str) -> isize {
    text.chars().count().cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(cell: &str, items: &str, statements: &str, line: usize) -> Option<(usize, isize)> {
        let generated = format!("{items}{STATEMENTS}1() {{\n{statements}}}\n");
        in_cell(cell, &generated, line).map(|place| (place.line, place.shift))
    }

    #[test]
    fn statements_are_found_in_their_order_and_on_shared_lines() {
        let cell = "boom();\n  boom();\nlet a = 1; check(a);";
        let place =
            |line| place(cell, "fn earlier() {\nboom();\n}\n", "boom();\n  boom();\nlet a = 1;\n check(a);\n", line);
        assert_eq!([place(5), place(6), place(7), place(8)], [Some((1, 0)), Some((2, 0)), Some((3, 0)), Some((3, 10))]);
        assert_eq!([place(2), place(4), place(0), place(99)], [None; 4]);
        assert_eq!(self::place("f(x); f(x);", "", "f(x);\n", 2), None);
    }

    #[test]
    fn items_are_found_by_their_head_wherever_they_stand() {
        let (first, second) = ("fn a(v: &[i32]) -> i32 {\n    v[9]\n}\n", "fn b(v: &[i32]) -> i32 {\n    v[9]\n}\n");
        let cell = format!("{first}{second}b(&[1])");
        let swapped = format!("{second}{first}");
        assert_eq!([2, 5].map(|line| place(&cell, &swapped, "b(&[1])\n", line)), [Some((5, 0)), Some((2, 0))]);
        assert_eq!(place("let a = 1; fn f() {\n  g() }", "fn f() {\n  g() }\n", "let a = 1;\n", 1), Some((1, 11)));
    }

    #[test]
    fn lines_of_earlier_items_are_not_those_of_this_cell() {
        let earlier = "fn careless() {\n    remove(\"x\");\n}\n";
        assert_eq!(place("let _ = remove(\"x\");", earlier, "let _ = remove(\"x\");\n", 2), None);
        let cell = "go();\nfn g() {\n    go();\n}";
        let place = |line| place(cell, "fn g() {\n    go();\n}\n", "go();\n", line);
        assert_eq!([place(2), place(5)], [Some((3, 0)), Some((1, 0))]);
    }
}
