//! Rows about Jupyter's packages in the Python on the search path.

use super::Row;
use super::machine::DEADLINE;
use crate::environment;
use ferrotune_machine::child;
use std::process::Command;

/// A Python program that prints the version of each package, or an empty line.
const ASK: &str = "
import sys
from importlib import metadata
print(sys.version.split()[0])
for name in sys.argv[1:]:
    try:
        print(metadata.version(name))
    except metadata.PackageNotFoundError:
        print()
";

const PACKAGES: [&str; 6] = ["jupyter_client", "jupyter_core", "jupyterlab", "notebook", "nbclient", "ferrotune"];

const CURE: &str = "start this in Jupyter's environment";

pub(super) fn rows() -> Vec<Row> {
    let Some(python) = environment::search("python3") else {
        return vec![Row::new("Python", "no python3 on the PATH").with_cure(CURE)];
    };
    let asked = child::output(Command::new(&python).args(["-c", ASK]).args(PACKAGES), DEADLINE);
    let text = match asked {
        Ok(text) => text,
        Err(error) => {
            let row = Row::new("Python", format!("{} does not answer: {error}", python.display()));
            return vec![row.with_cure(CURE)];
        }
    };
    let mut lines = text.lines();
    let version = lines.next().unwrap_or_default();
    let found: Vec<String> = PACKAGES
        .iter()
        .zip(lines)
        .filter(|(_, version)| !version.is_empty())
        .map(|(name, version)| format!("{name} {version}"))
        .collect();
    let packages = if found.is_empty() {
        Row::new("Jupyter", "not in this Python").with_cure(format!("{CURE}, or pip install jupyterlab"))
    } else {
        Row::new("Jupyter", found.join(", "))
    };
    vec![Row::new("Python", format!("{version} at {}", python.display())), packages]
}
