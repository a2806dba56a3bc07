//! `name?` and `name??`, a cell that asks about a name. `name?` may also be Rust, if the name is a variable with a `Result`; the
//! kernel, which knows the variables, decides.

use crate::action::{Inspect, InspectStyle};

/// The question of a cell, if the cell is one name with question marks before or behind it.
pub(crate) fn question(cell: &str) -> Option<Inspect> {
    let text = cell.trim();
    let bare = text.trim_start_matches('?');
    let before = text.len() - bare.len();
    let name = bare.trim_end_matches('?');
    let behind = bare.len() - name.len();
    let style = match before.max(behind) {
        1 => InspectStyle::Documentation,
        2 => InspectStyle::Source,
        _ => return None,
    };
    if before.min(behind) > 0 || !is_path(name) {
        return None;
    }
    let rust = (behind > 0).then(|| cell.to_owned());
    Some(Inspect { name: name.to_owned(), style, rust })
}

/// Whether a text is a path: names separated by `::`, with `!` behind the name of a macro.
fn is_path(text: &str) -> bool {
    let is_name = |name: &str| {
        name.starts_with(|c: char| c.is_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_alphanumeric() || c == '_')
    };
    text.strip_suffix('!').unwrap_or(text).split("::").all(is_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_question_marks_is_a_question() {
        for (cell, name, style) in [
            ("Vec?", "Vec", InspectStyle::Documentation),
            (" ?std::mem::swap\n", "std::mem::swap", InspectStyle::Documentation),
            ("train??", "train", InspectStyle::Source),
            ("??train", "train", InspectStyle::Source),
            ("vec!?", "vec!", InspectStyle::Documentation),
        ] {
            let found = question(cell).map(|inspect| (inspect.name, inspect.style));
            assert_eq!(found, Some((name.to_owned(), style)), "{cell}");
        }
        assert_eq!(question("value?").and_then(|inspect| inspect.rust).as_deref(), Some("value?"));
        assert_eq!(question("?value").and_then(|inspect| inspect.rust), None);
    }

    #[test]
    fn everything_else_is_none() {
        for cell in ["", "?", "??", "f()?", "a.b?", "a\nb?", "%tune?", "?%tune", "?a?", "a???", "1?", "let a?", "a::?"]
        {
            assert_eq!(question(cell), None, "{cell}");
        }
    }
}
