//! Tables for people: aligned text, and HTML beside it.

use crate::Bundle;
use crate::escape;

/// A table with a header; every row has as many cells as the header.
///
/// ```
/// let table = ferrotune_display::table(&["name", "size"], &[vec!["a".to_owned(), "12".to_owned()]]);
/// assert_eq!(table.data["text/plain"], "name  size\na     12");
/// ```
pub fn table(header: &[&str], rows: &[Vec<String>]) -> Bundle {
    let header: Vec<String> = header.iter().map(|&cell| cell.to_owned()).collect();
    let all = || std::iter::once(&header).chain(rows);
    let widths: Vec<usize> = (0..header.len())
        .map(|column| all().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0))
        .collect();
    let text: Vec<String> = all().map(|row| text_row(row, &widths)).collect();
    let sides: Vec<&str> = (0..header.len()).map(|column| side(rows, column)).collect();
    let body: String = rows.iter().map(|row| html_row(row, &sides, "td")).collect();
    let html = format!("<table><thead>{}</thead><tbody>{body}</tbody></table>", html_row(&header, &sides, "th"));
    Bundle::text(text.join("\n")).with("text/html", html)
}

/// The side at which a column's cells begin: numbers end at the right, and texts begin at the left, as front ends do not
/// agree on where they put them.
fn side(rows: &[Vec<String>], column: usize) -> &'static str {
    let mut filled = rows.iter().filter_map(|row| row.get(column)).filter(|cell| !cell.is_empty()).peekable();
    let has_numbers = filled.peek().is_some() && filled.all(|cell| cell.parse::<f64>().is_ok());
    if has_numbers { "right" } else { "left" }
}

fn text_row(row: &[String], widths: &[usize]) -> String {
    let cells: Vec<String> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
    cells.join("  ").trim_end().to_owned()
}

fn html_row(row: &[String], sides: &[&str], tag: &str) -> String {
    let cell =
        |(cell, side): (&String, &&str)| format!("<{tag} style=\"text-align: {side}\">{}</{tag}>", escape::html(cell));
    let cells: String = row.iter().zip(sides).map(cell).collect();
    format!("<tr>{cells}</tr>")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_at_the_right_and_texts_at_the_left() {
        let rows = [["7", "", "0.5", "a"], ["12", "<b>", "", "1 MiB"]].map(|row| row.map(str::to_owned).to_vec());
        let html = table(&["n", "kind", "lr", "note"], &rows).data["text/html"].clone();
        let row = |cells: [&str; 4], tag: &str| {
            let cell = |(cell, side)| format!("<{tag} style=\"text-align: {side}\">{cell}</{tag}>");
            cells.into_iter().zip(["right", "left", "right", "left"]).map(cell).collect::<String>()
        };
        let head = row(["n", "kind", "lr", "note"], "th");
        let (first, second) = (row(["7", "", "0.5", "a"], "td"), row(["12", "&lt;b&gt;", "", "1 MiB"], "td"));
        let body = format!("<tr>{first}</tr><tr>{second}</tr>");
        assert_eq!(html, format!("<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"));
    }
}
