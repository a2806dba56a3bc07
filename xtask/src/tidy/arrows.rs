//! The arrows of ARCHITECTURE.md, which are the dependencies between crates. Compares them with the manifests, and has no order of its own.

use anyhow::{Context, Result};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The texts before and after the block of arrows.
const BLOCK: (&str, &str) = ("```arrows\n", "```");
/// The text between a crate and its dependencies.
const ARROW: &str = " → ";

/// A crate and one of its dependencies, each by its folder.
type Arrow = (String, String);

/// Complains about each arrow that only the page or only the manifests have. `metadata` is the output of `cargo metadata --no-deps`.
pub(super) fn check(architecture: &str, metadata: &str) -> Result<Vec<String>> {
    let (named, made) = (named(architecture)?, made(metadata)?);
    let missing = made.difference(&named).map(|(from, to)| {
        format!("ARCHITECTURE.md has no arrow {from}{ARROW}{to}, but {from}/Cargo.toml has this dependency; add one of them, or remove the other")
    });
    let superfluous = named.difference(&made).map(|(from, to)| {
        format!("ARCHITECTURE.md has the arrow {from}{ARROW}{to}, but {from}/Cargo.toml has no such dependency; remove the arrow")
    });
    Ok(missing.chain(superfluous).collect())
}

/// The arrows in the page.
fn named(architecture: &str) -> Result<BTreeSet<Arrow>> {
    let (_, rest) =
        architecture.split_once(BLOCK.0).context("ARCHITECTURE.md has no block that begins with ```arrows")?;
    let (block, _) = rest.split_once(BLOCK.1).context("the arrows of ARCHITECTURE.md have no end")?;
    let mut arrows = BTreeSet::new();
    for line in block.lines() {
        let (from, all) = line.split_once(ARROW).with_context(|| {
            format!("ARCHITECTURE.md has the line `{line}` among its arrows; write FOLDER{ARROW}FOLDER, FOLDER")
        })?;
        arrows.extend(all.split(", ").map(|to| (from.to_owned(), to.to_owned())));
    }
    Ok(arrows)
}

/// The dependencies between crates of the workspace, without those of tests and of build scripts.
fn made(metadata: &str) -> Result<BTreeSet<Arrow>> {
    let metadata: Value = serde_json::from_str(metadata).context("cannot read what cargo metadata prints")?;
    let packages = metadata["packages"].as_array().context("cargo metadata names no packages")?;
    let root = Path::new(metadata["workspace_root"].as_str().context("cargo metadata names no root")?);
    let folder = |package: &Value| {
        let manifest = Path::new(package["manifest_path"].as_str()?);
        Some(manifest.parent()?.strip_prefix(root).ok()?.to_string_lossy().into_owned())
    };
    let folders: BTreeMap<&str, String> =
        packages.iter().filter_map(|package| Some((package["name"].as_str()?, folder(package)?))).collect();
    let arrows = packages.iter().flat_map(|package| {
        let from = package["name"].as_str().and_then(|name| folders.get(name));
        let all = package["dependencies"].as_array().into_iter().flatten();
        let linked = all.filter(|dependency| dependency["kind"].is_null());
        let names = linked.filter_map(|dependency| dependency["name"].as_str());
        names.filter_map(|name| Some((from?.clone(), folders.get(name)?.clone()))).collect::<Vec<_>>()
    });
    Ok(arrows.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const METADATA: &str = r#"{"workspace_root": "/clone", "packages": [
        {"name": "ferrotune", "manifest_path": "/clone/kernel/Cargo.toml", "dependencies": [
            {"name": "ferrotune-link", "kind": null}, {"name": "ferrotune-results", "kind": null},
            {"name": "ferrotune-nn", "kind": "dev"}, {"name": "serde", "kind": null}]},
        {"name": "ferrotune-link", "manifest_path": "/clone/link/Cargo.toml", "dependencies": []},
        {"name": "ferrotune-nn", "manifest_path": "/clone/nn/Cargo.toml", "dependencies": []},
        {"name": "ferrotune-results", "manifest_path": "/clone/tuner/results/Cargo.toml", "dependencies": []}
    ]}"#;

    fn complaints(arrows: &str) -> Vec<String> {
        check(&format!("# Page\n\n```arrows\n{arrows}```\n\n```text\na → b\n```\n"), METADATA).unwrap()
    }

    #[test]
    fn arrows_of_the_page_are_those_of_the_manifests() {
        assert_eq!(complaints("kernel → link, tuner/results\n"), [""; 0]);
        assert_eq!(complaints("kernel → tuner/results\nkernel → link\n"), [""; 0]);
    }

    #[test]
    fn a_missing_arrow_and_a_superfluous_one_are_found() {
        let missing = complaints("kernel → link\n");
        assert_eq!(missing.len(), 1, "{missing:?}");
        assert!(missing[0].starts_with("ARCHITECTURE.md has no arrow kernel → tuner/results, but"), "{missing:?}");
        let superfluous = complaints("kernel → link, nn, tuner/results\n");
        assert_eq!(superfluous.len(), 1, "{superfluous:?}");
        assert!(superfluous[0].starts_with("ARCHITECTURE.md has the arrow kernel → nn, but"), "{superfluous:?}");
        let unknown = complaints("kernel → link, tuner/results\nshell → link\n");
        assert_eq!(unknown.len(), 1, "{unknown:?}");
    }

    #[test]
    fn a_page_without_arrows_and_a_line_that_is_none_are_errors() {
        assert!(check("# Page\n", METADATA).is_err());
        let error = check("```arrows\nkernel: link\n```\n", METADATA).unwrap_err().to_string();
        assert!(error.contains("`kernel: link`"), "{error}");
    }
}
