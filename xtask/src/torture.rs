//! `cargo xtask torture` injects faults for an hour, as the tests do briefly: hundreds of kills at random times, every
//! fault that a trial can have, and long random walks through notebooks. It runs the tests of the store of variables in valgrind, which has
//! to be installed, and at last the image of containers, the Rust tests on an emulated aarch64 where QEMU is installed, and all examples of the
//! standard library as cells.

use crate::environment::{Environment, build_program, cargo};
use crate::test::emulated;
use crate::{step, wheel};
use anyhow::Result;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// The number of rounds in which a supervisor is killed, in every second round with its workers.
const ROUNDS: &str = "200";
/// The number of rounds in which a kernel is killed; each takes some seconds.
const KERNEL_ROUNDS: &str = "40";
/// The number of random walks through a notebook, and of cells in each walk.
const WALKS: (&str, &str) = ("20", "150");
/// The number of rounds with all faults at the same time.
const STORM_ROUNDS: &str = "30";
/// The number of faults of a cluster, one after the other in one study.
const CLUSTER_ROUNDS: &str = "200";
/// The number of faults of a notebook, one after the other.
const FAULTS: &str = "500";
/// The number of clients of a device process that are killed.
const CLIENTS: &str = "200";
/// The number of the standard library's examples.
const EXAMPLES: &str = "all";
/// Finds uses of memory that is freed or not set. Miri, a part of nightly toolchains, would find broken rules of aliasing, too.
const VALGRIND: &str = "valgrind --quiet --error-exitcode=9";
/// The number of trials over which memory must not grow.
const TRIALS: &str = "200";

pub(crate) fn run(root: &Path) -> Result<()> {
    let environment = step::step("tools", || Environment::prepare_for_tests(root))?;
    step::step("kills at random instants", || {
        let mut tests = cargo(root);
        // With `--test it`, cargo would not build the example, which is supervisor and worker.
        tests.args(["test", "--release", "--locked", "-p", "ferrotune-trial", "torture"]);
        step::run(tests.args(["--", "--nocapture"]).env("FERROTUNE_TORTURE_ROUNDS", ROUNDS))
    })?;
    step::step("the store of variables in valgrind", || {
        let mut tests = cargo(root);
        tests.args(["test", "--release", "--locked", "-p", "ferrotune-prelude", "--lib", "cell::store"]);
        let machine = std::env::consts::ARCH.to_uppercase();
        step::run(tests.env(format!("CARGO_TARGET_{machine}_UNKNOWN_LINUX_GNU_RUNNER"), VALGRIND))
    })?;
    step::step("build", || build_program(root))?;
    step::step("install into target/jupyter", || environment.install_kernel())?;
    step::step("walks through notebooks", || {
        let mut python = environment.python();
        let seed = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs().to_string();
        python.env("FERROTUNE_WALK_SEED", seed);
        python.env("FERROTUNE_WALKS", WALKS.0).env("FERROTUNE_WALK_STEPS", WALKS.1);
        step::run(python.args(["-m", "pytest", "tests/test_walks.py"]))
    })?;
    step::step("all faults at the same time", || {
        let mut python = environment.python();
        step::run(python.env("FERROTUNE_STORM_ROUNDS", STORM_ROUNDS).args(["-m", "pytest", "tests/test_storm.py"]))
    })?;
    step::step("faults of a cluster", || {
        let mut python = environment.python();
        python.env("FERROTUNE_CLUSTER_ROUNDS", CLUSTER_ROUNDS);
        step::run(python.args(["-m", "pytest", "-s", "tests/test_cluster_faults.py"]))
    })?;
    step::step("faults and resumptions", || {
        let mut python = environment.python();
        python.env("FERROTUNE_TORTURE_ROUNDS", KERNEL_ROUNDS).env("FERROTUNE_TORTURE_TRIALS", TRIALS);
        python.env("FERROTUNE_TORTURE_FAULTS", FAULTS).env("FERROTUNE_TORTURE_CLIENTS", CLIENTS);
        step::run(python.args([
            "-m",
            "pytest",
            "tests/test_torture.py",
            "tests/test_resume.py",
            "tests/test_faults.py",
            "tests/test_device_clients.py",
        ]))
    })?;
    step::step("the wheel", || wheel::run(root))?;
    step::step("the image under the limits of containers", || {
        let mut python = environment.python();
        step::run(python.env("FERROTUNE_TEST_IMAGE", "1").args(["-m", "pytest", "-rs", "tests/test_image.py"]))
    })?;
    match emulated::missing_tool(root)? {
        None => emulated::run_tests(root)?,
        Some(missing) => eprintln!("the tests on an emulated aarch64 are left out: {missing}"),
    }
    step::step("the standard library's examples", || {
        let mut python = environment.python();
        // They take hours, and pytest.ini has the limit of a short test.
        python.env("FERROTUNE_EXAMPLES", EXAMPLES);
        step::run(python.args(["-m", "pytest", "--timeout=0", "tests/test_examples.py"]))
    })
}
