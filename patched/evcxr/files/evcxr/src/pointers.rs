//! Raw pointers to variables of the notebook. No error of the compiler says that a variable has moved away from under a pointer, so code
//! that makes a pointer to a variable lends the variable: it stays where it is, and a cell that moves it ends the pointer first.

use crate::macros::names_in;
use crate::rust_analyzer::EDITION;
use ra_ap_syntax::AstNode;
use ra_ap_syntax::SourceFile;
use ra_ap_syntax::SyntaxKind;
use ra_ap_syntax::ast;
use std::collections::BTreeSet;

/// The `let` of one variable.
pub(crate) struct Let {
    pub(crate) variable: String,
    /// The variables that the value may point to: their address, or that of a part, is taken.
    pub(crate) targets: BTreeSet<String>,
    /// The variables that point to their elements by `as_ptr` or `as_mut_ptr` in the value.
    pub(crate) containers: BTreeSet<String>,
    /// All names in the value.
    pub(crate) names: BTreeSet<String>,
}

/// Whether a value of this type can point to a variable without borrowing it.
pub(crate) fn is_pointer(type_name: &str) -> bool {
    ["*const ", "*mut ", "NonNull<", "AtomicPtr<"].iter().any(|part| type_name.contains(part))
}

/// The `let`s of single variables at the top of code.
pub(crate) fn lets(code: &str) -> Vec<Let> {
    let file = SourceFile::parse(&format!("fn f() {{{code}}}"), EDITION).tree();
    let statements = file.syntax().descendants().filter_map(ast::LetStmt::cast);
    let is_at_top = |statement: &ast::LetStmt| statement.syntax().ancestors().filter(|node| ast::Fn::can_cast(node.kind())).count() == 1;
    statements.filter(is_at_top).filter_map(of_statement).collect()
}

fn of_statement(statement: ast::LetStmt) -> Option<Let> {
    let ast::Pat::IdentPat(pattern) = statement.pat()? else { return None };
    let variable = ast::HasName::name(&pattern)?.text().to_string();
    let value = statement.initializer()?;
    let (mut targets, mut containers) = (BTreeSet::new(), BTreeSet::new());
    for node in value.syntax().descendants() {
        if let Some(reference) = ast::RefExpr::cast(node.clone()) {
            targets.extend(reference.expr().and_then(variable_of));
        } else if let Some(call) = ast::MethodCallExpr::cast(node.clone()) {
            let is_of_elements = call.name_ref().is_some_and(|name| ["as_ptr", "as_mut_ptr"].contains(&&*name.text()));
            containers.extend(call.receiver().filter(|_| is_of_elements).and_then(variable_of));
        } else if let Some(call) = ast::MacroCall::cast(node) {
            let name = call.path().and_then(|path| path.segment()).and_then(|segment| segment.name_ref());
            let takes_address = name.is_some_and(|name| ["addr_of", "addr_of_mut"].contains(&&*name.text()));
            let words = call.token_tree().into_iter().flat_map(|tree| tree.syntax().children_with_tokens());
            let mut words = words.filter_map(|word| word.into_token()).filter(|word| word.kind() == SyntaxKind::IDENT);
            targets.extend(words.next().filter(|_| takes_address).map(|word| word.text().to_owned()));
        }
    }
    Some(Let { variable, targets, containers, names: names_in(value.syntax()) })
}

/// The variable of which a place is the whole or a part.
fn variable_of(place: ast::Expr) -> Option<String> {
    match place {
        ast::Expr::PathExpr(path) => Some(path.path()?.as_single_name_ref()?.text().to_string()),
        ast::Expr::FieldExpr(field) => variable_of(field.expr()?),
        ast::Expr::IndexExpr(index) => variable_of(index.base()?),
        ast::Expr::ParenExpr(inner) => variable_of(inner.expr()?),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variables_whose_address_is_taken_are_targets() {
        for (code, targets, containers) in [
            ("let p = &raw mut a;", vec!["a"], vec![]),
            ("let p: *const u8 = &a.b[1];", vec!["a"], vec![]),
            ("let p = AtomicPtr::new(&mut (a[0]));", vec!["a"], vec![]),
            ("let p = std::ptr::addr_of_mut!(a.b);", vec!["a"], vec![]),
            ("let p = a.as_mut_ptr();", vec![], vec!["a"]),
            ("let p = unsafe { q.add(1) };", vec![], vec![]),
            ("let p = &*q;", vec![], vec![]),
        ] {
            let [found] = lets(code).try_into().ok().unwrap();
            assert!(found.targets.iter().eq(&targets) && found.containers.iter().eq(&containers), "{code}");
        }
        assert!(lets("fn g() { let p = &a; }").is_empty());
        assert!(lets("let p = unsafe { q.add(1) };")[0].names.contains("q"));
    }
}
