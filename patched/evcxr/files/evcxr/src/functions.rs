//! Large functions are compiled once: the first cell that calls one exports it, and later cells link to it until an item changes.
//!
//! The text of such a function has both forms in each cell, of which `cfg` chooses one, as in `statics.rs`. A library that is loaded
//! alone, such as an objective, defines all functions itself.

use crate::code_block::CodeBlock;
use crate::module::CRATE_NAME;
use crate::rust_analyzer::EDITION;
use crate::statics::defined_in;
use crate::statics::first_word;
use ra_ap_syntax::AstNode;
use ra_ap_syntax::SourceFile;
use ra_ap_syntax::SyntaxNode;
use ra_ap_syntax::ast;
use ra_ap_syntax::ast::HasAttrs;
use ra_ap_syntax::ast::HasGenericParams;
use ra_ap_syntax::ast::HasName;
use ra_ap_syntax::ast::HasVisibility;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;

/// The tokens of a body from which on a function is linked. rustc compiles less than that faster than it links it, and makes such a
/// function part of the loop that calls it.
const LARGE: usize = 100;
/// Attributes that a function may have which is called from other libraries.
const HARMLESS: [&str; 8] = ["allow", "cold", "deny", "doc", "expect", "must_use", "rustfmt", "warn"];

/// The library with a function's code.
#[derive(Clone, Debug)]
pub(crate) struct Home {
    /// The number of the cell that exports the function.
    cell: i32,
    /// The exported name.
    symbol: String,
    /// The function as other cells declare it, up to the end of the line.
    declaration: String,
}

impl Home {
    /// Makes a cell the home of a function; none if the item is another one, or has to be compiled by each cell.
    pub(crate) fn new(item: &str, cell: i32) -> Option<Home> {
        let (name, declaration) = declaration(item)?;
        Some(Home { cell, symbol: new_symbol(&name), declaration })
    }

    /// The item's block with both forms of the function, which is its first segment.
    pub(crate) fn with_both_forms(&self, item: CodeBlock) -> CodeBlock {
        let Home { cell, symbol, declaration } = self;
        let defined = defined_in(*cell);
        let mut segments = item.segments.into_iter();
        let code = CodeBlock::new().generated(format!("#[cfg({defined})] #[unsafe(export_name = \"{symbol}\")]"));
        let code = segments.next().map_or_else(CodeBlock::new, |function| code.with_segment(function));
        let code = code.generated(format!("#[cfg(not({defined}))] unsafe extern \"Rust\" {{ #[link_name = \"{symbol}\"] {declaration} }}"));
        segments.fold(code, CodeBlock::with_segment)
    }
}

/// A name that no other function has. Backtraces and flame graphs show it as `ctx::` and the function's name: it has the form of rustc's
/// own names, with a number where these have a hash.
fn new_symbol(name: &str) -> String {
    static LAST: AtomicUsize = AtomicUsize::new(0);
    let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
    format!("_ZN{}{CRATE_NAME}{}{name}17h{number:016x}E", CRATE_NAME.len(), name.len())
}

/// The name of a large function and its declaration in a block of `extern`; none for other items, and for a function that needs what only
/// its own library has.
fn declaration(item: &str) -> Option<(String, String)> {
    let file = SourceFile::parse(item, EDITION);
    let mut items = file.tree().syntax().children().filter_map(ast::Item::cast).collect::<Vec<_>>();
    let (Some(ast::Item::Fn(function)), true) = (items.pop(), items.is_empty() && file.errors().is_empty()) else {
        return None;
    };
    let is_plain = function.async_token().is_none()
        && function.const_token().is_none()
        && function.gen_token().is_none()
        && function.abi().is_none()
        && function.where_clause().is_none()
        && function.generic_param_list().is_none_or(|list| list.type_or_const_params().next().is_none())
        && function.attrs().all(is_harmless);
    let body = function.body()?;
    let tokens = body.syntax().descendants_with_tokens().filter_map(|element| element.into_token());
    if !is_plain || tokens.filter(|token| !token.kind().is_trivia()).count() < LARGE {
        return None;
    }
    let parameters = function.param_list()?;
    if parameters.self_param().is_some() {
        return None;
    }
    let parameters: Option<Vec<String>> = parameters
        .params()
        .map(|parameter| {
            let named = parameter.ty().filter(|ty| parameter.attrs().next().is_none() && has_a_name(ty.syntax()))?;
            Some(format!("_: {}", on_one_line(named.syntax())))
        })
        .collect();
    let result = match function.ret_type() {
        Some(result) if !has_a_name(result.syntax()) => return None,
        Some(result) => format!(" {}", on_one_line(result.syntax())),
        None => String::new(),
    };
    let visibility = function.visibility().map(|visibility| format!("{} ", visibility.syntax().text())).unwrap_or_default();
    let qualifier = if function.unsafe_token().is_some() { "unsafe" } else { "safe" };
    let lifetimes = function.generic_param_list().map(|list| on_one_line(list.syntax())).unwrap_or_default();
    let name = function.name()?.text().to_string();
    let declaration = format!("{visibility}{qualifier} fn {name}{lifetimes}({}){result};", parameters?.join(", "));
    Some((name, declaration))
}

fn is_harmless(attribute: ast::Attr) -> bool {
    first_word(&attribute).is_some_and(|word| HARMLESS.contains(&word.text()))
}

/// Whether a type can be written in a declaration: `impl Trait` is another type there.
fn has_a_name(written: &SyntaxNode) -> bool {
    !written.descendants().any(|node| ast::ImplTraitType::can_cast(node.kind()) || ast::MacroType::can_cast(node.kind()))
}

/// The text without comments, on one line.
fn on_one_line(node: &SyntaxNode) -> String {
    let tokens = node.descendants_with_tokens().filter_map(|element| element.into_token());
    tokens.map(|token| if token.kind().is_trivia() { " ".to_owned() } else { token.text().to_owned() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn large(signature: &str) -> String {
        format!("{signature} {{ {} loop {{}} }}", "println!();".repeat(LARGE))
    }

    #[test]
    fn a_large_function_is_declared_by_its_signature() {
        for (signature, declared) in [
            ("fn f()", "safe fn f();"),
            ("pub fn f(mut x: u8, (a, b): (u8, &str)) -> Vec<P>", "pub safe fn f(_: u8, _: (u8, &str)) -> Vec<P>;"),
            ("/// Text.\n#[must_use]\nfn f<'a>(\n    x: &'a str, // why\n) -> &'a str", "safe fn f<'a>(_: &'a str) -> &'a str;"),
            ("unsafe fn f(x: *const u8) -> !", "unsafe fn f(_: *const u8) -> !;"),
            ("fn f(g: fn(&str) -> u8, h: &dyn Fn(u8) -> u8)", "safe fn f(_: fn(&str) -> u8, _: &dyn Fn(u8) -> u8);"),
        ] {
            assert_eq!(declaration(&large(signature)), Some(("f".to_owned(), declared.to_owned())), "{signature}");
        }
    }

    #[test]
    fn other_items_are_compiled_by_each_cell() {
        for signature in [
            "fn f<T>(x: T)", "fn f<const N: usize>()", "fn f(x: impl Fn())", "fn f() -> impl Iterator<Item = u8>", "async fn f()",
            "const fn f()", "extern \"C\" fn f()", "#[inline] fn f()", "#[track_caller] fn f()", "fn f<'a>(x: &'a u8) where 'a: 'static",
            "#[unsafe(no_mangle)] fn f()", "fn f(x: ty!())", "mod m", "const _: () =",
        ] {
            assert_eq!(declaration(&large(signature)), None, "{signature}");
        }
        assert_eq!(declaration("fn f() { println!() }"), None);
        assert_eq!(declaration(&format!("{} fn g() {{}}", large("fn f()"))), None);
    }
}
