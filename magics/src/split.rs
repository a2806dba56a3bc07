//! The splitter of a cell into Rust and the lines that are not Rust: magics, shell commands and evcxr's commands. It uses the tokens
//! of rustc's lexer.
//!
//! A line that is not Rust begins where a statement may begin. Anywhere else a `%` is Rust's remainder operator or text, and a `!`
//! is the negation of a value. A statement that begins with a negation needs brackets, as in `(!found)`.

mod statement;

use ra_ap_rustc_lexer::{Cursor, FrontmatterAllowed, LiteralKind, TokenKind};
use statement::Statement;

/// A cell that is split into parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split<'a> {
    /// The parts, in order; all parts together are the cell.
    pub parts: Vec<Part<'a>>,
    /// How the Rust of the cell ends.
    pub ending: Ending,
    /// The largest number of brackets that are open at once.
    pub max_depth: usize,
}

/// A part of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part<'a> {
    /// The kind of the part.
    pub kind: PartKind,
    /// The text of the part: whole lines, with their line endings.
    pub text: &'a str,
    /// The 1-based line of the cell on which the part begins.
    pub first_line: usize,
}

impl Part<'_> {
    /// Whether the part is a shell command whose last line ends with `\`.
    pub fn goes_on(&self) -> bool {
        self.kind == PartKind::Shell && ends_with_backslash(self.text)
    }
}

/// The kind of a part of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartKind {
    /// Lines of Rust.
    Rust,
    /// Lines with nothing but blanks and comments.
    Blank,
    /// One line that begins with `%` or `?%`.
    Magic,
    /// One line that begins with `!`, and the lines that a `\` at a line's end joins to it.
    Shell,
    /// One line that begins with `:dep`, `:vars` and so on; `::path` is Rust.
    Command,
}

/// How the Rust of a cell ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// All brackets are closed.
    Closed,
    /// Some brackets are open.
    Open {
        /// The number of open brackets, at least 1.
        depth: usize,
        /// The place of the innermost open bracket, in bytes from the start of the cell.
        at: usize,
    },
    /// The cell ends within a string or a block comment.
    InLiteral {
        /// The start of the string or comment, in bytes from the start of the cell.
        at: usize,
    },
    /// A closing bracket does not match the open bracket, or no bracket is open.
    Mismatch {
        /// The place of the first such closing bracket, in bytes from the start of the cell.
        at: usize,
    },
}

/// Splits a cell. The line of a cell magic is split like a line magic with Rust below it: see [`cell_magic`].
pub fn split(cell: &str) -> Split<'_> {
    let mut splitter = Splitter { cell, ..Splitter::default() };
    while splitter.at < cell.len() {
        splitter.step();
    }
    splitter.finish()
}

/// The first line that is not blank, if that line begins with `%%`, and the text below that line.
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
    /// The start of the lines that are in no part yet.
    part_start: usize,
    part_has_tokens: bool,
    statement: Statement,
    /// The open brackets, with their places.
    brackets: Vec<(char, usize)>,
    max_depth: usize,
    /// The start of the last token, if that token is an unclosed literal or comment.
    open_literal: Option<usize>,
    mismatch: Option<usize>,
}

impl<'a> Splitter<'a> {
    /// Reads one token, or one line that is not Rust.
    fn step(&mut self) {
        let rest = &self.cell[self.at..];
        let token = Cursor::new(rest, FrontmatterAllowed::No).advance_token();
        // rustc reads `#"` and `##` as one token, since Rust 2024 reserves them; here each `#` is a separate token.
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

    /// The start and the kind of the line, if the next token is the first token of a line that is not Rust.
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
        let text = &self.cell[line_start..];
        let length = if kind == PartKind::Shell { joined_length(text) } else { line_length(text) };
        let line_end = line_start + length;
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

/// The kind of a line that begins where a statement may begin; none if the line is Rust.
fn kind_of_line(line: &str) -> Option<PartKind> {
    if line.strip_prefix('?').unwrap_or(line).starts_with('%') {
        return Some(PartKind::Magic);
    }
    if line.starts_with('!') {
        return Some(PartKind::Shell);
    }
    let is_command = line.strip_prefix(':').is_some_and(|name| name.starts_with(char::is_alphabetic));
    is_command.then_some(PartKind::Command)
}

/// Whether the token is a blank or a comment. A copied text may have blanks that rustc does not know as blanks.
fn is_blank(kind: TokenKind, text: &str) -> bool {
    match kind {
        TokenKind::Whitespace | TokenKind::LineComment { .. } | TokenKind::BlockComment { .. } => true,
        TokenKind::Unknown => text.trim().is_empty(),
        _ => false,
    }
}

/// Whether the token is an unclosed string or comment, which later lines may close. A character literal never spans lines.
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

/// The length of the first line, with its line ending.
fn line_length(text: &str) -> usize {
    text.find('\n').map_or(text.len(), |end| end + 1)
}

/// The length of the first line, with the lines that a `\` at a line's end joins to it.
fn joined_length(text: &str) -> usize {
    let mut length = 0;
    for line in text.split_inclusive('\n') {
        length += line.len();
        if !ends_with_backslash(line) {
            break;
        }
    }
    length
}

fn ends_with_backslash(line: &str) -> bool {
    line.trim_end_matches(['\r', '\n']).ends_with('\\')
}
