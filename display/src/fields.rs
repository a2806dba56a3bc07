//! The fields of a value that is only `Debug`, parsed from its `{:#?}` text: one column of a table for each field.
//!
//! A value whose `Debug` differs from the derived one has no fields here, and is shown as text.

/// The name of a struct, or of an enum's variant, and the names and texts of its fields.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fields {
    pub(crate) of: String,
    pub(crate) names: Vec<String>,
    pub(crate) texts: Vec<String>,
}

/// Parses the lines of a `{:#?}` text.
pub(crate) fn parse(pretty: &str) -> Option<Fields> {
    let mut lines = pretty.lines();
    let of = lines.next()?.strip_suffix(" {").filter(|name| is_name(name))?.to_owned();
    if lines.next_back()? != "}" {
        return None;
    }
    let mut fields = Fields { of, names: Vec::new(), texts: Vec::new() };
    for line in lines {
        let line = line.strip_prefix("    ")?;
        if line.starts_with([' ', ')', ']', '}']) {
            join(fields.texts.last_mut()?, line.trim_start());
            continue;
        }
        let (name, text) = line.split_once(": ").filter(|(name, _)| is_name(name))?;
        fields.names.push(name.to_owned());
        fields.texts.push(text.to_owned());
    }
    for text in &mut fields.texts {
        *text = text.strip_suffix(',')?.to_owned();
    }
    Some(fields).filter(|fields| !fields.names.is_empty())
}

/// Adds a line to a text of one line, in the format of `{:?}` but with blanks in the braces of maps.
fn join(text: &mut String, line: &str) {
    if line.starts_with([')', ']', '}']) && text.ends_with(',') {
        text.pop();
    }
    if !(line.starts_with([')', ']']) || text.ends_with(['(', '[']) || line.starts_with('}') && text.ends_with('{')) {
        text.push(' ');
    }
    text.push_str(line);
}

fn is_name(text: &str) -> bool {
    let mut characters = text.trim_start_matches("r#").chars();
    characters.next().is_some_and(|first| first.is_alphabetic() || first == '_')
        && characters.all(|character| character.is_alphanumeric() || character == '_')
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::fmt::Debug;

    #[derive(Debug)]
    #[expect(dead_code, reason = "only `Debug` reads the fields")]
    struct Run {
        id: u32,
        name: &'static str,
        best: Option<f64>,
        inner: Inner,
        list: Vec<(u8, char)>,
        map: BTreeMap<u8, u8>,
    }

    #[derive(Debug)]
    #[expect(dead_code, reason = "only `Debug` reads the fields")]
    struct Inner {
        at: [u8; 2],
    }

    fn texts(value: &dyn Debug) -> Option<Vec<String>> {
        parse(&format!("{value:#?}")).map(|fields| fields.texts)
    }

    #[test]
    fn each_field_stands_on_one_line_as_debug_writes_it() {
        let (list, map) = (vec![(1, 'a'), (2, '}')], BTreeMap::from([(1, 2)]));
        let run = Run { id: 7, name: "a: {\n,", best: Some(0.5), inner: Inner { at: [1, 2] }, list, map };
        let fields = parse(&format!("{run:#?}")).unwrap();
        assert_eq!(fields.of, "Run");
        assert_eq!(fields.names, ["id", "name", "best", "inner", "list", "map"]);
        let expected = ["7", r#""a: {\n,""#, "Some(0.5)", "Inner { at: [1, 2] }", "[(1, 'a'), (2, '}')]", "{ 1: 2 }"];
        assert_eq!(fields.texts, expected);
    }

    #[test]
    fn what_has_no_named_fields_is_no_row() {
        assert_eq!(texts(&3), None);
        assert_eq!(texts(&Some(3)), None);
        assert_eq!(texts(&vec![Inner { at: [1, 2] }]), None);
        assert_eq!(texts(&BTreeMap::from([(1, 2)])), None);
        assert_eq!(texts(&std::sync::Mutex::new(1)), None);
    }
}
