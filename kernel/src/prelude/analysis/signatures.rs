//! Reduces a source to what rust-analyzer needs: signatures, types and documentation. rust-analyzer reads the whole text of each
//! file at each start of a kernel, and expands each macro. The bodies of functions are a third of that text; the documentation in
//! a macro that defines the methods of twelve types is read twelve times.

use ra_ap_syntax::{AstNode, Edition, SourceFile, SyntaxNode, TextRange, ast};

/// The replacement of a function's body, which fits every return type.
const BODY: &str = "{loop{}}";

/// The source without the bodies of its functions, and with only the first paragraph of each documentation in its macros.
///
/// A body stays if it may be a part of a type: if its function is `const` or `async`, or returns `impl Trait`.
pub(super) fn of(source: &str) -> String {
    let file = SourceFile::parse(source, Edition::CURRENT).tree();
    let mut short = String::with_capacity(source.len());
    let mut end = 0;
    for node in file.syntax().descendants() {
        let Some((range, text)) = replaced(&node, source) else { continue };
        let (from, to) = (usize::from(range.start()), usize::from(range.end()));
        // A function in the body of another function is removed with that body.
        if from >= end {
            short.push_str(&source[end..from]);
            short.push_str(&text);
            end = to;
        }
    }
    short.push_str(&source[end..]);
    short
}

/// The range of a node that is replaced, and the replacement.
fn replaced(node: &SyntaxNode, source: &str) -> Option<(TextRange, String)> {
    if let Some(function) = ast::Fn::cast(node.clone()) {
        let body = function.body().filter(|_| !is_of_type(&function))?;
        return Some((body.syntax().text_range(), BODY.to_owned()));
    }
    let tokens = ast::MacroRules::cast(node.clone())?.token_tree()?;
    let range = tokens.syntax().text_range();
    Some((range, with_short_documentation(&source[range])))
}

/// Whether a function's body may be a part of a type.
fn is_of_type(function: &ast::Fn) -> bool {
    let returns_impl =
        |returned: ast::RetType| returned.syntax().descendants().any(|node| ast::ImplTraitType::can_cast(node.kind()));
    function.const_token().is_some()
        || function.async_token().is_some()
        || function.ret_type().is_some_and(returns_impl)
}

/// The text with only the first paragraph of each documentation.
fn with_short_documentation(text: &str) -> String {
    let mut short = String::with_capacity(text.len());
    let mut is_paragraph = true;
    let mut lines = text.split_inclusive('\n');
    while let Some(line) = lines.next() {
        let trimmed = line.trim();
        let is_attribute = trimmed.starts_with("#[doc");
        if !trimmed.starts_with("///") && !is_attribute {
            is_paragraph = true;
            short.push_str(line);
            continue;
        }
        is_paragraph &= trimmed != "///";
        let mut whole = line.to_owned();
        while is_attribute && !whole.trim_end().ends_with(']') {
            let Some(next) = lines.next() else { break };
            whole.push_str(next);
        }
        if is_paragraph {
            short.push_str(&whole);
        }
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_go_where_no_type_depends_on_them() {
        let source = "/// Adds.\npub fn add(a: u8) -> u8 { fn more() -> u8 { 1 } a + more() }\nconst fn two() -> usize { 2 }\n\
                      fn each() -> impl Iterator<Item = [u8; two()]> { [].into_iter() }\nasync fn later() { add(1); }\n\
                      trait Named { fn name(&self) -> String { String::from(\"x\") } fn id(&self); }\n";
        let expected = "/// Adds.\npub fn add(a: u8) -> u8 {loop{}}\nconst fn two() -> usize { 2 }\n\
                        fn each() -> impl Iterator<Item = [u8; two()]> { [].into_iter() }\nasync fn later() { add(1); }\n\
                        trait Named { fn name(&self) -> String {loop{}} fn id(&self); }\n";
        assert_eq!(of(source), expected);
    }

    #[test]
    fn documentation_in_a_macro_is_its_first_paragraph() {
        let source = "macro_rules! methods { ($T:ty) => {\n    /// Adds one\n    /// to it.\n    ///\n    /// # Examples\n    \
                      #[doc = concat!(\"assert_eq!(1\", stringify!($T),\n        \");\")]\n    #[inline]\n    pub fn one(self) {}\n    \
                      #[doc = concat!(\"A \", stringify!($T))]\n    pub fn two(self) {}\n} }\n/// Kept\n///\n/// as a whole.\nstruct A;\n";
        let expected = "macro_rules! methods { ($T:ty) => {\n    /// Adds one\n    /// to it.\n    #[inline]\n    pub fn one(self) {}\n    \
                        #[doc = concat!(\"A \", stringify!($T))]\n    pub fn two(self) {}\n} }\n/// Kept\n///\n/// as a whole.\nstruct A;\n";
        assert_eq!(of(source), expected);
    }
}
