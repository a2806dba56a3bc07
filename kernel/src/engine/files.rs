//! `%%writefile` and `%load`, which write and read the files that a cell names. A path that begins with `~/` is in the user's folder.

use super::{Engine, notebook_file};
use crate::execution::{Output, Payload};
use crate::failure::Failure;
use anyhow::{Context, Result, bail};
use ferrotune_display::Bundle;
use ferrotune_magics::{Lines, Load, WriteFile};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The permissions of a new file, before the user's umask removes some of them.
const NEW_FILE: u32 = 0o666;

impl Engine {
    pub(super) fn write_file(&mut self, WriteFile { path, append, text }: &WriteFile) -> Result<(), Failure> {
        let path = expanded(path);
        let written = path.and_then(|path| if *append { append_to(&path, text) } else { replace(&path, text) });
        self.show_result(written.map(Bundle::text))
    }

    /// Carries out `%load`.
    pub(super) fn load(&mut self, Load { path, lines }: &Load) -> Result<(), Failure> {
        let text = expanded(path).and_then(|file| part(&file, *lines));
        let text = text.map_err(Failure::of_magic)?;
        self.link.emit(Output::Payload(Payload::ReplaceCell(format!("// %load {path}\n{text}"))));
        Ok(())
    }
}

/// The path with the user's folder in place of `~`.
pub(super) fn expanded(path: impl AsRef<Path>) -> Result<PathBuf> {
    let Ok(rest) = path.as_ref().strip_prefix("~") else { return Ok(path.as_ref().to_owned()) };
    let home = dirs::home_dir().context("the user's folder is unknown; set HOME, or write the path without ~")?;
    Ok(home.join(rest))
}

/// A path as text, with the user's folder in place of `~`. The path stays unchanged if the user's folder is unknown.
pub(super) fn expanded_text(path: &str) -> String {
    expanded(path).map_or_else(|_| path.to_owned(), |path| path.to_string_lossy().into_owned())
}

fn replace(path: &Path, text: &str) -> Result<String> {
    if path.is_dir() {
        bail!("{} is a folder; name a file in it", path.display());
    }
    let verb = if path.exists() { "Overwriting" } else { "Writing" };
    write_whole(path, text.as_bytes()).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(format!("{verb} {}", path.display()))
}

/// Writes a file whole or not at all, through a temporary file, and returns once the file is on disk. A symbolic link stays a link:
/// its target is replaced. The bytes go directly into a device or a pipe.
pub(super) fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    // A new file, or a link without a target, cannot be resolved: the file is made under the given path.
    let path = &fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !folder.is_dir() {
        bail!("there is no folder {}; make it first", folder.display());
    }
    let mut whole = tempfile::Builder::new().permissions(fs::Permissions::from_mode(NEW_FILE)).tempfile_in(folder)?;
    if fs::symlink_metadata(path).is_ok() {
        // Opening fails if the user may not write the file; replacing the file would not fail.
        let mut known = OpenOptions::new().write(true).open(path)?;
        let metadata = known.metadata()?;
        if !metadata.is_file() {
            return Ok(known.write_all(bytes)?);
        }
        whole.as_file().set_permissions(metadata.permissions())?;
    }
    whole.write_all(bytes)?;
    whole.as_file().sync_all()?;
    whole.persist(path)?;
    Ok(File::open(folder)?.sync_all()?)
}

fn append_to(path: &Path, text: &str) -> Result<String> {
    let opened = OpenOptions::new().create(true).append(true).open(path);
    let written = opened.and_then(|mut file| file.write_all(text.as_bytes()));
    written.with_context(|| format!("cannot write {}", path.display()))?;
    Ok(format!("Appending to {}", path.display()))
}

fn part(path: &Path, lines: Option<Lines>) -> Result<String> {
    let pieces: Vec<String> = notebook_file::read(path)?.into_iter().map(|piece| piece.source).collect();
    let text = pieces.join("\n\n");
    let Some(Lines { first, last }) = lines else { return Ok(text) };
    let wanted = text
        .split_inclusive('\n')
        .zip(1_u64..)
        .filter(|(_, number)| (first..=last.unwrap_or(u64::MAX)).contains(number));
    let part: String = wanted.map(|(line, _)| line).collect();
    if part.is_empty() {
        bail!("{} has {} lines, and line {first} is not one of them", path.display(), text.lines().count());
    }
    Ok(part)
}
