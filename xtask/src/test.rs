//! `cargo xtask test`: everything that CI runs, the fastest steps first.
//!
//! Everything is built with one profile, release, because the kernel's dependencies are large and must be built only once.

use crate::environment::{Environment, cargo, find_style_tools};
use crate::{step, tidy, wheel};
use anyhow::{Result, anyhow};
use std::env;
use std::fs::File;
use std::path::Path;
use std::process::Command;

/// The tests that keep the processors busy for minutes, or take long and start few kernels.
const BESIDE: [&str; 3] = ["tests/test_tpu_memory.py", "tests/test_setup.py", "tests/test_doctor.py"];

/// The tests of the wheel, which has to be built before.
const WHEEL: &str = "tests/test_wheel.py";

/// The tests that also run with the versions of Colab's Jupyter and IPython.
const COLAB: [&str; 3] = [SERVERS, "tests/test_python_arrays.py", "tests/test_python_extension.py"];
/// The tests that run only with them.
const SERVERS: &str = "tests/test_colab.py";

pub(crate) fn run(root: &Path) -> Result<()> {
    let environment = step::step("tools", || {
        find_style_tools(root)?;
        Environment::prepare_for_tests(root)
    })?;
    step::step("fmt", || step::run(cargo(root).args(["fmt", "--all", "--check"])))?;
    step::step("tidy", || tidy::run(root))?;
    step::step("clippy", || {
        let mut clippy = cargo(root);
        clippy.args(["clippy", "--release", "--locked", "--workspace", "--all-targets", "--", "-D", "warnings"]);
        step::run(&mut clippy)
    })?;
    // The integration tests of the kernel make cargo build the program, which the next steps install.
    step::step("cargo test", || step::run(cargo(root).args(["test", "--release", "--locked", "--workspace"])))?;
    // The program of the wheel is what all that follows runs.
    step::step("link the program for the wheel", || wheel::Wheel::prepare(root)?.build_program())?;
    step::step("install into target/jupyter", || environment.install_kernel())?;
    step::step("protocol with jupyter_client 7.4.9", || {
        let old_client = Environment::prepare_old_client(root)?;
        step::run(old_client.python().args(["-m", "pytest", "tests/protocol/test_kernel_test_suite.py"]))
    })?;
    step::step("Python notebooks with Colab's Jupyter", || {
        let colab = Environment::prepare_colab(root)?;
        step::run(colab.python().args(["-m", "pytest"]).args(COLAB))
    })?;
    step::step("pytest", || pytest(root, &environment))
}

/// Runs the tests in Python. Most of them mostly wait; what they leave of the processors goes to a few others and to what is built for
/// a release, whose output is in `target/beside.log` and is shown where that fails, so that what failed comes last.
fn pytest(root: &Path, environment: &Environment) -> Result<()> {
    let log = root.join("target/beside.log");
    let output = File::create(&log)?;
    let tests = |files: &[&str]| {
        let mut python = environment.python();
        python.args(["-m", "pytest"]).args(files);
        python
    };
    let own = env::current_exe()?;
    let task = |name: &str| {
        let mut task = Command::new(&own);
        task.current_dir(root).arg(name);
        task
    };
    let commands = [tests(&BESIDE), task("wheel"), tests(&[WHEEL]), task("package")];
    let beside = std::thread::spawn(move || {
        commands.into_iter().try_for_each(|command| step::run(&mut nice(&command, &output)?))
    });
    let ignored = BESIDE.iter().chain([&SERVERS, &WHEEL]).map(|file| format!("--ignore={file}"));
    let result = step::run(environment.python().args(["-m", "pytest", "--durations=20", "tests"]).args(ignored));
    let beside = beside.join().map_err(|_| anyhow!("the thread of the other tests panicked"))?;
    if beside.is_err() {
        eprint!("{}", String::from_utf8_lossy(&std::fs::read(log)?));
    }
    result.and(beside)
}

/// The same command, with what the others leave of the processors and with its output in a file.
fn nice(command: &Command, output: &File) -> Result<Command> {
    let mut nice = Command::new("nice");
    nice.args(["-n", "19"]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => nice.env(name, value),
            None => nice.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        nice.current_dir(folder);
    }
    nice.stdout(output.try_clone()?).stderr(output.try_clone()?);
    Ok(nice)
}
