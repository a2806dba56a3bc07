//! `%%writefile` and `%load`, which write and read the files that a cell names. A path that begins with `~/` is in the user's folder.

use crate::disk::write_whole;
use crate::engine::Engine;
use crate::engine::handlers::notebook_file;
use crate::execution::{Output, Payload};
use crate::failure::Failure;
use anyhow::{Context, Result, bail};
use ferrotune_display::Bundle;
use ferrotune_magics::{Lines, Load, WriteFile};
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

impl Engine {
    pub(in crate::engine) fn write_file(
        &mut self,
        WriteFile { path, append, text }: &WriteFile,
    ) -> Result<(), Failure> {
        let path = expanded(path);
        let written = path.and_then(|path| if *append { append_to(&path, text) } else { replace(&path, text) });
        self.show_result(written.map(Bundle::text))
    }

    /// Carries out `%load`.
    pub(in crate::engine) fn load(&mut self, Load { path, lines }: &Load) -> Result<(), Failure> {
        let text = expanded(path).and_then(|file| part(&file, *lines));
        let text = text.map_err(Failure::of_magic)?;
        self.link.emit(Output::Payload(Payload::ReplaceCell(format!("// %load {path}\n{text}"))));
        Ok(())
    }
}

/// The path with the user's folder in place of `~`.
pub(in crate::engine) fn expanded(path: impl AsRef<Path>) -> Result<PathBuf> {
    let Ok(rest) = path.as_ref().strip_prefix("~") else { return Ok(path.as_ref().to_owned()) };
    let home = dirs::home_dir().context("the user's folder is unknown; set HOME, or write the path without ~")?;
    Ok(home.join(rest))
}

/// A path as text, with the user's folder in place of `~`. The path stays unchanged if the user's folder is unknown.
pub(in crate::engine) fn expanded_text(path: &str) -> String {
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
