//! CSV by RFC 4180: a header and a row for each trial; every number has all its digits.

use super::fields::{Values, fields};
use ferrotune_journal::Study;

/// The line end that the RFC requires.
const END: &str = "\r\n";

pub(super) fn text(study: &Study) -> String {
    let fields = fields(study);
    let mut text = line(fields.iter().map(|field| field.name.clone()));
    for row in 0..study.trials.len() {
        text.push_str(&line(fields.iter().map(|field| cell(&field.values, row))));
    }
    text
}

fn line(cells: impl Iterator<Item = String>) -> String {
    cells.map(|cell| quoted(&cell)).collect::<Vec<_>>().join(",") + END
}

fn cell(values: &Values, row: usize) -> String {
    fn shown<T: ToString>(values: &[Option<T>], row: usize) -> String {
        values[row].as_ref().map_or_else(String::new, T::to_string)
    }
    match values {
        Values::Whole(values) => shown(values, row),
        Values::Number(values) => shown(values, row),
        Values::Truth(values) => shown(values, row),
        Values::Text(values) => shown(values, row),
    }
}

fn quoted(cell: &str) -> String {
    if cell.contains([',', '"', '\r', '\n']) { format!("\"{}\"", cell.replace('"', "\"\"")) } else { cell.to_owned() }
}
