//! The parts of the kit: pieces of one compressed archive, none of which is too large for a transfer. `xtask/device_kit/unpack.sh`
//! puts them together again.

use crate::step::output;
use anyhow::{Context, Result, bail};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;
use std::process::{Command, Stdio};

/// The most bytes of a part: 50 MiB.
pub(super) const MOST_BYTES: u64 = 50 << 20;

/// The list of the parts with their checksums, which `sha256sum` writes and checks.
pub(super) const SUMS: &str = "SHA256SUMS";

/// Writes what `tar` prints into `folder`, in parts of at most `most_bytes`. Returns the text of [`SUMS`].
pub(super) fn write(tar: &mut Command, folder: &Path, most_bytes: u64) -> Result<String> {
    let mut running = tar.stdout(Stdio::piped()).spawn().context("cannot run tar")?;
    let archive = running.stdout.take().context("tar has no standard output")?;
    let names = split(archive, folder, most_bytes)?;
    let status = running.wait()?;
    if !status.success() {
        bail!("tar ended with {status}");
    }
    output(Command::new("sha256sum").current_dir(folder).args(names))
}

/// Removes the kit and the parts of an earlier call, and no other file.
pub(super) fn remove(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name == super::KIT || number(&name).is_some() {
            fs::remove_file(folder.join(&name)).with_context(|| format!("cannot remove {name}"))?;
        }
    }
    Ok(())
}

/// Writes files `part-1.tar`, `part-2.tar` and so on, and returns their names.
fn split(mut archive: impl Read, folder: &Path, most_bytes: u64) -> Result<Vec<String>> {
    let mut names = Vec::new();
    loop {
        let name = format!("part-{}.tar", names.len() + 1);
        let path = folder.join(&name);
        let mut file = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
        let written = io::copy(&mut (&mut archive).take(most_bytes), &mut file)
            .with_context(|| format!("cannot write {}", path.display()))?;
        if written == 0 {
            fs::remove_file(&path)?;
            return Ok(names);
        }
        names.push(name);
    }
}

/// The number of a part with this name.
fn number(name: &str) -> Option<usize> {
    name.strip_prefix("part-")?.strip_suffix(".tar")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;
    use tempfile::TempDir;

    /// The most bytes of a part in these tests. The files below make twelve parts, so that `part-10` is one of them.
    const FEW_BYTES: u64 = 8192;

    /// Files that are packed, and their parts with the script that unpacks them.
    struct Packed {
        folder: TempDir,
        names: Vec<String>,
    }

    impl Packed {
        fn new() -> Packed {
            let packed = Packed { folder: tempfile::tempdir().unwrap(), names: Vec::new() };
            for name in ["files/inner", "parts", "kit"] {
                fs::create_dir_all(packed.path(name)).unwrap();
            }
            fs::write(packed.path("files/inner/noise"), noise(90_000)).unwrap();
            fs::write(packed.path("files/a file.txt"), "short\n").unwrap();
            fs::copy(crate::root().join(crate::device_kit::SCRIPTS).join("unpack.sh"), packed.path("kit/unpack.sh"))
                .unwrap();
            let mut tar = Command::new("tar");
            tar.args(["--create", "--gzip", "--directory"]).arg(packed.path("files")).arg(".");
            let sums = write(&mut tar, &packed.path("parts"), FEW_BYTES).unwrap();
            fs::write(packed.path("kit").join(SUMS), &sums).unwrap();
            let names = sums.lines().map(|line| line.split_once("  ").unwrap().1.to_owned()).collect();
            Packed { names, ..packed }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.folder.path().join(name)
        }

        /// Unpacks as run.sh does. Returns whether it succeeds, and what it prints.
        fn unpack(&self) -> (bool, String) {
            let mut unpack = Command::new("sh");
            unpack.arg(self.path("kit/unpack.sh")).args([self.path("parts"), self.path("unpacked")]);
            let output = unpack.output().unwrap();
            let text = [output.stdout, output.stderr].concat();
            (output.status.success(), String::from_utf8(text).unwrap())
        }

        fn unpacked(&self, name: &str) -> Option<Vec<u8>> {
            fs::read(self.path("unpacked").join(name)).ok()
        }
    }

    /// Bytes that gzip does not make fewer.
    fn noise(count: usize) -> Vec<u8> {
        let mut state = 1u64;
        let mut next = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 56) as u8
        };
        (0..count).map(|_| next()).collect()
    }

    #[test]
    fn parts_have_their_size_and_unpack_to_the_same_files() {
        let packed = Packed::new();
        let sizes: Vec<u64> =
            packed.names.iter().map(|name| fs::metadata(packed.path("parts").join(name)).unwrap().len()).collect();
        let (last, whole) = sizes.split_last().unwrap();
        assert_eq!((packed.names.len(), &*packed.names[9]), (12, "part-10.tar"), "{sizes:?}");
        assert!(whole.iter().all(|size| *size == FEW_BYTES) && (1..=FEW_BYTES).contains(last), "{sizes:?}");
        let (unpacks, text) = packed.unpack();
        assert!(unpacks, "{text}");
        assert_eq!(packed.unpacked("inner/noise"), Some(noise(90_000)));
        assert_eq!(packed.unpacked("a file.txt").as_deref(), Some(&b"short\n"[..]));
    }

    #[test]
    fn a_damaged_part_is_named_and_nothing_is_unpacked() {
        let packed = Packed::new();
        let path = packed.path("parts/part-11.tar");
        let mut bytes = fs::read(&path).unwrap();
        bytes[4000] ^= 1;
        fs::write(&path, bytes).unwrap();
        let (unpacks, text) = packed.unpack();
        assert!(!unpacks && text.contains("part-11.tar: FAILED") && text.contains("part-10.tar: OK"), "{text}");
        assert_eq!(packed.unpacked("inner/noise").or(packed.unpacked("a file.txt")), None);
    }

    #[test]
    fn a_missing_part_is_named_and_nothing_is_unpacked() {
        let packed = Packed::new();
        fs::remove_file(packed.path("parts/part-12.tar")).unwrap();
        let (unpacks, text) = packed.unpack();
        assert!(!unpacks && text.contains("part-12.tar: FAILED open or read"), "{text}");
        assert_eq!(packed.unpacked("inner/noise").or(packed.unpacked("a file.txt")), None);
    }

    #[test]
    fn a_tar_that_fails_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let mut tar = Command::new("tar");
        tar.args(["--create", "--gzip", "--directory"]).arg(folder.path()).arg("no-such-file");
        let error = write(tar.stderr(Stdio::null()), folder.path(), FEW_BYTES).unwrap_err();
        assert!(error.to_string().starts_with("tar ended with "), "{error}");
    }

    #[test]
    fn only_an_earlier_kit_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["kit.tar", "part-1.tar", "part-12.tar", "part-x.tar", "report.md"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        remove(folder.path()).unwrap();
        let mut left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["part-x.tar", "report.md"]);
    }
}
