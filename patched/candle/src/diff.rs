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

/// The name and title of the patch that edits are written into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topic {
    /// The patch's name: two digits and words, such as `06-sums-of-rows`.
    pub name: String,
    /// The problem and the patch's solution, in one line. A new patch needs a title.
    pub title: Option<String>,
}

impl Topic {
    /// Checks that the name is two digits and words, so that the order of the names is the order of the numbers.
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

/// Writes the edits of our packages in `folder` into the patch of a topic, or into `files/` for files that the packages do not
/// have. Returns the edited files.
///
/// All patches together then give the edited sources, and the other patches are unchanged. To find the text that the topic's patch
/// has to give, the edits are traced back through the reverses of the later patches.
///
/// # Errors
///
/// The topic's name has no number or its new patch has no title, the folder has no sources that were made, a file of a package is
/// deleted, a file and its patches have both changed, or a later patch changes the same lines. Nothing is written then.
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
    // Patches that were changed since the sources were made must still be applied later, so the stamp keeps the old hashes of patches.
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

/// Writes the topic's patch and the edited files in `files/`. A patch that changes nothing and a file that is deleted are removed.
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
