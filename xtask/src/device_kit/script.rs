//! Tests of `xtask/device_kit/run.sh`: what it reports, and when it fails. The programs of the kit are scripts of one line here, and so is
//! Python, so nothing is known of what the real ones do.

use super::{CHECKS, SCRIPTS, parts};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;

/// The line of the contract that names the plugin and its devices.
const FOUR_DEVICES: &str = r#"echo 'ok: versions are told: PJRT 0.81, cpu "cpu", cpu [0, 1, 2, 3], 3 attributes'"#;
const ONE_DEVICE: &str = r#"echo 'ok: versions are told: PJRT 0.115, cuda "cuda 13", NVIDIA H100 [0], 3 attributes'"#;

/// A kit whose programs succeed, with one part.
struct Kit {
    folder: TempDir,
}

impl Kit {
    fn new() -> Kit {
        let kit = Kit { folder: tempfile::tempdir().unwrap() };
        for name in ["kit/bin", "files", "parts"] {
            fs::create_dir_all(kit.path(name)).unwrap();
        }
        for name in ["run.sh", "unpack.sh"] {
            fs::copy(crate::root().join(SCRIPTS).join(name), kit.path("kit").join(name)).unwrap();
        }
        fs::write(kit.path("kit/VERSION"), "0.1.0, commit abc").unwrap();
        fs::write(kit.path("files/file"), "").unwrap();
        fs::write(kit.path("plugin.so"), "").unwrap();
        let mut tar = Command::new("tar");
        tar.args(["--create", "--gzip", "--directory"]).arg(kit.path("files")).arg(".");
        let sums = parts::write(&mut tar, &kit.path("parts"), parts::MOST_BYTES).unwrap();
        fs::write(kit.path("kit").join(parts::SUMS), sums).unwrap();
        for check in CHECKS {
            kit.program(&format!("kit/bin/{}", check.name), "exit 0");
        }
        kit.program("kit/bin/contract", FOUR_DEVICES);
        kit.program("python", "exit 0");
        kit
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Makes a program of one line.
    fn program(&self, name: &str, line: &str) {
        fs::write(self.path(name), format!("#!/bin/sh\n{line}\n")).unwrap();
        fs::set_permissions(self.path(name), Permissions::from_mode(0o755)).unwrap();
    }

    /// Runs the script. Returns its exit status and the report.
    fn run(&self) -> (Option<i32>, String) {
        let mut run = Command::new("sh");
        run.current_dir(self.folder.path()).env("PYTHON", self.path("python"));
        let output = run.args(["kit/run.sh", "--plugin", "plugin.so", "parts"]).output().unwrap();
        (output.status.code(), fs::read_to_string(self.path("report.md")).unwrap())
    }
}

/// The rows of the report's table: each check with its result.
fn rows(report: &str) -> Vec<(&str, &str)> {
    let rows = report.lines().filter_map(|line| line.strip_prefix("| ")).skip(1);
    rows.map(|row| (row.split(" | ").next().unwrap(), row.split(" | ").nth(1).unwrap())).collect()
}

#[test]
fn a_kit_whose_checks_pass_succeeds() {
    let (status, report) = Kit::new().run();
    let expected = [
        "contract",
        "throughput",
        "parity",
        "numbers, lazy",
        "numbers, compiled",
        "cost of a step",
        "unpack",
        "train mlp:128, Ferrotune",
        "train mlp:128, jax",
        "train mlp:128, torch",
        "train resnet18:2, Ferrotune",
        "train resnet18:2, jax",
        "train resnet18:2, torch",
        "notebook 01_quickstart",
        "notebook 05_tpu",
    ];
    assert_eq!(rows(&report), expected.map(|name| (name, "passed")), "{report}");
    assert_eq!(status, Some(0));
    assert!(
        report.contains("* Ferrotune: 0.1.0, commit abc\n") && report.contains("PJRT 0.81, cpu \"cpu\""),
        "{report}"
    );
    assert!(!report.contains("--skip"), "{report}");
}

#[test]
fn a_check_that_fails_is_reported_and_the_others_run() {
    let kit = Kit::new();
    kit.program("kit/bin/throughput", "echo the card is gone >&2; exit 3");
    let (status, report) = kit.run();
    let failed: Vec<_> = rows(&report).into_iter().filter(|(_, result)| *result != "passed").collect();
    assert_eq!((status, &*failed), (Some(1), &[("throughput", "FAILED: exit status 3")][..]), "{report}");
    assert!(report.contains("\nthe card is gone\n"), "{report}");
    assert_eq!(rows(&report).len(), 15);
}

#[test]
fn nothing_is_trained_with_a_damaged_part() {
    let kit = Kit::new();
    fs::write(kit.path("parts/part-1.tar"), "damaged").unwrap();
    let (status, report) = kit.run();
    let rows = rows(&report);
    assert_eq!(status, Some(1), "{report}");
    assert!(rows.contains(&("unpack", "FAILED: exit status 1")), "{report}");
    assert!(rows.contains(&("train mlp:128, Ferrotune", "left out: the parts are not whole")), "{report}");
    assert!(rows.contains(&("notebook 05_tpu", "left out: the parts are not whole")), "{report}");
}

#[test]
fn one_device_leaves_out_the_tests_of_four_and_a_card_trains_larger_models() {
    let kit = Kit::new();
    kit.program("kit/bin/contract", ONE_DEVICE);
    kit.program("kit/bin/parity", r#"echo "arguments: $*""#);
    let (status, report) = kit.run();
    assert_eq!(status, Some(0), "{report}");
    assert!(report.contains("\narguments: --test-threads 4 --skip pipeline:: --skip sharding:: "), "{report}");
    assert!(rows(&report).contains(&("train gpt2:4, Ferrotune", "passed")), "{report}");
}

#[test]
fn what_python_lacks_is_left_out() {
    let kit = Kit::new();
    kit.program("python", r#"[ "$2" != "import torch" ] && [ "$2" != "import scipy" ]"#);
    let (status, report) = kit.run();
    let rows = rows(&report);
    assert_eq!(status, Some(0), "{report}");
    assert!(rows.contains(&("numbers", "left out: this Python lacks NumPy, SciPy or JAX")), "{report}");
    assert!(rows.contains(&("train mlp:128, torch", "left out: this Python does not have it")), "{report}");
    assert!(rows.contains(&("train mlp:128, jax", "passed")), "{report}");
}
