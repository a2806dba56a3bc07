//! Lightens the source that evcxr generates for a cell: the store of variables, which evcxr writes out anew in every
//! cell, comes from the prelude, where it is compiled already.

use anyhow::{Context, Result};
use std::path::Path;

/// First line of the module that evcxr writes.
const MODULE: &str = "mod evcxr_internal_runtime {";
/// First line of the last function in it.
const LAST_FUNCTION: &str = "pub fn create_variable_store()";

/// Rewrites the file. What is not as expected stays as it is, and is merely slower to compile.
pub(super) fn lighten(path: &Path) -> Result<()> {
    let source = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    match lightened(&source) {
        Some(source) => std::fs::write(path, source).with_context(|| format!("cannot write {}", path.display())),
        None => Ok(()),
    }
}

/// The source with as many lines as before, so that evcxr still finds the user's.
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
}
