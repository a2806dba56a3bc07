//! Packs the sources of the prelude into the program, so that an installed kernel can build the prelude for any toolchain.
//!
//! The sources are read through the links in `packed`. Cargo follows links when it packs a crate, so the published crate has the
//! files themselves. The manifests have other names there, because cargo leaves out folders with a `Cargo.toml`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// The folder of links to the sources.
const PACKED: &str = "packed";

/// The crates that the prelude is made of. Their links in [`PACKED`] have a dash in place of the slash.
const CRATES: [&str; 16] = [
    "data",
    "data/reader",
    "devices",
    "display",
    "display/derive",
    "fit",
    "link",
    "machine",
    "machine/format",
    "nn",
    "prelude",
    "profile",
    "tuner/space",
    "tuner/state",
    "tuner/trial",
    "xla",
];

/// The other files of the prelude's workspace: each path there, and the name of its link.
const WORKSPACE: [(&str, &str); 2] = [("Cargo.toml", "workspace.toml"), ("Cargo.lock", "workspace.lock")];

fn main() -> io::Result<()> {
    // The version of the C library for which `cargo xtask wheel` links the program: another version makes another program.
    println!("cargo:rerun-if-env-changed=FERROTUNE_GLIBC");
    let packed = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it")).join(PACKED);
    let mut files: Vec<(PathBuf, PathBuf)> = WORKSPACE.map(|(place, name)| (place.into(), packed.join(name))).into();
    for place in CRATES {
        let name = place.replace('/', "-");
        files.push((Path::new(place).join("Cargo.toml"), packed.join(format!("{name}.toml"))));
        collect(&Path::new(place).join("src"), &packed.join(name), &mut files)?;
    }
    files.sort();
    let mut table = String::from("&[\n");
    for (place, file) in files {
        let file = followed(&file)?;
        println!("cargo:rerun-if-changed={}", file.display());
        writeln!(table, "    ({:?}, include_str!({file:?})),", place.display().to_string())
            .expect("a String takes all");
    }
    table.push(']');
    fs::write(PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it")).join("prelude_sources.rs"), table)
}

/// Adds the sources in a folder, with their paths below `place` in the prelude's workspace.
fn collect(place: &Path, folder: &Path, files: &mut Vec<(PathBuf, PathBuf)>) -> io::Result<()> {
    let folder = followed(folder)?;
    println!("cargo:rerun-if-changed={}", folder.display());
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let place = place.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            collect(&place, &entry.path(), files)?;
        } else if place.extension().is_some_and(|extension| extension == "rs" || extension == "csv") {
            files.push((place, entry.path()));
        }
    }
    Ok(())
}

fn followed(path: &Path) -> io::Result<PathBuf> {
    path.canonicalize().map_err(|error| {
        let cure = "it is a symbolic link in the repository, which a copy of the repository has to keep";
        io::Error::new(error.kind(), format!("cannot read {}: {error}; {cure}", path.display()))
    })
}
