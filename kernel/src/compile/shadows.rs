//! Finds variables that a cell shadows: `let x = 5;` where the notebook has an `x`. evcxr stores the new variable at the end of the
//! cell. If the cell fails before, the old variable goes back into the store, since shadowing does not move it.

use crate::statements;
use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::parse::Parser;
use syn::{Block, Stmt};

/// Types whose values are copied, so that a use of the variable does not move it.
const COPIED: [&str; 17] = [
    "&'static str",
    "bool",
    "char",
    "f32",
    "f64",
    "i8",
    "i16",
    "i32",
    "i64",
    "i128",
    "isize",
    "u8",
    "u16",
    "u32",
    "u64",
    "u128",
    "usize",
];

/// The lines behind which the user's statements begin, in cells without and with `.await`.
pub(super) const BEFORE_STATEMENTS: [&str; 2] =
    ["let _ = (|| -> ::std::result::Result<(), EvcxrUserCodeError> {", ".block_on(async {"];

/// The beginning of the lines that store variables.
const STORE: &str = "evcxr_variable_store.";

/// A variable of the notebook that the cell shadows without having moved it before.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Shadowed<'a> {
    pub(super) name: &'a str,
    pub(super) type_name: &'a str,
}

/// The variables that the cell of a generated source shadows.
pub(super) fn of<'a>(lines: &[&'a str]) -> Vec<Shadowed<'a>> {
    let Some(start) = lines.iter().rposition(|line| BEFORE_STATEMENTS.contains(line)) else { return Vec::new() };
    let stored = lines[start..].iter().position(|line| line.starts_with(STORE)).map_or(lines.len(), |at| start + at);
    let end = stored + lines[stored..].iter().position(|line| !line.starts_with(STORE)).unwrap_or_default();
    let Ok(statements) = Block::parse_within.parse_str(&lines[start + 1..stored].join("\n")) else { return Vec::new() };
    let loaded = lines[..start].iter().filter_map(|line| loaded(line));
    let is_stored = |name: &str| lines[stored..end].iter().any(|line| line.contains(&format!("stringify!({name})")));
    let is_kept = |name: &str| lines[end..].iter().any(|line| line.contains(&format!("stringify!({name})")));
    let shadowed = loaded.filter(|variable| is_stored(variable.name) && !is_kept(variable.name));
    shadowed.filter(|variable| COPIED.contains(&variable.type_name) || is_unused(variable.name, &statements)).collect()
}

/// The variable that a generated line takes out of the store.
pub(super) fn loaded(line: &str) -> Option<Shadowed<'_>> {
    let (_, rest) = line.strip_prefix("let ")?.split_once(" = evcxr_variable_store.take_variable::<")?;
    let (type_name, rest) = rest.rsplit_once(">(::std::stringify!(")?;
    Some(Shadowed { name: rest.strip_suffix("));")?, type_name })
}

/// Whether nothing uses a variable before the statement that shadows it.
fn is_unused(name: &str, statements: &[Stmt]) -> bool {
    let shadows = |statement: &Stmt| match statement {
        Stmt::Local(local) => statements::names(&local.pat).iter().any(|bound| bound == name),
        _ => false,
    };
    let Some(at) = statements.iter().position(shadows) else { return false };
    let value = match &statements[at] {
        Stmt::Local(local) => {
            let init = local.init.iter();
            let parts = init.flat_map(|init| [Some(&init.expr), init.diverge.as_ref().map(|(_, block)| block)]);
            parts.flatten().map(ToTokens::to_token_stream).collect()
        }
        _ => TokenStream::new(),
    };
    let above = statements[..at].iter().map(ToTokens::to_token_stream);
    above.chain([value]).all(|tokens| !mentions(tokens, name))
}

fn mentions(tokens: TokenStream, name: &str) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(word) => word == name,
        TokenTree::Group(group) => mentions(group.stream(), name),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(statements: &str) -> Vec<String> {
        let source = format!(
            "let mut a = evcxr_variable_store.take_variable::<Vec<u8>>(::std::stringify!(a));
let b = evcxr_variable_store.take_variable::<i32>(::std::stringify!(b));
let c = evcxr_variable_store.take_variable::<String>(::std::stringify!(c));
let _ = (|| -> ::std::result::Result<(), EvcxrUserCodeError> {{
{statements}
evcxr_variable_store.put_variable::<i32>(::std::stringify!(a), a);
evcxr_variable_store.put_variable::<i32>(::std::stringify!(b), b);
::std::result::Result::Ok(())}})();
evcxr_variable_store.put_variable::<String>(::std::stringify!(c), c);
evcxr_variable_store
}}"
        );
        let lines: Vec<&str> = source.lines().collect();
        of(&lines).into_iter().map(|variable| format!("{}: {}", variable.name, variable.type_name)).collect()
    }

    #[test]
    fn a_variable_that_nothing_uses_before_is_shadowed() {
        assert_eq!(names("f(c);\nlet a = 1; let b = 2;"), ["a: Vec<u8>", "b: i32"]);
        assert_eq!(names("let (a, b) = g(c);\ndrop(a);"), ["a: Vec<u8>", "b: i32"]);
    }

    #[test]
    fn a_variable_that_may_have_been_moved_is_not() {
        for statements in
            ["let a = a.len(); let b = b + 1;", "drop(vec![a]); let a = 1; let b = 2;", "{ let a = 1; } let b = 1;"]
        {
            assert_eq!(names(statements), ["b: i32"], "{statements}");
        }
    }
}
