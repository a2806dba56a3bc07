//! Cells that only ask a container whose type is still open, as in `let mut list = Vec::new();` and later `list.len()`: the answer is the
//! same for elements of all types, so the cell runs with some type, and the statement goes on waiting.

use crate::engine::evaluate::evaluator_state::Undecided;
use crate::statements;
use proc_macro2::{TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::{Expr, Local, Pat, Stmt};

/// The containers, which are empty as long as nothing decides their type, with the number of their types.
const CONTAINERS: [(&str, usize); 9] = [
    ("BTreeMap", 2),
    ("BTreeSet", 1),
    ("BinaryHeap", 1),
    ("HashMap", 2),
    ("HashSet", 1),
    ("LinkedList", 1),
    ("Vec", 1),
    ("VecDeque", 1),
    ("Weak", 1),
];

/// Functions whose answer differs from type to type.
const ABOUT_TYPES: [&str; 8] =
    ["TypeId", "align_of", "align_of_val", "size_of", "size_of_val", "type_id", "type_name", "type_name_of_val"];

/// The waiting statements with a type, if the cell only asks: it declares nothing, and asks nothing about types. The variables cannot
/// be changed.
pub(super) fn with_some_types(cell: &str, waiting: &[Undecided]) -> Option<Vec<Undecided>> {
    let parsed = statements::parse(cell.parse().ok()?)?;
    let declares = |statement: &Stmt| matches!(statement, Stmt::Local(_) | Stmt::Item(_));
    let tokens: TokenStream = cell.parse().ok()?;
    if parsed.statements.iter().any(declares) || is_about_types(tokens) {
        return None;
    }
    let typed = waiting.iter().map(|undecided| {
        let statement = with_some_type(&undecided.statement)?;
        Some(Undecided { names: undecided.names.clone(), statement })
    });
    typed.collect()
}

fn is_about_types(tokens: TokenStream) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(word) => ABOUT_TYPES.iter().any(|name| word == name),
        TokenTree::Group(group) => is_about_types(group.stream()),
        TokenTree::Literal(_) | TokenTree::Punct(_) => false,
    })
}

fn with_some_type(statement: &str) -> Option<String> {
    let parsed = statements::parse(statement.parse().ok()?)?;
    let [Stmt::Local(Local { pat: Pat::Ident(pattern), init: Some(init), .. })] = &*parsed.statements else {
        return None;
    };
    let (name, value) = (&pattern.ident, &init.expr);
    let type_name = match &**value {
        Expr::Macro(call) if call.mac.path.is_ident("vec") && call.mac.tokens.is_empty() => quote!(::std::vec::Vec<u8>),
        Expr::Call(call) => {
            let Expr::Path(function) = &*call.func else { return None };
            let mut path = function.path.clone();
            path.segments.pop()?;
            path.segments.pop_punct();
            let container = path.segments.last().filter(|segment| segment.arguments.is_none())?.ident.to_string();
            let (_, types) = CONTAINERS.iter().find(|(name, _)| *name == container)?;
            let types = std::iter::repeat_n(quote!(u8), *types);
            quote!(#path<#(#types),*>)
        }
        _ => return None,
    };
    Some(quote!(let #name: #type_name = #value;).to_token_stream().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(cell: &str, statement: &str) -> Option<String> {
        let waiting = Undecided { names: vec!["a".to_owned()], statement: statement.to_owned() };
        let typed = with_some_types(cell, &[waiting])?;
        Some(typed[0].statement.replace(' ', ""))
    }

    #[test]
    fn an_empty_container_gets_some_type_where_a_cell_only_asks() {
        for (statement, expected) in [
            ("let mut a = Vec::new();", "leta:Vec<u8>=Vec::new();"),
            ("let a = vec![];", "leta:::std::vec::Vec<u8>=vec![];"),
            (
                "let mut a = std::collections::HashMap::with_capacity(3);",
                "leta:std::collections::HashMap<u8,u8>=std::collections::HashMap::with_capacity(3);",
            ),
        ] {
            assert_eq!(typed("a.len()", statement).as_deref(), Some(expected));
        }
        for statement in [
            "let a = None;",
            "let a = \"5\".parse().unwrap();",
            "let (a, b) = channel();",
            "let a: Vec<_> = Vec::new();",
        ] {
            assert_eq!(typed("a.len()", statement), None, "{statement}");
        }
        for cell in ["let b = a;", "size_of_val(&a)", "fn f() {} f(a)"] {
            assert_eq!(typed(cell, "let a = Vec::new();"), None, "{cell}");
        }
    }
}
