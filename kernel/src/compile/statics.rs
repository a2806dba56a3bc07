//! The statics of cells: the cell that defines one exports it, and later cells are linked with that cell's library.
//!
//! evcxr's source names the cell in the condition of each definition (`evcxr/src/statics.rs`). The libraries of such cells have a
//! second name in the folder of the running kernel. The loader knows a library by its file, and does not load it again.

use super::joined;
use crate::environment::runtime;
use anyhow::{Context, Result};
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The beginning of the function with the statements of a cell, up to the cell's number.
const STATEMENTS: &str = "fn run_user_code_";
/// The function of an objective.
const OBJECTIVE: &str = "fn ferrotune_objective(";
/// The condition that a cell defines a static, up to the cell's number.
const DEFINED: &str = "any(evcxr_cell = \"";

/// The folder, in that of the running kernel, with the libraries of cells that define statics.
const LIBRARIES: &str = "ferrotune-statics";

/// The statics of a cell's source.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Statics {
    /// The folder with the libraries.
    folder: PathBuf,
    /// The cell's number.
    cell: String,
    /// Whether the cell defines statics.
    defines: bool,
    /// The other cells that define statics of the source.
    others: BTreeSet<String>,
    /// Whether the cell is an objective, whose library a worker loads alone.
    is_objective: bool,
}

impl Statics {
    pub(super) fn of(source: &str) -> Result<Statics> {
        Ok(Statics::in_folder(source, runtime()?.join(LIBRARIES)))
    }

    fn in_folder(source: &str, folder: PathBuf) -> Statics {
        let number =
            |rest: &str| rest.split(|letter: char| !letter.is_ascii_digit()).next().unwrap_or_default().to_owned();
        let cell = source.split_once(STATEMENTS).map(|(_, rest)| number(rest)).unwrap_or_default();
        let mut others: BTreeSet<String> = source.split(DEFINED).skip(1).map(number).collect();
        // A source that is only checked may have statics that the next cell defines.
        others.remove("");
        let defines = others.remove(&cell);
        Statics { folder, cell, defines, others, is_objective: source.contains(OBJECTIVE) }
    }

    /// Makes rustc link the cell with the statics of other cells. An objective defines all of them itself.
    pub(super) fn use_in(&self, rustc: &mut Command) {
        if self.is_objective {
            return;
        }
        rustc.args(["--cfg=evcxr_linked", &format!("--cfg=evcxr_cell=\"{}\"", self.cell)]);
        rustc.args(self.others.iter().map(|cell| joined("-Clink-arg=", &self.library_of(cell))));
    }

    /// Keeps the compiled library for later cells, if it defines statics.
    pub(super) fn keep(&self, library: &Path) -> Result<()> {
        if !self.defines || !library.is_file() {
            return Ok(());
        }
        let kept = self.library_of(&self.cell);
        // A cell is compiled again if variables whose types have changed were dropped when it was to run.
        let unlinked = std::fs::remove_file(&kept).or_else(|error| match error.kind() {
            ErrorKind::NotFound => std::fs::create_dir_all(&self.folder),
            _ => Err(error),
        });
        let linked = unlinked.and_then(|()| std::fs::hard_link(library, &kept));
        linked.with_context(|| format!("cannot make {}", kept.display()))
    }

    fn library_of(&self, cell: &str) -> PathBuf {
        self.folder.join(format!("{cell}.so"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_names_its_cell_and_those_of_its_statics() {
        let item = |cell: &str| format!("#[cfg(any(evcxr_cell = \"{cell}\", not(evcxr_linked)))] static A: u8 = 1;\n");
        let source =
            format!("{}{}{}pub extern \"C-unwind\" fn run_user_code_12(x: u8) {{", item("3"), item("12"), item("7"));
        let statics = Statics::in_folder(&source, PathBuf::from("/s"));
        let mut rustc = Command::new("rustc");
        statics.use_in(&mut rustc);
        let arguments: Vec<_> = rustc.get_args().filter_map(|argument| argument.to_str()).collect();
        assert_eq!(
            arguments,
            ["--cfg=evcxr_linked", "--cfg=evcxr_cell=\"12\"", "-Clink-arg=/s/3.so", "-Clink-arg=/s/7.so"]
        );
        assert!(statics.defines);

        let mut rustc = Command::new("rustc");
        Statics::in_folder(&format!("{source} fn ferrotune_objective() {{"), PathBuf::from("/s")).use_in(&mut rustc);
        assert_eq!(rustc.get_args().count(), 0);
    }
}
