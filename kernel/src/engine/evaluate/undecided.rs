//! `let` statements whose types a later cell decides: `let mut map = BTreeMap::new();` alone. The statement has no effect, so it waits, and
//! is compiled with the first cell that uses its names. `let n = 5;` alone is an `i32` until a cell needs another type: the statement is
//! compiled again with that cell.

use crate::engine::Engine;
use crate::engine::evaluate::asking;
use crate::engine::evaluate::commands;
use crate::engine::evaluate::evaluator::Evaluated;
use crate::engine::evaluate::evaluator_state::Undecided;
use crate::engine::evaluate::insertions::Insertions;
use crate::engine::evaluate::preparation::Prepared;
use crate::failure::Failure;
use crate::statements::{self, Parsed};
use evcxr::{CompilationError, Error};
use ferrotune_magics::Split;
use proc_macro2::{LineColumn, Span, TokenStream, TokenTree};
use quote::ToTokens;
use std::ops::Range;
use syn::spanned::Spanned;
use syn::{Expr, Lit, Local, Pat, Stmt};

/// rustc's error codes for a type that nothing decides.
const OPEN_TYPE: [&str; 3] = ["E0282", "E0283", "E0284"];

/// rustc's error codes for a type that is not the expected one, or that lacks what is needed.
const OTHER_TYPE: [&str; 5] = ["E0271", "E0277", "E0308", "E0599", "E0631"];

/// The functions and methods, of any type, that only make a value.
const MAKERS: [&str; 17] = [
    "bounded",
    "channel",
    "dangling",
    "default",
    "empty",
    "from",
    "into",
    "new",
    "null",
    "null_mut",
    "parse",
    "sync_channel",
    "to_owned",
    "unbounded",
    "uninit",
    "unwrap",
    "with_capacity",
];

/// The variants that hold a value.
const VARIANTS: [&str; 3] = ["Err", "Ok", "Some"];

impl Engine {
    /// Evaluates a cell together with the waiting statements that it uses. Statements of the cell whose types are open begin to wait.
    pub(in crate::engine) fn evaluate_deciding(
        &mut self,
        cell: &str,
        split: &Split<'_>,
    ) -> Result<(Prepared, Result<Evaluated, Error>), Failure> {
        let mut used = used_by(cell, &self.undo.now.undecided);
        let (mut prepared, mut result) = self.attempt(cell, split, &used)?;
        if !used.is_empty() && matches!(&result, Err(Error::CompilationErrors(errors)) if is_open(errors)) {
            // The cell may use another variable with this name, such as its own.
            let (alone, evaluated) = self.attempt(cell, split, &[])?;
            if evaluated.is_ok() {
                (prepared, result) = (alone, evaluated);
                used.clear();
            }
        }
        let assumed = used_by(cell, &self.undo.now.assumed);
        if !assumed.is_empty() && matches!(&result, Err(Error::CompilationErrors(errors)) if are_about_types(errors)) {
            let all = [used.clone(), assumed.clone()].concat();
            let (again, evaluated) = self.attempt(cell, split, &all)?;
            if evaluated.is_ok() {
                (prepared, result, used) = (again, evaluated, all);
            }
        }
        if matches!(&result, Err(Error::CompilationErrors(errors)) if is_open(errors))
            && let Some(typed) = asking::with_some_types(cell, &used).filter(|typed| !typed.is_empty())
        {
            let (asked, evaluated) = self.attempt(cell, split, &typed)?;
            if evaluated.is_ok() {
                (prepared, result) = (asked, evaluated);
                self.forget_silently(&used);
                used.clear();
            }
        }
        let mut waiting = Vec::new();
        if let Err(Error::CompilationErrors(errors)) = &result
            && let Some((open, evaluated)) = self.evaluate_without(&prepared, errors)
        {
            (waiting, result) = (open, Ok(evaluated));
        }
        let now = &mut self.undo.now;
        if !matches!(result, Err(Error::CompilationErrors(_))) {
            // What the cell may have changed is not made again.
            now.assumed.retain(|known| !assumed.contains(known) || never_changes(&known.statement));
        }
        if result.is_ok() {
            now.decide(cell, &used);
            now.undecided.extend(waiting);
            let mut new = with_assumed_types(&prepared.source, &prepared.insertions);
            new.retain(|new| new.names.iter().any(|name| now.has_assumed_numbers(name)));
            now.assumed.extend(new);
        }
        Ok((prepared, result))
    }

    /// Forgets the variables of statements that go on waiting.
    fn forget_silently(&mut self, waiting: &[Undecided]) {
        let is_waiting = |name: &String| waiting.iter().any(|undecided| undecided.names.contains(name));
        let kept = self.undo.now.variables().iter().filter(|variable| !is_waiting(&variable.name));
        self.set_variables(kept.cloned().collect());
    }

    /// Evaluates a cell without its statements whose types are open. rustc names one such statement after the other.
    fn evaluate_without(
        &mut self,
        prepared: &Prepared,
        errors: &[CompilationError],
    ) -> Option<(Vec<Undecided>, Evaluated)> {
        let (mut waiting, mut rest) = set_aside(&prepared.source, errors, &prepared.insertions)?;
        loop {
            // An empty cell would not be one that `%undo` undoes.
            let is_empty = rest.parse::<TokenStream>().is_ok_and(|tokens| tokens.is_empty());
            match self.evaluate(if is_empty { "();" } else { &rest }) {
                Ok(evaluated) => return Some((waiting, evaluated)),
                Err(Error::CompilationErrors(errors)) => {
                    let (more, smaller) = set_aside(&rest, &errors, &prepared.insertions)?;
                    waiting.extend(more);
                    rest = smaller;
                }
                Err(_) => return None,
            }
        }
    }
}

/// Whether the type of something in the cell is open.
fn is_open(errors: &[CompilationError]) -> bool {
    errors.iter().filter_map(CompilationError::code).any(|code| OPEN_TYPE.contains(&code))
}

/// Whether all errors are about types that are not the expected ones.
fn are_about_types(errors: &[CompilationError]) -> bool {
    let mut errors = errors.iter().filter(|error| error.level() == "error");
    errors.all(|error| error.code().is_some_and(|code| OTHER_TYPE.contains(&code) || OPEN_TYPE.contains(&code)))
}

/// The statements of the cell that only make values of numbers without a type.
fn with_assumed_types(source: &str, insertions: &Insertions) -> Vec<Undecided> {
    let Some(parsed) = parsed(source) else { return Vec::new() };
    let locals = parsed.statements.iter().filter_map(|statement| match statement {
        Stmt::Local(local) if !matches!(local.pat, Pat::Type(_)) && is_without_effect(local) => Some(local),
        _ => None,
    });
    let numbers =
        locals.filter(|local| local.init.as_ref().is_some_and(|init| has_open_number(init.expr.to_token_stream())));
    let statement = |local: &Local| text(source, local.span(), insertions);
    numbers
        .filter_map(|local| Some(Undecided { names: statements::names(&local.pat), statement: statement(local)? }))
        .collect()
}

fn has_open_number(tokens: TokenStream) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Literal(literal) => match Lit::new(literal) {
            Lit::Int(number) => number.suffix().is_empty(),
            Lit::Float(number) => number.suffix().is_empty(),
            _ => false,
        },
        TokenTree::Group(group) => has_open_number(group.stream()),
        TokenTree::Ident(_) | TokenTree::Punct(_) => false,
    })
}

/// Whether the values of a statement stay what they are, whatever cells do with them: those of literals that are not `mut`.
fn never_changes(statement: &str) -> bool {
    let parsed = statement.parse().ok().and_then(statements::parse);
    let Some(Stmt::Local(local)) = parsed.and_then(|mut parsed| parsed.statements.pop()) else { return false };
    let is_mutable = mentions(local.pat.to_token_stream(), &["mut".to_owned()]);
    !is_mutable && local.init.is_some_and(|init| is_of_literals(&init.expr))
}

fn is_of_literals(expression: &Expr) -> bool {
    match expression {
        Expr::Lit(_) => true,
        Expr::Array(array) => array.elems.iter().all(is_of_literals),
        Expr::Tuple(tuple) => tuple.elems.iter().all(is_of_literals),
        Expr::Repeat(repeat) => is_of_literals(&repeat.expr),
        Expr::Paren(inner) => is_of_literals(&inner.expr),
        Expr::Unary(inner) => is_of_literals(&inner.expr),
        Expr::Macro(call) => call.mac.path.is_ident("vec"),
        _ => false,
    }
}

/// The statements of the cell that can wait, if these errors are about their types alone; and the cell without them.
fn set_aside(source: &str, errors: &[CompilationError], insertions: &Insertions) -> Option<(Vec<Undecided>, String)> {
    let mut errors = errors.iter().filter(|error| error.level() == "error").peekable();
    errors.peek()?;
    let places: Vec<Vec<LineColumn>> = errors
        .map(|error| {
            let spans = error.spanned_messages().iter().filter_map(|message| message.span);
            let is_open = error.code().is_some_and(|code| OPEN_TYPE.contains(&code));
            let starts = spans.map(|span| LineColumn { line: span.start_line, column: span.start_column - 1 });
            is_open.then(|| starts.collect())
        })
        .collect::<Option<_>>()?;
    let statements = parsed(source)?.statements;
    let mut waiting = Vec::new();
    let mut rest: Vec<String> = source.split('\n').map(str::to_owned).collect();
    let mut has_place = vec![false; places.len()];
    for (at, statement) in statements.iter().enumerate() {
        let Stmt::Local(local) = statement else { continue };
        let span = statement.span();
        let is_within = |place: &LineColumn| (span.start()..span.end()).contains(place);
        let about: Vec<bool> = places.iter().map(|places| places.iter().any(is_within)).collect();
        if !about.contains(&true) {
            continue;
        }
        let names = statements::names(&local.pat);
        let others = statements.iter().enumerate().filter(|(other, _)| *other != at);
        let is_used = others.map(|(_, other)| other.to_token_stream()).any(|tokens| mentions(tokens, &names));
        if names.is_empty() || is_used || !is_without_effect(local) {
            return None;
        }
        waiting.push(Undecided { names, statement: text(source, span, insertions)? });
        blank(&mut rest, span);
        has_place.iter_mut().zip(about).for_each(|(has, about)| *has |= about);
    }
    has_place.iter().all(|has| *has).then(|| (waiting, rest.join("\n")))
}

/// The statements of a cell, which may have commands such as `:dep` above them.
fn parsed(source: &str) -> Option<Parsed> {
    statements::parse(commands::blanked(source).parse().ok()?)
}

/// The waiting statements whose names a cell uses outside of its items.
fn used_by(source: &str, waiting: &[Undecided]) -> Vec<Undecided> {
    let Some(parsed) = parsed(source) else { return Vec::new() };
    let outside = parsed.statements.iter().filter(|statement| !matches!(statement, Stmt::Item(_)));
    let mut tokens: TokenStream = outside.map(ToTokens::to_token_stream).collect();
    tokens.extend(parsed.last.into_iter().flatten());
    waiting.iter().filter(|undecided| mentions(tokens.clone(), &undecided.names)).cloned().collect()
}

/// Whether a statement only makes a value out of literals and other such values.
fn is_without_effect(local: &Local) -> bool {
    local.attrs.is_empty() && local.init.as_ref().is_none_or(|init| init.diverge.is_none() && only_makes(&init.expr))
}

fn only_makes(expression: &Expr) -> bool {
    match expression {
        Expr::Lit(_) | Expr::Closure(_) => true,
        Expr::Path(path) => {
            let last = path.path.segments.last().map(|segment| segment.ident.to_string());
            // A variable begins with a small letter.
            last.is_some_and(|name| name.starts_with(char::is_uppercase))
        }
        Expr::Array(array) => array.elems.iter().all(only_makes),
        Expr::Tuple(tuple) => tuple.elems.iter().all(only_makes),
        Expr::Repeat(repeat) => [&*repeat.expr, &*repeat.len].into_iter().all(only_makes),
        Expr::Paren(inner) => only_makes(&inner.expr),
        Expr::Unary(inner) => matches!(inner.op, syn::UnOp::Neg(_)) && only_makes(&inner.expr),
        Expr::Call(call) => {
            let Expr::Path(function) = &*call.func else { return false };
            let last = function.path.segments.last().map(|segment| segment.ident.to_string()).unwrap_or_default();
            let makes = MAKERS.contains(&last.as_str()) || VARIANTS.contains(&last.as_str());
            makes && call.args.iter().all(only_makes)
        }
        Expr::MethodCall(call) => {
            MAKERS.contains(&call.method.to_string().as_str())
                && only_makes(&call.receiver)
                && call.args.iter().all(only_makes)
        }
        Expr::Macro(call) => call.mac.path.is_ident("vec") && call.mac.tokens.clone().into_iter().all(is_literal),
        _ => false,
    }
}

fn is_literal(token: TokenTree) -> bool {
    match token {
        TokenTree::Literal(_) | TokenTree::Punct(_) => true,
        TokenTree::Ident(word) => word.to_string().starts_with(char::is_uppercase),
        TokenTree::Group(group) => group.stream().into_iter().all(is_literal),
    }
}

/// Whether tokens have one of the names, also in a text that may be a format string.
fn mentions(tokens: TokenStream, names: &[String]) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(word) => names.iter().any(|name| word == name),
        TokenTree::Literal(literal) => {
            statements::names_in_format(&literal.to_string()).any(|word| names.iter().any(|name| name == word))
        }
        TokenTree::Group(group) => mentions(group.stream(), names),
        TokenTree::Punct(_) => false,
    })
}

/// The user's text of a statement, in one line; none if it has a comment that reaches to a line's end.
fn text(source: &str, span: Span, insertions: &Insertions) -> Option<String> {
    let lines = (1..).zip(source.split('\n'));
    let part = |columns: Range<usize>, line: &str| line.chars().skip(columns.start).take(columns.len()).collect();
    let parts: Vec<String> = lines.filter_map(|(number, line)| Some(part(columns(span, number)?, line))).collect();
    let is_own = !insertions.are_between(span.start(), span.end());
    (is_own && !parts.iter().any(|part| part.contains("//"))).then(|| parts.join(" "))
}

/// Puts blanks in place of a statement.
fn blank(lines: &mut [String], span: Span) {
    for (number, line) in (1..).zip(lines) {
        let Some(columns) = columns(span, number) else { continue };
        *line = line.chars().zip(0..).map(|(c, at)| if columns.contains(&at) { ' ' } else { c }).collect();
    }
}

/// The columns of a line that a span has, up to any end if the span goes on below; none if it has none of the line.
fn columns(span: Span, line: usize) -> Option<Range<usize>> {
    let (start, end) = (span.start(), span.end());
    let first = if line == start.line { start.column } else { 0 };
    let last = if line == end.line { end.column } else { usize::MAX };
    (start.line..=end.line).contains(&line).then_some(first..last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn local(statement: &str) -> Local {
        match statements::parse(statement.parse().unwrap()).unwrap().statements.remove(0) {
            Stmt::Local(local) => local,
            _ => panic!("{statement} is no let"),
        }
    }

    #[test]
    fn only_statements_without_effect_wait() {
        for statement in [
            "let a;",
            "let a = None;",
            "let mut a = std::collections::BTreeMap::new();",
            "let (a, b) = sync_channel(1);",
            "let a = vec![None, Some(-1)];",
            "let a = RefCell::new(vec![]);",
            "let a = \"5\".parse().unwrap();",
            "let a = |x| x;",
            "let a = [Default::default(); 3];",
        ] {
            assert!(is_without_effect(&local(statement)), "{statement}");
        }
        for statement in [
            "let a = b;",
            "let a = f();",
            "let a = b.into();",
            "let a = vec![f()];",
            "let a = std::fs::read(\"x\").into();",
            "let Some(a) = None else { return };",
            "let a = { Vec::new() };",
        ] {
            assert!(!is_without_effect(&local(statement)), "{statement}");
        }
    }

    #[test]
    fn numbers_without_a_type_may_get_another_one() {
        let source = "let a = 5; let b = 5u8; let c: i64 = 5; let d = vec![1.5]; let e = f(5); let (g, h) = (1, 2u8); let i = \"5\";";
        let names = with_assumed_types(source, &Insertions::default()).into_iter().flat_map(|assumed| assumed.names);
        assert_eq!(names.collect::<Vec<_>>(), ["a", "d", "g", "h"]);
        for statement in ["let a = 5;", "let (a, b) = (-1, [2.0; 3]);", "let a = vec![1, 2];"] {
            assert!(never_changes(statement), "{statement}");
        }
        for statement in ["let mut a = 5;", "let (a, mut b) = (1, 2);", "let a = Cell::new(5);"] {
            assert!(!never_changes(statement), "{statement}");
        }
    }

    #[test]
    fn a_cell_uses_names_outside_of_its_items() {
        let waiting = |names: &[&str]| Undecided {
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            statement: String::new(),
        };
        let used = |cell: &str| used_by(cell, &[waiting(&["a", "b"]), waiting(&["c"])]).len();
        assert_eq!(["b.push(1)", "println!(\"{c:?} {a}\");", "fn a() { c(); }", "{ 4 } + c"].map(used), [1, 2, 0, 1]);
        assert_eq!(["d + 1", "\"a\"", "let a = ("].map(used), [0; 3]);
    }

    #[test]
    fn a_statement_of_several_lines_waits_in_one() {
        let source = "let n = 1;\nlet a =\n    Vec::new(); n";
        let span = parsed(source).unwrap().statements[1].span();
        assert_eq!(text(source, span, &Insertions::default()).as_deref(), Some("let a =     Vec::new();"));
        let mut lines: Vec<String> = source.split('\n').map(str::to_owned).collect();
        blank(&mut lines, span);
        assert_eq!(lines, ["let n = 1;", "       ", "                n"]);
    }
}
