//! Raw pointers to variables of the notebook. No error of the compiler says that a variable has moved away from under a pointer, so code
//! that makes a pointer to a variable lends the variable: it stays where it is, and a cell that moves it ends the pointer first.

use crate::macros::names_in;
use crate::rust_analyzer::EDITION;
use ra_ap_syntax::AstNode;
use ra_ap_syntax::SourceFile;
use ra_ap_syntax::SyntaxKind;
use ra_ap_syntax::SyntaxNode;
use ra_ap_syntax::ast;
use std::collections::BTreeSet;

/// What a `let` or an assignment gives to a variable.
pub(crate) struct Value {
    pub(crate) variable: String,
    /// The variables that the value may point to: their address, or that of a part, is taken.
    pub(crate) targets: BTreeSet<String>,
    /// The variables that point to their content by a method in the value.
    pub(crate) containers: BTreeSet<String>,
    /// All names in the value.
    pub(crate) names: BTreeSet<String>,
}

/// Whether a value of this type can point to a variable without borrowing it.
pub(crate) fn is_pointer(type_name: &str) -> bool {
    ["*const ", "*mut ", "NonNull<", "AtomicPtr<"].iter().any(|part| type_name.contains(part)) && !type_name.contains("fn(")
}

/// Whether the content of a container of this type is within the container itself, and not elsewhere in memory.
pub(crate) fn is_inline(type_name: &str) -> bool {
    type_name.starts_with('[') || ["MaybeUninit<", "Cell<", "::Atomic"].iter().any(|part| type_name.contains(part))
}

/// The values that the statements of code give to variables.
pub(crate) fn values(code: &str) -> Vec<Value> {
    let file = SourceFile::parse(&format!("fn f() {{{code}}}"), EDITION).tree();
    let functions = file.syntax().children().filter_map(ast::Fn::cast);
    let lists = functions.filter_map(|function| function.body()?.stmt_list());
    let statements = lists.flat_map(|list| list.syntax().children().collect::<Vec<_>>());
    statements.flat_map(of_statement).collect()
}

fn of_statement(statement: SyntaxNode) -> Vec<Value> {
    let expression = match ast::ExprStmt::cast(statement.clone()) {
        Some(statement) => statement.expr(),
        None => ast::Expr::cast(statement.clone()),
    };
    let (variables, value) = match (ast::LetStmt::cast(statement), expression) {
        (Some(statement), _) => {
            let parts = statement.pat().map(|pattern| pattern.syntax().descendants().filter_map(ast::IdentPat::cast).collect::<Vec<_>>());
            let names = parts.into_iter().flatten().filter_map(|part| Some(ast::HasName::name(&part)?.text().to_string()));
            (names.collect::<Vec<_>>(), statement.initializer())
        }
        (None, Some(ast::Expr::BinExpr(assignment))) if assignment.op_kind() == Some(ast::BinaryOp::Assignment { op: None }) => {
            (assignment.lhs().and_then(variable_of).into_iter().collect(), assignment.rhs())
        }
        _ => return Vec::new(),
    };
    let Some(value) = value else { return Vec::new() };
    let (mut targets, mut containers) = (BTreeSet::new(), BTreeSet::new());
    for node in value.syntax().descendants() {
        if let Some(reference) = ast::RefExpr::cast(node.clone()) {
            let becomes_pointer = reference.raw_token().is_some() || is_passed_on(reference.syntax(), value.syntax());
            targets.extend(reference.expr().filter(|_| becomes_pointer).and_then(variable_of));
        } else if let Some(call) = ast::MethodCallExpr::cast(node.clone()) {
            let is_of_content = call.name_ref().is_some_and(|name| ["as_ptr", "as_mut_ptr", "get"].contains(&&*name.text()));
            containers.extend(call.receiver().filter(|_| is_of_content).and_then(variable_of));
        } else if let Some(call) = ast::MacroCall::cast(node) {
            let name = call.path().and_then(|path| path.segment()).and_then(|segment| segment.name_ref());
            let takes_address = name.is_some_and(|name| ["addr_of", "addr_of_mut"].contains(&&*name.text()));
            let words = call.token_tree().into_iter().flat_map(|tree| tree.syntax().children_with_tokens());
            let mut words = words.filter_map(|word| word.into_token()).filter(|word| word.kind() == SyntaxKind::IDENT);
            targets.extend(words.next().filter(|_| takes_address).map(|word| word.text().to_owned()));
        }
    }
    let names = names_in(value.syntax());
    let value = |variable| Value { variable, targets: targets.clone(), containers: containers.clone(), names: names.clone() };
    variables.into_iter().map(value).collect()
}

/// The functions that make a pointer, or what contains one, of a reference.
const CONVERT: [&str; 5] = ["from", "new", "new_unchecked", "from_ref", "from_mut"];

/// Whether a reference itself becomes a part of the value. Other functions, such as `Arc::downgrade`, make something else of it.
fn is_passed_on(reference: &SyntaxNode, value: &SyntaxNode) -> bool {
    let between = reference.ancestors().skip(1).take_while(|node| value.text_range().contains_range(node.text_range()));
    let mut calls = between.filter_map(ast::CallExpr::cast);
    let function_of = |call: ast::CallExpr| match call.expr()? {
        ast::Expr::PathExpr(function) => function.path()?.segment()?.name_ref(),
        _ => None,
    };
    let converts = |name: &ast::NameRef| CONVERT.contains(&&*name.text()) || name.text().starts_with(char::is_uppercase);
    calls.all(|call| function_of(call).as_ref().is_some_and(converts))
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
            ("p = &raw const a;", vec!["a"], vec![]),
            ("let p = Arc::downgrade(&a).into_raw();", vec![], vec![]),
            ("let p = Some(NonNull::from(&mut a));", vec!["a"], vec![]),
            ("let p = cell.get();", vec![], vec!["cell"]),
        ] {
            let [found] = values(code).try_into().ok().unwrap();
            assert!(found.targets.iter().eq(&targets) && found.containers.iter().eq(&containers), "{code}");
        }
        assert!(values("fn g() { let p = &a; } { let p = &a; } p == &a;").is_empty());
        assert!(values("let p = unsafe { q.add(1) };")[0].names.contains("q"));
        let both: Vec<String> = values("let (p, q) = (&raw mut a, 1)").into_iter().map(|value| value.variable).collect();
        assert_eq!(both, ["p", "q"]);
        assert!(is_pointer("*mut u8") && !is_pointer("fn(*const u8)") && is_inline("[u8; 4]") && !is_inline("Vec<u8>"));
    }
}
