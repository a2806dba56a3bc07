//! `share_fields!` in a cell. evcxr treats a macro call as a statement, which is only in its own cell. This file turns each call
//! into an item, which is in all later cells too. Expands no macro, and moves no line.

use crate::engine::evaluate::insertions::Text;
use proc_macro2::{Delimiter, LineColumn, TokenStream, TokenTree};
use std::collections::BTreeSet;

const MACRO: &str = "share_fields";
/// The prefix of an item's name, before the name of the shared type.
const PREFIX: &str = "ferrotune_share_";

/// The texts to insert so that each call in a cell becomes an item. `items` are the names of the notebook's items: if the cell
/// redefines a shared type and does not share it again, an empty item replaces the item of the old definition.
pub(in crate::engine) fn texts<'a>(tokens: TokenStream, items: impl Iterator<Item = &'a str>) -> Vec<Text> {
    let shared: BTreeSet<&str> = items.filter_map(|name| name.strip_prefix(PREFIX)).collect();
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let calls: Vec<Call> = (0..tokens.len()).filter_map(|at| call(&tokens, at)).collect();
    let mut texts = Vec::new();
    for call in &calls {
        texts.push((call.start, format!("const {PREFIX}{}: () = {{ ", call.type_name)));
        texts.push((call.end, if call.has_semicolon { " };" } else { "; };" }.to_owned()));
    }
    for at in 0..tokens.len() {
        let redefined = definition(&tokens, at).filter(|(name, _)| shared.contains(name.as_str()));
        if let Some((name, start)) = redefined.filter(|(name, _)| calls.iter().all(|call| call.type_name != *name)) {
            texts.push((start, format!("const {PREFIX}{name}: () = (); ")));
        }
    }
    texts
}

/// A call of the macro that is a statement.
struct Call {
    type_name: String,
    start: LineColumn,
    end: LineColumn,
    has_semicolon: bool,
}

/// The call of the macro if its name is the token at index `at`.
fn call(tokens: &[TokenTree], at: usize) -> Option<Call> {
    let is_punct = |at: usize, mark| matches!(tokens.get(at), Some(TokenTree::Punct(punct)) if punct.as_char() == mark);
    let name = |at: usize| match tokens.get(at) {
        Some(TokenTree::Ident(name)) => Some(name.to_string()),
        _ => None,
    };
    let (Some(TokenTree::Group(group)), true) = (tokens.get(at + 2), name(at)? == MACRO && is_punct(at + 1, '!'))
    else {
        return None;
    };
    let mut start = at;
    while start >= 2 && is_punct(start - 1, ':') && is_punct(start - 2, ':') {
        start -= if start >= 3 && name(start - 3).is_some() { 3 } else { 2 };
    }
    let is_statement = match start.checked_sub(1).map(|before| &tokens[before]) {
        None => true,
        Some(TokenTree::Group(before)) => before.delimiter() == Delimiter::Brace,
        Some(_) => is_punct(start - 1, ';'),
    };
    let Some(TokenTree::Ident(type_name)) = group.stream().into_iter().next().filter(|_| is_statement) else {
        return None;
    };
    let has_semicolon = is_punct(at + 3, ';');
    let last = if has_semicolon { at + 3 } else { at + 2 };
    let (start, end) = (tokens[start].span().start(), tokens[last].span().end());
    Some(Call { type_name: type_name.to_string(), start, end, has_semicolon })
}

/// The name of the type whose definition has its keyword at index `at`, and the start of the definition.
fn definition(tokens: &[TokenTree], at: usize) -> Option<(String, LineColumn)> {
    let (TokenTree::Ident(keyword), Some(TokenTree::Ident(name))) = (&tokens[at], tokens.get(at + 1)) else {
        return None;
    };
    if !["struct", "enum", "union", "type"].iter().any(|known| keyword == known) {
        return None;
    }
    let mut start = at;
    loop {
        // The definition begins before its visibility and attributes.
        start = match &tokens[..start] {
            [.., TokenTree::Ident(word)] if word == "pub" => start - 1,
            [.., TokenTree::Ident(word), TokenTree::Group(_)] if word == "pub" => start - 2,
            [.., TokenTree::Punct(mark), TokenTree::Group(group)]
                if mark.as_char() == '#' && group.delimiter() == Delimiter::Bracket =>
            {
                start - 2
            }
            _ => break,
        };
    }
    Some((name.to_string(), tokens[start].span().start()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::evaluate::insertions::Insertions;

    fn check(source: &str, known: &[&str], expected: &str) {
        let texts = source.parse().map(|tokens| texts(tokens, known.iter().copied())).unwrap_or_default();
        let (found, insertions) = Insertions::into(source, texts);
        assert_eq!(found, expected);
        assert_eq!(insertions.original_lines(&found), source.lines().collect::<Vec<_>>());
    }

    #[test]
    fn every_spelling_of_a_call_becomes_an_item() {
        check(
            "struct P { x: f64 }\nferrotune::share_fields!(P { x });",
            &[],
            "struct P { x: f64 }\nconst ferrotune_share_P: () = { ferrotune::share_fields!(P { x }); };",
        );
        check(
            "use ferrotune::share_fields; share_fields! { P { x } } let a = 1;",
            &["Q"],
            "use ferrotune::share_fields; const ferrotune_share_P: () = { share_fields! { P { x } }; }; let a = 1;",
        );
        check(
            "\n\nferrotune::share_fields![\n    P { x }\n]",
            &[],
            "\n\nconst ferrotune_share_P: () = { ferrotune::share_fields![\n    P { x }\n]; };",
        );
    }

    #[test]
    fn calls_that_are_no_statements_stay() {
        for source in
            ["use ferrotune::share_fields;", "let a = share_fields!(P { x });", "share_fields!();", "'share_fields"]
        {
            check(source, &[], source);
        }
    }

    #[test]
    fn a_redefined_type_is_shared_no_longer() {
        let known = ["ferrotune_share_P", "R"];
        check(
            "let a = 1; #[derive(Debug)] pub(crate) struct P(u8); struct R;",
            &known,
            "let a = 1; const ferrotune_share_P: () = (); #[derive(Debug)] pub(crate) struct P(u8); struct R;",
        );
        check("struct Q { of: P }", &known, "struct Q { of: P }");
    }
}
