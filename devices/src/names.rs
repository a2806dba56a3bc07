//! The names of plugins' devices, which are the same in messages, tables, records and studies. A name has no path, unless the user has
//! named the plugin by its path.

use crate::cuda;
use crate::machine::{Machine, Tree};
use crate::packaged::{LIBTPU, ONEAPI, Packaged, ROCM, XLA_CPU};
use std::fmt;
use std::path::{Path, PathBuf};

/// The name of a device of a PJRT plugin, such as `tpu`, `cuda`, `cuda:1`, `xla:cpu` or `xla:/opt/plugin.so`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceName {
    plugin: PluginName,
    /// The device's number among those that the plugin has for this process.
    number: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum PluginName {
    Tpu,
    Cards(Maker),
    XlaCpu,
    File(String),
}

/// The maker of a card, by the name of its plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Maker {
    /// NVIDIA.
    Cuda,
    /// AMD.
    Rocm,
    /// Intel.
    Oneapi,
}

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
    #[error("{path} is not a file; name cuda, rocm, oneapi, cpu, or the library of a PJRT plugin")]
    NoFile {
        /// The path.
        path: PathBuf,
    },
    /// The name is not a name of a plugin's device.
    #[error(
        "{device} is no device of a plugin; those are tpu, cuda, cuda:1 and so on, rocm, oneapi, xla:cpu and xla:FILE"
    )]
    NotOfAPlugin {
        /// The device's name.
        device: String,
    },
}

impl Maker {
    pub(crate) const ALL: [Maker; 3] = [Maker::Cuda, Maker::Rocm, Maker::Oneapi];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Maker::Cuda => "cuda",
            Maker::Rocm => "rocm",
            Maker::Oneapi => "oneapi",
        }
    }

    pub(crate) fn packaged(self, tree: &Tree<'_>) -> Packaged {
        match self {
            Maker::Cuda => cuda::packaged(tree),
            Maker::Rocm => ROCM,
            Maker::Oneapi => ONEAPI,
        }
    }
}

impl DeviceName {
    /// Reads a name. None for a device without a plugin (`cpu`), and for any other text.
    pub fn parse(device: &str) -> Option<DeviceName> {
        let (plugin, rest) = device.split_once(':').unwrap_or((device, "0"));
        let maker = Maker::ALL.into_iter().find(|maker| maker.name() == plugin);
        let (plugin, number) = match (plugin, rest, maker) {
            ("tpu", "0", _) => (PluginName::Tpu, 0),
            ("xla", "cpu", _) => (PluginName::XlaCpu, 0),
            ("xla", file, _) => (PluginName::File(file.to_owned()), 0),
            (_, number, Some(maker)) => (PluginName::Cards(maker), number.parse().ok()?),
            _ => return None,
        };
        Some(DeviceName { plugin, number })
    }

    /// The device's number among those that the plugin has for this process: 1 for `cuda:1`, 0 for `cuda`.
    pub fn number(&self) -> usize {
        self.number
    }

    /// The first device of the same plugin.
    #[must_use]
    pub fn first(&self) -> DeviceName {
        self.with_number(0)
    }

    /// The device of the same plugin that has this number.
    pub(crate) fn with_number(&self, number: usize) -> DeviceName {
        DeviceName { plugin: self.plugin.clone(), number }
    }

    /// Whether the device is a card (a GPU).
    pub fn is_card(&self) -> bool {
        matches!(self.plugin, PluginName::Cards(_))
    }

    /// Whether the trials of a search use one device process for this device, by its name: true for a card and for a TPU. XLA's plugin of
    /// the CPU computes in a trial's own process, whose memory is then the trial's, and a trial opens the plugin of a file itself.
    pub fn is_shared_by_trials(&self) -> bool {
        self.is_card() || matches!(self.plugin, PluginName::Tpu)
    }

    /// The path of the plugin's library.
    ///
    /// # Errors
    /// If the plugin is not on this machine.
    pub fn find_plugin(&self, machine: &Machine) -> Result<PathBuf, NoPlugin> {
        let tree = Tree::new(&machine.root);
        match &self.plugin {
            PluginName::Tpu => LIBTPU.required(machine, &tree),
            PluginName::Cards(maker) => maker.packaged(&tree).required(machine, &tree),
            PluginName::XlaCpu => XLA_CPU.required(machine, &tree),
            PluginName::File(path) if tree.is_file(path) => Ok(tree.path(path)),
            PluginName::File(path) => Err(NoPlugin::NoFile { path: path.into() }),
        }
    }
}

impl fmt::Display for DeviceName {
    /// Writes the shortest form of the name: `cuda` for `cuda:0`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.plugin {
            PluginName::Tpu => f.write_str("tpu")?,
            PluginName::Cards(maker) => f.write_str(maker.name())?,
            PluginName::XlaCpu => f.write_str("xla:cpu")?,
            PluginName::File(path) => write!(f, "xla:{path}")?,
        }
        if self.number == 0 { Ok(()) } else { write!(f, ":{}", self.number) }
    }
}

/// The plugin of a device by its name; see [`DeviceName`].
///
/// # Errors
/// If the plugin is not on this machine, or the name is not one of a plugin's device.
pub fn find_plugin(machine: &Machine, device: &str) -> Result<PathBuf, NoPlugin> {
    let name = DeviceName::parse(device).ok_or_else(|| NoPlugin::NotOfAPlugin { device: device.to_owned() })?;
    name.find_plugin(machine)
}

/// The name of the first device of a plugin, by `tpu`, `cuda`, `cuda:1`, `rocm`, `oneapi`, `cpu` or the path of its library. The name is
/// the same in every process of this machine. A library that is found under a short name has that name, so that a study does not depend
/// on the library's path.
///
/// # Errors
/// If there is no such file.
pub fn name_of_plugin(machine: &Machine, plugin: &str) -> Result<DeviceName, NoPlugin> {
    let plugin = if plugin == "cpu" { "xla:cpu" } else { plugin };
    if let Some(name) = DeviceName::parse(plugin).filter(|name| !matches!(name.plugin, PluginName::File(_))) {
        return Ok(name);
    }
    let path = Path::new(plugin);
    // A relative path would name another file in the folder of a trial than in the folder of the notebook.
    let Some(path) = path.canonicalize().ok().filter(|path| path.is_file()) else {
        return Err(NoPlugin::NoFile { path: path.to_owned() });
    };
    let short = Maker::ALL.map(PluginName::Cards).into_iter().chain([PluginName::Tpu]);
    let is_this = |name: &DeviceName| {
        let found = name.find_plugin(machine).ok().and_then(|found| found.canonicalize().ok());
        found.as_deref() == Some(&*path)
    };
    let found = short.map(|plugin| DeviceName { plugin, number: 0 }).find(is_this);
    Ok(found.unwrap_or_else(|| DeviceName { plugin: PluginName::File(path.display().to_string()), number: 0 }))
}
