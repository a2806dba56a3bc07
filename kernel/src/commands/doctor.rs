//! `ferrotune doctor`: a table of what is installed, found and missing, with cures, to paste into a report. It changes
//! nothing, starts no device, and names no folder above the home folder.

mod jupyter;
mod machine;
mod rust;

use crate::commands::kernelspec;
use crate::folders;
use anyhow::Result;
use ferrotune_machine::format;
use serde::Serialize;
use std::path::Path;

/// One line of the table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Row {
    what: String,
    found: String,
    /// What to do; none if nothing is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    cure: Option<String>,
    /// Whether no cell can run without the cure.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    stops_cells: bool,
}

impl Row {
    fn new(what: &str, found: impl Into<String>) -> Self {
        Self { what: what.to_owned(), found: found.into(), cure: None, stops_cells: false }
    }

    fn with_cure(self, cure: impl Into<String>) -> Self {
        Self { cure: Some(cure.into()), ..self }
    }

    /// Adds a cure without which no cell can run.
    fn stops_cells(self, cure: impl Into<String>) -> Self {
        Self { stops_cells: true, ..self.with_cure(cure) }
    }
}

/// Prints the table, and returns whether a cell can run.
pub(crate) fn run(is_json: bool) -> Result<bool> {
    let rows: Vec<Row> = rows()?.into_iter().map(without_home).collect();
    let can_run = !rows.iter().any(|row| row.stops_cells);
    let text = if is_json {
        format!("{:#}\n", serde_json::json!({"version": 1, "cells_can_run": can_run, "rows": rows}))
    } else {
        table(&rows)
    };
    #[expect(clippy::print_stdout, reason = "the report is the program's result")]
    {
        print!("{text}");
    }
    Ok(can_run)
}

fn rows() -> Result<Vec<Row>> {
    let mut rows = vec![Row::new("Ferrotune", env!("CARGO_PKG_VERSION"))];
    rows.extend(machine::rows());
    rows.extend(rust::rows());
    rows.extend(kernelspecs());
    rows.extend(jupyter::rows());
    rows.extend(kept()?);
    Ok(rows)
}

fn kernelspecs() -> Vec<Row> {
    let found = kernelspec::installed();
    if found.is_empty() {
        return vec![Row::new("kernelspec", "none").with_cure("ferrotune install --user")];
    }
    let rows = found.into_iter().map(|spec| {
        let row = Row::new("kernelspec", spec.folder.display().to_string());
        match spec.has_program() {
            true => row,
            false => row.with_cure(format!("{} is gone; ferrotune install writes it anew", spec.program.display())),
        }
    });
    rows.collect()
}

/// The rows about Ferrotune's files on disk: a row for each kind, with its size.
fn kept() -> Result<Vec<Row>> {
    let mut inventory = folders::survey()?;
    inventory.ours.sort_by_key(|place| place.kind.text());
    let mut rows: Vec<Row> = Vec::new();
    for kept in inventory.ours.chunk_by(|one, other| one.kind == other.kind) {
        let (Some(first), bytes) = (kept.first(), kept.iter().map(|place| place.bytes).sum()) else { continue };
        let folder = first.path.parent().unwrap_or(Path::new("/")).display();
        let count = if kept.len() == 1 { String::new() } else { format!("{} × ", kept.len()) };
        rows.push(Row::new(
            &format!("kept: {count}{}", first.kind.text()),
            format!("{} in {folder}", format::bytes(bytes)),
        ));
    }
    let strange = inventory.strange.iter().map(|path| {
        let row = Row::new("kept: not by Ferrotune", path.display().to_string());
        row.with_cure("delete it if nobody needs it; Ferrotune leaves it")
    });
    rows.extend(strange);
    Ok(rows)
}

/// The row with `~` for each mention of the home folder.
fn without_home(row: Row) -> Row {
    let Some(home) = dirs::home_dir().filter(|home| home.parent().is_some()) else { return row };
    let shorten = |text: String| shortened(&text, &home.to_string_lossy());
    Row { what: row.what, found: shorten(row.found), cure: row.cure.map(shorten), stops_cells: row.stops_cells }
}

/// A text with `~` for the path of the home folder, but not for a part of another path.
fn shortened(text: &str, home: &str) -> String {
    let goes_on = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_');
    let (mut shortened, mut rest) = (String::new(), text);
    while let Some(start) = rest.find(home) {
        let (before, behind) = (&rest[..start], &rest[start + home.len()..]);
        let begins_before = before.ends_with(|c| goes_on(c) || matches!(c, '.' | '/'));
        let ends_behind =
            behind.starts_with(goes_on) || behind.strip_prefix('.').is_some_and(|end| end.starts_with(goes_on));
        shortened.push_str(before);
        shortened.push_str(if begins_before || ends_behind { home } else { "~" });
        rest = behind;
    }
    shortened + rest
}

/// A Markdown table with aligned columns, which can be read without rendering.
fn table(rows: &[Row]) -> String {
    let heading = ["What", "Found", "Cure"].map(str::to_owned);
    let cells = rows.iter().map(|row| {
        let cure = row.cure.as_deref().unwrap_or_default();
        [row.what.as_str(), row.found.as_str(), cure].map(|text| text.replace('|', "\\|").replace('\n', " "))
    });
    let lines: Vec<[String; 3]> = std::iter::once(heading).chain(cells).collect();
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 3] = std::array::from_fn(width);
    let mut text = String::new();
    for (index, line) in lines.iter().enumerate() {
        let cells: Vec<String> = line.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        text.push_str(&format!("| {} |\n", cells.join(" | ")));
        if index == 0 {
            text.push_str(&format!("|{}|\n", widths.map(|width| "-".repeat(width + 2)).join("|")));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_home_folder_itself_is_shortened() {
        let table = [
            ("/users/me", "~"),
            ("in /users/me/a, not in /users/me2/a", "in ~/a, not in /users/me2/a"),
            ("/mnt/users/me/a:/users/me.old:/users/me.", "/mnt/users/me/a:/users/me.old:~."),
            ("(/users/me) `/users/me-x`", "(~) `/users/me-x`"),
        ];
        for (text, expected) in table {
            assert_eq!(shortened(text, "/users/me"), expected);
        }
    }

    #[test]
    fn the_table_is_markdown() {
        let rows = [Row::new("linker", "none").stops_cells("install gcc"), Row::new("a|b", "two\nlines")];
        assert_eq!(
            table(&rows),
            "| What   | Found     | Cure        |\n\
             |--------|-----------|-------------|\n\
             | linker | none      | install gcc |\n\
             | a\\|b   | two lines |             |\n"
        );
    }
}
