//! Parses the statements of a cell with a real parser of Rust. It does not check whether they compile.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::thread;
use syn::parse::{ParseStream, Parser};
use syn::visit::{self, Visit};
use syn::{Attribute, Block, Expr, Pat, PatIdent, Stmt};

/// The largest and the deepest cell that is parsed: the parser calls itself for each level.
pub(crate) const MAX_PARSED_BYTES: usize = 32 << 10;
pub(crate) const MAX_PARSED_DEPTH: usize = 128;
const PARSER_STACK_BYTES: usize = 256 << 20;

/// First words of expressions that end as statements with the end of their block.
const BLOCK_WORDS: [&str; 8] = ["async", "const", "for", "if", "loop", "match", "unsafe", "while"];

/// A cell that has been parsed.
pub(crate) struct Parsed {
    pub(crate) statements: Vec<Stmt>,
    /// The last expression, if it begins with a block and goes on behind the block: `unsafe { f() } as u8`, `{ 4 } + 1`. Rust reads
    /// such an expression as two statements unless it is in parentheses.
    pub(crate) last: Option<Vec<TokenTree>>,
}

/// Parses on a thread with a stack for deep expressions; none if that thread cannot run or has panicked.
pub(crate) fn on_large_stack<T: Send + 'static>(parse: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let thread = thread::Builder::new().name("parser".into()).stack_size(PARSER_STACK_BYTES).spawn(parse);
    match thread.map(thread::JoinHandle::join) {
        Ok(Ok(parsed)) => Some(parsed),
        Ok(Err(_)) | Err(_) => {
            tracing::warn!("the thread that parses a cell has failed");
            None
        }
    }
}

/// Parses the statements of a cell; none if the cell is not Rust.
pub(crate) fn parse(cell: TokenStream) -> Option<Parsed> {
    if let Ok(statements) = block.parse2(cell.clone()) {
        return Some(Parsed { statements, last: None });
    }
    let tokens: Vec<TokenTree> = cell.into_iter().collect();
    let starts = (0..tokens.len()).filter(|at| *at == 0 || ends_statement(&tokens[at - 1]));
    starts.filter(|at| begins_with_block(&tokens[*at..])).find_map(|at| {
        let (first, last) = tokens.split_at(at);
        syn::parse2::<Expr>(stream(last)).ok()?;
        let statements = block.parse2(stream(first)).ok()?;
        Some(Parsed { statements, last: Some(last.to_vec()) })
    })
}

/// The statements behind the attributes of the whole cell.
fn block(input: ParseStream<'_>) -> syn::Result<Vec<Stmt>> {
    input.call(Attribute::parse_inner)?;
    Block::parse_within(input)
}

/// The names that a pattern binds.
pub(crate) fn names(pattern: &Pat) -> Vec<String> {
    struct Names(Vec<String>);
    impl<'ast> Visit<'ast> for Names {
        fn visit_pat_ident(&mut self, pattern: &'ast PatIdent) {
            self.0.push(pattern.ident.to_string());
            visit::visit_pat_ident(self, pattern);
        }
    }
    let mut names = Names(Vec::new());
    names.visit_pat(pattern);
    names.0
}

/// The names in the `{name}` and `{name:…}` of a text that may be a format string.
pub(crate) fn names_in_format(literal: &str) -> impl Iterator<Item = &str> {
    literal.split('{').skip(1).filter_map(|piece| {
        let end = piece.find(|c: char| !c.is_alphanumeric() && c != '_')?;
        let (name, behind) = piece.split_at(end);
        (behind.starts_with(['}', ':']) && !name.is_empty()).then_some(name)
    })
}

fn stream(tokens: &[TokenTree]) -> TokenStream {
    tokens.iter().cloned().collect()
}

fn ends_statement(token: &TokenTree) -> bool {
    match token {
        TokenTree::Punct(mark) => mark.as_char() == ';',
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        _ => false,
    }
}

fn begins_with_block(tokens: &[TokenTree]) -> bool {
    match tokens {
        [TokenTree::Group(group), ..] => group.delimiter() == Delimiter::Brace,
        [TokenTree::Ident(word), ..] => BLOCK_WORDS.iter().any(|known| word == known),
        // The tokens of a label.
        [TokenTree::Punct(mark), TokenTree::Ident(_), TokenTree::Punct(colon), ..] => {
            mark.as_char() == '\'' && colon.as_char() == ':'
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last(cell: &str) -> Option<String> {
        parse(cell.parse().unwrap()).and_then(|parsed| parsed.last).map(|tokens| stream(&tokens).to_string())
    }

    #[test]
    fn an_expression_that_begins_with_a_block_is_the_last_one() {
        for (cell, expected) in [
            ("{ 4 } + 1", "{ 4 } + 1"),
            ("#![allow(dead_code)] f(); { 4 } + 1", "{ 4 } + 1"),
            ("f(); if a { 1 } else { 2 } as u8", "if a { 1 } else { 2 } as u8"),
            ("if a { 1 } unsafe { f() } == 3 && { 5 } == 5", "unsafe { f () } == 3 && { 5 } == 5"),
            ("'a: loop { break 'a 1 } + 7", "'a : loop { break 'a 1 } + 7"),
        ] {
            assert_eq!(last(cell).as_deref(), Some(expected), "{cell}");
        }
    }

    #[test]
    fn statements_stay_statements() {
        for cell in ["{ 4 } -1", "{ 4 }.pow(2)", "loop {} *x", "{ 4 } + 1;", "let a = 1", "1 +", "", "if a {} else {}"]
        {
            assert_eq!(last(cell), None, "{cell}");
        }
    }
}
