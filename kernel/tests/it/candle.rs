//! Tests of `ferrotune candle`: the folder has the packages of candle that a program's `[patch.crates-io]` takes.

use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn candle(folder: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ferrotune")).arg("candle").arg(folder).output().unwrap()
}

#[test]
fn a_program_takes_the_patched_candle() {
    let folder = tempfile::tempdir().unwrap();
    let vendor = folder.path().join("vendor");
    let output = candle(&vendor);
    let lines = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{lines}");
    let device = fs::read_to_string(vendor.join("candle-core/src/device.rs")).unwrap();
    assert!(device.contains("cfg!(feature = \"metal\") && "));
    assert!(vendor.join("candle-core/LICENSE").exists());

    let patch = lines.strip_prefix("fetching candle 0.11.1\n").unwrap();
    let manifest = "[workspace]\n[package]\nname = \"program\"\nedition = \"2024\"\n[lib]\npath = \"lib.rs\"\n\
                    [dependencies]\ncandle-core = { version = \"0.11\", default-features = false }\n\
                    candle-nn = { version = \"0.11\", default-features = false }\n";
    fs::write(folder.path().join("Cargo.toml"), format!("{manifest}{patch}")).unwrap();
    fs::write(folder.path().join("lib.rs"), "").unwrap();
    fs::copy(Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.lock"), folder.path().join("Cargo.lock")).unwrap();
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["metadata", "--offline", "--format-version=1", "--filter-platform=host-tuple"]);
    let output = cargo.current_dir(folder.path()).output().unwrap();
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    for name in ["candle-core", "candle-nn"] {
        let package = packages.iter().find(|package| package["name"] == name).unwrap();
        let expected = vendor.canonicalize().unwrap().join(name).join("Cargo.toml");
        assert_eq!(package["manifest_path"].as_str().map(Path::new), Some(expected.as_path()));
        assert_eq!(package["source"], Value::Null);
    }
}

#[test]
fn the_folder_of_somebody_else_is_refused_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let manifest = folder.path().join("candle-core/Cargo.toml");
    fs::create_dir(manifest.parent().unwrap()).unwrap();
    fs::write(&manifest, "[package]\n").unwrap();
    let output = candle(folder.path());
    let lines = String::from_utf8(output.stderr).unwrap();
    let refusal = "is not written by Ferrotune; name another folder, or delete it";
    assert_eq!(lines, format!("fetching candle 0.11.1\nferrotune: {} {refusal}\n", manifest.display()));
    assert_eq!(output.status.code(), Some(1));
}
