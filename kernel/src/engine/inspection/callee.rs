//! The call around the cursor: between the brackets of a call, the user asks for documentation of the called function.

use super::is_of_name;
use crate::engine::evaluate::place::{HEAD, parse};
use ra_ap_syntax::TextSize;
use ra_ap_syntax::ast::{self, AstNode as _};

/// The end of the name of the called function or method, if the cursor is between the brackets of a call and not at a name.
pub(super) fn around(source: &str, cursor: usize) -> Option<usize> {
    if source[cursor..].starts_with(is_of_name) || source[..cursor].ends_with(is_of_name) && !in_literal(source, cursor)
    {
        return None;
    }
    let file = parse(source).syntax_node();
    let at = TextSize::from(u32::try_from(cursor + HEAD.len()).ok()?);
    let token = file.token_at_offset(at).left_biased()?;
    let list = token.parent_ancestors().filter_map(ast::ArgList::cast).find(|list| {
        let range = list.syntax().text_range();
        range.start() < at && (at < range.end() || list.r_paren_token().is_none())
    })?;
    let call = list.syntax().parent()?;
    let end = match ast::CallExpr::cast(call.clone()) {
        Some(call) => call.expr()?.syntax().text_range().end(),
        None => ast::MethodCallExpr::cast(call)?.name_ref()?.syntax().text_range().end(),
    };
    usize::from(end).checked_sub(HEAD.len())
}

/// Whether the cursor is in a string or a comment, whose words are not names.
fn in_literal(source: &str, cursor: usize) -> bool {
    matches!(ferrotune_magics::split(&source[..cursor]).ending, ferrotune_magics::Ending::InLiteral { .. })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn between_brackets_the_function_is_meant_and_at_a_name_the_name() {
        for (marked, callee) in [
            ("Tensor::randn(|)", Some("Tensor::randn")),
            ("let y = x.matmul(|)?;", Some("let y = x.matmul")),
            ("data::csv(\"a|.csv\").class_of(\"kind\")", Some("data::csv")),
            ("data::csv(\"a.csv\").class_of(|)", Some("data::csv(\"a.csv\").class_of")),
            ("Tensor::randn(0f32, |1., &d)", None),
            ("Tensor::randn(0f32, | 1., &d)", Some("Tensor::randn")),
            ("f(g(1), |)", Some("f")),
            ("f(g(|), 2)", Some("f(g")),
            ("f(|", Some("f")),
            ("f(x|)", None),
            ("let a = |1;", None),
            ("f(1) |", None),
        ] {
            let cursor = marked.find('|').unwrap();
            let source = marked.replacen('|', "", 1);
            assert_eq!(around(&source, cursor).map(|end| &source[..end]), callee, "{marked}");
        }
    }
}
