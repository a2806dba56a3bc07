//! `let` statements whose types a later cell decides: `let mut map = BTreeMap::new();` alone. The statement has no effect, so it waits, and
//! is compiled with the first cell that uses its names.

use crate::engine::Engine;
use crate::engine::evaluate::evaluator::Evaluated;
use crate::engine::evaluate::insertions::Insertions;
use crate::engine::evaluate::preparation::{self, Prepared};
use crate::engine::evaluate::syntax;
use crate::failure::Failure;
use crate::statements;
use evcxr::{CompilationError, Error};
use ferrotune_magics::Split;
use proc_macro2::{LineColumn, Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Expr, Local, Pat, PatIdent, Stmt};

/// rustc's error codes for a type that nothing decides.
const OPEN_TYPE: [&str; 3] = ["E0282", "E0283", "E0284"];

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

/// The functions that replace the hook with which the prelude reports panics.
const HOOKS: [&str; 2] = ["set_hook", "take_hook"];

/// A `let` that waits for the cell that decides its type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::engine) struct Undecided {
    /// The names that the statement declares.
    pub(in crate::engine) names: Vec<String>,
    /// The statement, in one line.
    pub(in crate::engine) statement: String,
    /// The number that Jupyter shows beside its cell; none if Jupyter shows no number.
    pub(in crate::engine) cell: Option<u32>,
}

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
        let waiting = match &result {
            Err(Error::CompilationErrors(errors)) => self.evaluate_without(&prepared, errors),
            _ => None,
        };
        if let Some((waiting, evaluated)) = waiting {
            self.undo.now.decide(cell, &used);
            self.undo.now.undecided.extend(waiting);
            return Ok((prepared, Ok(evaluated)));
        }
        if result.is_ok() {
            self.undo.now.decide(cell, &used);
        }
        Ok((prepared, result))
    }

    /// Evaluates a cell without its statements whose types are open. rustc names one such statement after the other.
    fn evaluate_without(
        &mut self,
        prepared: &Prepared,
        errors: &[CompilationError],
    ) -> Option<(Vec<Undecided>, Evaluated)> {
        let (mut waiting, mut rest) = set_aside(&prepared.source, errors, &prepared.insertions, self.notebook.count)?;
        loop {
            // An empty cell would not be one that `%undo` undoes.
            let is_empty = rest.parse::<TokenStream>().is_ok_and(|tokens| tokens.is_empty());
            match self.evaluate(if is_empty { "();" } else { &rest }) {
                Ok(evaluated) => return Some((waiting, evaluated)),
                Err(Error::CompilationErrors(errors)) => {
                    let (more, smaller) = set_aside(&rest, &errors, &prepared.insertions, self.notebook.count)?;
                    waiting.extend(more);
                    rest = smaller;
                }
                Err(_) => return None,
            }
        }
    }

    fn attempt(
        &mut self,
        cell: &str,
        split: &Split<'_>,
        used: &[Undecided],
    ) -> Result<(Prepared, Result<Evaluated, Error>), Failure> {
        let statements: String = used.iter().map(|undecided| format!("{} ", undecided.statement)).collect();
        let hook = if self.notebook.changes_hook { "();::ferrotune::cell::report_panics(); " } else { "" };
        let statements = statements + hook + self.notebook.recording.as_deref().unwrap_or_default();
        let statement = Some(statements).filter(|statements| !statements.is_empty());
        let prepared = preparation::prepare(cell, split, statement, self.evaluator.item_names().into_iter());
        if !prepared.is_rust {
            syntax::check_operands(cell)?;
        }
        self.link.will_run(self.notebook.count, cell, &prepared.source);
        let result = self.evaluate(&prepared.source);
        if !matches!(result, Err(Error::CompilationErrors(_))) {
            self.notebook.changes_hook = HOOKS.iter().any(|function| cell.contains(function));
        }
        Ok((prepared, result))
    }
}

/// Whether the type of something in the cell is open.
fn is_open(errors: &[CompilationError]) -> bool {
    errors.iter().filter_map(CompilationError::code).any(|code| OPEN_TYPE.contains(&code))
}

/// The statements of the cell that can wait, if these errors are about their types alone; and the cell without them.
fn set_aside(
    source: &str,
    errors: &[CompilationError],
    insertions: &Insertions,
    cell: Option<u32>,
) -> Option<(Vec<Undecided>, String)> {
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
    let statements = statements::parse(source.parse().ok()?)?.statements;
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
        let names = names(&local.pat);
        let others = statements.iter().enumerate().filter(|(other, _)| *other != at);
        let is_used = others.map(|(_, other)| other.to_token_stream()).any(|tokens| mentions(tokens, &names));
        if names.is_empty() || is_used || !is_without_effect(local) {
            return None;
        }
        waiting.push(Undecided { names, statement: text(source, span, insertions)?, cell });
        blank(&mut rest, span);
        has_place.iter_mut().zip(about).for_each(|(has, about)| *has |= about);
    }
    has_place.iter().all(|has| *has).then(|| (waiting, rest.join("\n")))
}

/// The waiting statements whose names a cell uses outside of its items.
fn used_by(source: &str, waiting: &[Undecided]) -> Vec<Undecided> {
    let Ok(tokens) = source.parse::<TokenStream>() else { return Vec::new() };
    let Some(parsed) = statements::parse(tokens) else { return Vec::new() };
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

fn names(pattern: &Pat) -> Vec<String> {
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

/// Whether tokens have one of the names, also in a text that may be a format string.
fn mentions(tokens: TokenStream, names: &[String]) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(word) => names.iter().any(|name| word == name),
        TokenTree::Literal(literal) => {
            let text = literal.to_string();
            let inside = text.split('{').skip(1).map(|rest| rest.split(['}', ':', '.']).next().unwrap_or_default());
            inside.into_iter().any(|word| names.iter().any(|name| name == word))
        }
        TokenTree::Group(group) => mentions(group.stream(), names),
        TokenTree::Punct(_) => false,
    })
}

/// The user's text of a statement, in one line; none if it has a comment that reaches to a line's end.
fn text(source: &str, span: Span, insertions: &Insertions) -> Option<String> {
    let (start, end) = (span.start(), span.end());
    let lines = source.split('\n').zip(1..).filter(|(_, number)| (start.line..=end.line).contains(number));
    let lines: Vec<String> = lines
        .map(|(line, number)| {
            let first = if number == start.line { start.column } else { 0 };
            let last = if number == end.line { end.column } else { line.chars().count() };
            line.chars().skip(first).take(last - first).collect()
        })
        .collect();
    (!insertions.are_between(start, end) && !lines.iter().any(|line| line.contains("//"))).then(|| lines.join(" "))
}

/// Puts blanks in place of a statement.
fn blank(lines: &mut [String], span: Span) {
    let (start, end) = (span.start(), span.end());
    for (line, number) in lines.iter_mut().zip(1..).filter(|(_, number)| (start.line..=end.line).contains(number)) {
        let first = if number == start.line { start.column } else { 0 };
        let last = if number == end.line { end.column } else { usize::MAX };
        *line = line.chars().zip(0..).map(|(c, at)| if (first..last).contains(&at) { ' ' } else { c }).collect();
    }
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
    fn a_cell_uses_names_outside_of_its_items() {
        let waiting = |names: &[&str]| Undecided {
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            statement: String::new(),
            cell: None,
        };
        let used = |cell: &str| used_by(cell, &[waiting(&["a", "b"]), waiting(&["c"])]).len();
        assert_eq!(["b.push(1)", "println!(\"{c:?} {a}\");", "fn a() { c(); }", "{ 4 } + c"].map(used), [1, 2, 0, 1]);
        assert_eq!(["d + 1", "\"a\"", "let a = ("].map(used), [0; 3]);
    }

    #[test]
    fn a_statement_of_several_lines_waits_in_one() {
        let source = "let n = 1;\nlet a =\n    Vec::new(); n";
        let statements = statements::parse(source.parse().unwrap()).unwrap().statements;
        let span = statements[1].span();
        assert_eq!(text(source, span, &Insertions::default()).as_deref(), Some("let a =     Vec::new();"));
        let mut lines: Vec<String> = source.split('\n').map(str::to_owned).collect();
        blank(&mut lines, span);
        assert_eq!(lines, ["let n = 1;", "       ", "                n"]);
    }
}
