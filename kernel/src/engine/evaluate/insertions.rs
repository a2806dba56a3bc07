//! Texts that the engine inserts into the lines of a cell, and the mapping from the changed lines back to the user's lines, which
//! error messages must show.

use proc_macro2::LineColumn;

/// A text to insert, and the place before which the text is inserted.
pub(in crate::engine) type Text = (LineColumn, String);

/// The insertions into one cell, sorted by place. They add no lines.
#[derive(Debug, Default)]
pub(in crate::engine) struct Insertions(Vec<Insertion>);

/// One insertion into a line.
#[derive(Debug)]
struct Insertion {
    /// Line of the insertion, counted from 1.
    line: usize,
    /// First column of the inserted text in the changed line, in characters from 1.
    column: usize,
    length: usize,
}

impl Insertions {
    /// Inserts texts at places of the source.
    pub(in crate::engine) fn into(source: &str, mut texts: Vec<Text>) -> (String, Insertions) {
        texts.sort_by_key(|(place, _)| *place);
        let mut lines: Vec<String> = source.split('\n').map(str::to_owned).collect();
        let mut insertions = Insertions::default();
        for (place, text) in texts {
            let Some(line) = lines.get_mut(place.line.saturating_sub(1)) else { continue };
            let earlier = insertions.on(place.line).map(|insertion| insertion.length).sum::<usize>();
            let at = place.column + earlier;
            let byte = line.char_indices().nth(at).map_or(line.len(), |(byte, _)| byte);
            line.insert_str(byte, &text);
            insertions.0.push(Insertion { line: place.line, column: at + 1, length: text.chars().count() });
        }
        (lines.join("\n"), insertions)
    }

    /// The user's column from a column of the changed line, both in characters from 1.
    pub(in crate::engine) fn original_column(&self, line: usize, column: usize) -> usize {
        let inserted = |insertion: &Insertion| column.saturating_sub(insertion.column).min(insertion.length);
        column - self.on(line).map(inserted).sum::<usize>()
    }

    /// The user's line from a changed line.
    pub(in crate::engine) fn original_line(&self, line: usize, text: &str) -> String {
        let is_inserted = |column: usize| {
            self.on(line).any(|insertion| (insertion.column..insertion.column + insertion.length).contains(&column))
        };
        text.chars().zip(1..).filter(|(_, column)| !is_inserted(*column)).map(|(character, _)| character).collect()
    }

    /// The user's lines from the changed cell.
    #[cfg(test)]
    pub(in crate::engine) fn original_lines(&self, changed: &str) -> Vec<String> {
        changed.lines().zip(1..).map(|(line, number)| self.original_line(number, line)).collect()
    }

    /// Whether a text is inserted between two places of the changed cell.
    pub(in crate::engine) fn are_between(&self, start: LineColumn, end: LineColumn) -> bool {
        let place = |insertion: &Insertion| LineColumn { line: insertion.line, column: insertion.column - 1 };
        self.0.iter().any(|insertion| (start..end).contains(&place(insertion)))
    }

    fn on(&self, line: usize) -> impl Iterator<Item = &Insertion> {
        self.0.iter().filter(move |insertion| insertion.line == line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_in_the_changed_cell_are_those_of_the_users() {
        let at = |line, column| LineColumn { line, column };
        let texts = vec![(at(2, 7), "<>".to_owned()), (at(2, 3), "[--]".to_owned())];
        let (source, insertions) = Insertions::into("first\näbcdefg\n", texts);
        assert_eq!(source, "first\näbc[--]defg<>\n");
        assert_eq!(insertions.original_line(2, "äbc[--]defg<>"), "äbcdefg");
        assert_eq!(insertions.original_line(1, "first"), "first");
        let columns: Vec<usize> = (1..=13).map(|column| insertions.original_column(2, column)).collect();
        assert_eq!(columns, [1, 2, 3, 4, 4, 4, 4, 4, 5, 6, 7, 8, 8]);
        assert_eq!(insertions.original_column(1, 5), 5);
    }
}
