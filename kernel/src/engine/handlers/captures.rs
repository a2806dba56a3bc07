//! The notebook's variables that an objective uses: names that its body reads and does not bind.
//!
//! Every name in a macro's arguments is treated as read, since only the macro knows how it uses the names.

use crate::statements;
use proc_macro2::{TokenStream, TokenTree};
use std::collections::BTreeSet;
use syn::visit::{self, Visit};
use syn::{
    Arm, Block, Expr, ExprClosure, ExprForLoop, ExprIf, ExprPath, ExprWhile, ItemFn, Local, Macro, Pat, PatIdent,
};

/// The free names of an expression, sorted.
///
/// # Errors
/// The parser's error if the source is not an expression; its line is relative to the source.
pub(in crate::engine) fn free_names(source: &str) -> syn::Result<BTreeSet<String>> {
    let expression: Expr = syn::parse_str(source)?;
    let mut finder = Finder { scopes: vec![BTreeSet::new()], free: BTreeSet::new() };
    finder.visit_expr(&expression);
    Ok(finder.free)
}

struct Finder {
    /// Names that each open scope binds, innermost scope last.
    scopes: Vec<BTreeSet<String>>,
    free: BTreeSet<String>,
}

impl Finder {
    fn use_name(&mut self, name: &str) {
        if !self.scopes.iter().any(|scope| scope.contains(name)) {
            self.free.insert(name.to_owned());
        }
    }

    fn bind(&mut self, pattern: &Pat) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.extend(statements::names(pattern));
        }
    }

    fn scoped(&mut self, inside: impl FnOnce(&mut Self)) {
        self.scopes.push(BTreeSet::new());
        inside(self);
        self.scopes.pop();
    }

    fn use_tokens(&mut self, tokens: TokenStream) {
        for token in tokens {
            match token {
                TokenTree::Ident(name) => self.use_name(&name.to_string()),
                TokenTree::Group(group) => self.use_tokens(group.stream()),
                TokenTree::Literal(literal) => {
                    statements::names_in_format(&literal.to_string()).for_each(|name| self.use_name(name));
                }
                TokenTree::Punct(_) => {}
            }
        }
    }
}

impl<'ast> Visit<'ast> for Finder {
    fn visit_expr_path(&mut self, path: &'ast ExprPath) {
        if let Some(name) = path.path.get_ident() {
            self.use_name(&name.to_string());
        }
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        self.use_tokens(call.tokens.clone());
    }

    fn visit_local(&mut self, local: &'ast Local) {
        if let Some(init) = &local.init {
            self.visit_local_init(init);
        }
        self.bind(&local.pat);
    }

    fn visit_block(&mut self, block: &'ast Block) {
        self.scoped(|finder| visit::visit_block(finder, block));
    }

    fn visit_expr_closure(&mut self, closure: &'ast ExprClosure) {
        self.scoped(|finder| {
            for input in &closure.inputs {
                finder.bind(input);
            }
            finder.visit_expr(&closure.body);
        });
    }

    fn visit_expr_for_loop(&mut self, for_loop: &'ast ExprForLoop) {
        self.visit_expr(&for_loop.expr);
        self.scoped(|finder| {
            finder.bind(&for_loop.pat);
            finder.visit_block(&for_loop.body);
        });
    }

    fn visit_arm(&mut self, arm: &'ast Arm) {
        self.scoped(|finder| {
            finder.bind(&arm.pat);
            visit::visit_arm(finder, arm);
        });
    }

    fn visit_expr_if(&mut self, condition: &'ast ExprIf) {
        // `if let` binds names for its own block, not for the `else` block.
        self.scoped(|finder| {
            finder.visit_expr(&condition.cond);
            finder.visit_block(&condition.then_branch);
        });
        if let Some((_, other)) = &condition.else_branch {
            self.visit_expr(other);
        }
    }

    fn visit_expr_while(&mut self, condition: &'ast ExprWhile) {
        self.scoped(|finder| visit::visit_expr_while(finder, condition));
    }

    fn visit_expr_let(&mut self, binding: &'ast syn::ExprLet) {
        self.visit_expr(&binding.expr);
        self.bind(&binding.pat);
    }

    fn visit_item_fn(&mut self, _: &'ast ItemFn) {
        // A function inside the body cannot use its variables.
    }

    fn visit_pat_ident(&mut self, _: &'ast PatIdent) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(source: &str, expected: &[&str]) {
        let names = free_names(source).unwrap();
        let names: Vec<_> = names.iter().map(String::as_str).filter(|name| !["Ok", "None"].contains(name)).collect();
        assert_eq!(names, expected, "{source}");
    }

    #[test]
    fn names_that_the_body_binds_are_not_free() {
        check(
            "|trial| { let x = data.len(); for i in 0..x { use_it(i, other)?; } Ok(x) }",
            &["data", "other", "use_it"],
        );
        check("|trial| match kind { Some(kind) => kind, n => n }", &["kind"]);
        check("|trial| if let Some(x) = maybe { x } else { 0 }", &["maybe"]);
        check("|trial| { let f = |a, b| a + b + c; f(1, 2) }", &["c"]);
        check("|trial| { { let inner = 1; } inner }", &["inner"]);
        check("|trial| if let Some(x) = maybe { x } else { x.len() }", &["maybe", "x"]);
        check("|trial| point.x", &["point"]);
        check("|trial| Point { x, y: z }", &["x", "z"]);
    }

    #[test]
    fn shadowing_begins_after_the_binding() {
        check("|trial| { let data = data.clone(); data }", &["data"]);
    }

    #[test]
    fn names_in_macros_and_format_strings_count() {
        check("|trial| { println!(\"{rate:.3} {} of the data\", units); }", &["rate", "units"]);
    }

    #[test]
    fn what_is_no_expression_is_an_error() {
        assert!(free_names("|trial| { let = }").is_err());
    }
}
