//! Finds NVIDIA's CUDA toolkit for the build of a prelude with CUDA, before minutes of compiling. It installs nothing.

use anyhow::{Result, bail};
use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Variable with the compute capability for which candle is compiled, such as `90`.
const CAPABILITY_VARIABLE: &str = "CUDA_COMPUTE_CAP";
/// The folder into which NVIDIA's installers put the toolkit.
const USUAL_PLACE: &str = "/usr/local/cuda";

/// NVIDIA's CUDA toolkit.
#[derive(Debug)]
pub(super) struct Toolkit {
    /// The folder that holds `bin/nvcc`.
    home: PathBuf,
}

impl Toolkit {
    /// The toolkit whose compiler is on the search path, or else in `CUDA_HOME`, or else in the usual place.
    pub(super) fn find() -> Result<Toolkit> {
        let path = env::var_os("PATH").unwrap_or_default();
        let folders = env::split_paths(&path).collect::<Vec<_>>();
        let Some(home) = home_of_nvcc(&folders, env::var_os("CUDA_HOME").as_deref()) else {
            bail!(
                "nvcc is not found, and candle's CUDA kernels are compiled with it; install NVIDIA's CUDA toolkit from \
                 https://developer.nvidia.com/cuda-downloads and set CUDA_HOME to its folder, or leave out --cuda"
            );
        };
        let asks_the_driver = folders.iter().any(|folder| folder.join("nvidia-smi").is_file());
        if !asks_the_driver && env::var_os(CAPABILITY_VARIABLE).is_none() {
            bail!(
                "there is no nvidia-smi to tell which card to compile for; install NVIDIA's driver, or set \
                 {CAPABILITY_VARIABLE} to the card's compute capability, such as 80 for an A100 and 90 for an H100"
            );
        }
        Ok(Toolkit { home })
    }

    /// Makes a command find this toolkit.
    pub(super) fn lend(&self, command: &mut Command) -> Result<()> {
        let own = self.home.join("bin");
        let path = env::var_os("PATH").unwrap_or_default();
        let search: OsString = env::join_paths(std::iter::once(own).chain(env::split_paths(&path)))?;
        command.env("PATH", search).env("CUDA_HOME", &self.home);
        Ok(())
    }
}

fn home_of_nvcc(path: &[PathBuf], cuda_home: Option<&OsStr>) -> Option<PathBuf> {
    let homes = cuda_home.map(PathBuf::from).into_iter().chain([PathBuf::from(USUAL_PLACE)]);
    let of_homes = homes.map(|home| home.join("bin"));
    let folder = path.iter().cloned().chain(of_homes).find(|folder| folder.join("nvcc").is_file())?;
    // The folder on the search path may hold links into the toolkit.
    let nvcc = folder.join("nvcc").canonicalize().ok()?;
    nvcc.parent().and_then(Path::parent).map(Path::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_compiler_is_found_on_the_path_before_its_usual_places() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        for place in ["a/bin", "b/bin", "links"] {
            std::fs::create_dir_all(root.join(place)).unwrap();
        }
        let (path, home) = ([root.join("empty"), root.join("links")], root.join("b"));
        std::fs::write(root.join("b/bin/nvcc"), "").unwrap();
        assert_eq!(home_of_nvcc(&path, Some(home.as_os_str())), Some(root.join("b")));
        std::fs::write(root.join("a/bin/nvcc"), "").unwrap();
        std::os::unix::fs::symlink(root.join("a/bin/nvcc"), root.join("links/nvcc")).unwrap();
        assert_eq!(home_of_nvcc(&path, Some(home.as_os_str())), Some(root.join("a")));
    }
}
