//! `cargo xtask test` runs all tests of CI, the fastest steps first. `--fast` runs the tests that most changes break, and
//! `--part 1/3` runs one of three shares of the other tests. `--peaks` measures the memory of large programs with libtpu again
//! (`tests/tpu_peaks.py`). `--target aarch64` runs the Rust tests on an emulated machine.
//!
//! Everything is built with one profile, release, because the kernel's dependencies are large and must be built only once.

pub(crate) mod emulated;
mod lane;
mod python;
mod selection;

use crate::environment::{Environment, build_program, cargo, find_style_tools, find_tools};
use crate::wheel::{self, Wheel};
use crate::{step, tidy};
use anyhow::Result;
use lane::{Job, Lane};
use python::{one_by_one, pytest};
use selection::{Part, Selection};
use std::env;
use std::path::Path;
use std::process::Command;

const RUST_TESTS: [&str; 5] = ["test", "--release", "--locked", "--workspace", "--no-fail-fast"];

pub(crate) fn run(root: &Path) -> Result<()> {
    match Selection::of_arguments()? {
        Selection::Fast => fast(root),
        Selection::Whole => all(root, None),
        Selection::Part(part) => all(root, Some(part)),
        Selection::Peaks => peaks(root),
        Selection::Emulated => emulated::run(root),
    }
}

/// Runs the style checks, the Rust tests and the short tests in Python, with the program as cargo builds it.
fn fast(root: &Path) -> Result<()> {
    let environment = step::step("tools", || {
        find_style_tools(root)?;
        Environment::prepare_for_tests(root)
    })?;
    style(root, cargo)?;
    // The integration tests of the kernel make cargo build the program, too.
    step::step("build the tests", || step::run(cargo(root).args(RUST_TESTS).arg("--no-run")))?;
    step::step("install into target/jupyter", || environment.install_kernel())?;
    run_beside(root, vec![vec![pytest(&environment, &python::FAST)]], || {
        step::step("cargo test", || step::run(cargo(root).args(RUST_TESTS)))
    })
}

/// Runs the tests that compare the memory of large programs on TPUs. libtpu compiles the changed programs, and its answers are kept.
fn peaks(root: &Path) -> Result<()> {
    let environment = step::step("tools", || Environment::prepare_for_tests(root))?;
    step::step("build the program", || build_program(root))?;
    step::step("install into target/jupyter", || environment.install_kernel())?;
    let mut pytest = pytest(&environment, &python::PEAKS);
    step::step("pytest", || step::run(pytest.env("FERROTUNE_KEEP_TPU_PEAKS", "1")))
}

/// Runs tests, and jobs at the same time.
fn run_beside(root: &Path, jobs: Vec<Job>, tests: impl FnOnce() -> Result<()>) -> Result<()> {
    let lane = Lane::start(&root.join("target/beside.log"), jobs)?;
    let tested = tests();
    if tested.is_err() {
        lane.stop();
    }
    tested.and(step::step("what runs beside the tests", || lane.join()))
}

/// Runs all tests, or a share of those that [`fast`] leaves out, with the program of the wheel.
fn all(root: &Path, part: Option<Part>) -> Result<()> {
    let files = python::files(root, part)?;
    step::step("tools", || {
        find_style_tools(root)?;
        find_tools(root)
    })?;
    // The packages are downloaded while the compiler works.
    let own = root.to_owned();
    let tools = step::begin(move || Tools::prepare(&own));
    if part.is_none() {
        style(root, wheel::cargo)?;
    }
    let tools = step::step("Python packages", tools)?;
    step::step("build the program", || tools.wheel.build_program())?;
    step::step("install into target/jupyter", || tools.tests.install_kernel())?;
    // Each share needs these, too: the tests in Python run these programs.
    step::step("build the tests", || step::run(wheel::cargo(root).args(RUST_TESTS).arg("--no-run")))?;
    let jobs = tools.jobs(root)?;
    let jobs = match part {
        Some(part) => part.share(jobs),
        None => jobs,
    };
    run_beside(root, jobs, || {
        if part.is_none() {
            step::step("cargo test", || step::run(wheel::cargo(root).args(RUST_TESTS)))?;
        }
        step::step("pytest", || step::run(&mut pytest(&tools.tests, &files)))
    })
}

fn style(root: &Path, cargo: fn(&Path) -> Command) -> Result<()> {
    step::step("fmt", || step::run(cargo(root).args(["fmt", "--all", "--check"])))?;
    step::step("tidy", || tidy::run(root))?;
    step::step("clippy", || {
        let mut clippy = cargo(root);
        clippy.args(["clippy", "--release", "--locked", "--workspace", "--all-targets", "--", "-D", "warnings"]);
        step::run(&mut clippy)
    })
}

/// The tools of the tests in addition to Rust's.
struct Tools {
    tests: Environment,
    old_client: Environment,
    colab: Environment,
    wheel: Wheel,
}

impl Tools {
    fn prepare(root: &Path) -> Result<Self> {
        Ok(Self {
            wheel: Wheel::prepare(root)?,
            tests: Environment::prepare_for_tests(root)?,
            old_client: Environment::prepare_old_client(root)?,
            colab: Environment::prepare_colab(root)?,
        })
    }

    /// The jobs that run at the same time as the tests: builds for a release, and tests with other versions of Jupyter.
    fn jobs(&self, root: &Path) -> Result<Vec<Job>> {
        let own = env::current_exe()?;
        // The compilers have the lowest priority, so that they do not delay the tests.
        let task = |name: &str| {
            let mut task = Command::new("nice");
            task.args(["-n", "19"]).arg(&own).current_dir(root).arg(name);
            task
        };
        Ok(vec![
            vec![one_by_one(&self.old_client, &python::OLD_CLIENT)],
            vec![one_by_one(&self.colab, &python::COLAB)],
            vec![task("wheel"), one_by_one(&self.tests, &[python::WHEEL])],
            vec![task("package")],
        ])
    }
}
