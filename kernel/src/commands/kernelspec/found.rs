//! The kernelspecs on Jupyter's paths that start a program named `ferrotune`.

use super::{FOLDER, user_data_folder};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// A kernelspec that starts a program named `ferrotune`.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) folder: PathBuf,
    /// The program that the kernelspec starts.
    pub(crate) program: PathBuf,
}

impl Found {
    /// Whether `ferrotune install` of this program has written the kernelspec.
    pub(crate) fn is_ours(&self) -> bool {
        let own = std::env::current_exe().and_then(|own| own.canonicalize());
        let program = self.program.canonicalize();
        let starts_this = own.is_ok_and(|own| program.is_ok_and(|program| program == own));
        starts_this && is_written_by_install(&self.folder)
    }

    /// Whether the kernelspec's program exists.
    pub(crate) fn has_program(&self) -> bool {
        self.program.is_file() || crate::environment::search(&self.program.to_string_lossy()).is_some()
    }
}

/// All installed kernelspecs of Ferrotune, each once.
pub(crate) fn installed() -> Vec<Found> {
    let folders: BTreeSet<PathBuf> =
        jupyter_folders().into_iter().filter_map(|folder| folder.canonicalize().ok()).collect();
    let kernels =
        folders.iter().flat_map(|folder| fs::read_dir(folder.join("kernels")).into_iter().flatten().flatten());
    kernels.filter_map(|entry| read(&entry.path())).collect()
}

fn read(folder: &Path) -> Option<Found> {
    let words = command(folder)?;
    let program = PathBuf::from(words.first()?.replace(FOLDER, folder.to_str()?));
    let is_ferrotune = program.file_name().is_some_and(|name| name == super::NAME) && words.get(1)? == "kernel";
    is_ferrotune.then(|| Found { folder: folder.to_owned(), program })
}

/// Whether a folder has the command that `ferrotune install` writes. Installation makes no links, and names its program by an absolute
/// path, as no package does.
pub(super) fn is_written_by_install(folder: &Path) -> bool {
    let is_folder = fs::symlink_metadata(folder).is_ok_and(|metadata| metadata.is_dir());
    let words = command(folder).unwrap_or_default();
    let Some((program, words)) = words.split_first() else { return false };
    is_folder && Path::new(program).is_absolute() && words == ["kernel", "--connection-file", "{connection_file}"]
}

/// Whether a folder has a kernelspec that starts no kernel of Ferrotune's.
pub(super) fn starts_another_program(folder: &Path) -> bool {
    command(folder).is_some_and(|words| words.get(1).is_none_or(|word| word != "kernel"))
}

/// The command that a kernelspec starts.
fn command(folder: &Path) -> Option<Vec<String>> {
    let kernel: Value = serde_json::from_slice(&fs::read(folder.join("kernel.json")).ok()?).ok()?;
    serde_json::from_value(kernel.get("argv")?.clone()).ok()
}

/// The folders in which Jupyter looks for data: those of `JUPYTER_PATH`, the user's, those of the Python environments of this program
/// and of the search path, and the system's.
fn jupyter_folders() -> Vec<PathBuf> {
    let named = std::env::var_os("JUPYTER_PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&named).collect();
    folders.extend(user_data_folder(std::env::var_os("JUPYTER_DATA_DIR").map(PathBuf::from)));
    let programs =
        [std::env::current_exe().ok(), crate::environment::search("python3"), crate::environment::search("jupyter")];
    let prefixes = programs.into_iter().flatten().filter_map(|program| Some(program.parent()?.parent()?.to_owned()));
    folders.extend(prefixes.map(|prefix| prefix.join("share/jupyter")));
    folders.extend(["/usr/local/share/jupyter", "/usr/share/jupyter"].map(PathBuf::from));
    folders
}
