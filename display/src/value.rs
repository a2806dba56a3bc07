//! The display of values that are only `Debug`: structs and maps become tables, and long values are shortened, with a line that
//! tells how to see all. Cells call these functions with references to `dyn Debug`, so that cells need little compilation.

use crate::fields::{self, Fields};
use crate::table::LEFT_OUT;
use crate::text::{self, SHOWN_CHARS, grouped};
use crate::{Bundle, escape, table};
use std::fmt::Debug;

/// The length up to which a sequence is shown whole, and the numbers of elements at the beginning and the end of a longer one.
const WHOLE_SEQUENCE: usize = 1000;
const SEQUENCE_ENDS: (usize, usize) = (100, 10);

/// The number of rows up to which a table is shown whole, and the numbers of rows at the beginning and the end of a longer one.
const WHOLE_TABLE: usize = 40;
const TABLE_ENDS: (usize, usize) = (20, 5);

/// The largest number of characters in a table's cell.
pub(crate) const CELL_CHARS: usize = 100;

/// The advice for a value that was shortened.
const CURE: &str = "println!(\"{:?}\", …) prints all";

/// The text of a value.
///
/// ```
/// let bundle = ferrotune_display::value::text(&Some(3));
/// assert_eq!(bundle.data["text/plain"], "Some(3)");
/// ```
pub fn text(value: &dyn Debug) -> Bundle {
    Bundle::text(match text::whole(value, SHOWN_CHARS) {
        Ok(text) => text,
        Err(cut) => format!("{cut}…\nthe first {} characters are shown; {CURE}", grouped(SHOWN_CHARS)),
    })
}

/// The text of a string.
pub fn string(string: &str) -> Bundle {
    Bundle::text(match text::whole(&string, SHOWN_CHARS) {
        Ok(text) => text,
        Err(cut) => {
            let (shown, all) = (grouped(SHOWN_CHARS), grouped(string.chars().count()));
            format!("{cut}…\nthe first {shown} of {all} characters are shown; println!(\"{{}}\", …) prints all")
        }
    })
}

/// A sequence of `len` elements: a table if they are structs with the same fields, and their text otherwise.
pub fn sequence<'a>(len: usize, element: &dyn Fn(usize) -> &'a dyn Debug) -> Bundle {
    rows(len, element).unwrap_or_else(|| elements(len, element))
}

fn elements<'a>(len: usize, element: &dyn Fn(usize) -> &'a dyn Debug) -> Bundle {
    if len <= WHOLE_SEQUENCE {
        let all: Vec<&dyn Debug> = (0..len).map(element).collect();
        return text(&all);
    }
    let (first, last) = SEQUENCE_ENDS;
    let texts = |indices: std::ops::Range<usize>| {
        let each = indices.map(|at| text::beginning(element(at), SHOWN_CHARS / (first + last)));
        each.collect::<Vec<String>>().join(", ")
    };
    let note = shortened(len, "elements", SEQUENCE_ENDS);
    Bundle::text(format!("[{}, …, {}]\n{note}", texts(0..first), texts(len - last..len)))
}

/// A table of structs, whose columns are their fields.
fn rows<'a>(len: usize, element: &dyn Fn(usize) -> &'a dyn Debug) -> Option<Bundle> {
    let first = fields_of((len > 0).then(|| element(0))?)?;
    let header: Vec<&str> = std::iter::once("").chain(first.names.iter().map(String::as_str)).collect();
    let mut rows = Vec::new();
    for at in shown(len) {
        let Some(at) = at else {
            rows.push(vec![LEFT_OUT.to_owned(); header.len()]);
            continue;
        };
        let fields = fields_of(element(at)).filter(|own| (&own.of, &own.names) == (&first.of, &first.names))?;
        rows.push(std::iter::once(at.to_string()).chain(fields.texts.iter().map(|text| cell(text))).collect());
    }
    Some(with_note(table(&header, &rows), len, "rows"))
}

/// A table of the keys and values of a map. `sorts` is for a map without an order.
///
/// ```
/// let (key, value) = ("lr", 0.1);
/// let bundle = ferrotune_display::value::map(1, &mut [(&key as _, &value as _)].into_iter(), false);
/// assert_eq!(bundle.data["text/plain"], "key   value\n\"lr\"    0.1");
/// ```
pub fn map(len: usize, entries: &mut dyn Iterator<Item = (&dyn Debug, &dyn Debug)>, sorts: bool) -> Bundle {
    if len == 0 {
        return Bundle::text("{}");
    }
    let mut entries: Vec<(String, &dyn Debug)> =
        entries.take(WHOLE_TABLE).map(|(key, value)| (text::beginning(key, CELL_CHARS), value)).collect();
    if sorts && entries.len() == len {
        entries.sort_by(|(a, _), (b, _)| match (a.parse::<f64>(), b.parse::<f64>()) {
            (Ok(a), Ok(b)) => a.total_cmp(&b),
            _ => a.cmp(b),
        });
    }
    let fields: Option<Vec<Fields>> = entries.iter().map(|(_, value)| fields_of(*value)).collect();
    let fields = fields.filter(|fields| fields.windows(2).all(|pair| pair[0].names == pair[1].names));
    let (header, rows): (Vec<&str>, Vec<Vec<String>>) = match &fields {
        Some(fields) => {
            let header = std::iter::once("key").chain(fields[0].names.iter().map(String::as_str)).collect();
            let row = |((key, _), fields): (&(String, &dyn Debug), &Fields)| {
                std::iter::once(key.clone()).chain(fields.texts.iter().map(|text| cell(text))).collect()
            };
            (header, entries.iter().zip(fields).map(row).collect())
        }
        None => {
            let row = |(key, value): &(String, &dyn Debug)| vec![key.clone(), text::beginning(*value, CELL_CHARS)];
            (vec!["key", "value"], entries.iter().map(row).collect())
        }
    };
    let table = table(&header, &rows);
    match rows.len() == len {
        true => table,
        false => with_line(table, &format!("{} of {} entries are shown; {CURE}", rows.len(), grouped(len))),
    }
}

/// The indices of the shown rows, with `None` for the skipped rows.
pub(crate) fn shown(len: usize) -> Vec<Option<usize>> {
    let (first, last) = TABLE_ENDS;
    match len <= WHOLE_TABLE {
        true => (0..len).map(Some).collect(),
        false => (0..first).map(Some).chain([None]).chain((len - last..len).map(Some)).collect(),
    }
}

/// A table of the shown rows, with a line below it if some rows are skipped.
pub(crate) fn with_note(table: Bundle, len: usize, noun: &str) -> Bundle {
    match len <= WHOLE_TABLE {
        true => table,
        false => with_line(table, &shortened(len, noun, TABLE_ENDS)),
    }
}

fn shortened(len: usize, noun: &str, (first, last): (usize, usize)) -> String {
    format!("the first {first} and the last {last} of {} {noun} are shown; {CURE}", grouped(len))
}

fn with_line(table: Bundle, line: &str) -> Bundle {
    let text = format!("{}\n{line}", table.text_of("text/plain"));
    let html = format!("{}<p>{}</p>", table.text_of("text/html"), escape::html(line));
    table.with("text/plain", text).with("text/html", html)
}

fn fields_of(value: &dyn Debug) -> Option<Fields> {
    fields::parse(&text::pretty(value, SHOWN_CHARS).ok()?)
}

/// A text, cut to the length of a table's cell.
pub(crate) fn cell(text: &str) -> String {
    match text.char_indices().nth(CELL_CHARS) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    #[expect(dead_code, reason = "only `Debug` reads the fields")]
    struct Run {
        id: usize,
        name: &'static str,
    }

    fn of<T: Debug>(elements: &[T]) -> Bundle {
        sequence(elements.len(), &|at| &elements[at])
    }

    #[test]
    fn structs_are_rows() {
        let bundle = of(&[Run { id: 1, name: "<a>" }, Run { id: 20, name: "b" }]);
        assert_eq!(bundle.data["text/plain"], "   id  name\n0   1  \"<a>\"\n1  20  \"b\"");
        assert!(bundle.data["text/html"].as_str().unwrap().contains("&lt;a&gt;"));
        let runs: Vec<Run> = (0..1000).map(|id| Run { id, name: "" }).collect();
        let text = of(&runs).data["text/plain"].as_str().unwrap().to_owned();
        assert_eq!(text.lines().count(), 1 + 20 + 1 + 5 + 1);
        assert!(
            text.ends_with("the first 20 and the last 5 of 1,000 rows are shown; println!(\"{:?}\", …) prints all")
        );
        assert_eq!(of::<Run>(&[]).data["text/plain"], "[]");
    }

    #[test]
    fn different_variants_are_no_table() {
        #[derive(Debug)]
        #[expect(dead_code, reason = "only `Debug` reads the fields")]
        enum Shape {
            Round { r: u8 },
            Square { r: u8 },
        }
        let text = of(&[Shape::Round { r: 1 }, Shape::Square { r: 2 }]);
        assert_eq!(text, Bundle::text("[Round { r: 1 }, Square { r: 2 }]"));
    }

    #[test]
    fn long_values_are_shortened() {
        assert_eq!(of(&[1.5, f64::NAN]), Bundle::text("[1.5, NaN]"));
        let numbers: Vec<u32> = (0..100_000).collect();
        let bundle = of(&numbers);
        let text = bundle.data["text/plain"].as_str().unwrap();
        assert!(
            text.starts_with("[0, 1, 2, ")
                && text.contains(" 99, …, 99990, ")
                && text.contains(" 99999]\nthe first 100 ")
        );
        let long = "é".repeat(20_000);
        let text = string(&long).data["text/plain"].as_str().unwrap().to_owned();
        assert!(text.ends_with("é…\nthe first 10,000 of 20,000 characters are shown; println!(\"{}\", …) prints all"));
        assert_eq!(string("a\"b"), Bundle::text(r#""a\"b""#));
        let nested = vec![vec![0_u8; 10_000]; 3];
        assert!(of(&nested).data["text/plain"].as_str().unwrap().len() < 10_200);
    }

    #[test]
    fn maps_without_an_order_are_sorted() {
        let runs = [(10, Run { id: 1, name: "a" }), (9, Run { id: 2, name: "b" })];
        let entries = || runs.iter().map(|(key, run)| (key as &dyn Debug, run as &dyn Debug));
        let text = |sorts| map(2, &mut entries(), sorts).data["text/plain"].as_str().unwrap().to_owned();
        assert_eq!(text(true), "key  id  name\n  9   2  \"b\"\n 10   1  \"a\"");
        assert_eq!(text(false), "key  id  name\n 10   1  \"a\"\n  9   2  \"b\"");
        let many: Vec<usize> = (0..50).collect();
        let text = map(50, &mut many.iter().map(|key| (key as &dyn Debug, key as &dyn Debug)), true);
        assert!(
            text.data["text/plain"]
                .as_str()
                .unwrap()
                .ends_with("40 of 50 entries are shown; println!(\"{:?}\", …) prints all")
        );
    }
}
