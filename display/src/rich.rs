//! The trait of types with their own display, and the display of vectors of them.

use crate::table::LEFT_OUT;
use crate::value::{CELL_CHARS, cell, shown, with_note};
use crate::{Bundle, show, table, text};
use std::fmt::Debug;

/// A type with its own display: at the end of a cell, with `ferrotune::show!`, and in vectors. `#[derive(Show)]` makes it a table of
/// a struct's fields.
///
/// ```
/// use ferrotune_display::{Bundle, Show};
///
/// struct Colour(u8, u8, u8);
///
/// impl Show for Colour {
///     fn bundle(&self) -> Bundle {
///         let Colour(red, green, blue) = self;
///         let css = format!("rgb({red}, {green}, {blue})");
///         Bundle::text(css.as_str()).with("text/html", format!("<span style=\"color: {css}\">■</span> {css}"))
///     }
/// }
/// assert_eq!(Colour(255, 0, 0).bundle().data["text/plain"], "rgb(255, 0, 0)");
/// ```
pub trait Show {
    /// The value's representations. A front end shows the richest one that it knows, so each bundle needs a text.
    fn bundle(&self) -> Bundle;

    /// The names and texts of the value's columns, if a vector of such values is shown as a table.
    fn columns(&self) -> Option<Vec<(String, String)>> {
        None
    }

    /// Shows the value as the cell's result.
    #[doc(hidden)]
    fn evcxr_display(&self) {
        show::result(self.bundle());
    }
}

/// A struct with this name as a table of its fields' names and texts.
#[doc(hidden)]
pub fn of_fields(name: &str, columns: &[(String, String)]) -> Bundle {
    if columns.is_empty() {
        return Bundle::text(name);
    }
    let rows: Vec<Vec<String>> = columns.iter().map(|(name, value)| vec![name.clone(), value.clone()]).collect();
    table(&["field", "value"], &rows)
}

/// The text of a struct's field.
#[doc(hidden)]
pub fn field_text(field: &dyn Debug) -> String {
    text::beginning(field, CELL_CHARS)
}

impl Show for Bundle {
    fn bundle(&self) -> Bundle {
        self.clone()
    }
}

impl<T: Show + ?Sized> Show for &T {
    fn bundle(&self) -> Bundle {
        (**self).bundle()
    }

    fn columns(&self) -> Option<Vec<(String, String)>> {
        (**self).columns()
    }
}

impl<T: Show + ?Sized> Show for Box<T> {
    fn bundle(&self) -> Bundle {
        (**self).bundle()
    }

    fn columns(&self) -> Option<Vec<(String, String)>> {
        (**self).columns()
    }
}

impl<T: Show> Show for Vec<T> {
    fn bundle(&self) -> Bundle {
        self.as_slice().bundle()
    }
}

impl<T: Show> Show for [T] {
    fn bundle(&self) -> Bundle {
        of_elements(self.len(), &|at| &self[at])
    }
}

/// A table of the elements' columns, or of their texts if they have no columns.
fn of_elements<'a>(len: usize, element: &dyn Fn(usize) -> &'a dyn Show) -> Bundle {
    let first = (len > 0).then(|| element(0).columns()).flatten();
    let names: Vec<String> = first.into_iter().flatten().map(|(name, _)| name).collect();
    let row = |at: usize| -> Option<Vec<String>> {
        let columns = element(at).columns()?;
        let fits = columns.iter().map(|(name, _)| name).eq(&names);
        fits.then(|| columns.iter().map(|(_, text)| cell(text)).collect())
    };
    let rows: Option<Vec<Vec<String>>> = match names.is_empty() {
        true => None,
        false => shown(len).into_iter().map(|at| at.map_or_else(|| Some(gap(names.len())), row)).collect(),
    };
    let (header, rows) = match rows {
        Some(rows) => (names.iter().map(String::as_str).collect(), rows),
        None => {
            let text = |at: usize| vec![cell(element(at).bundle().text_of("text/plain"))];
            (vec!["value"], shown(len).into_iter().map(|at| at.map_or_else(|| gap(1), text)).collect())
        }
    };
    let header: Vec<&str> = std::iter::once("").chain(header).collect();
    let numbers = shown(len).into_iter().map(|at| at.map_or_else(|| LEFT_OUT.to_owned(), |at| at.to_string()));
    let rows: Vec<Vec<String>> = numbers.zip(rows).map(|(at, row)| std::iter::once(at).chain(row).collect()).collect();
    with_note(table(&header, &rows), len, "rows")
}

fn gap(columns: usize) -> Vec<String> {
    vec![LEFT_OUT.to_owned(); columns]
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Named(u8);

    impl Show for Named {
        fn bundle(&self) -> Bundle {
            Bundle::text(format!("named {}", self.0))
        }

        fn columns(&self) -> Option<Vec<(String, String)>> {
            (self.0 < 9).then(|| vec![("n".to_owned(), self.0.to_string())])
        }
    }

    #[test]
    fn vectors_are_tables_of_columns_or_of_texts() {
        let text = |values: Vec<Named>| values.bundle().text_of("text/plain").to_owned();
        assert_eq!(text(vec![Named(1), Named(2)]), "   n\n0  1\n1  2");
        assert_eq!(text(vec![Named(1), Named(9)]), "   value\n0  named 1\n1  named 9");
        assert!(
            text((0..50).map(|at| Named(at % 5)).collect())
                .ends_with("of 50 rows are shown; println!(\"{:?}\", …) prints all")
        );
    }
}
