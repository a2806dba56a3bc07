//! A copy of the standard library's sources for rust-analyzer, with only the parts that the types of variables need.
//!
//! The copy leaves out the largest parts: processor intrinsics, code for operating systems, and tests. The only external crate
//! on which types depend is hashbrown. Stand-ins for its types replace the crate, since rust-analyzer would look for it on
//! crates.io at every start.

use crate::toolchain::Toolchain;
use anyhow::{Context, Result};
use std::fs;
use std::path::Path;

const CRATES: [&str; 4] = ["alloc", "core", "proc_macro", "std"];

/// Folders of `std` and `core` that define no type of a variable.
const LEFT_OUT: [&str; 4] = ["std/src/sys", "std/src/os", "core/src/unicode", "core/src/num/imp"];

/// The stand-ins: each with the file, the line to replace, and the text that replaces the line.
const STAND_INS: [(&str, &str, &str); 2] = [
    (
        "std/src/collections/hash/map.rs",
        "use hashbrown::hash_map as base;",
        "mod base { pub struct HashMap<K, V, S, A>(K, V, S, A); pub struct Iter<'a, K, V>(&'a (K, V)); \
         pub struct IterMut<'a, K, V>(&'a mut (K, V)); pub struct IntoIter<K, V, A>(K, V, A); \
         pub struct Drain<'a, K, V, A>(&'a mut (K, V, A)); pub struct ExtractIf<'a, K, V, F, A>(&'a mut (K, V, F, A)); \
         pub struct RustcOccupiedEntry<'a, K, V, A>(&'a mut (K, V, A)); \
         pub struct RustcVacantEntry<'a, K, V, A>(&'a mut (K, V, A)); }",
    ),
    (
        "std/src/collections/hash/set.rs",
        "use hashbrown::hash_set as base;",
        "mod base { pub struct HashSet<K, S, A>(K, S, A); pub struct Iter<'a, K>(&'a K); pub struct IntoIter<K, A>(K, A); \
         pub struct Drain<'a, K, A>(&'a mut (K, A)); pub struct ExtractIf<'a, K, F, A>(&'a mut (K, F, A)); }",
    ),
];

/// Writes the copy to `folder`.
pub(super) fn write(toolchain: &Toolchain, folder: &Path) -> Result<()> {
    let sources = toolchain.standard_library_sources()?;
    for name in CRATES {
        let crate_sources = Path::new(name).join("src");
        copy(&sources, &crate_sources, folder)?;
    }
    for (file, line, stand_in) in STAND_INS {
        let path = folder.join(file);
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        fs::write(&path, text.replace(line, stand_in))?;
    }
    Ok(())
}

fn copy(root: &Path, from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to.join(from))?;
    let folder = root.join(from);
    for entry in fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let entry = entry?;
        let path = from.join(entry.file_name());
        let is_test = entry.file_name().to_string_lossy().starts_with("tests");
        if is_test || LEFT_OUT.iter().any(|left_out| path.ends_with(left_out)) {
            continue;
        }
        if entry.file_type()?.is_dir() {
            copy(root, &path, to)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            super::copy_signatures(&root.join(&path), &to.join(&path))?;
        } else if path.extension().is_some_and(|extension| extension == "md") {
            fs::copy(root.join(&path), to.join(&path))?;
        }
    }
    Ok(())
}
