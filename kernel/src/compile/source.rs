//! Prepares the source that evcxr generates for a cell: the store of variables, which evcxr writes out anew in every
//! cell, comes from the prelude, where it is compiled already, and is told what each variable's type rests on.
//!
//! Never moves a line, so that evcxr still finds the user's.

use super::definitions::Definitions;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

/// First line of the module that evcxr writes.
const MODULE: &str = "mod evcxr_internal_runtime {";
/// First line of the last function in it.
const LAST_FUNCTION: &str = "pub fn create_variable_store()";

/// Rewrites the file. What is not as expected stays as it is: it is slower to compile, and a type that is defined anew
/// is told from the old one by the compiler alone.
pub(super) fn prepare(path: &Path, libraries: &[(String, PathBuf)]) -> Result<()> {
    let source = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let Some(source) = lightened(&source) else { return Ok(()) };
    // A source that cannot be parsed is rustc's to refuse.
    let source = fingerprinted(&source, libraries).unwrap_or(source);
    std::fs::write(path, source).with_context(|| format!("cannot write {}", path.display()))
}

fn lightened(source: &str) -> Option<String> {
    let mut lines: Vec<&str> = source.lines().collect();
    let start = lines.iter().position(|line| *line == MODULE)?;
    let last = start + lines[start..].iter().position(|line| line.starts_with(LAST_FUNCTION))?;
    let end = last + lines[last..].windows(2).position(|pair| pair == ["}", "}"])?;
    lines[start + 1] = "pub use ::ferrotune::cell::store::*;";
    for line in &mut lines[start + 2..=end] {
        *line = "";
    }
    let mut source = lines.join("\n");
    source.push('\n');
    Some(source)
}

/// With the fingerprint of a variable's type wherever the variable is checked or stored.
fn fingerprinted(source: &str, libraries: &[(String, PathBuf)]) -> syn::Result<String> {
    let definitions = Definitions::parse(source, libraries)?;
    let mut lines = Vec::new();
    for line in source.lines() {
        let line = match statement(line) {
            Some(Statement { call, type_name, name, rest }) => match definitions.fingerprint(type_name)? {
                Some(print) => format!("{call}_as::<{type_name}>(stringify!({name}), {print:#x}{rest}"),
                None => line.to_owned(),
            },
            None => line.to_owned(),
        };
        lines.push(line + "\n");
    }
    Ok(lines.concat())
}

/// A line of evcxr's that checks or stores a variable.
struct Statement<'a> {
    call: &'a str,
    type_name: &'a str,
    name: &'a str,
    /// What follows the variable's name.
    rest: &'a str,
}

fn statement(line: &str) -> Option<Statement<'_>> {
    let (call, rest) = line.split_once("::<")?;
    if !matches!(call, "vars_ok &= evcxr_variable_store.check_variable" | "evcxr_variable_store.put_variable") {
        return None;
    }
    let (type_name, rest) = rest.rsplit_once(">(stringify!(")?;
    let (name, rest) = rest.split_once(')')?;
    Some(Statement { call, type_name, name, rest })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_store_comes_from_the_prelude_and_no_line_moves() {
        let source = "fn a() {}\nmod evcxr_internal_runtime {\n// text\npub struct X;\npub fn create_variable_store() -> *mut X {\n    todo\n}\n}\nfn user() {}\n";
        let expected =
            "fn a() {}\nmod evcxr_internal_runtime {\npub use ::ferrotune::cell::store::*;\n\n\n\n\n}\nfn user() {}\n";
        assert_eq!(lightened(source).as_deref(), Some(expected));
        assert_eq!(lightened("fn user() {}\n"), None);
    }

    #[test]
    fn variables_of_the_users_types_are_checked_and_stored_with_a_fingerprint() {
        let source = "struct P(Vec<u8>);
fn run() {
vars_ok &= evcxr_variable_store.check_variable::<Vec<P>>(stringify!(p));
vars_ok &= evcxr_variable_store.check_variable::<Vec<f32>>(stringify!(q));
let p = evcxr_variable_store.take_variable::<Vec<P>>(stringify!(p));
evcxr_variable_store.put_variable::<Vec<P>>(stringify!(p), p);
}
";
        let expected = "struct P(Vec<u8>);
fn run() {
vars_ok &= evcxr_variable_store.check_variable_as::<Vec<P>>(stringify!(p), PRINT);
vars_ok &= evcxr_variable_store.check_variable::<Vec<f32>>(stringify!(q));
let p = evcxr_variable_store.take_variable::<Vec<P>>(stringify!(p));
evcxr_variable_store.put_variable_as::<Vec<P>>(stringify!(p), PRINT, p);
}
";
        let print = Definitions::parse(source, &[]).unwrap().fingerprint("Vec<P>").unwrap().unwrap();
        assert_eq!(fingerprinted(source, &[]).unwrap(), expected.replace("PRINT", &format!("{print:#x}")));
    }
}
