//! Packs the sources of the prelude into the program, so that an installed kernel can build it for any toolchain.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// The crates that the prelude is made of; `Cargo.toml` and `Cargo.lock` travel with them.
const CRATES: [&str; 9] =
    ["devices", "display", "display/derive", "link", "machine", "prelude", "tuner", "tuner/trial", "xla"];

fn main() -> io::Result<()> {
    // The C library for which `cargo xtask wheel` links the program: another one makes another program.
    println!("cargo:rerun-if-env-changed=FERROTUNE_GLIBC");
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("..").canonicalize()?;
    let mut files = vec![PathBuf::from("Cargo.toml"), PathBuf::from("Cargo.lock")];
    for name in CRATES {
        files.push(Path::new(name).join("Cargo.toml"));
        collect(&root, &Path::new(name).join("src"), &mut files)?;
    }
    files.sort();
    let mut table = String::from("&[\n");
    for file in files {
        let path = root.join(&file);
        println!("cargo:rerun-if-changed={}", path.display());
        writeln!(table, "    ({:?}, include_str!({path:?})),", file.display().to_string()).expect("a String takes all");
    }
    for name in CRATES {
        println!("cargo:rerun-if-changed={}", root.join(name).join("src").display());
    }
    table.push(']');
    fs::write(PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it")).join("prelude_sources.rs"), table)
}

fn collect(root: &Path, folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let path = folder.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            collect(root, &path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
}
