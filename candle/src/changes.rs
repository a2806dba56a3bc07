//! Our changes of a package, and how they are applied.

use crate::error::{Error, Result};
use crate::package::{CANDLE, Package};
use crate::sources::{self, Sources};
use diffy::Patch;
use std::collections::BTreeMap;
use std::path::Path;

/// The repository's folder `candle/` when this library was built.
const PACKED: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/changes.rs"));

/// What makes our package out of crates.io's.
#[derive(Clone, Debug)]
pub struct Changes {
    pub(crate) package: &'static Package,
    pub(crate) manifest: String,
    /// Unified diffs, by the file of the package that they change.
    patches: Sources,
    /// Files that the package does not have.
    files: Sources,
}

impl Changes {
    /// The changes of candle-core that this library was built with.
    pub fn packed() -> Self {
        let all = PACKED.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
        Self::of(&CANDLE, all)
    }

    /// The changes in the repository's folder of a package, such as `candle/`.
    ///
    /// # Errors
    ///
    /// A file cannot be read.
    pub fn read(package: &'static Package, folder: &Path) -> Result<Self> {
        let mut all = sources::read(folder, "patches")?;
        all.append(&mut sources::read(folder, "files")?);
        all.insert(package.manifest(), sources::text(&folder.join(package.manifest()))?);
        Ok(Self::of(package, all))
    }

    fn of(package: &'static Package, all: Sources) -> Self {
        let under = |folder: &str, ending: &str| {
            let inside = |path: &str| Some(path.strip_prefix(folder)?.strip_suffix(ending)?.to_owned());
            all.iter().filter_map(|(path, text)| Some((inside(path)?, text.clone()))).collect()
        };
        let manifest = all.get(&package.manifest()).cloned().unwrap_or_default();
        Self { package, manifest, patches: under("patches/", ".patch"), files: under("files/", "") }
    }

    /// A hash of everything that our package is made of, by name.
    pub fn hashes(&self) -> BTreeMap<String, String> {
        let patches = self.patches.iter().map(|(path, text)| (patch_path(path), sources::hash(text)));
        let files = self.files.iter().map(|(path, text)| (file_path(path), sources::hash(text)));
        let base = [
            ("Cargo.toml".to_owned(), sources::hash(&self.manifest)),
            (format!("{}.crate", self.package.name), self.package.checksum.to_owned()),
        ];
        patches.chain(files).chain(base).collect()
    }

    /// Changes the package's own sources.
    pub(crate) fn apply(&self, sources: &mut Sources) -> Result<()> {
        for (path, patch) in &self.patches {
            let text = sources.get_mut(path);
            let text = text.ok_or_else(|| Error::NothingToPatch { package: self.package, path: path.clone() })?;
            *text = patched(self.package, path, text, patch)?;
        }
        for (path, text) in &self.files {
            if sources.insert(path.clone(), text.clone()).is_some() {
                return Err(Error::Exists { package: self.package, path: path.clone() });
            }
        }
        Ok(())
    }
}

/// Where the patch of a file is in the folder of a package.
pub(crate) fn patch_path(path: &str) -> String {
    format!("patches/{path}.patch")
}

/// Where a file of ours is in the folder of a package.
pub(crate) fn file_path(path: &str) -> String {
    format!("files/{path}")
}

fn patched(package: &'static Package, path: &str, text: &str, patch: &str) -> Result<String> {
    let malformed = |source| Error::Malformed { package, path: path.to_owned(), source };
    let patch = Patch::from_str(patch).map_err(malformed)?;
    diffy::apply(text, &patch).map_err(|source| Error::Hunk { package, path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\nten\neleven\ntwelve\n";
    const PATCH: &str = "--- a/src/a.rs\n+++ b/src/a.rs\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n\
                         @@ -10,3 +10,3 @@\n ten\n-eleven\n+11\n twelve\n";

    fn texts(pairs: &[(&str, &str)]) -> Sources {
        pairs.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect()
    }

    fn applied(changes: &[(&str, &str)], text: &str) -> Result<Sources> {
        let mut sources = texts(&[("src/a.rs", text)]);
        Changes::of(&CANDLE, texts(changes)).apply(&mut sources).map(|()| sources)
    }

    #[test]
    fn patches_change_files_and_files_are_added() {
        let changes = [("patches/src/a.rs.patch", PATCH), ("files/src/b/c.rs", "ours\n")];
        let expected = TEXT.replace("two", "2").replace("eleven", "11");
        assert_eq!(applied(&changes, TEXT).unwrap(), texts(&[("src/a.rs", &expected), ("src/b/c.rs", "ours\n")]));
    }

    #[test]
    fn a_hunk_that_does_not_apply_is_named_with_its_file() {
        let error = applied(&[("patches/src/a.rs.patch", PATCH)], &TEXT.replace("twelve", "dozen")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "candle/patches/src/a.rs.patch does not fit candle-core 0.11.1: error applying hunk #2; write the change anew in \
             candle/candle-core, then run `cargo xtask candle --diff`"
        );
    }

    #[test]
    fn a_patch_needs_a_file_and_a_file_needs_room() {
        let error = applied(&[("patches/src/b.rs.patch", PATCH)], TEXT).unwrap_err();
        assert_eq!(error.to_string(), "candle/patches/src/b.rs.patch: candle-core 0.11.1 has no src/b.rs");
        let error = applied(&[("files/src/a.rs", "ours\n")], TEXT).unwrap_err();
        assert_eq!(
            error.to_string(),
            "candle/files/src/a.rs: candle-core 0.11.1 has this file already; change it with a patch"
        );
        let error = applied(&[("patches/src/a.rs.patch", "@@ nonsense\n")], TEXT).unwrap_err().to_string();
        assert!(error.starts_with("candle/patches/src/a.rs.patch is no unified diff: "), "{error}");
    }

    #[test]
    fn each_change_changes_the_hashes() {
        let hashes = |pairs: &[(&str, &str)]| Changes::of(&CANDLE, texts(pairs)).hashes();
        let all = [
            hashes(&[]),
            hashes(&[("candle-core/Cargo.toml", "[package]")]),
            hashes(&[("patches/src/a.rs.patch", PATCH)]),
            hashes(&[("patches/src/a.rs.patch", TEXT)]),
            hashes(&[("files/src/a.rs", PATCH)]),
        ];
        assert!(all.iter().enumerate().all(|(index, one)| !all[..index].contains(one)));
    }

    #[test]
    fn the_version_is_that_of_the_manifest() {
        let version = format!("\nversion = \"{}\"\n", CANDLE.version);
        assert!(Changes::packed().manifest.contains(&version));
    }
}
