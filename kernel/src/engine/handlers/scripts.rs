//! `%run`, which runs the code of a file as if the code were in the cell.

use crate::engine::Engine;
use crate::engine::handlers::{files, notebook_file};
use crate::failure::{ErrorName, Failure};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

impl Engine {
    pub(in crate::engine) fn run_file(&mut self, path: &str) -> Result<(), Failure> {
        let file = files::expanded(path).map_err(Failure::of_magic)?;
        let whole = absolute(&file).map_err(Failure::of_magic)?;
        if self.notebook.running_files.contains(&whole) {
            return Err(Failure::new(ErrorName::MagicError, format!("{path} runs itself with %run")));
        }
        let pieces = notebook_file::read(&file).map_err(Failure::of_magic)?;
        self.notebook.running_files.push(whole);
        let result = pieces.into_iter().try_for_each(|piece| {
            let call = call_of_main(&file, &piece.source).unwrap_or_default();
            self.run_code(&format!("{}{call}", piece.source)).map_err(|failure| failure.within(&piece.name))
        });
        self.notebook.running_files.pop();
        result
    }
}

fn absolute(file: &Path) -> Result<PathBuf> {
    file.canonicalize().with_context(|| format!("cannot read {}", file.display()))
}

/// The call of `main` for a program in a file of Rust; none for a notebook or for a file without `main`.
fn call_of_main(path: &Path, source: &str) -> Option<&'static str> {
    if notebook_file::is_notebook(path) {
        return None;
    }
    // The compiler reports the error of a file that cannot be parsed.
    let file = syn::parse_file(source).ok()?;
    let main = file.items.iter().find_map(|item| match item {
        syn::Item::Fn(function) if function.sig.ident == "main" => Some(function),
        _ => None,
    })?;
    let is_result = |returned: &syn::Type| match returned {
        syn::Type::Path(path) => path.path.segments.last().is_some_and(|last| last.ident == "Result"),
        _ => false,
    };
    match &main.sig.output {
        syn::ReturnType::Type(_, returned) if is_result(returned) => Some("\nmain()?;"),
        // Any other return value is no error.
        syn::ReturnType::Type(..) => Some("\nlet _ = main();"),
        syn::ReturnType::Default => Some("\nmain();"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_called() {
        let call = |name, source| call_of_main(Path::new(name), source);
        assert_eq!(call("a.rs", "fn f() {}\nfn main() {}"), Some("\nmain();"));
        assert_eq!(call("a.rs", "fn main() -> Result<(), String> { Ok(()) }"), Some("\nmain()?;"));
        assert_eq!(call("a.rs", "fn main() -> anyhow::Result<()> { Ok(()) }"), Some("\nmain()?;"));
        assert_eq!(call("a.rs", "fn main() -> ExitCode { run() }"), Some("\nlet _ = main();"));
        assert_eq!(call("a.rs", "fn f() {}"), None);
        assert_eq!(call("a.ipynb", "fn main() {}"), None);
    }
}
