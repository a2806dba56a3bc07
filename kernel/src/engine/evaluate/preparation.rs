//! The preparation of a cell for evcxr: the user's lines, with insertions at places that evcxr treats differently from Rust.

use crate::engine::evaluate::commands;
use crate::engine::evaluate::implementations::{self, start};
use crate::engine::evaluate::insertions::{Insertions, Text};
use crate::engine::evaluate::sharing;
use crate::statements::{self, MAX_PARSED_BYTES, MAX_PARSED_DEPTH, Parsed};
use ferrotune_magics::{Ending, Split};
use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::{Item, ItemExternCrate, Stmt};

/// A prepared cell, ready to be compiled.
pub(in crate::engine) struct Prepared {
    pub(in crate::engine) source: String,
    pub(in crate::engine) insertions: Insertions,
    /// Whether `syn` has parsed the cell, or has not tried to parse it.
    pub(in crate::engine) is_rust: bool,
}

/// Prepares a cell. A `statement` of the engine is inserted before the cell's first token. `items` are the names of the notebook's
/// items.
pub(in crate::engine) fn prepare<'a>(
    cell: &str,
    split: &Split<'_>,
    statement: Option<String>,
    items: impl Iterator<Item = &'a str>,
) -> Prepared {
    let is_small = split.max_depth <= MAX_PARSED_DEPTH && cell.len() <= MAX_PARSED_BYTES;
    let (own, items) = (cell.to_owned(), items.map(str::to_owned).collect::<Vec<String>>());
    let (texts, is_rust) = match is_small && split.ending == Ending::Closed {
        true => statements::on_large_stack(move || texts(&own, statement, &items)).unwrap_or((Vec::new(), true)),
        false => (Vec::new(), true),
    };
    let (source, insertions) = Insertions::into(cell, texts);
    Prepared { source, insertions, is_rust }
}

/// The texts to insert, and whether the cell is Rust.
fn texts(cell: &str, statement: Option<String>, items: &[String]) -> (Vec<Text>, bool) {
    let Ok(tokens) = without_commands(cell).parse::<TokenStream>() else { return (Vec::new(), false) };
    let items = || items.iter().map(String::as_str);
    let first = tokens.clone().into_iter().next().map(|token| token.span().start());
    let mut texts: Vec<Text> = first.zip(statement).into_iter().collect();
    texts.extend(sharing::texts(tokens.clone(), items()));
    let Some(Parsed { statements, last }) = statements::parse(tokens) else { return (texts, false) };
    texts.extend(implementations::texts(&statements, items()));
    texts.extend(statements.iter().filter_map(crate_of_compiler).flatten());
    if let Some(Stmt::Item(_)) = statements.first() {
        texts.extend(documentation(cell));
    }
    if let Some([first, .., last]) = last.as_deref() {
        texts.push((first.span().start(), "(".to_owned()));
        texts.push((last.span().end(), ")".to_owned()));
    }
    (texts, true)
}

/// The texts that replace the `extern crate` of a compiler's own crate by a `use`: evcxr would search a registry for the crate.
fn crate_of_compiler(statement: &Stmt) -> Option<[Text; 2]> {
    let Stmt::Item(Item::ExternCrate(ItemExternCrate { attrs, vis, ident, rename, semi_token, .. })) = statement else {
        return None;
    };
    let path = match ident.to_string().as_str() {
        name @ ("alloc" | "proc_macro") => format!("::ferrotune::cell::sysroot::{name}"),
        name @ ("core" | "std") => format!("::{name}"),
        _ => return None,
    };
    if !attrs.is_empty() {
        return None;
    }
    let import = match rename {
        Some((_, name)) => format!("{} use {path} as {name}; ", vis.to_token_stream()),
        // `core` and `std` are in scope everywhere.
        None if ident == "core" || ident == "std" => String::new(),
        None => format!("{} use {path}; ", vis.to_token_stream()),
    };
    Some([(start(statement.to_token_stream())?, format!("{import}/*")), (semi_token.span.end(), "*/".to_owned())])
}

/// Blanks before the lines of the first item's documentation: above the first line of Rust, evcxr drops lines that begin with two
/// slashes.
fn documentation(cell: &str) -> Vec<Text> {
    let above: Vec<&str> = commands::above_rust(cell).map(|(_, line)| line).collect();
    let first = above.iter().rposition(|line| commands::is_command(line)).map_or(0, |at| at + 1);
    let documents = |line: &&str| line.starts_with("///") && !line.starts_with("////");
    let lines = above.iter().zip(1..).skip(first).filter(|(line, _)| documents(line));
    lines.map(|(_, line)| (proc_macro2::LineColumn { line, column: 0 }, " ".to_owned())).collect()
}

/// The source with blanks in place of evcxr's commands, which are not always Rust tokens.
fn without_commands(source: &str) -> String {
    let above = commands::above_rust(source).count();
    let lines = source.split('\n').enumerate().map(|(at, line)| match at < above {
        true if !line.starts_with("///") => line.chars().map(|_| ' ').collect(),
        _ => line.to_owned(),
    });
    lines.collect::<Vec<String>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(cell: &str, expected: &str) {
        let Prepared { source, insertions, .. } =
            prepare(cell, &ferrotune_magics::split(cell), None, std::iter::empty());
        assert_eq!(source, expected);
        assert_eq!(insertions.original_lines(&source), cell.lines().collect::<Vec<_>>());
    }

    #[test]
    fn a_last_expression_that_begins_with_a_block_is_put_into_parentheses() {
        check(
            ":dep it = '\nlet a = 1;\nunsafe { f() } as u8\n  == a // end",
            ":dep it = '\nlet a = 1;\n(unsafe { f() } as u8\n  == a) // end",
        );
        check("{ 4 }\n- 1", "{ 4 }\n- 1");
    }

    #[test]
    fn crates_of_the_compiler_are_imported() {
        check("extern crate alloc;", " use ::ferrotune::cell::sysroot::alloc; /*extern crate alloc;*/");
        check("pub extern crate std as own; f()", "pub use ::std as own; /*pub extern crate std as own;*/ f()");
        check("extern crate core;", "/*extern crate core;*/");
        check("extern crate itoa;", "extern crate itoa;");
    }

    #[test]
    fn documentation_of_the_first_item_stays() {
        check("// text\n/// Doc.\nstruct A;", "// text\n /// Doc.\nstruct A;");
        check("/// Doc.\n:vars\n////\nstruct A;", "/// Doc.\n:vars\n////\nstruct A;");
        check("/// The sum.\na.iter().sum()", "/// The sum.\na.iter().sum()");
    }

    #[test]
    fn a_statement_of_the_engine_comes_before_the_first_token() {
        let cell = ":dep it\n// text\nuse it::it; unsafe { f() } as u8";
        let statement = Some("begin(); ".to_owned());
        let Prepared { source, insertions, .. } =
            prepare(cell, &ferrotune_magics::split(cell), statement, std::iter::empty());
        assert_eq!(source, ":dep it\n// text\nbegin(); use it::it; (unsafe { f() } as u8)");
        assert_eq!(insertions.original_lines(&source), cell.lines().collect::<Vec<_>>());
    }

    #[test]
    fn what_is_not_rust_stays() {
        check("extern crate alloc; 1 +", "extern crate alloc; 1 +");
        check("foo(", "foo(");
    }
}
