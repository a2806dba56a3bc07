//! The packages of crates.io that this crate changes, with their versions.

use crate::sources::Sources;
use std::fmt::{self, Display, Formatter};

/// The project candle, which cells are linked with.
pub const CANDLE: Upstream = Upstream {
    name: "candle",
    version: "0.11.1",
    our_version: "0.11.1",
    packages: &[
        Package {
            name: "candle-core",
            our_name: "candle-core",
            checksum: "d11c8be87cfbaef9ebb62fb3f850d1fc8e00cc1d11d393fdbe55a4d5c2cdb325",
            documents: &["LICENSE", "README.md"],
        },
        Package {
            name: "candle-nn",
            our_name: "candle-nn",
            checksum: "437fabe77547c2447c7bdf3cc946e19db29a2832440176b419f77c80b0a9a05e",
            documents: &["README.md"],
        },
    ],
};

/// The project evcxr, with which the kernel runs cells.
pub const EVCXR: Upstream = Upstream {
    name: "evcxr",
    version: "0.22.0",
    our_version: env!("CARGO_PKG_VERSION"),
    packages: &[Package {
        name: "evcxr",
        our_name: "ferrotune-evcxr",
        checksum: "ee69caeeefc311959b85962458e370d8eccb165123edbc5270134aaee6d7ed80",
        documents: &["LICENSE"],
    }],
};

/// One version of a project, whose packages are in one git repository.
#[derive(Debug, PartialEq, Eq)]
pub struct Upstream {
    /// The name of the project, and of the task of `cargo xtask` that makes our packages of it.
    pub name: &'static str,
    /// The version of the project's packages on crates.io.
    pub version: &'static str,
    /// The version of our packages.
    pub(crate) our_version: &'static str,
    /// The packages that we change.
    pub packages: &'static [Package],
}

/// A package of a project.
#[derive(Debug, PartialEq, Eq)]
pub struct Package {
    /// The name of the package on crates.io, and of its folder in the project's git repository and here.
    pub name: &'static str,
    /// The name of our package. The packages of candle keep their names, because other packages depend on them.
    pub(crate) our_name: &'static str,
    /// The checksum of the package on crates.io.
    pub(crate) checksum: &'static str,
    /// The kept files of the package outside `src`.
    pub(crate) documents: &'static [&'static str],
}

impl Upstream {
    /// The folder of the repository with our changes and packages of the project.
    pub fn folder(&self) -> String {
        format!("patched/{}", self.name)
    }
}

impl Package {
    /// The folder of the package's sources, below [`Upstream::folder`].
    pub(crate) fn sources(&self) -> String {
        format!("{}/src", self.name)
    }

    /// The manifest of our package, below [`Upstream::folder`].
    pub(crate) fn manifest(&self) -> String {
        format!("{}/Cargo.toml", self.name)
    }

    /// The path in the package of a file below [`Upstream::folder`]; none if the file does not belong to the package.
    pub(crate) fn inside<'a>(&self, path: &'a str) -> Option<&'a str> {
        path.strip_prefix(self.name)?.strip_prefix('/')
    }

    /// Whether a file below [`Upstream::folder`] belongs to the package.
    pub(crate) fn has(&self, path: &str) -> bool {
        self.inside(path).is_some()
    }

    /// The package's files among a project's sources.
    pub(crate) fn part(&self, sources: &Sources) -> Sources {
        sources.iter().filter(|(path, _)| self.has(path)).map(|(path, text)| (path.clone(), text.clone())).collect()
    }
}

impl Display for Upstream {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.name, self.version)
    }
}
