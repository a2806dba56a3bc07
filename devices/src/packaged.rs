//! Finds plugins that are installed as Python packages. It never loads one: libtpu can hang for minutes on a machine without a chip.

use crate::finding::Finding;
use crate::machine::{Machine, Tree};
use crate::names::NoPlugin;
use crate::python;
use std::path::PathBuf;

/// A plugin that is distributed as a Python package.
pub(crate) struct Packaged {
    /// The plugin's name in messages.
    pub(crate) name: &'static str,
    /// What `pip install` installs.
    pub(crate) package: &'static str,
    /// The paths that the library may have below the folder of Python packages, best first.
    files: &'static [&'static str],
    /// The environment variable that may name the library.
    variable: &'static str,
    /// The purpose of the plugin, for messages.
    purpose: &'static str,
}

/// Google's driver of TPUs, libtpu.
pub(crate) const LIBTPU: Packaged = Packaged {
    name: "libtpu",
    package: "libtpu",
    files: &["libtpu/libtpu.so"],
    variable: "TPU_LIBRARY_PATH",
    purpose: "needed to drive a TPU",
};

/// XLA's compiler for the CPU.
pub(crate) const XLA_CPU: Packaged = Packaged {
    name: "XLA:CPU",
    package: "fastatomstruct-xla-cpu",
    files: &["fastatomstruct_xla_cpu/libpjrt_cpu.so", "xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so"],
    variable: "FERROTUNE_XLA_CPU",
    purpose: "needed to compile for the CPU",
};

const OF_CUDA_12: &str = "jax_plugins/xla_cuda12/xla_cuda_plugin.so";
const OF_CUDA_13: &str = "jax_plugins/xla_cuda13/xla_cuda_plugin.so";

/// The plugin of NVIDIA's cards for drivers that have CUDA 13. The package brings NVIDIA's libraries; `jax-cuda13-pjrt` alone does not.
pub(crate) const CUDA_13: Packaged = Packaged {
    name: "the CUDA plugin",
    package: "\"jax-cuda13-plugin[with-cuda]\"",
    files: &[OF_CUDA_13, OF_CUDA_12],
    variable: "FERROTUNE_CUDA",
    purpose: "needed to drive NVIDIA's cards",
};

/// The plugin of NVIDIA's cards for older drivers and older cards.
pub(crate) const CUDA_12: Packaged =
    Packaged { package: "\"jax-cuda12-plugin[with-cuda]\"", files: &[OF_CUDA_12, OF_CUDA_13], ..CUDA_13 };

/// The plugin of AMD's cards.
pub(crate) const ROCM: Packaged = Packaged {
    name: "the ROCm plugin",
    package: "jax-rocm7-pjrt",
    files: &[
        "jax_plugins/xla_rocm10/xla_rocm_plugin.so",
        "jax_plugins/xla_rocm7/xla_rocm_plugin.so",
        "jax_plugins/xla_rocm60/xla_rocm_plugin.so",
    ],
    variable: "FERROTUNE_ROCM",
    purpose: "needed to drive AMD's cards",
};

/// The plugin of Intel's cards.
pub(crate) const ONEAPI: Packaged = Packaged {
    name: "the oneAPI plugin",
    package: "jax-oneapi-pjrt",
    files: &["jax_plugins/xla_oneapi/xla_oneapi_plugin.so"],
    variable: "FERROTUNE_ONEAPI",
    purpose: "needed to drive Intel's cards",
};

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
        let prefixes = python::prefixes(machine);
        let Some(path) = prefixes.iter().find_map(|prefix| self.in_prefix(tree, prefix)) else {
            findings.push(Finding::new(name, "not found", format!("{}; pip install {}", self.purpose, self.package)));
            return None;
        };
        findings.push(Finding::new(name, &path, format!("{name} is here, in its Python package")));
        Some(tree.path(&path))
    }

    /// The advice where the plugin is not installed.
    pub(crate) fn advice(&self) -> String {
        format!("{} is not installed; pip install {}", self.name, self.package)
    }

    /// Path of the plugin's library.
    ///
    /// # Errors
    /// If the plugin is not installed.
    pub(crate) fn required(&self, machine: &Machine, tree: &Tree<'_>) -> Result<PathBuf, NoPlugin> {
        let Packaged { name, purpose, package, variable, .. } = *self;
        self.find(machine, tree, &mut Vec::new()).ok_or(NoPlugin::NotInstalled { name, purpose, package, variable })
    }

    /// The library in the package of the newest Python below a prefix.
    fn in_prefix(&self, tree: &Tree<'_>, prefix: &str) -> Option<String> {
        let packages = python::packages(tree, prefix);
        let paths = packages.iter().flat_map(|folder| self.files.iter().map(move |file| format!("{folder}/{file}")));
        paths.into_iter().find(|path| tree.is_file(path))
    }
}
