//! Finds libtpu. Never loads it: on a machine without a chip that can hang for minutes.

use crate::finding::Finding;
use crate::machine::{Machine, Tree};
use std::path::PathBuf;

const LIBRARY_PATH: &str = "TPU_LIBRARY_PATH";

/// Where Python is installed besides `VIRTUAL_ENV`, `CONDA_PREFIX` and `~/.local`: Colab and Kaggle use the first,
/// distributions the second, Deep Learning VMs the third. Each holds `lib/python3*/{site,dist}-packages`.
const PYTHON_PREFIXES: [&str; 3] = ["/usr/local", "/usr", "/opt/conda"];

pub(super) fn find(machine: &Machine, tree: &Tree<'_>, findings: &mut Vec<Finding>) -> Option<PathBuf> {
    if let Some(path) = machine.variable(LIBRARY_PATH) {
        if tree.is_file(path) {
            findings.push(Finding::new(LIBRARY_PATH, path, "libtpu is here"));
            return Some(tree.path(path));
        }
        findings.push(Finding::new(LIBRARY_PATH, path, "not a file; the Python package is looked for"));
    }
    let environments = ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(|name| machine.variable(name));
    let home = machine.variable("HOME").map(|home| format!("{home}/.local"));
    let prefixes = environments.chain(PYTHON_PREFIXES).map(str::to_owned).chain(home);
    let Some(path) = prefixes.into_iter().find_map(|prefix| in_prefix(tree, &prefix)) else {
        findings.push(Finding::new("libtpu", "not found", "needed to drive a TPU; pip install libtpu"));
        return None;
    };
    findings.push(Finding::new("libtpu", &path, "libtpu is here, in its Python package"));
    Some(tree.path(&path))
}

/// libtpu in the package of the newest Python below a prefix.
fn in_prefix(tree: &Tree<'_>, prefix: &str) -> Option<String> {
    let mut versions: Vec<(u32, String)> = tree
        .names(&format!("{prefix}/lib"))
        .into_iter()
        .filter_map(|name| {
            let minor = name.strip_prefix("python3")?.trim_start_matches('.');
            // The folder `python3` itself holds the packages that all versions of a distribution share.
            Some((minor.parse().unwrap_or(0), name))
        })
        .collect();
    versions.sort_by(|left, right| right.cmp(left));
    versions
        .iter()
        .flat_map(|(_, python)| {
            ["site-packages", "dist-packages"].map(|kind| format!("{prefix}/lib/{python}/{kind}/libtpu/libtpu.so"))
        })
        .find(|path| tree.is_file(path))
}
