//! The settings of `%cd` and `%env`, in a file of the kernel's folder. The kernel writes the file; a cell process applies it
//! when it starts and when it wakes from a snapshot. So the settings hold after a crash and after `%undo`.
#![expect(unsafe_code, reason = "changing the environment of a process")]

use crate::chain;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Name of the settings file in the kernel's folder.
const FILE: &str = "settings.json";

/// The folder and the environment variables that magics have set. Everything else is as the kernel's own process has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Settings {
    pub(crate) folder: Option<PathBuf>,
    pub(crate) variables: BTreeMap<String, String>,
}

impl Settings {
    /// Reads the settings in a kernel's folder; without a file, nothing is set.
    pub(crate) fn read(folder: &Path) -> Result<Self> {
        let file = folder.join(FILE);
        match fs::read(&file) {
            Ok(text) => serde_json::from_slice(&text).with_context(|| format!("{} is damaged", file.display())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", file.display())),
        }
    }

    /// Writes the settings into a kernel's folder.
    pub(crate) fn write(&self, folder: &Path) -> Result<()> {
        let new = folder.join(format!("{FILE}.new"));
        fs::write(&new, serde_json::to_vec(self)?)?;
        fs::rename(&new, folder.join(FILE)).context("cannot keep the settings of %cd and %env")
    }

    /// Reads the settings of the kernel in whose folder the snapshots' socket is.
    pub(super) fn of(snapshots: &Path) -> Self {
        Self::read(snapshots.parent().unwrap_or(Path::new("."))).unwrap_or_else(|error| {
            eprintln!("the settings of %cd and %env are lost: {}", chain::in_one_line(&error));
            Self::default()
        })
    }

    /// Applies to this process the settings that differ from the `known` ones; other changes that cells have made stay. The process
    /// must have only one thread. Prints an error for a folder that cannot be applied.
    pub(super) fn apply_beyond(&self, known: &Self) {
        if let Some(folder) = self.folder.as_ref().filter(|_| self.folder != known.folder)
            && let Err(error) = std::env::set_current_dir(folder)
        {
            eprintln!("cells do not run in {}, the folder of %cd: {error}", folder.display());
        }
        for (name, value) in self.variables.iter().filter(|(name, value)| known.variables.get(*name) != Some(*value)) {
            // SAFETY: the process has one thread, so nothing else reads the environment.
            unsafe { std::env::set_var(name, value) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_as_they_were_written() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Settings::read(folder.path()).unwrap(), Settings::default());
        let variables = BTreeMap::from([("KEY".to_owned(), "a \"b\"".to_owned())]);
        let settings = Settings { folder: Some("/data".into()), variables };
        settings.write(folder.path()).unwrap();
        assert_eq!(Settings::read(folder.path()).unwrap(), settings);
        fs::write(folder.path().join(FILE), "{").unwrap();
        assert!(Settings::read(folder.path()).unwrap_err().to_string().ends_with("settings.json is damaged"));
    }
}
