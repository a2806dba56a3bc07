//! Rules for the dependencies of crates.

/// The packages whose processes live as long as the notebook or a search, and so must never open a device.
pub(super) const HOSTS: [&str; 2] = ["ferrotune", "ferrotune-tuner"];

/// A crate without IO of its own, which needs few other crates.
pub(super) struct Plain {
    pub(super) package: &'static str,
    /// All dependencies that the crate may have.
    needs: &'static [&'static str],
    /// The duty of the crate, for the message.
    duty: &'static str,
}

pub(super) const PLAIN: [Plain; 3] = [
    Plain {
        package: "ferrotune-magics",
        needs: &["ferrotune-space", "ra-ap-rustc_lexer", "strsim", "thiserror"],
        duty: "magics only parse",
    },
    Plain {
        package: "ferrotune-oracle",
        needs: &["ferrotune-space", "libm", "rand", "rand_pcg", "serde", "sobol_burley", "strsim", "thiserror"],
        duty: "oracles only compute",
    },
    Plain {
        package: "ferrotune-space",
        needs: &["ferrotune-format", "getrandom", "serde", "serde_json", "thiserror"],
        duty: "it is plain data, which the prelude is built with on the user's machine",
    },
];

/// The prefixes of the names of crates that compute or link devices. `ferrotune-devices` is not one of them: it loads a plugin,
/// and the program does this only in a separate process (`ferrotune probe`).
const DEVICE_CRATES: [&str; 5] = ["candle", "cudarc", "ferrotune-prelude", "ferrotune-trial", "pjrt"];

/// The package of input pipelines, which make elements on the CPU.
pub(super) const PIPELINES: &str = "ferrotune-data";

/// Our packages that open devices or run trials.
const OPENERS: [&str; 3] = ["ferrotune-devices", "ferrotune-trial", "ferrotune-xla"];

/// Complains about packages that open devices in the `cargo tree` of [`PIPELINES`].
pub(super) fn openers(tree: &str) -> Vec<String> {
    let openers = names(tree).filter(|name| OPENERS.contains(name));
    openers.map(|name| format!("{PIPELINES} needs {name}; datasets know neither devices nor trials")).collect()
}

/// Complains about device crates in a package's `cargo tree`.
pub(super) fn forbidden(package: &str, tree: &str) -> Vec<String> {
    let forbidden = names(tree).filter(|name| DEVICE_CRATES.iter().any(|device| name.starts_with(device)));
    let complaint = |name| format!("{package} links {name}; kernel and tuner never link candle, CUDA or PJRT");
    forbidden.map(complaint).collect()
}

impl Plain {
    /// Complains about direct dependencies beyond those that the crate needs.
    pub(super) fn foreign(&self, tree: &str) -> Vec<String> {
        let Plain { package, needs, duty } = self;
        let foreign = names(tree).filter(|name| name != package && !needs.contains(name));
        foreign.map(|name| format!("{package} depends on {name}; {duty}, and needs {needs:?}")).collect()
    }
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
    fn a_dataset_that_needs_a_device_is_found() {
        let tree = "ferrotune-data v0.1.0 (x)\ncandle-core v0.11.1\nferrotune-state v0.1.0 (x)\n";
        assert!(openers(tree).is_empty());
        assert_eq!(openers(&format!("{tree}ferrotune-devices v0.1.0 (x)\n")).len(), 1);
    }

    #[test]
    fn magics_may_match_strings_and_name_errors() {
        let tree = "ferrotune-magics v0.1.0 (x)\nstrsim v0.11.1\nthiserror v2.0.0\n";
        let [magics, ..] = PLAIN;
        assert!(magics.foreign(tree).is_empty());
        assert_eq!(magics.foreign(&format!("{tree}tokio v1.0.0\n")).len(), 1);
    }
}
