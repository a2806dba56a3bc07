//! A cell, split into Rust and the lines that are not Rust: magics and evcxr's commands. Tokens are rustc's own.
//!
//! Such a line stands where a statement may begin. Anywhere else a `%` is Rust's remainder operator or text. A line that
//! begins with `!` is Rust, too: the negation of a value. There are no shell commands.

mod statement;

use ra_ap_rustc_lexer::{Cursor, FrontmatterAllowed, LiteralKind, TokenKind};
use statement::Statement;

/// A cell, split.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split<'a> {
    /// The parts, in order; together they are the cell.
    pub parts: Vec<Part<'a>>,
    /// How the Rust of the cell ends.
    pub ending: Ending,
    /// How many brackets are open at once, at most.
    pub max_depth: usize,
}

/// A part of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part<'a> {
    /// What it is.
    pub kind: PartKind,
    /// Whole lines, with their line endings.
    pub text: &'a str,
    /// The 1-based line of the cell on which it begins.
    pub first_line: usize,
}

/// What a part of a cell is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartKind {
    /// Lines of Rust.
    Rust,
    /// Lines with nothing but blanks and comments.
    Blank,
    /// One line that begins with `%` or `?%`.
    Magic,
    /// One line that begins with `:dep`, `:vars` and so on; `::path` is Rust.
    Command,
}

/// How the Rust of a cell ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// All brackets are closed.
    Closed,
    /// This many brackets are open.
    Open {
        /// At least 1.
        depth: usize,
        /// Where the innermost one is, in bytes from the start of the cell.
        at: usize,
    },
    /// Within a string or a block comment.
    InLiteral {
        /// Where it begins, in bytes from the start of the cell.
        at: usize,
    },
    /// A bracket closes what no bracket opened.
    Mismatch {
        /// Where the first such bracket is, in bytes from the start of the cell.
        at: usize,
    },
}

/// Splits a cell. A cell magic is split as a line magic with Rust below: see [`cell_magic`].
pub fn split(cell: &str) -> Split<'_> {
    let mut splitter = Splitter { cell, ..Splitter::default() };
    while splitter.at < cell.len() {
        splitter.step();
    }
    splitter.finish()
}

/// The first line that is not blank, if it begins with `%%`, and the text below it.
pub fn cell_magic(cell: &str) -> Option<(Part<'_>, &str)> {
    let start = cell.len() - cell.trim_start().len();
    let line_start = cell[..start].rfind('\n').map_or(0, |end| end + 1);
    let (text, body) = cell[line_start..].split_at(line_length(&cell[line_start..]));
    let first_line = 1 + cell[..line_start].matches('\n').count();
    text.trim_start().starts_with("%%").then_some((Part { kind: PartKind::Magic, text, first_line }, body))
}

#[derive(Default)]
struct Splitter<'a> {
    cell: &'a str,
    at: usize,
    parts: Vec<Part<'a>>,
    /// Where the lines begin that are in no part yet.
    part_start: usize,
    part_has_tokens: bool,
    statement: Statement,
    /// The brackets that are open, with their places.
    brackets: Vec<(char, usize)>,
    max_depth: usize,
    /// Where the last token begins, if it is a literal or a comment that is not closed.
    open_literal: Option<usize>,
    mismatch: Option<usize>,
}

impl<'a> Splitter<'a> {
    /// Reads one token, or one line that is not Rust.
    fn step(&mut self) {
        let rest = &self.cell[self.at..];
        let token = Cursor::new(rest, FrontmatterAllowed::No).advance_token();
        // rustc reads `#"` and `##` as one token, since Rust 2024 reserves them; here each `#` is a mark of its own.
        let length = if token.kind == TokenKind::GuardedStrPrefix { 1 } else { token.len as usize };
        let text = &rest[..length];
        self.open_literal = is_unclosed(token.kind, text).then_some(self.at);
        if is_blank(token.kind, text) {
            self.part_has_tokens |= self.open_literal.is_some();
        } else if let Some((line_start, kind)) = self.line_that_is_not_rust() {
            return self.take_line(line_start, kind);
        } else {
            self.part_has_tokens = true;
            self.read(token.kind, text);
        }
        self.at += length;
    }

    /// The start of the line and what the line is, if the next token is the first of a line that is not Rust.
    fn line_that_is_not_rust(&self) -> Option<(usize, PartKind)> {
        if !self.brackets.is_empty() || self.statement != Statement::Ended {
            return None;
        }
        let kind = kind_of_line(&self.cell[self.at..])?;
        let line_start = self.cell[..self.at].rfind('\n').map_or(0, |end| end + 1);
        self.cell[line_start..self.at].trim().is_empty().then_some((line_start, kind))
    }

    fn take_line(&mut self, line_start: usize, kind: PartKind) {
        self.take_rust(line_start);
        let line_end = line_start + line_length(&self.cell[line_start..]);
        self.push(line_end, kind);
        self.at = line_end;
    }

    fn take_rust(&mut self, end: usize) {
        if end > self.part_start {
            let has_tokens = std::mem::take(&mut self.part_has_tokens);
            self.push(end, if has_tokens { PartKind::Rust } else { PartKind::Blank });
        }
    }

    fn push(&mut self, end: usize, kind: PartKind) {
        let first_line = self.parts.last().map_or(1, |part| part.first_line + part.text.matches('\n').count());
        self.parts.push(Part { kind, text: &self.cell[self.part_start..end], first_line });
        self.part_start = end;
    }

    fn read(&mut self, kind: TokenKind, text: &str) {
        match kind {
            TokenKind::OpenParen => self.open('('),
            TokenKind::OpenBracket => self.open('['),
            TokenKind::OpenBrace => self.open('{'),
            TokenKind::CloseParen => self.close('(', ')'),
            TokenKind::CloseBracket => self.close('[', ']'),
            TokenKind::CloseBrace => self.close('{', '}'),
            _ if self.brackets.is_empty() => self.statement = self.statement.with(kind, text),
            _ => {}
        }
    }

    fn open(&mut self, bracket: char) {
        if self.brackets.is_empty() {
            self.statement = self.statement.opened(bracket);
        }
        self.brackets.push((bracket, self.at));
        self.max_depth = self.max_depth.max(self.brackets.len());
    }

    fn close(&mut self, opening: char, bracket: char) {
        if self.brackets.pop().is_none_or(|(opened, _)| opened != opening) {
            self.mismatch.get_or_insert(self.at);
        }
        if self.brackets.is_empty() {
            self.statement = self.statement.closed(bracket);
        }
    }

    fn finish(mut self) -> Split<'a> {
        self.take_rust(self.cell.len());
        let ending = match (self.mismatch, self.open_literal, self.brackets.last()) {
            (Some(at), _, _) => Ending::Mismatch { at },
            (None, Some(at), _) => Ending::InLiteral { at },
            (None, None, Some((_, at))) => Ending::Open { depth: self.brackets.len(), at: *at },
            (None, None, None) => Ending::Closed,
        };
        Split { parts: self.parts, ending, max_depth: self.max_depth }
    }
}

/// What a line is that stands where a statement may begin; none if it is Rust.
fn kind_of_line(line: &str) -> Option<PartKind> {
    if line.strip_prefix('?').unwrap_or(line).starts_with('%') {
        return Some(PartKind::Magic);
    }
    let is_command = line.strip_prefix(':').is_some_and(|name| name.starts_with(char::is_alphabetic));
    is_command.then_some(PartKind::Command)
}

/// Whether the token is a blank or a comment. rustc does not know all blanks that a copied text may have.
fn is_blank(kind: TokenKind, text: &str) -> bool {
    match kind {
        TokenKind::Whitespace | TokenKind::LineComment { .. } | TokenKind::BlockComment { .. } => true,
        TokenKind::Unknown => text.trim().is_empty(),
        _ => false,
    }
}

/// Whether more lines may close a string or a comment. A character never spans lines.
fn is_unclosed(kind: TokenKind, text: &str) -> bool {
    match kind {
        TokenKind::BlockComment { terminated, .. } => !terminated,
        TokenKind::Literal { kind, .. } => match kind {
            LiteralKind::Str { terminated }
            | LiteralKind::ByteStr { terminated }
            | LiteralKind::CStr { terminated } => !terminated,
            LiteralKind::RawStr { n_hashes }
            | LiteralKind::RawByteStr { n_hashes }
            | LiteralKind::RawCStr { n_hashes } => n_hashes.is_none() && text.contains('"'),
            _ => false,
        },
        _ => false,
    }
}

/// With the line ending.
fn line_length(text: &str) -> usize {
    text.find('\n').map_or(text.len(), |end| end + 1)
}
