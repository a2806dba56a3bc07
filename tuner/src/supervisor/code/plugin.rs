//! The plugin that a study names by its file: a sealed memory file has its bytes, so the workers load exactly the bytes
//! that were hashed. The plugin gets a path of its own, in folders that mirror those of the original file, because a plugin
//! finds libraries beside itself (`$ORIGIN`, `dladdr`). Those libraries are not hashed.

use super::sealed;
use crate::process::Library;
use ferrotune_space::wire::PluginCopy;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// The plugin of a study.
#[derive(Debug)]
pub(in crate::supervisor) struct Plugin {
    pub(in crate::supervisor) copy: PluginCopy,
    /// The bytes of the plugin, which this process holds open for its workers.
    _library: Library,
    /// The folder that mirrors the surroundings of the original file. No other user can change it.
    _folder: TempDir,
}

impl Plugin {
    /// Reads the plugin in a file, for the device with this name.
    pub(super) fn read(device: &str, file: &Path) -> io::Result<Plugin> {
        let original = file.canonicalize()?;
        let (library, (hash, _)) = sealed(&original, original.file_name().unwrap_or_default())?;
        let folder = tempfile::Builder::new().prefix("ferrotune-plugin-").tempdir()?;
        let path = mirrored(folder.path(), &original)?;
        symlink(library.path(), &path)?;
        let not_text = |path| io::Error::new(io::ErrorKind::InvalidFilename, format!("the path {path:?} is not UTF-8"));
        let path = path.into_os_string().into_string().map_err(not_text)?;
        let copy = PluginCopy { device: device.to_owned(), path, hash };
        Ok(Plugin { copy, _library: library, _folder: folder })
    }
}

/// Creates the folders of the file `original` below `root` in place of `/`, and returns the path of the file there. The new
/// folders contain links to everything that is beside the original file and beside the folders above it.
fn mirrored(root: &Path, original: &Path) -> io::Result<PathBuf> {
    let below = |path: &Path| root.join(path.strip_prefix("/").unwrap_or(path));
    let path = below(original);
    path.parent().map_or(Ok(()), fs::create_dir_all)?;
    let folders = original.ancestors().skip(1);
    for (folder, own) in folders.zip(original.ancestors().map(Path::file_name)) {
        link_all(folder, own, &below(folder))?;
    }
    Ok(path)
}

/// Creates links in `to` to the contents of a folder, except for `own`.
fn link_all(folder: &Path, own: Option<&OsStr>, to: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(folder) {
        // The folder cannot be listed, so a plugin cannot search it either. It can only open files whose names it knows.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            tracing::debug!(folder = %folder.display(), "what lies beside the plugin cannot be listed");
            return Ok(());
        }
        entries => entries?,
    };
    for entry in entries {
        let name = entry?.file_name();
        if Some(name.as_os_str()) != own {
            symlink(folder.join(&name), to.join(&name))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    type TestResult = Result<(), Box<dyn std::error::Error + Send + Sync>>;

    #[test]
    fn what_was_hashed_is_what_is_loaded_among_its_neighbours() -> TestResult {
        let folder = tempfile::tempdir()?;
        let plugins = folder.path().join("site/plugins");
        fs::create_dir_all(&plugins)?;
        fs::create_dir(folder.path().join("site/nvidia"))?;
        fs::write(plugins.join("plugin.so"), "driver")?;
        fs::write(plugins.join("libbeside.so"), "beside")?;
        fs::write(folder.path().join("site/nvidia/libdeep.so"), "deep")?;
        let plugin = Plugin::read("xla:it", &plugins.join("plugin.so"))?;
        fs::write(plugins.join("plugin.so"), "another one")?;
        let PluginCopy { path, hash, device } = &plugin.copy;
        let path = Path::new(path);
        assert_eq!((device.as_str(), fs::read_to_string(path)?.as_str()), ("xla:it", "driver"));
        assert_eq!(path.file_name(), Some(OsStr::new("plugin.so")));
        assert!(fs::write(path, "a third one").is_err());
        let origin = path.parent().ok_or("no folder")?;
        assert_eq!(fs::read_to_string(origin.join("libbeside.so"))?, "beside");
        assert_eq!(fs::read_to_string(origin.join("../nvidia/libdeep.so"))?, "deep");
        assert_ne!(&Plugin::read("xla:it", &plugins.join("plugin.so"))?.copy.hash, hash);
        let own = path.to_owned();
        drop(plugin);
        assert!(!own.exists() && plugins.join("libbeside.so").exists());
        Ok(())
    }
}
