//! Finds plugins that are installed as Python packages. It never loads one: libtpu can hang for minutes on a machine without a chip.

use crate::finding::Finding;
use crate::machine::{Machine, Tree};
use std::path::{Path, PathBuf};

/// A plugin that is distributed as a Python package.
pub(crate) struct Packaged {
    /// The plugin's name in messages.
    pub(crate) name: &'static str,
    /// The name of the Python package.
    package: &'static str,
    /// The library's path below the folder of Python packages.
    file: &'static str,
    /// The environment variable that may name the library.
    variable: &'static str,
    /// The purpose of the plugin, for messages.
    purpose: &'static str,
}

/// Google's driver of TPUs, libtpu.
pub(crate) const LIBTPU: Packaged = Packaged {
    name: "libtpu",
    package: "libtpu",
    file: "libtpu/libtpu.so",
    variable: "TPU_LIBRARY_PATH",
    purpose: "needed to drive a TPU",
};

/// XLA's compiler for the CPU.
const XLA_CPU: Packaged = Packaged {
    name: "XLA:CPU",
    package: "xla_cpu_pjrt",
    file: "xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so",
    variable: "FERROTUNE_XLA_CPU",
    purpose: "needed to compile for the CPU",
};

/// The prefixes of Python installations besides `VIRTUAL_ENV`, `CONDA_PREFIX` and `~/.local`: Colab and Kaggle use the first,
/// distributions the second, Deep Learning VMs the third. Each contains `lib/python3*/{site,dist}-packages`.
const PYTHON_PREFIXES: [&str; 3] = ["/usr/local", "/usr", "/opt/conda"];

/// The reason why a device's plugin cannot be found on this machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoPlugin {
    /// The plugin's Python package is not installed.
    #[error("{name} is not installed, and it is {purpose}; pip install {package}, or set {variable}")]
    NotInstalled {
        /// The plugin's name.
        name: &'static str,
        /// The purpose of the plugin.
        purpose: &'static str,
        /// The name of the Python package.
        package: &'static str,
        /// The variable that may name the library.
        variable: &'static str,
    },
    /// The path is not a file.
    #[error("{path} is not a file; name cpu, or the library of a PJRT plugin")]
    NoFile {
        /// The path.
        path: PathBuf,
    },
    /// The name is not a name of a plugin's device.
    #[error("{device} is no device of a plugin; those are tpu, xla:cpu and xla:FILE")]
    NotOfAPlugin {
        /// The device's name.
        device: String,
    },
}

/// The plugin of a device by its name: `tpu`, `xla:cpu`, or `xla:` and the path of a plugin's library.
///
/// # Errors
/// If the plugin is not on this machine.
pub fn find_plugin(machine: &Machine, device: &str) -> Result<PathBuf, NoPlugin> {
    let tree = Tree::new(&machine.root);
    match device.split_once(':').unwrap_or((device, "0")) {
        ("tpu", "0") => LIBTPU.required(machine, &tree),
        ("xla", "cpu") => XLA_CPU.required(machine, &tree),
        ("xla", path) if tree.is_file(path) => Ok(tree.path(path)),
        ("xla", path) => Err(NoPlugin::NoFile { path: path.into() }),
        _ => Err(NoPlugin::NotOfAPlugin { device: device.to_owned() }),
    }
}

/// The name of the first device of a plugin, which is `cpu` or the path of its library. The name is the same in every process
/// of this machine.
///
/// # Errors
/// If there is no such file.
pub fn name_of_plugin(plugin: &str) -> Result<String, NoPlugin> {
    if plugin == "cpu" {
        return Ok("xla:cpu".to_owned());
    }
    let path = Path::new(plugin);
    // A relative path would name another file in the folder of a trial than in the folder of the notebook.
    match path.canonicalize() {
        Ok(path) if path.is_file() => Ok(format!("xla:{}", path.display())),
        _ => Err(NoPlugin::NoFile { path: path.to_owned() }),
    }
}

impl Packaged {
    /// Path of the plugin's library, if the plugin is installed.
    pub(crate) fn find(&self, machine: &Machine, tree: &Tree<'_>, findings: &mut Vec<Finding>) -> Option<PathBuf> {
        let name = self.name;
        if let Some(path) = machine.variable(self.variable) {
            if tree.is_file(path) {
                findings.push(Finding::new(self.variable, path, format!("{name} is here")));
                return Some(tree.path(path));
            }
            findings.push(Finding::new(self.variable, path, "not a file; the Python package is looked for"));
        }
        let environments = ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(|name| machine.variable(name));
        let home = machine.variable("HOME").map(|home| format!("{home}/.local"));
        let prefixes = environments.chain(PYTHON_PREFIXES).map(str::to_owned).chain(home);
        let Some(path) = prefixes.into_iter().find_map(|prefix| self.in_prefix(tree, &prefix)) else {
            findings.push(Finding::new(name, "not found", format!("{}; pip install {}", self.purpose, self.package)));
            return None;
        };
        findings.push(Finding::new(name, &path, format!("{name} is here, in its Python package")));
        Some(tree.path(&path))
    }

    fn required(&self, machine: &Machine, tree: &Tree<'_>) -> Result<PathBuf, NoPlugin> {
        let Packaged { name, purpose, package, variable, .. } = *self;
        self.find(machine, tree, &mut Vec::new()).ok_or(NoPlugin::NotInstalled { name, purpose, package, variable })
    }

    /// The library in the package of the newest Python below a prefix.
    fn in_prefix(&self, tree: &Tree<'_>, prefix: &str) -> Option<String> {
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
                ["site-packages", "dist-packages"].map(|kind| format!("{prefix}/lib/{python}/{kind}/{}", self.file))
            })
            .find(|path| tree.is_file(path))
    }
}
