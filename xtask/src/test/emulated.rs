//! `cargo xtask test --target aarch64` compiles for another architecture, and runs the Rust tests with QEMU's emulation of one process.

use crate::environment::cargo;
use crate::step;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::Path;
use std::process::Command;

/// The only target that is tested in this way.
const TARGET: &str = "aarch64-unknown-linux-gnu";

/// The C compiler for the target, and the folder with the target's C library.
const COMPILER: &str = "aarch64-linux-gnu-gcc";
const LIBRARIES: &str = "/usr/aarch64-linux-gnu";

/// The packages of Debian and Ubuntu with the C compiler, its library and the emulation.
const PACKAGES: &str = "gcc-aarch64-linux-gnu qemu-user-static binfmt-support";

/// The packages whose tests the emulation cannot run, with the reason.
const PACKAGES_LEFT_OUT: [(&str, &[&str]); 2] = [
    ("QEMU knows no subreaper, without which no search starts", &["ferrotune-study", "ferrotune-trial"]),
    ("there is no plugin of XLA for aarch64 here", &["ferrotune-pjrt-plugin", "ferrotune-xla"]),
];

/// Parts of the names of other tests that it cannot run, with the reason.
const LEFT_OUT: [(&str, &[&str]); 7] = [
    ("there is no plugin of XLA for aarch64 here", &["compiled::", "plugin::"]),
    (
        "for QEMU, a program that is missing has started and failed",
        &["a_cargo_that_is_missing_is_named", "program_that_hangs_costs_the_deadline", "what_cannot_start_is_an_error"],
    ),
    ("QEMU clears no memory in a fork", &["a_fork_is_not_the_original"]),
    ("QEMU maps no code of the system", &["own_code_is_found_as_its_file_counts"]),
    ("QEMU copies no stack that ends within the copy", &["stacks_reach_the_beginning_of_their_thread"]),
    ("the test compares times", &["prefetch_hides_the_pipeline_behind_the_step"]),
    (
        "the test takes minutes here",
        &[
            "a_range_that_changes_is_kept_to",
            "auto_leaves_a_place_that_it_knows_exactly",
            "learning_oracles_find_more_than_random_draws",
        ],
    ),
];

/// Whether a target is the one that is tested.
pub(super) fn is_known(target: &str) -> bool {
    [TARGET, "aarch64", "arm64"].contains(&target)
}

/// Builds candle and the prelude without optimisation, as `cargo build` does, and all tests with it, and runs these.
pub(crate) fn run(root: &Path) -> Result<()> {
    step::step("tools of aarch64", || find_tools(root))?;
    step::step("build candle and the prelude without optimisation", || {
        step::run(for_target(root, "build").args(["--package", "ferrotune-prelude"]))
    })?;
    let packages = || {
        let left_out = PACKAGES_LEFT_OUT.iter().flat_map(|(_, packages)| *packages);
        ["--release", "--workspace"].into_iter().chain(left_out.flat_map(|package| ["--exclude", package]))
    };
    // The tests start programs that are examples.
    step::step("build the examples", || step::run(for_target(root, "build").args(packages()).arg("--examples")))?;
    let kinds = ["--lib", "--bins", "--tests"];
    step::step("build the tests", || step::run(for_target(root, "test").args(packages()).args(kinds).arg("--no-run")))?;
    step::step("tests on an emulated aarch64", || {
        for (reason, names) in PACKAGES_LEFT_OUT.iter().chain(&LEFT_OUT) {
            eprintln!("left out, because {reason}: {}", names.join(", "));
        }
        let skipped = LEFT_OUT.iter().flat_map(|(_, names)| *names).flat_map(|name| ["--skip", name]);
        let mut tests = for_target(root, "test");
        step::run(tests.args(packages()).args(kinds).args(["--no-fail-fast", "--"]).args(skipped))
    })
}

/// Whether this machine compiles and emulates; otherwise an error that says what is missing.
pub(crate) fn find_tools(root: &Path) -> Result<()> {
    let folder = root.join("target/emulated");
    let (source, program) = (folder.join("starts.c"), folder.join("starts"));
    fs::create_dir_all(&folder)?;
    fs::write(&source, "int main(void) { return 0; }\n")
        .with_context(|| format!("cannot write {}", source.display()))?;
    let cure = format!("(Debian and Ubuntu: apt-get install {PACKAGES})");
    let compiled = Command::new(COMPILER).arg(&source).arg("-o").arg(&program).status();
    if !compiled.is_ok_and(|status| status.success()) {
        bail!("{COMPILER}, the C compiler for aarch64, is not installed or does not work; install it {cure}");
    }
    if !Command::new(&program).env("QEMU_LD_PREFIX", LIBRARIES).status().is_ok_and(|status| status.success()) {
        bail!("this system does not start programs for aarch64; install QEMU, and mount binfmt_misc {cure}");
    }
    let mut add = Command::new("rustup");
    step::run(add.args(["target", "add", TARGET]).current_dir(root))
        .context("the standard library for aarch64 cannot be installed")
}

/// A command of cargo that builds for the target, and whose programs find its C library.
fn for_target(root: &Path, command: &str) -> Command {
    let mut cargo = cargo(root);
    let variable = TARGET.replace('-', "_").to_uppercase();
    cargo.args([command, "--locked", "--target", TARGET]);
    cargo.env(format!("CARGO_TARGET_{variable}_LINKER"), COMPILER).env("QEMU_LD_PREFIX", LIBRARIES);
    cargo
}
