//! The linker of cells. rustc calls the C compiler, which calls the toolchain's `rust-lld`. For a cell that does not need the
//! C compiler, rustc calls `rust-lld` directly, which saves the start of two programs.

use super::dependencies::Dependencies;
use super::{joined, rpath};
use crate::environment::{STANDARD_LIBRARY_VARIABLE, path, runtime};
use crate::toolchain::LINKER_CURE;
use anyhow::{Context, Result};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The libraries other than Rust's that every cell is linked with. The C compiler knows their folders.
const LIBRARIES: [&str; 2] = ["libc.so", "libgcc_s.so"];

/// The file in the kernel's folder with the folders of [`LIBRARIES`].
const FOLDERS: &str = "library-folders";

/// The program that links a cell.
pub(super) enum Linker {
    /// The C compiler, which knows where the libraries of the system are.
    CCompiler,
    /// The toolchain's own linker, and the folders of the two libraries of the system that every cell needs.
    Lld { program: PathBuf, folders: Vec<PathBuf> },
}

impl Linker {
    /// The linker for a cell: the C compiler if the cell links libraries of the system, if it has crates, which may link such libraries,
    /// or if the toolchain brings no linker.
    pub(super) fn of(source: &str, dependencies: &Dependencies) -> Result<Linker> {
        let program = path(STANDARD_LIBRARY_VARIABLE)?.with_file_name("bin").join("rust-lld");
        let is_plain = dependencies.are_none() && !links_libraries(source);
        if !is_plain || !cfg!(target_env = "gnu") || !program.is_file() {
            return Ok(Linker::CCompiler);
        }
        Ok(match folders()? {
            Some(folders) => Linker::Lld { program, folders },
            None => Linker::CCompiler,
        })
    }

    /// Makes a rustc use this linker, and lets the cell find the libraries in these folders when the cell is loaded.
    pub(super) fn use_in(&self, rustc: &mut Command, run_folders: &[PathBuf]) {
        match self {
            Linker::CCompiler => {
                rustc.args(run_folders.iter().map(|folder| rpath(folder)));
            }
            Linker::Lld { program, folders } => {
                rustc.arg("-Clinker-flavor=ld.lld").arg(joined("-Clinker=", program));
                rustc.args(folders.iter().map(|folder| joined("-Lnative=", folder)));
                rustc.args(run_folders.iter().map(|folder| joined("-Clink-arg=-rpath=", folder)));
            }
        }
    }
}

/// Whether a source has the attribute `link` anywhere, or text that looks like it.
fn links_libraries(source: &str) -> bool {
    source.match_indices("link").any(|(start, word)| source[start + word.len()..].trim_start().starts_with('('))
}

/// The folders of [`LIBRARIES`], for which the C compiler is called once for each kernel; `None` if it does not find them.
fn folders() -> Result<Option<Vec<PathBuf>>> {
    let known = runtime()?.join(FOLDERS);
    let text = match std::fs::read_to_string(&known) {
        Ok(text) => text,
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("cannot read {}", known.display()));
        }
        Err(_) => {
            let text = LIBRARIES.iter().map(|library| folder_of(library)).collect::<Result<String>>()?;
            std::fs::write(&known, &text).with_context(|| format!("cannot write {}", known.display()))?;
            text
        }
    };
    let folders: Vec<PathBuf> = text.lines().map(PathBuf::from).collect();
    Ok((folders.len() == LIBRARIES.len()).then_some(folders))
}

/// The folder of a library as a line; an empty text if the C compiler does not find the library.
fn folder_of(library: &str) -> Result<String> {
    let asked = Command::new("cc").arg(format!("-print-file-name={library}")).output();
    let asked = asked.with_context(|| format!("cannot run the linker `cc`; {LINKER_CURE}"))?;
    let answer = String::from_utf8_lossy(&asked.stdout);
    // If the C compiler does not find a library, it answers with the bare name.
    let folder = Path::new(answer.trim()).parent().filter(|folder| folder.is_absolute());
    Ok(folder.map_or_else(String::new, |folder| format!("{}\n", folder.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_that_links_a_library_is_recognised() {
        for source in ["#[link(name = \"m\")]\nextern \"C\" {}", "#[cfg_attr(unix, link (name = \"z\"))]"] {
            assert!(links_libraries(source), "{source}");
        }
        for source in ["let link = 1;", "fn main() { linked(1); }", "", "#[link"] {
            assert!(!links_libraries(source), "{source}");
        }
    }

    #[test]
    fn the_c_compiler_finds_the_libraries() {
        for library in LIBRARIES {
            let folder = folder_of(library).unwrap();
            assert!(Path::new(folder.trim_end()).join(library).exists(), "{folder}");
        }
        assert_eq!(folder_of("libno-such-library.so").unwrap(), "");
    }
}
