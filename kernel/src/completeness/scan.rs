//! A look at the characters of a cell: brackets, comments, literals and lines that are not Rust. Nothing is parsed.

/// How a cell ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// All brackets are closed.
    Balanced,
    /// This many brackets are open.
    Open { depth: usize },
    /// Within a string or a block comment.
    InLiteral,
    /// A bracket closes what no bracket opened.
    Mismatch,
}

#[derive(Debug)]
pub(super) struct Scanned {
    pub(super) ending: Ending,
    pub(super) max_depth: usize,
    /// The cell with magics and commands left blank.
    pub(super) rust: String,
}

pub(super) fn scan(code: &str) -> Scanned {
    let mut scanner =
        Scanner { code, at: 0, open: Vec::new(), max_depth: 0, statement_may_start: true, rust: String::new() };
    let ending = scanner.run();
    Scanned { ending, max_depth: scanner.max_depth, rust: scanner.rust }
}

struct Scanner<'a> {
    code: &'a str,
    at: usize,
    open: Vec<char>,
    max_depth: usize,
    statement_may_start: bool,
    rust: String,
}

impl Scanner<'_> {
    fn run(&mut self) -> Ending {
        let mut line_starts = true;
        while let Some(next) = self.rest().chars().next() {
            if line_starts && self.skip_command() {
                continue;
            }
            line_starts = next == '\n';
            let length = match self.literal_length(next) {
                Some(Some(length)) => length,
                Some(None) => return Ending::InLiteral,
                None => {
                    if !self.bracket(next) {
                        return Ending::Mismatch;
                    }
                    self.note(next);
                    next.len_utf8()
                }
            };
            self.take(length);
        }
        if self.open.is_empty() { Ending::Balanced } else { Ending::Open { depth: self.open.len() } }
    }

    fn rest(&self) -> &str {
        &self.code[self.at..]
    }

    fn take(&mut self, length: usize) {
        self.rust.push_str(&self.code[self.at..self.at + length]);
        self.at += length;
    }

    /// Passes over `%magic`, `!command` and `:command` lines, which stand where a statement may start. `a\n % b` is
    /// arithmetic.
    fn skip_command(&mut self) -> bool {
        let line = self.rest().lines().next().unwrap_or_default();
        let mut start = line.trim_start().chars();
        let is_command = matches!(start.next(), Some('%' | ':')) && start.next().is_some_and(char::is_alphabetic);
        let skip = is_command && self.open.is_empty() && self.statement_may_start;
        if skip {
            self.at += line.len();
        }
        skip
    }

    fn note(&mut self, next: char) {
        if !next.is_whitespace() {
            self.statement_may_start = matches!(next, ';' | '}');
        }
    }

    /// Whether the brackets still fit each other after `next`.
    fn bracket(&mut self, next: char) -> bool {
        match next {
            '(' | '[' | '{' => {
                self.open.push(next);
                self.max_depth = self.max_depth.max(self.open.len());
                true
            }
            ')' => self.open.pop() == Some('('),
            ']' => self.open.pop() == Some('['),
            '}' => self.open.pop() == Some('{'),
            _ => true,
        }
    }

    /// The length of the comment, literal or word that starts here; `Some(None)` if it does not end.
    fn literal_length(&mut self, next: char) -> Option<Option<usize>> {
        let rest = &self.code[self.at..];
        let length = match next {
            '/' if rest.starts_with("//") => return Some(Some(rest.find('\n').unwrap_or(rest.len()))),
            '/' if rest.starts_with("/*") => return Some(block_comment(rest)),
            '"' => quoted(rest, 1),
            '\'' => return self.char_or_lifetime(),
            _ if next == '_' || next.is_alphanumeric() => {
                let word = rest.find(|c: char| c != '_' && !c.is_alphanumeric()).unwrap_or(rest.len());
                prefixed_string(rest, word).unwrap_or(Some(word))
            }
            _ => return None,
        };
        self.statement_may_start = false;
        Some(length)
    }

    fn char_or_lifetime(&mut self) -> Option<Option<usize>> {
        self.statement_may_start = false;
        let body = &self.rest()[1..];
        let first = body.chars().next()?;
        if first == '\\' {
            // An escape such as `'\''` or `'\u{1F600}'`; a char never spans lines.
            let line = body.lines().next().unwrap_or_default();
            let close = line.char_indices().skip(2).find(|(_, c)| *c == '\'');
            return Some(Some(close.map_or(2, |(at, _)| at + 2)));
        }
        let is_char = body[first.len_utf8()..].starts_with('\'');
        Some(Some(if is_char { first.len_utf8() + 2 } else { 1 }))
    }
}

/// From an opening quote at `skip - 1`; a backslash hides what follows it.
fn quoted(text: &str, skip: usize) -> Option<usize> {
    let mut hidden = false;
    for (at, c) in text[skip..].char_indices() {
        match c {
            _ if hidden => hidden = false,
            '\\' => hidden = true,
            '"' => return Some(skip + at + 1),
            _ => {}
        }
    }
    None
}

/// `r"…"`, `br#"…"#`, `c"…"` and the like, if the word of `word` bytes starts one; `Some(None)` if it does not end.
fn prefixed_string(text: &str, word: usize) -> Option<Option<usize>> {
    let after = &text[word..];
    match &text[..word] {
        "r" | "br" | "cr" => {
            let hashes = after.len() - after.trim_start_matches('#').len();
            let start = word + hashes + 1;
            after[hashes..].starts_with('"').then(|| {
                let close = format!("\"{}", "#".repeat(hashes));
                text[start..].find(&close).map(|at| start + at + close.len())
            })
        }
        "b" | "c" => after.starts_with('"').then(|| quoted(text, word + 1)),
        _ => None,
    }
}

/// Block comments nest.
fn block_comment(text: &str) -> Option<usize> {
    let (mut depth, mut at) = (0_usize, 0);
    while at < text.len() {
        let rest = &text.as_bytes()[at..];
        if rest.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return Some(at);
            }
        } else {
            at += 1;
        }
    }
    None
}
