//! The state of a Rust statement while its tokens are read, with just enough grammar to find where the next statement may begin.
//!
//! The grammar has the words that begin a statement which a closing brace ends. It is no parser: the compiler reports wrong
//! source. Wrong source may hide a magic that follows the source, but Rust is never read as a magic.

use ra_ap_rustc_lexer::TokenKind;

/// The state of the statement outside all brackets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Statement {
    #[default]
    Ended,
    /// `#`, the beginning of an attribute, before `[…]`.
    Attribute,
    /// `#!`, the beginning of an inner attribute. A statement may begin right behind `#![…]`.
    InnerAttribute,
    /// A prefix such as `pub`, `unsafe`, an attribute or a label. The next token decides the kind of statement.
    Prefix,
    /// `const`, which begins an item, a function or a block.
    Const,
    /// Words and `::`, which may be the path of a macro.
    Path,
    /// A path and `!`, a macro call. The kind of its brackets decides how the statement ends.
    Macro,
    /// A statement that a closing brace ends, such as `fn`, `if` or `struct`.
    Block,
    /// A statement that only `;` ends.
    Open,
}

impl Statement {
    /// The state after one more token, which is not a bracket.
    pub(super) fn with(self, kind: TokenKind, text: &str) -> Statement {
        match kind {
            TokenKind::Ident | TokenKind::RawIdent | TokenKind::InvalidIdent | TokenKind::UnknownPrefix => {
                self.worded(text)
            }
            TokenKind::Literal { .. } => self.with_literal(),
            TokenKind::Lifetime { .. } | TokenKind::RawLifetime | TokenKind::UnknownPrefixLifetime => {
                self.with_lifetime()
            }
            _ => self.marked(text),
        }
    }

    pub(super) fn opened(self, bracket: char) -> Statement {
        use Statement::{Attribute, Block, Const, Ended, InnerAttribute, Macro, Open, Prefix};
        match (self, bracket) {
            (Block, _) | (Ended | Prefix | Const | Macro, '{') => Block,
            (Attribute | InnerAttribute, '[') | (Prefix, '(') => self,
            _ => Open,
        }
    }

    pub(super) fn closed(self, bracket: char) -> Statement {
        match (self, bracket) {
            (Statement::Block, '}') | (Statement::InnerAttribute, ']') => Statement::Ended,
            (Statement::Attribute, ']') => Statement::Prefix,
            _ => self,
        }
    }

    fn marked(self, mark: &str) -> Statement {
        use Statement::{Attribute, Block, Ended, InnerAttribute, Macro, Open, Path, Prefix};
        match (self, mark) {
            (_, ";") => Ended,
            (Block, _) => Block,
            (Ended | Prefix, "#") => Attribute,
            (Attribute, "!") => InnerAttribute,
            (Prefix, ":") => Prefix,
            (Ended | Path, ":") => Path,
            (Path, "!") => Macro,
            _ => Open,
        }
    }

    fn worded(self, word: &str) -> Statement {
        use Statement::{Block, Const, Ended, Macro, Open, Path, Prefix};
        match (self, word) {
            (Ended | Prefix, "pub" | "unsafe" | "async" | "extern" | "move") => Prefix,
            (Ended | Prefix, "const") => Const,
            (Ended | Prefix, "let" | "return" | "break" | "static" | "type" | "use") => Open,
            (
                Ended | Prefix,
                "fn" | "struct" | "enum" | "union" | "trait" | "impl" | "mod" | "if" | "else" | "for" | "while"
                | "loop" | "match",
            )
            | (Const, "fn")
            | (Block, _) => Block,
            (Const, "unsafe" | "async" | "extern") => Const,
            (Ended | Prefix | Path, _) => Path,
            (Macro, _) => Macro,
            _ => Open,
        }
    }

    /// The state after a literal. Only in `extern "C" fn` a string is not an expression.
    fn with_literal(self) -> Statement {
        match self {
            Statement::Prefix | Statement::Block | Statement::Const => self,
            _ => Statement::Open,
        }
    }

    fn with_lifetime(self) -> Statement {
        match self {
            Statement::Ended => Statement::Prefix,
            _ => self,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::split::{PartKind, split};

    fn may_begin_after(source: &str) -> bool {
        let cell = format!("{source}\n%device");
        split(&cell).parts.last().is_some_and(|part| part.kind == PartKind::Magic)
    }

    #[test]
    fn a_statement_may_begin_behind_a_finished_one() {
        for source in [
            "",
            "\n",
            "// comment",
            "/// doc",
            "/* a /* nested */ comment */",
            "let a = 1;",
            "let text = \"% ; { ( [\";",
            "let text = \"quote \\\" {\";",
            "let text = r#\"quote \" { \"#;",
            "let text = br##\"\"# { \"##;",
            "let text = c\"{\";",
            "let brace = '{';",
            "let brace = b'{';",
            "let quote = '\\'';",
            "let quote = '\"';",
            "let snowman = '\\u{2603}';",
            "let f: &'static str = \"\";",
            "fn f<'a>(x: &'a str) -> &'a str { x }",
            "pub fn f() {}",
            "pub(crate) struct A { b: u8 }",
            "struct A(u8);",
            "#[derive(Debug)]\nstruct A { b: u8 }",
            "#![allow(unused)]",
            "#[cfg(all(a, b))]\npub unsafe extern \"C\" fn f() {}",
            "const fn f() {}",
            "const unsafe fn f() {}",
            "const A: B = B { c: 1 };",
            "impl A { fn f() {} }",
            "if a { 1 } else { 2 };",
            "if a { b() } else if c { d() } else { e() }",
            "for i in 0..10 { f(i) }",
            "while let Some(x) = y.next() {}",
            "'outer: loop { break 'outer; }",
            "match x { 1 => {} _ => {} }",
            "unsafe { f() }",
            "{ let a = 1; }",
            "macro_rules! m { () => {} }",
            "std::thread_local! { static A: u8 = 1; }",
            "::std::println!(\"\");",
            "let r#type = 1;",
            "use a::{b, c};",
            "let Some(x) = y else { return };",
            "let a = 7 % b;",
            "}",
        ] {
            assert!(may_begin_after(source), "{source}");
        }
    }

    #[test]
    fn no_statement_may_begin_inside_an_unfinished_one() {
        for source in [
            "let a = b",
            "let a = b\n",
            "let a = B { c: 1 }",
            "let a = if b { c } else { d }",
            "let a = match b { _ => c }",
            "let a = vec! { 1 }",
            "x = { 1 }",
            "return { 1 }",
            "B { c: 1 }",
            "use a::{b, c}",
            "const A: B = B { c: 1 }",
            "println!(\"a\")",
            "a + 1",
            "a != b",
            "\"text\"",
            "f(",
            "fn f() {",
            "let a = [1,",
            "let a = \"",
            "let a = r#\" \" ",
            "/*",
            "/* /* */",
            "#[derive(Debug)]",
            "pub",
            "|trial| { 1 }",
            "1",
        ] {
            assert!(!may_begin_after(source), "{source}");
        }
    }
}
