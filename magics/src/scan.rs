//! Where in Rust source a statement may begin: just enough of a lexer to tell a magic from a remainder operator.
//!
//! It knows comments, strings, raw strings, characters and brackets, and the words that begin a statement which a
//! closing brace ends. It does not parse: source that is wrong is for the compiler to report, and such source may
//! hide a magic that follows it, but never the reverse.

/// Reads Rust line by line.
#[derive(Debug)]
pub(crate) struct Scanner {
    mode: Mode,
    depth: usize,
    statement: Statement,
    has_tokens: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Code,
    /// Block comments nest; the number is how deep.
    Comment(usize),
    Text,
    /// A raw string, with its number of `#`.
    RawText(usize),
}

/// What is known of the statement outside all brackets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Statement {
    Ended,
    /// `#`, before `[…]`.
    Attribute,
    /// `#!`: `#![…]` stands alone, so a statement may begin behind it.
    InnerAttribute,
    /// `pub`, `unsafe`, an attribute, a label: what follows decides.
    Prefix,
    /// `const`, of an item, a function or a block.
    Const,
    /// Words and `::` so far: perhaps a macro's path.
    Path,
    /// A path and `!`: its brackets decide.
    Macro,
    /// `fn`, `if`, `struct`, …: a closing brace ends it.
    Block,
    /// Only `;` ends it.
    Open,
}

#[derive(Clone, Copy)]
enum Token<'a> {
    Word(&'a str),
    /// A string or a character.
    Literal,
    /// A lifetime or a label.
    Lifetime,
    Punctuation(char),
}

impl Scanner {
    pub(crate) fn new() -> Scanner {
        Scanner { mode: Mode::Code, depth: 0, statement: Statement::Ended, has_tokens: false }
    }

    /// Whether a statement may begin on the next line.
    pub(crate) fn statement_may_begin(&self) -> bool {
        self.mode == Mode::Code && self.depth == 0 && self.statement == Statement::Ended
    }

    /// Whether a bracket, a string or a comment is still open.
    pub(crate) fn is_open(&self) -> bool {
        self.mode != Mode::Code || self.depth > 0
    }

    /// Whether anything but blanks and comments has been read.
    pub(crate) fn has_tokens(&self) -> bool {
        self.has_tokens
    }

    /// Reads a line, with its line ending.
    pub(crate) fn line(&mut self, line: &str) {
        let mut rest = line;
        while let Some(next) = rest.chars().next() {
            rest = match self.mode {
                Mode::Code => self.code(rest, next),
                Mode::Comment(depth) => self.comment(rest, depth),
                Mode::Text => self.text(rest, next),
                Mode::RawText(hashes) => self.raw_text(rest, hashes),
            };
        }
    }

    fn code<'a>(&mut self, rest: &'a str, next: char) -> &'a str {
        if next.is_whitespace() {
            return after(rest, 1);
        }
        if rest.starts_with("//") {
            return "";
        }
        if rest.starts_with("/*") {
            self.mode = Mode::Comment(1);
            return after(rest, 2);
        }
        match next {
            '"' => {
                self.token(Token::Literal);
                self.mode = Mode::Text;
                after(rest, 1)
            }
            '\'' => self.quote(rest),
            _ if is_word(next) => self.word(rest),
            _ => {
                self.token(Token::Punctuation(next));
                after(rest, 1)
            }
        }
    }

    fn comment<'a>(&mut self, rest: &'a str, depth: usize) -> &'a str {
        if rest.starts_with("/*") {
            self.mode = Mode::Comment(depth + 1);
            return after(rest, 2);
        }
        if rest.starts_with("*/") {
            self.mode = if depth == 1 { Mode::Code } else { Mode::Comment(depth - 1) };
            return after(rest, 2);
        }
        after(rest, 1)
    }

    fn text<'a>(&mut self, rest: &'a str, next: char) -> &'a str {
        match next {
            '\\' => after(rest, 2),
            '"' => {
                self.mode = Mode::Code;
                after(rest, 1)
            }
            _ => after(rest, 1),
        }
    }

    fn raw_text<'a>(&mut self, rest: &'a str, hashes: usize) -> &'a str {
        if rest.starts_with('"') && rest[1..].bytes().take_while(|byte| *byte == b'#').count() >= hashes {
            self.mode = Mode::Code;
            return after(rest, 1 + hashes);
        }
        after(rest, 1)
    }

    /// A character, a lifetime or a label.
    fn quote<'a>(&mut self, rest: &'a str) -> &'a str {
        let mut following = rest.chars().skip(1);
        match (following.next(), following.next()) {
            (Some('\\'), _) => {
                self.token(Token::Literal);
                let escaped = after(rest, 3);
                // An escape without its closing quote is the compiler's to report.
                escaped.find('\'').map_or(escaped, |end| after(&escaped[end..], 1))
            }
            (Some(_), Some('\'')) => {
                self.token(Token::Literal);
                after(rest, 3)
            }
            _ => {
                self.token(Token::Lifetime);
                rest[1..].trim_start_matches(is_word)
            }
        }
    }

    fn word<'a>(&mut self, rest: &'a str) -> &'a str {
        let behind = rest.trim_start_matches(is_word);
        let word = &rest[..rest.len() - behind.len()];
        if matches!(word, "r" | "br" | "cr") {
            let hashes = behind.bytes().take_while(|byte| *byte == b'#').count();
            if behind[hashes..].starts_with('"') {
                self.token(Token::Literal);
                self.mode = Mode::RawText(hashes);
                return after(behind, hashes + 1);
            }
            if word == "r" && hashes == 1 {
                // A raw identifier, `r#type`: never a keyword.
                self.token(Token::Word(word));
                return behind[1..].trim_start_matches(is_word);
            }
        }
        self.token(Token::Word(word));
        behind
    }

    fn token(&mut self, token: Token<'_>) {
        self.has_tokens = true;
        match token {
            Token::Punctuation(bracket @ ('(' | '[' | '{')) => {
                if self.depth == 0 {
                    self.statement = self.statement.opened(bracket);
                }
                self.depth += 1;
            }
            Token::Punctuation(bracket @ (')' | ']' | '}')) => {
                self.depth = self.depth.saturating_sub(1);
                if self.depth == 0 {
                    self.statement = self.statement.closed(bracket);
                }
            }
            _ if self.depth > 0 => {}
            Token::Punctuation(mark) => self.statement = self.statement.marked(mark),
            Token::Word(word) => self.statement = self.statement.worded(word),
            Token::Literal => self.statement = self.statement.with_literal(),
            Token::Lifetime => self.statement = self.statement.with_lifetime(),
        }
    }
}

impl Statement {
    fn opened(self, bracket: char) -> Statement {
        use Statement::{Attribute, Block, Const, Ended, InnerAttribute, Macro, Open, Prefix};
        match (self, bracket) {
            (Block, _) | (Ended | Prefix | Const | Macro, '{') => Block,
            (Attribute | InnerAttribute, '[') | (Prefix, '(') => self,
            _ => Open,
        }
    }

    fn closed(self, bracket: char) -> Statement {
        match (self, bracket) {
            (Statement::Block, '}') | (Statement::InnerAttribute, ']') => Statement::Ended,
            (Statement::Attribute, ']') => Statement::Prefix,
            _ => self,
        }
    }

    fn marked(self, mark: char) -> Statement {
        use Statement::{Attribute, Block, Ended, InnerAttribute, Macro, Open, Path, Prefix};
        match (self, mark) {
            (_, ';') => Ended,
            (Block, _) => Block,
            (Ended | Prefix, '#') => Attribute,
            (Attribute, '!') => InnerAttribute,
            (Prefix, ':') => Prefix,
            (Ended | Path, ':') => Path,
            (Path, '!') => Macro,
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

    /// `extern "C" fn` is the one statement in which a string is no expression.
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

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// What is left of `text` behind `count` characters.
fn after(text: &str, count: usize) -> &str {
    text.char_indices().nth(count).map_or("", |(start, _)| &text[start..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn may_begin_after(source: &str) -> bool {
        let mut scanner = Scanner::new();
        for line in source.split_inclusive('\n') {
            scanner.line(line);
        }
        scanner.statement_may_begin()
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
