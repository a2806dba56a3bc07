//! Writes and removes the kernelspec, the folder by which Jupyter finds this kernel. This module changes nothing outside of
//! `kernels/ferrotune`, and calls no Jupyter program.

mod found;

use crate::folders;
pub(crate) use found::installed;
use std::fmt;
use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

/// The kernelspec's name. Notebooks store it, so it never changes.
pub(crate) const NAME: &str = "ferrotune";
/// The name that front ends show in their launcher.
pub(crate) const DISPLAY_NAME: &str = "Rust (Ferrotune)";

/// The files that [`install`] writes. `kernel.json` comes last: without it, Jupyter does not see the folder, and nothing proves that
/// `install` has written it.
const FILES: [&str; 2] = ["logo-svg.svg", "kernel.json"];

/// The placeholder in the command that starts a kernel, which Jupyter replaces by the kernelspec's folder.
const FOLDER: &str = "{resource_dir}";

const LOGO: &[u8] = include_bytes!("kernelspec/logo.svg");

/// A place in which Jupyter looks for kernels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// The user's Jupyter data folder.
    User,
    /// An installation or environment below this folder.
    Prefix(PathBuf),
    /// The environment of the first `python3` on the search path.
    SysPrefix,
}

/// The reason why the kernelspec could not be written or removed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KernelspecError {
    #[error("home folder is not known; set JUPYTER_DATA_DIR or use --prefix")]
    NoHome,
    #[error("python3 could not be asked for its prefix: {reason}; install Python or use --prefix")]
    NoPython { reason: String },
    #[error("program path {} is not valid UTF-8, which kernel.json needs; move the program", path.display())]
    ProgramPath { path: PathBuf },
    #[error("kernelspec {} cannot be written: {source}; choose another place with --user or --prefix", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("kernelspec {} cannot be removed: {source}", path.display())]
    Remove { path: PathBuf, source: io::Error },
    #[error("kernelspec {} is not of `ferrotune install`: it is a link, belongs to a package, or starts another program; delete it yourself", path.display())]
    Foreign { path: PathBuf },
    #[error("no kernelspec at {}; `jupyter kernelspec list` shows where it is", path.display())]
    NotInstalled { path: PathBuf },
}

/// Writes the kernelspec that starts `program`, file by file over an older kernelspec, and returns its folder.
pub(crate) fn install(target: &Target, program: &Path) -> Result<PathBuf, KernelspecError> {
    let program =
        std::path::absolute(program).map_err(|source| KernelspecError::Write { path: program.to_owned(), source })?;
    let Some(program) = program.to_str() else {
        return Err(KernelspecError::ProgramPath { path: program });
    };
    let path = folder(target)?;
    if found::starts_another_program(&path) {
        return Err(KernelspecError::Foreign { path });
    }
    write(&path, program)?;
    Ok(path)
}

/// Writes the kernelspec of a package below `prefix`. The package works in any folder that has the program in `bin`.
pub(crate) fn package(prefix: &Path) -> Result<(), KernelspecError> {
    let folder = prefix.join("share/jupyter/kernels").join(NAME);
    write(&folder, &format!("{FOLDER}/../../../../bin/ferrotune"))
}

fn write(path: &Path, program: &str) -> Result<(), KernelspecError> {
    let kernel = json!({
        "argv": [program, "kernel", "--connection-file", "{connection_file}"],
        "display_name": DISPLAY_NAME,
        "language": "rust",
        "interrupt_mode": "message",
        "env": {},
        "metadata": {"debugger": false},
    });
    let write = || {
        fs::create_dir_all(path)?;
        let kernel = format!("{kernel:#}\n");
        FILES.iter().zip([LOGO, kernel.as_bytes()]).try_for_each(|(name, content)| replace(path, name, content))
    };
    write().map_err(|source| KernelspecError::Write { path: path.to_owned(), source })
}

/// The result of the removal of a kernelspec.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Removed {
    folder: PathBuf,
    /// The files that stay, because `install` has not written them.
    staying: Vec<PathBuf>,
}

impl fmt::Display for Removed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "removed {}", self.folder.display())?;
        self.staying
            .iter()
            .try_for_each(|path| write!(formatter, "; {} stays: install has not written it", path.display()))
    }
}

/// Removes the kernelspec of a target. Fails if there is none.
pub(crate) fn uninstall(target: &Target) -> Result<Removed, KernelspecError> {
    remove(&folder(target)?)
}

/// Removes the files that [`install`] writes, and their folder if nothing else is in it. Fails if there are no such files.
pub(crate) fn remove(folder: &Path) -> Result<Removed, KernelspecError> {
    let path = folder.to_owned();
    if fs::symlink_metadata(folder).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        return Err(KernelspecError::NotInstalled { path });
    }
    if !found::is_written_by_install(folder) {
        return Err(KernelspecError::Foreign { path });
    }
    let removed = FILES.iter().try_for_each(|name| folders::absent(fs::remove_file(folder.join(name))));
    let removed = removed.and_then(|()| folders::remove_if_empty(folder));
    removed.map_err(|source| KernelspecError::Remove { path: path.clone(), source })?;
    Ok(Removed { staying: folders::entries(folder), folder: path })
}

fn folder(target: &Target) -> Result<PathBuf, KernelspecError> {
    let data = match target {
        Target::User => user_data_folder(std::env::var_os("JUPYTER_DATA_DIR").map(PathBuf::from))?,
        Target::Prefix(prefix) => prefix.join("share/jupyter"),
        Target::SysPrefix => python_prefix()?.join("share/jupyter"),
    };
    Ok(data.join("kernels").join(NAME))
}

fn user_data_folder(jupyter_data_dir: Option<PathBuf>) -> Result<PathBuf, KernelspecError> {
    if let Some(folder) = jupyter_data_dir.filter(|folder| !folder.as_os_str().is_empty()) {
        return Ok(folder);
    }
    if cfg!(target_os = "macos") {
        // Jupyter does not use `Application Support`.
        return Ok(dirs::home_dir().ok_or(KernelspecError::NoHome)?.join("Library/Jupyter"));
    }
    Ok(dirs::data_dir().ok_or(KernelspecError::NoHome)?.join("jupyter"))
}

fn python_prefix() -> Result<PathBuf, KernelspecError> {
    let output = Command::new("python3")
        .args(["-c", "import sys; print(sys.prefix)"])
        .output()
        .map_err(|error| KernelspecError::NoPython { reason: error.to_string() })?;
    let prefix = String::from_utf8_lossy(&output.stdout).trim_end().to_owned();
    if !output.status.success() || prefix.is_empty() {
        return Err(KernelspecError::NoPython { reason: format!("it ended with {}", output.status) });
    }
    Ok(PathBuf::from(prefix))
}

/// Puts a file into `folder` in one step, so that Jupyter never reads half of it.
fn replace(folder: &Path, name: &str, content: &[u8]) -> io::Result<()> {
    let mut file = tempfile::Builder::new().permissions(Permissions::from_mode(0o644)).tempfile_in(folder)?;
    file.write_all(content)?;
    file.as_file().sync_all()?;
    file.persist(folder.join(name))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn installed_kernelspec_has_what_jupyter_reads() {
        let prefix = tempfile::tempdir().unwrap();
        let target = Target::Prefix(prefix.path().to_owned());
        let path = install(&target, Path::new("/opt/ferrotune")).unwrap();
        assert_eq!(path, prefix.path().join("share/jupyter/kernels/ferrotune"));
        let kernel: Value = serde_json::from_slice(&fs::read(path.join("kernel.json")).unwrap()).unwrap();
        assert_eq!(
            kernel,
            json!({
                "argv": ["/opt/ferrotune", "kernel", "--connection-file", "{connection_file}"],
                "display_name": "Rust (Ferrotune)",
                "language": "rust",
                "interrupt_mode": "message",
                "env": {},
                "metadata": {"debugger": false},
            })
        );
        let mut names: Vec<_> = fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["kernel.json", "logo-svg.svg"]);
        assert_eq!(fs::metadata(path.join("kernel.json")).unwrap().permissions().mode() & 0o444, 0o444);
    }

    #[test]
    fn second_install_replaces_and_uninstall_removes_that_folder_alone() {
        let prefix = tempfile::tempdir().unwrap();
        let target = Target::Prefix(prefix.path().to_owned());
        let neighbour = prefix.path().join("share/jupyter/kernels/python3");
        fs::create_dir_all(&neighbour).unwrap();
        install(&target, Path::new("/opt/old")).unwrap();
        let path = install(&target, Path::new("/opt/new")).unwrap();
        let kernel: Value = serde_json::from_slice(&fs::read(path.join("kernel.json")).unwrap()).unwrap();
        assert_eq!(kernel["argv"], json!(["/opt/new", "kernel", "--connection-file", "{connection_file}"]));
        assert_eq!(uninstall(&target).unwrap(), Removed { folder: path.clone(), staying: Vec::new() });
        assert!(!path.exists() && neighbour.exists());
        assert!(matches!(uninstall(&target), Err(KernelspecError::NotInstalled { .. })));
    }

    #[test]
    fn uninstall_leaves_what_install_has_not_written() {
        let prefix = tempfile::tempdir().unwrap();
        let target = Target::Prefix(prefix.path().to_owned());
        let path = install(&target, Path::new("/opt/ferrotune")).unwrap();
        let notes = path.join("notes.txt");
        fs::write(&notes, "of the user").unwrap();
        let removed = uninstall(&target).unwrap();
        assert_eq!(removed.staying, std::slice::from_ref(&notes));
        assert!(removed.to_string().ends_with("notes.txt stays: install has not written it"), "{removed}");
        assert!(notes.exists() && !path.join("kernel.json").exists());
        assert!(matches!(uninstall(&target), Err(KernelspecError::Foreign { .. })));
        fs::write(path.join("kernel.json"), r#"{"argv": ["/opt/other", "-f", "{connection_file}"]}"#).unwrap();
        assert!(matches!(uninstall(&target), Err(KernelspecError::Foreign { .. })));
        let again = install(&target, Path::new("/opt/ferrotune"));
        assert!(matches!(again, Err(KernelspecError::Foreign { .. })));
        fs::remove_dir_all(&path).unwrap();
        let elsewhere = install(&Target::Prefix(prefix.path().join("x")), Path::new("/opt/ferrotune"));
        std::os::unix::fs::symlink(elsewhere.unwrap(), &path).unwrap();
        assert!(matches!(uninstall(&target), Err(KernelspecError::Foreign { .. })));
    }

    #[test]
    fn jupyter_data_dir_comes_before_the_home_folder() {
        assert_eq!(user_data_folder(Some("/data".into())).unwrap(), Path::new("/data"));
        assert_eq!(user_data_folder(Some("".into())).unwrap(), user_data_folder(None).unwrap());
    }

    #[test]
    fn folder_that_cannot_be_written_is_named() {
        let prefix = tempfile::NamedTempFile::new().unwrap();
        let target = Target::Prefix(prefix.path().to_owned());
        let error = install(&target, Path::new("/opt/ferrotune")).unwrap_err().to_string();
        assert!(error.contains("share/jupyter/kernels/ferrotune cannot be written"), "{error}");
    }
}
