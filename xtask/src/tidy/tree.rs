//! Rules for the dependencies of crates.

/// Packages whose processes live as long as the notebook or a search, and so must never open a device.
pub(super) const HOSTS: [&str; 2] = ["ferrotune", "ferrotune-tuner"];
pub(super) const MAGICS: &str = "ferrotune-magics";

/// Prefixes of the names of crates that compute or link devices. `ferrotune-devices` is not one of them: it loads a plugin,
/// and the program does this only in a separate process (`ferrotune probe`).
const DEVICE_CRATES: [&str; 5] = ["candle", "cudarc", "ferrotune-prelude", "ferrotune-trial", "pjrt"];
/// The only dependencies that parsing needs.
const MAGICS_NEEDS: [&str; 4] = ["ferrotune-tuner", "ra-ap-rustc_lexer", "strsim", "thiserror"];
/// The only modules of the tuner that magics use: the description of a search.
const DESCRIPTION: [&str; 3] = ["given::", "space::", "spec::"];

/// Complains about device crates in a package's `cargo tree`.
pub(super) fn forbidden(package: &str, tree: &str) -> Vec<String> {
    let forbidden = names(tree).filter(|name| DEVICE_CRATES.iter().any(|device| name.starts_with(device)));
    let complaint = |name| format!("{package} links {name}; kernel and tuner never link candle, CUDA or PJRT");
    forbidden.map(complaint).collect()
}

/// Complains about direct dependencies of magics that could do IO.
pub(super) fn foreign_to_magics(tree: &str) -> Vec<String> {
    let foreign = names(tree).filter(|name| *name != MAGICS && !MAGICS_NEEDS.contains(name));
    foreign.map(|name| format!("{MAGICS} depends on {name}; magics only parse, and need {MAGICS_NEEDS:?}")).collect()
}

/// Uses of the tuner in a file of magics that could do IO.
pub(super) fn tuner_in_magics(path: &str, source: &str) -> Vec<String> {
    let uses = source.split("ferrotune_tuner::").skip(1).filter(|_| path.starts_with("magics/src/"));
    let foreign = uses.filter(|rest| !DESCRIPTION.iter().any(|module| rest.starts_with(module)));
    let name = |rest: &str| rest.lines().next().unwrap_or_default().to_owned();
    foreign
        .map(|rest| format!("{path} uses ferrotune_tuner::{}; magics only use {DESCRIPTION:?}", name(rest)))
        .collect()
}

fn names(tree: &str) -> impl Iterator<Item = &str> {
    tree.lines().filter_map(|line| line.split_whitespace().next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_links_candle_or_a_crate_above_it_is_found() {
        let tree = "ferrotune v0.1.0 (x)\nserde v1.0.0\ncandle-core v0.11.1\nferrotune-trial v0.1.0 (x)\n";
        assert_eq!(forbidden("ferrotune", tree).len(), 2);
        assert!(forbidden("ferrotune", "ferrotune v0.1.0 (x)\nlibloading v0.9.0\n").is_empty());
    }

    #[test]
    fn magics_may_match_strings_and_name_errors() {
        let tree = "ferrotune-magics v0.1.0 (x)\nstrsim v0.11.1\nthiserror v2.0.0\n";
        assert!(foreign_to_magics(tree).is_empty());
        assert_eq!(foreign_to_magics(&format!("{tree}tokio v1.0.0\n")).len(), 1);
    }

    #[test]
    fn magics_use_nothing_of_the_tuner_but_the_description_of_a_search() {
        let uses = "use ferrotune_tuner::spec::StudySpec;\nuse ferrotune_tuner::{journal, spec};\n";
        assert_eq!(tuner_in_magics("magics/src/values.rs", uses).len(), 1);
        assert!(tuner_in_magics("kernel/src/engine.rs", uses).is_empty());
    }
}
