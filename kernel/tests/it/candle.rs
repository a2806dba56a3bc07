//! `ferrotune candle`: the folder is a candle-core that a program's `[patch.crates-io]` takes.

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
    let candle_core = folder.path().join("vendor/candle-core");
    let output = candle(&candle_core);
    let lines = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{lines}");
    assert!(fs::read_to_string(candle_core.join("src/device.rs")).unwrap().contains("cfg!(feature = \"metal\") && "));
    assert!(candle_core.join("LICENSE").exists());

    let patch = lines.strip_prefix("fetching candle-core 0.11.1\n").unwrap();
    let manifest = "[workspace]\n[package]\nname = \"program\"\nedition = \"2024\"\n[lib]\npath = \"lib.rs\"\n\
                    [dependencies]\ncandle-core = { version = \"0.11\", default-features = false }\n";
    fs::write(folder.path().join("Cargo.toml"), format!("{manifest}{patch}")).unwrap();
    fs::write(folder.path().join("lib.rs"), "").unwrap();
    fs::copy(Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.lock"), folder.path().join("Cargo.lock")).unwrap();
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["metadata", "--offline", "--format-version=1", "--filter-platform=host-tuple"]);
    let output = cargo.current_dir(folder.path()).output().unwrap();
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let package = packages.iter().find(|package| package["name"] == "candle-core").unwrap();
    let expected = candle_core.canonicalize().unwrap().join("Cargo.toml");
    assert_eq!(package["manifest_path"].as_str().map(Path::new), Some(expected.as_path()));
    assert_eq!(package["source"], Value::Null);
}

#[test]
fn the_folder_of_somebody_else_is_refused_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("Cargo.toml"), "[package]\n").unwrap();
    let output = candle(folder.path());
    let lines = String::from_utf8(output.stderr).unwrap();
    let manifest = folder.path().join("Cargo.toml");
    let refusal = "is not written by Ferrotune; name another folder, or delete it";
    assert_eq!(lines, format!("fetching candle-core 0.11.1\nferrotune: {} {refusal}\n", manifest.display()));
    assert_eq!(output.status.code(), Some(1));
}
