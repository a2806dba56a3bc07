//! Rewrites the source that evcxr generates for a cell. evcxr writes the store of variables into every cell; here it comes
//! from the prelude, where it is compiled already. The store also gets a fingerprint of each variable's type.
//!
//! Never moves a line, so that evcxr still finds the user's.

use super::definitions::Definitions;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

/// First line of the module that evcxr writes.
const MODULE: &str = "mod evcxr_internal_runtime {";
/// First line of the last function in it.
const LAST_FUNCTION: &str = "pub fn create_variable_store()";

/// Rewrites the file. A source in an unexpected form stays as it is: it compiles more slowly, and only the compiler
/// distinguishes a redefined type from the old one.
pub(super) fn prepare(path: &Path, libraries: &[(String, PathBuf)]) -> Result<()> {
    let source = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let Some(source) = with_store_of_prelude(&source) else { return Ok(()) };
    // rustc reports the error of a source that cannot be parsed.
    let source = with_fingerprints(&source, libraries).unwrap_or(source);
    std::fs::write(path, source).with_context(|| format!("cannot write {}", path.display()))
}

fn with_store_of_prelude(source: &str) -> Option<String> {
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

/// Adds the fingerprint of a variable's type to each line that checks or stores the variable.
fn with_fingerprints(source: &str, libraries: &[(String, PathBuf)]) -> syn::Result<String> {
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

/// A generated line that checks or stores a variable.
struct Statement<'a> {
    call: &'a str,
    type_name: &'a str,
    name: &'a str,
    /// The rest of the line after the variable's name.
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
        assert_eq!(with_store_of_prelude(source).as_deref(), Some(expected));
        assert_eq!(with_store_of_prelude("fn user() {}\n"), None);
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
        assert_eq!(with_fingerprints(source, &[]).unwrap(), expected.replace("PRINT", &format!("{print:#x}")));
    }
}
