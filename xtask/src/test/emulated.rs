//! `cargo xtask test --target aarch64` compiles for another architecture, and runs the Rust tests with QEMU's emulation of one process.

use crate::environment::cargo;
use crate::step;
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

/// The only target that is tested in this way.
const TARGET: &str = "aarch64-unknown-linux-gnu";

/// The C compiler for the target, and the folder with the target's C library.
const COMPILER: &str = "aarch64-linux-gnu-gcc";
const LIBRARIES: &str = "/usr/aarch64-linux-gnu";

/// The packages of Debian and Ubuntu with the C compiler, its library and the emulation.
const PACKAGES: &str = "gcc-aarch64-linux-gnu qemu-user-static binfmt-support";

/// The packages that the emulation cannot test: there is no plugin of XLA for aarch64 on this machine.
const WITH_XLA: [&str; 2] = ["ferrotune-pjrt-plugin", "ferrotune-xla"];

/// The packages most of whose tests run a search, for which QEMU lacks the subreaper, and those of their integration tests that run none.
const WITH_SEARCHES: [&str; 2] = ["ferrotune-study", "ferrotune-trial"];
const WITHOUT_A_SEARCH: [&str; 5] = ["additions::", "gradients::", "in_process::", "seeds::", "sums::"];

/// Tests that are left out in the other packages, with the reason.
const LEFT_OUT: [(&str, &[&str]); 7] = [
    (
        "there is no plugin of XLA for aarch64 on this machine",
        &[
            "compiled::a_loop_without_a_step_measures_on_the_device",
            "compiled::a_model_trains_in_a_compiled_step_and_its_file_moves_between_devices",
            "compiled::dropout_draws_anew_in_each_run",
            "compiled::losses_and_metrics_in_a_step_are_those_of_the_cpu",
            "plugin::a_closure_of_the_mean_counts_each_row_once",
            "plugin::a_training_is_that_of_the_cpu_and_has_two_programs_for_batches_of_any_size",
            "plugin::accumulated_gradients_and_steps_of_ones_own_are_programs_too",
            "plugin::batch_norm_sees_no_filled_rows",
            "plugin::mixed_precision_trains_and_rounds_factors",
            "plugin::several_cores_train_as_one_device",
        ],
    ),
    (
        "QEMU starts a missing program, which then fails",
        &[
            "a_cargo_that_is_missing_is_named",
            "a_program_that_is_missing_is_named",
            "program_that_hangs_costs_the_deadline",
            "what_cannot_start_is_an_error",
        ],
    ),
    ("QEMU clears no memory in a fork", &["a_fork_is_not_the_original"]),
    ("QEMU maps no code of the system", &["own_code_is_found_as_its_file_counts"]),
    ("QEMU copies nothing of a stack that is shorter than the copy", &["stacks_reach_the_beginning_of_their_thread"]),
    ("the test compares times", &["a_thousand_trials_are_not_too_many", "prefetch_hides_the_pipeline_behind_the_step"]),
    (
        "the test takes minutes in the emulation",
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

/// Does what [`run_tests`] does, and fails first if a tool is missing.
pub(super) fn run(root: &Path) -> Result<()> {
    step::step("tools of aarch64", || match missing_tool(root)? {
        Some(missing) => bail!("{missing}"),
        None => Ok(()),
    })?;
    run_tests(root)
}

/// Builds candle and the prelude without optimisation, as `cargo build` does, then all tests with it, and runs these. No tool may be missing.
pub(crate) fn run_tests(root: &Path) -> Result<()> {
    step::step("build candle and the prelude without optimisation", || {
        step::run(for_target(root, "build").args(["--package", "ferrotune-prelude"]))
    })?;
    let packages = || {
        let left_out = WITH_XLA.iter().chain(&WITH_SEARCHES).flat_map(|package| ["--exclude", package]);
        ["--release", "--workspace"].into_iter().chain(left_out)
    };
    // The tests start programs that are examples.
    step::step("build the examples", || step::run(for_target(root, "build").args(packages()).arg("--examples")))?;
    step::step("tests on an emulated aarch64", || {
        for (reason, names) in LEFT_OUT {
            eprintln!("left out, because {reason}: {}", names.join(", "));
        }
        let skipped = LEFT_OUT.iter().flat_map(|(_, names)| *names).flat_map(|name| ["--skip", name]);
        let mut tests = for_target(root, "test");
        tests.args(packages()).args(["--lib", "--bins", "--tests", "--no-fail-fast", "--"]);
        step::run(tests.args(skipped))
    })?;
    step::step("those tests of searches that start none", || {
        eprintln!("left out, because there is no plugin of XLA: {}", WITH_XLA.join(", "));
        let packages = || {
            let packages = WITH_SEARCHES.iter().flat_map(|package| ["--package", package]);
            ["--release", "--features", "plugins"].into_iter().chain(packages)
        };
        step::run(for_target(root, "test").args(packages()).arg("--lib"))?;
        let mut tests = for_target(root, "test");
        step::run(tests.args(packages()).args(["--test", "it", "--"]).args(WITHOUT_A_SEARCH))
    })
}

/// What this machine lacks, as a sentence with the cure; none if it compiles for aarch64 and starts such programs.
pub(crate) fn missing_tool(root: &Path) -> Result<Option<String>> {
    let folder = root.join("target/emulated");
    let (source, program) = (folder.join("starts.c"), folder.join("starts"));
    fs::create_dir_all(&folder)?;
    fs::write(&source, "int main(void) { return 0; }\n")
        .with_context(|| format!("cannot write {}", source.display()))?;
    let cure = format!("(Debian and Ubuntu: apt-get install {PACKAGES})");
    let compiled = Command::new(COMPILER).arg(&source).arg("-o").arg(&program).status();
    if compiled.as_ref().is_err_and(|error| error.kind() == ErrorKind::NotFound) {
        return Ok(Some(format!("{COMPILER}, the C compiler for aarch64, not found; install it {cure}")));
    }
    ensure!(compiled?.success(), "{COMPILER} cannot compile {}", source.display());
    match Command::new(&program).env("QEMU_LD_PREFIX", LIBRARIES).status() {
        Ok(status) => ensure!(status.success(), "{} ended with {status}", program.display()),
        Err(_) => {
            return Ok(Some(format!("programs for aarch64 do not start; install QEMU, and mount binfmt_misc {cure}")));
        }
    }
    step::run(Command::new("rustup").args(["target", "add", TARGET]).current_dir(root))
        .context("the standard library for aarch64 cannot be installed")?;
    Ok(None)
}

/// A command of cargo that builds for the target, and whose programs find its C library.
fn for_target(root: &Path, command: &str) -> Command {
    let mut cargo = cargo(root);
    let variable = TARGET.replace('-', "_").to_uppercase();
    cargo.args([command, "--locked", "--target", TARGET]);
    cargo.env(format!("CARGO_TARGET_{variable}_LINKER"), COMPILER).env("QEMU_LD_PREFIX", LIBRARIES);
    cargo
}
