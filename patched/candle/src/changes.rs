//! Our changes of a project's packages, and their application.

use crate::error::{Error, Result};
use crate::package::{CANDLE, Package, Upstream};
use crate::patch::Patch;
use crate::sources::{self, Sources};
use std::collections::BTreeMap;
use std::path::Path;

/// The files of the repository's folder `patched/candle/`, as they were when this library was built.
const PACKED: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/changes.rs"));

/// The line of our manifests that names a build script, and the corresponding line in the manifests of crates.io.
const BUILD_SCRIPT: &str = "\nbuild = \"build.rs\"\n";
const NO_BUILD_SCRIPT: &str = "\nbuild = false\n";

/// The changes that make our packages out of those of crates.io.
#[derive(Clone, Debug)]
pub struct Changes {
    pub(crate) upstream: &'static Upstream,
    /// The manifests of our packages.
    pub(crate) manifests: Sources,
    /// The patches, in the order of their names.
    pub(crate) patches: Vec<Patch>,
    /// Files that the packages do not have.
    pub(crate) files: Sources,
}

impl Changes {
    /// The changes of candle that this library was built with. Their manifests name no build script: in the repository, that script only
    /// reports that the sources are not made yet, which cannot happen where this library makes them.
    pub fn packed() -> Self {
        let all = PACKED.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
        let mut changes = Self::of(&CANDLE, &all);
        for manifest in changes.manifests.values_mut() {
            *manifest = manifest.replace(BUILD_SCRIPT, NO_BUILD_SCRIPT);
        }
        changes
    }

    /// The changes in a project's folder of the repository, such as `patched/candle/`.
    ///
    /// # Errors
    ///
    /// A file cannot be read.
    pub fn read(upstream: &'static Upstream, folder: &Path) -> Result<Self> {
        let mut all = sources::read(folder, "patches")?;
        all.append(&mut sources::read(folder, "files")?);
        for path in upstream.packages.iter().map(Package::manifest) {
            let text = sources::text(&folder.join(&path))?;
            all.insert(path, text);
        }
        Ok(Self::of(upstream, &all))
    }

    pub(crate) fn of(upstream: &'static Upstream, all: &Sources) -> Self {
        let inside = |folder: &'static str, ending: &'static str| {
            let name = move |path: &str| Some(path.strip_prefix(folder)?.strip_suffix(ending)?.to_owned());
            all.iter().filter_map(move |(path, text)| Some((name(path)?, text.clone())))
        };
        let manifests = upstream.packages.iter().map(Package::manifest);
        Self {
            upstream,
            manifests: manifests.filter_map(|path| all.get(&path).map(|text| (path.clone(), text.clone()))).collect(),
            patches: inside("patches/", ".patch").map(|(topic, text)| Patch::of(upstream, &topic, &text)).collect(),
            files: inside("files/", "").collect(),
        }
    }

    /// The patches, in the order in which they are applied.
    pub fn patches(&self) -> &[Patch] {
        &self.patches
    }

    /// The purpose of each patch, and the files that it changes.
    ///
    /// # Errors
    ///
    /// A patch is not a unified diff.
    pub fn list(&self) -> Result<String> {
        Ok(self.patches.iter().map(Patch::describe).collect::<Result<Vec<_>>>()?.join("\n"))
    }

    /// A hash of each file that our packages are made of, by name.
    pub fn hashes(&self) -> BTreeMap<String, String> {
        let patches = self.patches.iter().map(|patch| (patch_path(&patch.topic), patch.hash()));
        let files = self.files.iter().map(|(path, text)| (file_path(path), sources::hash(text)));
        let manifests = self.manifests.iter().map(|(path, text)| (path.clone(), sources::hash(text)));
        let crates = self.upstream.packages.iter();
        let crates = crates.map(|package| (format!("{}.crate", package.name), package.checksum.to_owned()));
        patches.chain(files).chain(manifests).chain(crates).collect()
    }

    /// Applies the changes to the packages' own sources.
    pub(crate) fn apply(&self, sources: &mut Sources) -> Result<()> {
        for patch in &self.patches {
            patch.apply(sources)?;
        }
        for (path, text) in &self.files {
            if !self.upstream.packages.iter().any(|package| path.starts_with(&(package.sources() + "/"))) {
                return Err(Error::NoPackage { upstream: self.upstream, path: path.clone() });
            }
            if sources.insert(path.clone(), text.clone()).is_some() {
                return Err(Error::Exists { upstream: self.upstream, path: path.clone() });
            }
        }
        Ok(())
    }
}

/// The path of a topic's patch in the folder of a project.
pub(crate) fn patch_path(topic: &str) -> String {
    format!("patches/{topic}.patch")
}

/// The path of one of our own files in the folder of a project.
pub(crate) fn file_path(path: &str) -> String {
    format!("files/{path}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\nten\neleven\ntwelve\n";
    const PATCH: &str = "Numbers are words: two of them are digits\n\nDigits are shorter.\n\nLink: https://example.com/1\n\n\
                         --- a/candle-core/src/a.rs\n+++ b/candle-core/src/a.rs\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n\
                         @@ -10,3 +10,3 @@\n ten\n-eleven\n+11\n twelve\n";
    /// A patch that changes a line which the other patch has written, and a file of another package.
    const LATER: &str = "Digits are short\n\n\
                         --- a/candle-core/src/a.rs\n+++ b/candle-core/src/a.rs\n@@ -1,3 +1,4 @@\n one\n-2\n+2.\n+2.5\n three\n\
                         --- a/candle-nn/src/b.rs\n+++ b/candle-nn/src/b.rs\n@@ -1 +1 @@\n-b\n+c\n";

    fn texts(pairs: &[(&str, &str)]) -> Sources {
        pairs.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect()
    }

    fn changes(pairs: &[(&str, &str)]) -> Changes {
        Changes::of(&CANDLE, &texts(pairs))
    }

    fn applied(pairs: &[(&str, &str)], text: &str) -> Result<Sources> {
        let mut sources = texts(&[("candle-core/src/a.rs", text), ("candle-nn/src/b.rs", "b\n")]);
        changes(pairs).apply(&mut sources).map(|()| sources)
    }

    #[test]
    fn patches_are_applied_in_the_order_of_their_names_and_files_are_added() {
        let all = [
            ("patches/10-later.patch", LATER),
            ("patches/02-digits.patch", PATCH),
            ("files/candle-nn/src/c/d.rs", "ours\n"),
        ];
        let expected = TEXT.replace("two", "2.\n2.5").replace("eleven", "11");
        let expected = texts(&[
            ("candle-core/src/a.rs", &expected),
            ("candle-nn/src/b.rs", "c\n"),
            ("candle-nn/src/c/d.rs", "ours\n"),
        ]);
        assert_eq!(applied(&all, TEXT).unwrap(), expected);
        let error = applied(&[("patches/01-later.patch", LATER), ("patches/02-digits.patch", PATCH)], TEXT);
        assert!(matches!(error, Err(Error::Hunk { topic, .. }) if topic == "01-later"));
    }

    #[test]
    fn a_hunk_that_does_not_apply_is_named_with_its_file() {
        let error = applied(&[("patches/02-digits.patch", PATCH)], &TEXT.replace("twelve", "dozen")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "patched/candle/patches/02-digits.patch does not fit candle-core/src/a.rs of candle 0.11.1: error applying hunk #2; take \
             the hunk out of the patch, write the change anew in patched/candle/candle-core/src/a.rs, then run `cargo xtask candle \
             --diff 02-digits`"
        );
    }

    #[test]
    fn a_patch_needs_a_file_and_a_file_needs_room_in_a_package() {
        let other = PATCH.replace("a.rs", "z.rs");
        let error = applied(&[("patches/02-digits.patch", &other)], TEXT).unwrap_err();
        assert_eq!(
            error.to_string(),
            "patched/candle/patches/02-digits.patch: candle 0.11.1 has no candle-core/src/z.rs"
        );
        let error = applied(&[("files/candle-core/src/a.rs", "ours\n")], TEXT).unwrap_err();
        assert_eq!(
            error.to_string(),
            "patched/candle/files/candle-core/src/a.rs: candle 0.11.1 has this file already; change it with a patch"
        );
        let error = applied(&[("files/src/a.rs", "ours\n")], TEXT).unwrap_err();
        assert_eq!(
            error.to_string(),
            "patched/candle/files/src/a.rs is in the sources of no package that is changed; move it below files/candle-core/src"
        );
        for malformed in ["A title\n", "--- a/x\n+++ b/x\n@@ nonsense\n"] {
            let error = applied(&[("patches/02-digits.patch", malformed)], TEXT).unwrap_err().to_string();
            assert!(error.starts_with("patched/candle/patches/02-digits.patch is no unified diff: "), "{error}");
        }
    }

    #[test]
    fn each_change_changes_the_hashes_and_the_text_above_the_diffs_does_not() {
        let hashes = |name: &str, text: &str| changes(&[(name, text)]).hashes();
        let all = [
            changes(&[]).hashes(),
            hashes("candle-core/Cargo.toml", "[package]"),
            hashes("candle-nn/Cargo.toml", "[package]"),
            hashes("patches/02-digits.patch", PATCH),
            hashes("patches/02-digits.patch", LATER),
            hashes("files/candle-core/src/a.rs", PATCH),
        ];
        assert!(all.iter().enumerate().all(|(index, one)| !all[..index].contains(one)));
        assert_eq!(hashes("patches/02-digits.patch", &PATCH.replace("shorter", "short")), all[3]);
    }

    #[test]
    fn the_list_has_the_text_of_each_patch_and_counts_its_lines() {
        let list = changes(&[("patches/02-digits.patch", PATCH), ("patches/10-later.patch", LATER)]).list();
        assert_eq!(
            list.unwrap(),
            "02-digits: Numbers are words: two of them are digits\n    Digits are shorter.\n    Link: https://example.com/1\n    \
             candle-core/src/a.rs +2 -2\n\n10-later: Digits are short\n    candle-core/src/a.rs +2 -1\n    \
             candle-nn/src/b.rs +1 -1\n"
        );
    }

    #[test]
    fn the_version_is_that_of_the_manifests() {
        let version = format!("\nversion = \"{}\"\n", CANDLE.version);
        let packed = Changes::packed();
        assert_eq!(packed.manifests.len(), CANDLE.packages.len());
        assert!(packed.manifests.values().all(|manifest| manifest.contains(&version)));
    }

    #[test]
    fn packed_manifests_have_no_build_script() {
        let packed = Changes::packed();
        assert!(packed.manifests.values().all(|manifest| manifest.contains(NO_BUILD_SCRIPT)));
        assert!(
            PACKED.iter().filter(|(path, _)| path.ends_with("Cargo.toml")).all(|(_, text)| text.contains(BUILD_SCRIPT))
        );
    }

    #[test]
    fn our_patches_have_titles() {
        assert!(Changes::packed().patches().iter().all(|patch| !patch.title().is_empty()));
    }
}
