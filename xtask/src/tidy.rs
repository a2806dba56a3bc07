//! `cargo xtask tidy` checks the style rules that no compiler checks. Never changes a file.

mod arrows;
mod figures;
pub(crate) mod guide;
mod reasons;
mod rust;
mod text;
mod tree;

use crate::environment::cargo;
use crate::packages;
use crate::step::output;
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The page with the arrows, and with the modules that may have unsafe code.
const ARCHITECTURE: &str = "ARCHITECTURE.md";
/// The pages whose paths begin at the root and must exist.
const PAGES: [&str; 3] = [ARCHITECTURE, "CONTRIBUTING.md", reasons::PAGE];

pub(crate) fn run(root: &Path) -> Result<()> {
    let read = |path: &str| fs::read_to_string(root.join(path)).with_context(|| format!("cannot read {path}"));
    let mut complaints = Vec::new();
    let architecture = read(ARCHITECTURE)?;
    let modules = |beginning| text::modules(&architecture, beginning);
    let fences = rust::Fences { unsafe_code: modules(text::UNSAFE), system: modules(text::SYSTEM) };
    for page in PAGES {
        complaints.extend(text::missing_paths(page, &read(page)?, root));
    }
    complaints.extend(arrows::check(&architecture, &metadata(root)?)?);
    complaints.extend(reasons::check(&read(reasons::PAGE)?, &read("Cargo.toml")?));
    let mut pages = BTreeMap::new();
    for path in files(root)? {
        // These rules do not apply to binary files.
        let Ok(content) = fs::read_to_string(root.join(&path)) else { continue };
        complaints.extend(text::check(&path, &content));
        if path.ends_with(".rs") {
            complaints.extend(rust::check(&path, &content, &fences));
        }
        if path.ends_with(".ipynb") {
            complaints.extend(text::stored_outputs(&path, &content));
        }
        if path.ends_with(".md") {
            pages.insert(path, content);
        }
    }
    complaints.extend(guide::check(&pages, |path| root.join(path).exists()));
    complaints.extend(figures::check(&pages, env!("CARGO_PKG_VERSION")));
    for package in tree::HOSTS {
        complaints.extend(tree::forbidden(package, &dependencies(root, package, "99")?));
    }
    complaints.extend(tree::openers(&dependencies(root, tree::PIPELINES, "99")?));
    complaints.extend(packages::complaints(root)?);
    for plain in tree::PLAIN {
        complaints.extend(plain.foreign(&dependencies(root, plain.package, "1")?));
    }
    if !complaints.is_empty() {
        bail!("{} complaints:\n{}", complaints.len(), complaints.join("\n"));
    }
    Ok(())
}

/// All files of the repository that git tracks or would add, relative to its root.
fn files(root: &Path) -> Result<Vec<String>> {
    let mut git = Command::new("git");
    git.current_dir(root).args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let mut files: Vec<String> = match output(&mut git) {
        Ok(list) => list.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect(),
        // A source archive has no git.
        Err(_) => walk(root, Path::new(""))?,
    };
    // Git still lists files that are deleted and not committed yet.
    files.retain(|path| root.join(path).is_file());
    files.sort();
    files.dedup();
    Ok(files)
}

fn walk(root: &Path, folder: &Path) -> Result<Vec<String>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let path = folder.join(entry.file_name());
        if entry.file_type()?.is_file() {
            files.push(path.to_string_lossy().into_owned());
        } else if entry.file_name() != "target"
            && entry.file_name() != ".git"
            && !packages::SOURCES.iter().any(|made| path == Path::new(made))
        {
            files.extend(walk(root, &path)?);
        }
    }
    Ok(files)
}

/// The metadata that cargo prints for the crates of the workspace.
fn metadata(root: &Path) -> Result<String> {
    let mut metadata = cargo(root);
    metadata.args(["metadata", "--locked", "--no-deps", "--format-version=1"]);
    output(&mut metadata)
}

/// The crates that a package links, one crate on each line.
fn dependencies(root: &Path, package: &str, depth: &str) -> Result<String> {
    let mut tree = cargo(root);
    tree.args(["tree", "--locked", "--edges", "normal", "--prefix", "none", "--package", package, "--depth", depth]);
    output(&mut tree)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_a_tree_without_git_are_found() {
        let root = tempfile::tempdir().unwrap();
        for folder in ["a/b", "target", packages::SOURCES[0]] {
            fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        for file in ["a/b/c.rs", "target/d.rs", "e.md"] {
            fs::write(root.path().join(file), "").unwrap();
        }
        fs::write(root.path().join(packages::SOURCES[0]).join("lib.rs"), "").unwrap();
        let mut found = walk(root.path(), Path::new("")).unwrap();
        found.sort();
        assert_eq!(found, ["a/b/c.rs", "e.md"]);
    }
}
