//! Writes the edits that a developer has made in our packages into the patch of a topic.

use crate::amend::Edits;
use crate::changes::{Changes, file_path, patch_path};
use crate::error::{Error, Result, io};
use crate::folder;
use crate::original::Original;
use crate::package::Upstream;
use crate::sources;
use crate::stamp::Stamp;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The patch that edits are written into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topic {
    /// Two digits and a name, such as `06-sums-of-rows`.
    pub name: String,
    /// What is wrong and what the patch does, in one line. A new patch needs it.
    pub title: Option<String>,
}

impl Topic {
    /// The order of the names has to be that of the numbers.
    fn check(&self) -> Result<()> {
        let is_number = |text: &str| text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        let is_name =
            |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        match self.name.split_once('-') {
            Some((number, name)) if is_number(number) && is_name(name) => Ok(()),
            _ => Err(Error::Unnumbered { topic: self.name.clone() }),
        }
    }
}

/// Writes the edits of our packages in `folder` into the patch of a topic, and into `files/` where the packages have no such
/// file. Returns the files that were edited.
///
/// All patches together then give the edited sources, and the other patches are as before: the edits are taken back through the
/// patches that are applied later, to find what the patch of the topic has to give.
///
/// # Errors
///
/// Nothing was made in the folder, a file of a package is deleted, a file and its patches have both changed, or a later patch
/// changes the same lines. Nothing is written then.
pub fn write_changes(upstream: &'static Upstream, cargo: Command, folder: &Path, topic: &Topic) -> Result<Vec<String>> {
    topic.check()?;
    let _lock = folder::lock(folder)?;
    let mut stamps = Vec::new();
    for package in upstream.packages {
        stamps.extend(Stamp::read(package, folder)?.map(|stamp| (package, stamp)));
    }
    if stamps.is_empty() {
        return Err(Error::NotMade { upstream, folder: folder.to_owned() });
    }
    let now = folder::read(upstream, folder)?;
    let edited: BTreeSet<String> =
        stamps.iter().flat_map(|(package, stamp)| stamp.edited(&package.part(&now))).collect();
    if edited.is_empty() {
        return Ok(Vec::new());
    }
    let mut changes = Changes::read(upstream, folder)?;
    let original = Original::fetch(upstream, cargo)?.sources;
    let mut made = original.clone();
    changes.apply(&mut made)?;
    for path in &edited {
        if original.contains_key(path) && !now.contains_key(path) {
            return Err(Error::Deleted { upstream, path: path.clone() });
        }
        let hash = made.get(path).map(|text| sources::hash(text));
        let was_made = stamps.iter().find_map(|(_, stamp)| stamp.sources.get(path));
        if hash.as_ref() != was_made && made.get(path) != now.get(path) {
            return Err(Error::Diverged { upstream, path: path.clone() });
        }
    }
    let edits: Edits = edited.iter().map(|path| (path.clone(), now.get(path).cloned())).collect();
    changes.amend(topic, &original, made, &edits)?;
    write_files(folder, &changes, &edited, topic)?;
    // The changes of others, which are not in the folder, stay outstanding: the stamp's changes are the old ones.
    for (package, mut stamp) in stamps {
        for path in edited.iter().filter(|path| package.has(path)) {
            match now.get(path) {
                Some(text) => stamp.sources.insert(path.clone(), sources::hash(text)),
                None => stamp.sources.remove(path),
            };
        }
        stamp.write(package, &folder.join(package.sources()))?;
    }
    Ok(edited.into_iter().collect())
}

/// Writes the patch of the topic and the edited files of ours, or removes what changes nothing any more.
fn write_files(folder: &Path, changes: &Changes, edited: &BTreeSet<String>, topic: &Topic) -> Result<()> {
    let patch = changes.patches.iter().find(|patch| patch.topic == topic.name);
    let path = folder.join(patch_path(&topic.name));
    match patch {
        Some(patch) => write(&path, &patch.content())?,
        None => remove(&path)?,
    }
    for path in edited {
        let file = folder.join(file_path(path));
        match changes.files.get(path) {
            Some(text) => write(&file, text)?,
            None => remove(&file)?,
        }
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(io("create", parent))?;
    }
    fs::write(path, text).map_err(io("write", path))
}

fn remove(path: &Path) -> Result<()> {
    if path.exists() { fs::remove_file(path).map_err(io("remove", path)) } else { Ok(()) }
}
