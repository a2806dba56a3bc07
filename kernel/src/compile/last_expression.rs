//! Shows the value of a cell's last expression. evcxr's call of `evcxr_display` is rewritten to a call on a reference, for which the
//! prelude has a method whatever the type is. If the notebook defines a method of that name that takes `self` or `&mut self`, which
//! a reference cannot call, evcxr's own call stays, and the prelude's method is used only if that call does not compile.

use proc_macro2::TokenStream;
use std::borrow::Cow;

/// The lines around the last expression of a cell.
const SHOW_START: &str = "(";
const SHOW_END: &str = ").evcxr_display();";
/// The lines around the last expression in the form that evcxr compiles next, if the value has no `evcxr_display`.
const TEXT_START: &str = "evcxr_send_text_plain(&::std::format!(";
const TEXT_END: &str = ")));";

/// Rewrites the lines around the last expression, and never moves a line.
pub(super) fn show_with_prelude(lines: &mut [Cow<'_, str>]) {
    let takes_value = lines.iter().any(|line| takes_value(line));
    let found = match find(lines, |line| line == SHOW_START, SHOW_END) {
        Some((start, end)) if !takes_value && !is_reference(&lines[start + 1..end]) => Some((start, end)),
        None if takes_value => find(lines, |line| line.starts_with(TEXT_START), TEXT_END),
        _ => None,
    };
    if let Some((start, end)) = found {
        // The call has one reference more than a trait of the user's needs, so that Rust prefers the user's trait to the prelude's.
        lines[start] = "(&(".into();
        lines[end] = format!("){SHOW_END}").into();
    }
}

fn find(lines: &[Cow<'_, str>], is_start: impl Fn(&str) -> bool, end: &str) -> Option<(usize, usize)> {
    let end = lines.iter().rposition(|line| line == end)?;
    (0..end).rev().find(|at| is_start(&lines[*at]) && is_balanced(&lines[at + 1..end])).map(|start| (start, end))
}

fn is_balanced(lines: &[Cow<'_, str>]) -> bool {
    lines.join("\n").parse::<TokenStream>().is_ok()
}

/// Whether the expression is a shared reference already.
fn is_reference(lines: &[Cow<'_, str>]) -> bool {
    let source = lines.join("\n");
    source.trim_start().starts_with('&')
        && matches!(syn::parse_str(&source), Ok(syn::Expr::Reference(reference)) if reference.mutability.is_none())
}

/// Whether the line defines a method that a shared reference cannot call.
fn takes_value(line: &str) -> bool {
    let Some((_, rest)) = line.split_once("fn evcxr_display(") else { return false };
    let receiver = rest.split([',', ')']).next().unwrap_or_default();
    let words = || receiver.split(|character: char| !character.is_alphanumeric() && character != '_');
    words().any(|word| word == "self") && (!receiver.contains('&') || words().any(|word| word == "mut"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(source: &str, expected: &str) {
        let mut lines: Vec<Cow<'_, str>> = source.lines().map(Cow::from).collect();
        show_with_prelude(&mut lines);
        assert_eq!(lines.join("\n"), expected);
    }

    #[test]
    fn a_value_is_lent_to_the_prelude() {
        check("(\nf\n(\n1\n)\n).evcxr_display();", "(&(\nf\n(\n1\n)\n)).evcxr_display();");
        check("(\n&a == &b\n).evcxr_display();", "(&(\n&a == &b\n)).evcxr_display();");
        check("(\n&mut a\n).evcxr_display();", "(&(\n&mut a\n)).evcxr_display();");
    }

    #[test]
    fn a_reference_is_lent_already() {
        check("(\n&a[1..]\n).evcxr_display();", "(\n&a[1..]\n).evcxr_display();");
    }

    #[test]
    fn a_method_that_takes_the_value_comes_first() {
        for receiver in ["self", "mut self", "&mut self", "self: Self", "&'a mut self", "mut self, n: u8"] {
            let method = format!("pub fn evcxr_display({receiver}) {{}}\n");
            let own = format!("{method}(\na\n).evcxr_display();");
            check(&own, &own);
            let text = format!("{method}evcxr_send_text_plain(&::std::format!(\"{{:?}}\",&(\n\na\n)));");
            check(&text, &format!("{method}(&(\n\na\n)).evcxr_display();"));
        }
        for receiver in ["&self", "&'a self", "self: &Self"] {
            let method = format!("fn evcxr_display({receiver}) {{}}\n");
            check(&format!("{method}(\na\n).evcxr_display();"), &format!("{method}(&(\na\n)).evcxr_display();"));
            let text = format!("{method}evcxr_send_text_plain(&::std::format!(\"{{:?}}\",&(\n\na\n)));");
            check(&text, &text);
        }
    }
}
