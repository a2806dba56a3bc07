//! What calls of macros declare at the top of a cell: items, and variables whose names are in the call.

use crate::item;
use crate::rust_analyzer::EDITION;
use ra_ap_ide as ra_ide;
use ra_ap_syntax::AstNode;
use ra_ap_syntax::SyntaxKind;
use ra_ap_syntax::SyntaxNode;
use ra_ap_syntax::SyntaxToken;
use ra_ap_syntax::ast;
use ra_ap_syntax::ast::HasModuleItem;
use std::collections::{BTreeSet, HashMap};

/// Macros of the standard library that declare nothing.
const DECLARE_NOTHING: [&str; 26] = [
    "assert", "assert_eq", "assert_ne", "cfg", "column", "compile_error", "concat", "dbg", "debug_assert", "debug_assert_eq",
    "debug_assert_ne", "eprint", "eprintln", "format", "line", "matches", "panic", "print", "println", "thread_local", "todo",
    "unimplemented", "unreachable", "vec", "write", "writeln",
];

/// The deepest nesting of macros that is expanded.
const DEEPEST: usize = 16;

/// The items that a call of a macro defines.
#[derive(Clone, Debug)]
pub(crate) struct Items {
    /// Their names, each once.
    pub(crate) names: Vec<String>,
    /// Their text, if all are statics whose text is complete.
    pub(crate) statics: Option<String>,
}

/// The text of a statement that is a call of a macro without attributes and may declare something, without a semicolon.
pub(crate) fn call_in(node: &SyntaxNode) -> Option<String> {
    let call = whole_call(node).filter(|call| may_declare(call))?;
    attributes(node).next().is_none().then(|| text_of(&call))
}

fn may_declare(call: &ast::MacroCall) -> bool {
    name_of(call).is_some_and(|name| !DECLARE_NOTHING.contains(&&*name.text()))
}

fn name_of(call: &ast::MacroCall) -> Option<ast::NameRef> {
    call.path().and_then(|path| path.segment()).and_then(|segment| segment.name_ref())
}

/// Whether statements may declare variables: by `let`, or by a macro that is not one of the standard library's or is an item of
/// the notebook.
pub(crate) fn may_declare_variables<T>(statements: &str, items: &HashMap<String, T>) -> bool {
    let file = ast::SourceFile::parse(&format!("async fn f() {{{statements}\n;}}"), EDITION);
    let functions = file.tree().items().filter_map(|item| match item {
        ast::Item::Fn(function) => function.body(),
        _ => None,
    });
    let mut statements = functions.flat_map(|body| body.statements().collect::<Vec<_>>());
    !file.errors().is_empty()
        || statements.any(|statement| {
            matches!(statement, ast::Stmt::LetStmt(_))
                || whole_call(statement.syntax()).is_some_and(|call| declares(&call, items))
        })
}

/// Whether the call may declare something: its macro is not one of the standard library's, or is an item of the notebook.
pub(crate) fn declares<T>(call: &ast::MacroCall, items: &HashMap<String, T>) -> bool {
    may_declare(call) || name_of(call).is_none_or(|name| items.contains_key(&*name.text()))
}

/// The attributes in a statement.
pub(crate) fn attributes(statement: &SyntaxNode) -> impl Iterator<Item = ast::Attr> {
    statement.descendants().filter_map(ast::Attr::cast)
}

/// The text of a call, without a semicolon.
pub(crate) fn text_of(call: &ast::MacroCall) -> String {
    without_semicolon(&call.syntax().text().to_string()).to_owned()
}

fn without_semicolon(text: &str) -> &str {
    text.trim().trim_end_matches(';').trim_end()
}

/// The call of a macro that a whole statement is, but for attributes.
pub(crate) fn whole_call(statement: &SyntaxNode) -> Option<ast::MacroCall> {
    let call = statement.descendants().filter(|node| !is_in_attribute(node)).find_map(ast::MacroCall::cast)?;
    let tokens = statement.descendants_with_tokens().filter_map(|element| element.into_token());
    let is_outside = |token: &SyntaxToken| !call.syntax().text_range().contains_range(token.text_range());
    let mut others = tokens.filter(|token| is_outside(token) && !token.kind().is_trivia() && token.kind() != SyntaxKind::SEMICOLON);
    others.all(|token| token.parent().is_some_and(|parent| is_in_attribute(&parent))).then_some(call)
}

fn is_in_attribute(node: &SyntaxNode) -> bool {
    node.ancestors().any(|node| ast::Attr::can_cast(node.kind()))
}

type Semantics<'a> = ra_ide::Semantics<'a, ra_ide::RootDatabase>;

/// The items that a call defines; none if it does anything else.
pub(crate) fn items_of(sema: &Semantics<'_>, call: &ast::MacroCall) -> Option<Items> {
    let mut statements = Vec::new();
    expand(sema, call, 0, &mut statements)?;
    let items: Vec<ast::Item> = statements.iter().cloned().map(ast::Item::cast).collect::<Option<_>>()?;
    let mut names: Vec<String> = Vec::new();
    for name in items.iter().filter_map(item::item_name) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let are_statics = items.iter().all(|item| matches!(item, ast::Item::Static(_)));
    let statics = are_statics.then(|| statements.iter().map(spaced).collect::<String>()).filter(|text| !text.contains('$'));
    (!names.is_empty()).then_some(Items { names, statics })
}

/// The patterns of the variables that a call declares and whose names it has.
pub(crate) fn patterns_of(sema: &Semantics<'_>, call: &ast::MacroCall) -> Vec<ast::Pat> {
    let mut statements = Vec::new();
    if expand(sema, call, 0, &mut statements).is_none() {
        return Vec::new();
    }
    let named = names_in(call.syntax());
    let lets = statements.into_iter().filter_map(ast::LetStmt::cast).filter_map(|statement| statement.pat());
    let parts = lets.flat_map(|pattern| pattern.syntax().descendants().filter_map(ast::IdentPat::cast).collect::<Vec<_>>());
    let is_named = |part: &ast::IdentPat| ast::HasName::name(part).is_some_and(|name| named.contains(&*name.text()));
    parts.filter(is_named).map(ast::Pat::IdentPat).collect()
}

/// The names that code has.
pub(crate) fn names_in(node: &SyntaxNode) -> BTreeSet<String> {
    let tokens = node.descendants_with_tokens().filter_map(|element| element.into_token());
    tokens.filter(|token| token.kind() == SyntaxKind::IDENT).map(|token| token.text().to_owned()).collect()
}

/// Adds the statements and items that a call becomes; none if a macro is unknown.
fn expand(sema: &Semantics<'_>, call: &ast::MacroCall, depth: usize, statements: &mut Vec<SyntaxNode>) -> Option<()> {
    let expansion = sema.expand_macro_call(call).filter(|_| depth < DEEPEST)?.value;
    for child in expansion.children() {
        match whole_call(&child) {
            // A condition that does not hold leaves out the call.
            Some(inner) if sema.expand_macro_call(&inner).is_none() && has_condition(&child) => {}
            Some(inner) if may_declare(&inner) => expand(sema, &inner, depth + 1, statements)?,
            _ => statements.push(child),
        }
    }
    Some(())
}

fn has_condition(statement: &SyntaxNode) -> bool {
    attributes(statement).any(|attribute| attribute.syntax().text().to_string().starts_with("#[cfg"))
}

/// The text of an item that a macro has made, which has no blanks.
fn spaced(node: &SyntaxNode) -> String {
    let tokens = node.descendants_with_tokens().filter_map(|element| element.into_token());
    let words = tokens.filter(|token| !token.kind().is_trivia()).map(|token| format!("{} ", token.text()));
    words.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_declared_by_let_and_by_macros_that_may() {
        let items = HashMap::from([("vec".to_owned(), ())]);
        for statements in ["let x = 1;", "1;let(a, b) = c", "declare!(x)", "declare! { x }\n1", "vec![x];", "a::declare!(x);", "("] {
            assert!(may_declare_variables(statements, &items), "{statements}");
        }
        for statements in ["x + 1", "letter.outlet()", "println!(\"let x = 1;\")", "match a { _ => { let b = 1; } }", "x // let", ""] {
            assert!(!may_declare_variables(statements, &items), "{statements}");
        }
    }
}
