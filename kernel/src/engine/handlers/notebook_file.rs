//! The code in a file: the code cells of a notebook, or a whole file of Rust. Runs nothing.

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::fs;
use std::path::Path;

/// A piece of code, and its name in error messages.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::engine) struct Piece {
    pub(in crate::engine) name: String,
    pub(in crate::engine) source: String,
}

#[derive(Deserialize)]
struct Notebook {
    cells: Vec<Cell>,
    #[serde(default)]
    metadata: Metadata,
}

#[derive(Deserialize)]
struct Cell {
    cell_type: String,
    source: Source,
}

/// The source of a notebook's cell, which is one text or a list of lines.
#[derive(Deserialize)]
#[serde(untagged)]
enum Source {
    Text(String),
    Lines(Vec<String>),
}

#[derive(Default, Deserialize)]
struct Metadata {
    kernelspec: Option<Kernelspec>,
    language_info: Option<LanguageInfo>,
}

#[derive(Deserialize)]
struct Kernelspec {
    language: Option<String>,
}

#[derive(Deserialize)]
struct LanguageInfo {
    name: Option<String>,
}

pub(in crate::engine) fn is_notebook(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "ipynb")
}

/// The code of a file, in order.
///
/// # Errors
/// If the file cannot be read, or is a notebook in another language or format.
pub(in crate::engine) fn read(path: &Path) -> Result<Vec<Piece>> {
    let shown = path.display();
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {shown}"))?;
    if is_notebook(path) {
        cells(&text, &shown.to_string())
    } else {
        Ok(vec![Piece { name: shown.to_string(), source: text }])
    }
}

fn cells(text: &str, name: &str) -> Result<Vec<Piece>> {
    let notebook: Notebook =
        serde_json::from_str(text).with_context(|| format!("{name} is no notebook of format 4"))?;
    // Colab names the language only in `language_info`.
    let Metadata { kernelspec, language_info } = notebook.metadata;
    let language = kernelspec.and_then(|kernelspec| kernelspec.language);
    let language = language.or(language_info.and_then(|info| info.name));
    if let Some(language) = language.filter(|language| !language.eq_ignore_ascii_case("rust")) {
        bail!("{name} is a notebook in {language}, and only Rust can be run");
    }
    let code = notebook.cells.into_iter().zip(1..).filter(|(cell, _)| cell.cell_type == "code");
    let piece =
        |(cell, number): (Cell, usize)| Piece { name: format!("cell {number} of {name}"), source: cell.source.text() };
    Ok(code.map(piece).collect())
}

impl Source {
    fn text(self) -> String {
        match self {
            Self::Text(text) => text,
            Self::Lines(lines) => lines.concat(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_has_the_number_of_its_cell() {
        let text = r##"{"cells": [{"cell_type": "markdown", "source": "# Title"},
            {"cell_type": "code", "source": ["let a = 1;\n", "a"], "outputs": []},
            {"cell_type": "code", "source": "a + 1"}], "metadata": {"kernelspec": {"language": "rust"}}, "nbformat": 4}"##;
        let piece = |name: &str, source: &str| Piece { name: name.to_owned(), source: source.to_owned() };
        let expected = [piece("cell 2 of a.ipynb", "let a = 1;\na"), piece("cell 3 of a.ipynb", "a + 1")];
        assert_eq!(cells(text, "a.ipynb").unwrap(), expected);
    }

    #[test]
    fn what_is_no_notebook_of_rust_is_refused() {
        let error = |text| cells(text, "a.ipynb").unwrap_err().to_string();
        assert_eq!(error("{}"), "a.ipynb is no notebook of format 4");
        let colab =
            r#"{"cells": [], "metadata": {"kernelspec": {"name": "python3"}, "language_info": {"name": "python"}}}"#;
        assert_eq!(error(colab), "a.ipynb is a notebook in python, and only Rust can be run");
        let python = r#"{"cells": [], "metadata": {"kernelspec": {"language": "python"}}}"#;
        assert_eq!(error(python), "a.ipynb is a notebook in python, and only Rust can be run");
    }
}
