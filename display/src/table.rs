//! Tables for people, as aligned text and as HTML. In both, numbers are aligned to the right and texts to the left.

use crate::Bundle;
use crate::escape;

/// The text in every cell of the row that represents the skipped rows.
pub(crate) const LEFT_OUT: &str = "…";

/// A table with a header; every row has as many cells as the header.
///
/// ```
/// let table = ferrotune_display::table(&["name", "size"], &[vec!["a".to_owned(), "12".to_owned()]]);
/// assert_eq!(table.data["text/plain"], "name  size\na       12");
/// ```
pub fn table(header: &[&str], rows: &[Vec<String>]) -> Bundle {
    let header: Vec<String> = header.iter().map(|&cell| cell.to_owned()).collect();
    let all = || std::iter::once(&header).chain(rows);
    let widths: Vec<usize> = (0..header.len())
        .map(|column| all().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0))
        .collect();
    let sides: Vec<Side> = (0..header.len()).map(|column| side(rows, column)).collect();
    let text: Vec<String> = all().map(|row| text_row(row, &widths, &sides)).collect();
    let body: String = rows.iter().map(|row| html_row(row, &sides, "td")).collect();
    let html = format!("<table><thead>{}</thead><tbody>{body}</tbody></table>", html_row(&header, &sides, "th"));
    Bundle::text(text.join("\n")).with("text/html", html)
}

/// The alignment of a column's cells.
#[derive(Clone, Copy)]
enum Side {
    Left,
    Right,
}

/// The alignment of a column, set here because front ends differ. Empty cells, and those for skipped rows, are ignored.
fn side(rows: &[Vec<String>], column: usize) -> Side {
    let cells = rows.iter().filter_map(|row| row.get(column));
    let mut filled = cells.filter(|cell| !cell.is_empty() && cell.as_str() != LEFT_OUT).peekable();
    let has_numbers = filled.peek().is_some() && filled.all(|cell| is_number(cell));
    if has_numbers { Side::Right } else { Side::Left }
}

/// Whether a cell is a number, or a number with a unit such as `MiB`, `s` or `%`.
fn is_number(cell: &str) -> bool {
    let (number, unit) = cell.split_once(' ').unwrap_or((cell, ""));
    let is_unit = unit.len() <= 3 && unit.chars().all(|character| character.is_ascii_alphabetic() || character == '%');
    is_unit && number.parse::<f64>().is_ok()
}

fn text_row(row: &[String], widths: &[usize], sides: &[Side]) -> String {
    let cell = |((cell, &width), side): ((&String, &usize), &Side)| match side {
        Side::Left => format!("{cell:width$}"),
        Side::Right => format!("{cell:>width$}"),
    };
    let cells: Vec<String> = row.iter().zip(widths).zip(sides).map(cell).collect();
    cells.join("  ").trim_end().to_owned()
}

fn html_row(row: &[String], sides: &[Side], tag: &str) -> String {
    let cell = |(cell, side): (&String, &Side)| {
        let side = match side {
            Side::Left => "left",
            Side::Right => "right",
        };
        format!("<{tag} style=\"text-align: {side}\">{}</{tag}>", escape::html(cell))
    };
    let cells: String = row.iter().zip(sides).map(cell).collect();
    format!("<tr>{cells}</tr>")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_at_the_right_and_texts_at_the_left() {
        let rows = [["7", "", "0.5", "12 KiB", "a"], ["12", "<b>", "", "1 MiB", "1 MiB"]]
            .map(|row| row.map(str::to_owned).to_vec());
        let Bundle { data, .. } = table(&["n", "kind", "lr", "size", "note"], &rows);
        assert_eq!(
            data["text/plain"],
            " n  kind   lr    size  note\n 7        0.5  12 KiB  a\n12  <b>         1 MiB  1 MiB"
        );
        let html = data["text/html"].clone();
        let row = |cells: [&str; 5], tag: &str| {
            let cell = |(cell, side)| format!("<{tag} style=\"text-align: {side}\">{cell}</{tag}>");
            cells.into_iter().zip(["right", "left", "right", "right", "left"]).map(cell).collect::<String>()
        };
        let head = row(["n", "kind", "lr", "size", "note"], "th");
        let (first, second) =
            (row(["7", "", "0.5", "12 KiB", "a"], "td"), row(["12", "&lt;b&gt;", "", "1 MiB", "1 MiB"], "td"));
        let body = format!("<tr>{first}</tr><tr>{second}</tr>");
        assert_eq!(html, format!("<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"));
    }

    #[test]
    fn a_row_for_those_that_are_left_out_decides_no_side() {
        let rows = ["7", LEFT_OUT, "12"].map(|cell| vec![cell.to_owned()]);
        assert_eq!(table(&["n"], &rows).text_of("text/plain"), " n\n 7\n …\n12");
        let rows = [vec![LEFT_OUT.to_owned()]];
        assert_eq!(table(&["name"], &rows).text_of("text/plain"), "name\n…");
    }
}
