//! The first rows of a table, for a display.

use super::Table;
use ferrotune_display::{Bundle, Show, table};
use std::fmt::{self, Debug, Display, Formatter};

/// The number of rows.
const SHOWN_ROWS: usize = 5;
/// The largest number of characters of a value.
const SHOWN_CHARS: usize = 30;

/// The first rows of a [`Table`], from [`Table::head`]: a table in a notebook, and aligned text elsewhere.
#[derive(Clone, PartialEq)]
pub struct Head {
    /// The names of the columns.
    pub columns: Vec<String>,
    /// The kinds of the columns, as words.
    pub kinds: Vec<String>,
    /// The values as texts, row after row. A gap is `None`.
    pub rows: Vec<Vec<Option<String>>>,
}

impl Table {
    /// The first five rows, and the kinds of the columns.
    ///
    /// ```
    /// # use ferrotune_data::Table;
    /// let table = Table::from_columns([("rooms", vec![3.into(), None::<f64>.into()]), ("city", vec!["Oslo".into(), "Bergen".into()])])?;
    /// assert_eq!(table.head().to_string(), "rooms: number  city: category\n            3  Oslo\n               Bergen");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn head(&self) -> Head {
        let row = |row: usize| self.columns.iter().map(|column| column.values.text(row)).collect();
        Head {
            columns: self.columns.iter().map(|column| column.name.clone()).collect(),
            kinds: self.columns.iter().map(|column| column.kind().to_string()).collect(),
            rows: (0..self.rows.min(SHOWN_ROWS)).map(row).collect(),
        }
    }
}

/// Shows the first rows below one line about the table.
impl Show for Table {
    fn bundle(&self) -> Bundle {
        let target = self.target().map(|target| format!("; the target is `{}`", target.name())).unwrap_or_default();
        titled(&format!("{self:?}{target}"), &self.head().bundle())
    }
}

impl Show for Head {
    fn bundle(&self) -> Bundle {
        let header: Vec<String> =
            self.columns.iter().zip(&self.kinds).map(|(name, kind)| format!("{}: {kind}", short(name))).collect();
        let header: Vec<&str> = header.iter().map(String::as_str).collect();
        let cell = |value: &Option<String>| value.as_deref().map(short).unwrap_or_default();
        let rows: Vec<Vec<String>> = self.rows.iter().map(|row| row.iter().map(cell).collect()).collect();
        table(&header, &rows)
    }
}

impl Display for Head {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.bundle().text_of("text/plain"))
    }
}

impl Debug for Head {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        Display::fmt(self, formatter)
    }
}

/// A bundle below a line.
pub(super) fn titled(title: &str, bundle: &Bundle) -> Bundle {
    let (text, html) = (bundle.text_of("text/plain"), bundle.text_of("text/html"));
    let title_html = ferrotune_display::escape::html(title);
    Bundle::text(format!("{title}\n{text}")).with("text/html", format!("<div>{title_html}</div>{html}"))
}

/// The beginning of a text, on one line.
pub(super) fn short(text: &str) -> String {
    let beginning: String =
        text.chars().take(SHOWN_CHARS).map(|character| if character.is_control() { ' ' } else { character }).collect();
    if text.chars().count() > SHOWN_CHARS { format!("{beginning}…") } else { beginning }
}
