//! Packs our changes of candle into the library, so that an installed kernel has them.
//!
//! Cargo leaves out the folders with our packages when it packs this crate; `candle-core.toml` is a link to the manifest of one.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// The packages of candle that are changed.
const PACKAGES: [&str; 2] = ["candle-core", "candle-nn"];

fn main() -> io::Result<()> {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let mut files = Vec::new();
    for name in ["patches", "files"].map(Path::new).into_iter().filter(|name| root.join(name).exists()) {
        println!("cargo:rerun-if-changed={}", root.join(name).display());
        collect(&root, name, &mut files)?;
    }
    files.sort();
    let mut table = String::from("&[\n");
    let files = files.into_iter().map(|file| (root.join(&file), file));
    let manifests = PACKAGES.map(|name| (root.join(format!("{name}.toml")), Path::new(name).join("Cargo.toml")));
    for (path, file) in files.chain(manifests) {
        println!("cargo:rerun-if-changed={}", path.display());
        writeln!(table, "    ({:?}, include_str!({path:?})),", file.display().to_string()).expect("a String takes all");
    }
    table.push(']');
    fs::write(PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it")).join("changes.rs"), table)
}

fn collect(root: &Path, folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let path = folder.join(entry.file_name());
        if entry.file_type()?.is_dir() { collect(root, &path, files)? } else { files.push(path) }
    }
    Ok(())
}
