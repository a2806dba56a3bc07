//! The packages of crates.io that are changed here, and the versions that the changes are for.

use std::fmt::{self, Display, Formatter};

/// candle-core, which cells are linked with.
pub const CANDLE: Package = Package {
    name: "candle-core",
    our_name: "candle-core",
    version: "0.11.1",
    our_version: "0.11.1",
    checksum: "d11c8be87cfbaef9ebb62fb3f850d1fc8e00cc1d11d393fdbe55a4d5c2cdb325",
    folder: "candle",
    documents: &["LICENSE", "README.md"],
};

/// evcxr, with which the kernel runs cells.
pub const EVCXR: Package = Package {
    name: "evcxr",
    our_name: "ferrotune-evcxr",
    version: "0.22.0",
    our_version: env!("CARGO_PKG_VERSION"),
    checksum: "ee69caeeefc311959b85962458e370d8eccb165123edbc5270134aaee6d7ed80",
    folder: "evcxr",
    documents: &["LICENSE", "build.rs"],
};

/// One version of a package.
#[derive(Debug, PartialEq, Eq)]
pub struct Package {
    /// The name on crates.io, which is that of the folder of its sources, too.
    pub name: &'static str,
    /// The name of our package. candle-core keeps its own, because candle-nn depends on it.
    pub(crate) our_name: &'static str,
    /// The version on crates.io.
    pub version: &'static str,
    /// The version of our package.
    pub(crate) our_version: &'static str,
    /// The checksum on crates.io.
    pub(crate) checksum: &'static str,
    /// The repository's folder with our changes, and the task of `cargo xtask` that makes the sources.
    pub folder: &'static str,
    /// What is beside `src` in the package and kept.
    pub(crate) documents: &'static [&'static str],
}

impl Package {
    /// The manifest of our package, below [`Package::folder`].
    pub(crate) fn manifest(&self) -> String {
        format!("{}/Cargo.toml", self.name)
    }
}

impl Display for Package {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.name, self.version)
    }
}
