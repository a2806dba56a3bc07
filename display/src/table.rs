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
    let body: String = rows.iter().map(|row| html_row(row, "td")).collect();
    let html = format!("<table><thead>{}</thead><tbody>{body}</tbody></table>", html_row(&header, "th"));
    Bundle::text(text.join("\n")).with("text/html", html)
}

fn text_row(row: &[String], widths: &[usize]) -> String {
    let cells: Vec<String> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
    cells.join("  ").trim_end().to_owned()
}

fn html_row(row: &[String], tag: &str) -> String {
    let cells: String = row.iter().map(|cell| format!("<{tag}>{}</{tag}>", escape::html(cell))).collect();
    format!("<tr>{cells}</tr>")
}
