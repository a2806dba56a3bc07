//! The pages in `benchmarks/`. A table that a command measures is between two marks, and the command replaces nothing else of the page. The
//! first line of a table's text says how and when it was measured, and whether a version has been released since. Measures nothing.

use anyhow::{Context, Result};
use std::ops::Range;

/// The folder of the pages.
pub(crate) const FOLDER: &str = "benchmarks/";
/// The page with the releases and their days.
pub(crate) const CHANGELOG: &str = "CHANGELOG.md";
/// The starts of the marks before and after a table, up to the table's name.
const BEGIN: &str = "<!-- table ";
const END: &str = "<!-- end of ";
/// The texts around the version in the mark of a table that is older than a release.
const OLDER: [&str; 2] = [", **before version ", "**"];

/// A version that was released, and its day.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Release<'a> {
    pub(crate) version: &'a str,
    day: &'a str,
}

impl Release<'_> {
    /// The newest release, which is the first heading of the changelog with a day, as in `## 0.1.0 (2026-12-05)`.
    pub(crate) fn newest(changelog: &str) -> Option<Release<'_>> {
        changelog.lines().filter_map(|line| line.strip_prefix("## ")).find_map(Release::read)
    }

    /// Reads the text of a heading; `None` for a version without a day.
    pub(crate) fn read(heading: &str) -> Option<Release<'_>> {
        let (version, day) = heading.strip_suffix(')')?.split_once(" (")?;
        is_day(day).then_some(Release { version, day })
    }
}

/// A line that says how and when a table was measured: ``Measured by `cargo xtask bench keras` on 2026-11-20: 2 cores, …``.
#[derive(Debug, PartialEq)]
pub(crate) struct Measured<'a> {
    /// A command in backticks, or `hand`.
    pub(crate) how: &'a str,
    pub(crate) day: &'a str,
    /// The machine and the programs.
    pub(crate) on: &'a str,
}

impl<'a> Measured<'a> {
    /// Reads a line, with or without the mark of an older table.
    pub(crate) fn read(line: &'a str) -> Option<Measured<'a>> {
        let (how, rest) = line.strip_prefix("Measured by ")?.split_once(" on ")?;
        let (day, rest) = rest.split_at_checked("2026-11-20".len()).filter(|(day, _)| is_day(day))?;
        let rest = match rest.strip_prefix(OLDER[0]) {
            Some(marked) => marked.split_once(OLDER[1])?.1,
            None => rest,
        };
        Some(Measured { how, day, on: rest.strip_prefix(": ")? })
    }

    /// The line, with a mark if the release is younger than the table.
    pub(crate) fn line(&self, newest: Option<Release<'_>>) -> String {
        let mark = match newest {
            Some(release) if self.is_older_than(release) => [OLDER[0], release.version, OLDER[1]].concat(),
            _ => String::new(),
        };
        format!("Measured by {} on {}{mark}: {}", self.how, self.day, self.on)
    }

    pub(crate) fn is_older_than(&self, release: Release<'_>) -> bool {
        self.day < release.day
    }
}

/// Whether a text is a day, as in `2026-11-20`. Days are compared as texts.
fn is_day(text: &str) -> bool {
    let is_digit =
        |(place, byte): (usize, u8)| if place == 4 || place == 7 { byte == b'-' } else { byte.is_ascii_digit() };
    text.len() == 10 && text.bytes().enumerate().all(is_digit)
}

/// The lines of a page that say how and when a table was measured, with their numbers.
pub(crate) fn measured(page: &str) -> impl Iterator<Item = (usize, Measured<'_>)> {
    (1..).zip(page.lines()).filter_map(|(number, line)| Some((number, Measured::read(line)?)))
}

/// The page with a mark at each table that is older than the newest release, and at no other.
pub(crate) fn marked(page: &str, newest: Option<Release<'_>>) -> String {
    let line = |text: &str| Measured::read(text).map_or_else(|| text.to_owned(), |measured| measured.line(newest));
    page.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

/// The text of a table: all that is between its marks.
pub(crate) fn table<'a>(page: &'a str, name: &str) -> Result<&'a str> {
    Ok(&page[place(page, name)?])
}

/// The page with another text of a table.
pub(crate) fn replaced(page: &str, name: &str, text: &str) -> Result<String> {
    let Range { start, end } = place(page, name)?;
    Ok(format!("{}{}\n{}", &page[..start], text.trim_end(), &page[end..]))
}

fn place(page: &str, name: &str) -> Result<Range<usize>> {
    let [begin, end] = marks(name);
    let found = page.find(&begin).map(|at| at + begin.len()).and_then(|start| {
        let length = page[start..].find(&end)?;
        Some(start..start + length)
    });
    found.with_context(|| {
        format!("no place for the table {name}; write `{}` and `{}` around it", begin.trim_end(), end.trim_end())
    })
}

/// The lines before and after a table.
pub(crate) fn marks(name: &str) -> [String; 2] {
    [format!("{BEGIN}{name} -->\n"), format!("{END}{name} -->\n")]
}

/// The numbers of the lines where a table begins that no line dates. A line dates its section with all sections in it; a line
/// directly below the page's title dates only what is above the first section, and a line between marks all that is between them.
pub(crate) fn undated(page: &str) -> Vec<usize> {
    // Whether the text below each open heading is dated, by the heading's level; the first is for text above all headings.
    let mut dated = vec![false];
    let mut is_between_marks = false;
    let mut undated = Vec::new();
    for (number, line) in (1..).zip(page.lines()) {
        let level = line.bytes().take_while(|byte| *byte == b'#').count();
        if line.starts_with(BEGIN) || line.starts_with(END) {
            is_between_marks = line.starts_with(BEGIN);
            dated.fill(false);
        } else if level > 0 && !is_between_marks {
            dated.truncate(if level == 2 { 0 } else { level });
            dated.resize(level + 1, false);
        } else if Measured::read(line).is_some() {
            dated.pop();
            dated.push(true);
        } else if line.starts_with("|---") && !dated.contains(&true) {
            undated.push(number);
        }
    }
    undated
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "Measured by `cargo xtask bench keras` on 2026-11-20: 2 cores, with keras.";
    const PAGE: &str = "# Searches\n\n<!-- table one -->\nold\n\n| a |\n<!-- end of one -->\n\nBy hand.\n\n<!-- table two -->\n<!-- end of two -->\n";

    #[test]
    fn the_newest_release_is_the_first_version_with_a_day() {
        let changelog =
            "# Changelog\n\n## Unreleased\n\n## 0.3.0 (unreleased)\n\n## 0.2.0 (2026-12-24)\n\n## 0.1.0 (2026-12-05)\n";
        assert_eq!(Release::newest(changelog), Some(Release { version: "0.2.0", day: "2026-12-24" }));
        assert_eq!(Release::newest("## 0.1.0 (unreleased)\n"), None);
    }

    #[test]
    fn a_table_is_marked_if_and_only_if_it_is_older_than_the_newest_release() {
        let marked_for = |page: &str, day: &'static str| marked(page, Some(Release { version: "0.2.0", day }));
        let page = format!("# Page\n\n{LINE}\nMeasured twice.\n");
        let older = marked_for(&page, "2026-11-21");
        assert_eq!(older, page.replace("11-20:", "11-20, **before version 0.2.0**:"));
        assert_eq!(
            marked(&older, Some(Release { version: "0.3.0", day: "2027-01-01" })),
            older.replace("0.2.0", "0.3.0")
        );
        assert_eq!((marked_for(&page, "2026-11-20"), marked_for(&older, "2026-11-21")), (page.clone(), older.clone()));
        assert_eq!(marked(&older, None), page);
    }

    #[test]
    fn a_table_is_replaced_and_nothing_around_it() {
        assert_eq!(replaced(PAGE, "one", "new\n\n").unwrap(), PAGE.replace("old\n\n| a |\n", "new\n"));
        assert_eq!(table(&replaced(PAGE, "two", "new").unwrap(), "two").unwrap(), "new\n");
        let error = replaced(PAGE, "three", "new").unwrap_err().to_string();
        assert_eq!(
            error,
            "no place for the table three; write `<!-- table three -->` and `<!-- end of three -->` around it"
        );
    }

    #[test]
    fn tables_that_no_line_dates_are_found() {
        let table = "| a |\n|---|\n";
        assert_eq!(undated(&format!("# A\n{LINE}\n{table}## B\n{LINE}\n{table}### C\n{table}")), [0; 0]);
        assert_eq!(undated(&format!("# A\n{LINE}\n## B\n{table}")), [5]);
        assert_eq!(undated(&format!("# A\n{BEGIN}a -->\n{LINE}\n## B\n{table}{END}a -->\n{table}")), [9]);
        assert_eq!(undated(&format!("# A\n## B\n{LINE}\n### C\n{table}## D\n{table}")), [9]);
        assert_eq!(undated(&format!("# A\n{LINE}\n{BEGIN}a -->\n{table}")), [5]);
        assert_eq!(undated(&format!("Measured by hand on Friday: fast.\n{table}")), [3]);
    }
}
