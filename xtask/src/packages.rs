//! `cargo xtask candle` and `cargo xtask evcxr` make our packages of candle in `patched/candle/` and our evcxr in `patched/evcxr/`. Every other
//! task does that first. With `--list` they print our patches. After an edit in the packages, `--diff TOPIC` writes the edit into
//! the patch `patches/TOPIC.patch` of the package.

use crate::environment::cargo;
use anyhow::{Context, Result, bail};
use ferrotune_candle::{CANDLE, Changes, EVCXR, Topic, Upstream};
use std::fs;
use std::io::{self, Write};
use std::path::Path;

/// The names of the tasks that make the packages.
pub(crate) const NAMES: [&str; 2] = [CANDLE.name, EVCXR.name];

/// The folders of the sources that these tasks make.
pub(crate) const SOURCES: [&str; 3] =
    ["patched/candle/candle-core/src", "patched/candle/candle-nn/src", "patched/evcxr/evcxr/src"];

/// The library of `patched/candle/sources/Cargo.toml`, which exists when all sources are made. If it is missing, cargo's error shows its name.
const MADE: &str = "patched/candle/sources/run cargo xtask candle.rs";
const MADE_TEXT: &str = "//! Empty: the sources of candle and evcxr are made.\n";

pub(crate) fn run_candle(root: &Path) -> Result<()> {
    run(root, &CANDLE)
}

pub(crate) fn run_evcxr(root: &Path) -> Result<()> {
    run(root, &EVCXR)
}

fn run(root: &Path, upstream: &'static Upstream) -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(2).collect();
    let topic = |name: &str, title| Topic { name: name.to_owned(), title };
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] => make_all(root),
        ["--list"] => list(root, upstream),
        ["--diff", name] => write_changes(root, upstream, &topic(name, None)),
        ["--diff", name, "--title", title] => write_changes(root, upstream, &topic(name, Some((*title).to_owned()))),
        _ => bail!("usage: cargo xtask {} [--list | --diff TOPIC [--title TITLE]]", upstream.name),
    }
}

/// Makes the packages, unless they exist already.
pub(crate) fn make_all(root: &Path) -> Result<()> {
    make(root, &CANDLE)?;
    make(root, &EVCXR)?;
    let path = root.join(MADE);
    if path.exists() {
        return Ok(());
    }
    fs::write(&path, MADE_TEXT).with_context(|| format!("cannot write {}", path.display()))
}

fn make(root: &Path, upstream: &'static Upstream) -> Result<()> {
    let folder = root.join(upstream.folder());
    let changes = Changes::read(upstream, &folder)?;
    Ok(ferrotune_candle::make(cargo(root), &folder, &changes, &mut |line| eprintln!("xtask: {line}"))?)
}

/// Complains about edits that are in no patch, and about patches without a stated purpose.
pub(crate) fn complaints(root: &Path) -> Result<Vec<String>> {
    let mut complaints = Vec::new();
    for upstream in [&CANDLE, &EVCXR] {
        let (name, place) = (upstream.name, upstream.folder());
        let folder = root.join(&place);
        let edited = ferrotune_candle::edited(upstream, &folder)?.into_iter();
        complaints.extend(edited.map(|path| {
            format!("{place}/{path}: is edited; write the edit into a patch with `cargo xtask {name} --diff TOPIC`")
        }));
        let changes = Changes::read(upstream, &folder)?;
        let untitled = changes.patches().iter().filter(|patch| patch.title().is_empty());
        complaints.extend(untitled.map(|patch| {
            let topic = &patch.topic;
            format!(
                "{place}/patches/{topic}.patch: the first line is no title; say what is wrong and what the patch does"
            )
        }));
    }
    Ok(complaints)
}

fn list(root: &Path, upstream: &'static Upstream) -> Result<()> {
    let list = Changes::read(upstream, &root.join(upstream.folder()))?.list()?;
    io::stdout().write_all(list.as_bytes()).context("cannot print the list")
}

fn write_changes(root: &Path, upstream: &'static Upstream, topic: &Topic) -> Result<()> {
    let folder = root.join(upstream.folder());
    for path in ferrotune_candle::write_changes(upstream, cargo(root), &folder, topic)? {
        eprintln!("xtask {}: wrote the edit of {path}", upstream.name);
    }
    make(root, upstream)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_that_cargo_misses_is_the_file_that_is_made() {
        let (folder, file) = MADE.rsplit_once('/').unwrap();
        let manifest = fs::read_to_string(crate::root().join(folder).join("Cargo.toml")).unwrap();
        assert!(manifest.contains(&format!("\npath = \"{file}\"\n")), "{manifest}");
    }
}
