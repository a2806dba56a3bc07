//! The tests in Python: which files there are, in which order they begin, and how pytest runs them on all processors.

use super::selection::Selection;
use crate::environment::Environment;
use anyhow::{Context, Result};
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread::available_parallelism;

/// The folder of all of them.
const FOLDER: &str = "tests";

/// The tests of `--fast`: what most changes of cells and searches break, in about three minutes on two cores.
pub(super) const FAST: [&str; 15] = [
    "tests/test_tune.py",
    "tests/test_undo.py",
    "tests/protocol",
    "tests/test_cells.py",
    "tests/test_completion.py",
    "tests/test_diagnostics.py",
    "tests/test_gradients.py",
    "tests/test_interrupts.py",
    "tests/test_memory.py",
    "tests/test_output.py",
    "tests/test_redefinition.py",
    "tests/test_results.py",
    "tests/test_shell.py",
    "tests/test_start.py",
    "tests/test_study.py",
];

/// The files that take longest, which begin first, so that no process has one left when the others have ended.
const LONGEST: [&str; 14] = [
    "tests/test_sources.py",
    "tests/test_faults.py",
    "tests/test_placement.py",
    "tests/test_devices_xla.py",
    "tests/test_notebooks.py",
    "tests/test_launchers.py",
    "tests/test_cluster_faults.py",
    "tests/test_resume.py",
    "tests/test_tpu_trials.py",
    "tests/test_evcxr_cases.py",
    "tests/test_tpu_memory.py",
    "tests/test_tune.py",
    "tests/test_seeds.py",
    "tests/test_stores.py",
];

/// The tests of the wheel, which has to be built before.
pub(super) const WHEEL: &str = "tests/test_wheel.py";

/// The tests that run only with the versions of Colab's Jupyter and IPython.
const SERVERS: &str = "tests/test_colab.py";
/// All that run with them.
pub(super) const COLAB: [&str; 3] = [SERVERS, "tests/test_python_arrays.py", "tests/test_python_extension.py"];

/// What runs with the oldest jupyter_client that is tested.
pub(super) const OLD_CLIENT: [&str; 1] = ["tests/protocol/test_kernel_test_suite.py"];

/// pytest for some files. Each file has one process, whose tests share kernels; the first files begin first.
pub(super) fn pytest(environment: &Environment, files: &[impl AsRef<OsStr>]) -> Command {
    let mut pytest = one_by_one(environment, files);
    // Most tests wait for a part of their time.
    let processes = available_parallelism().map_or(1, usize::from) + 1;
    pytest.args(["--dist=loadfile", "--no-loadscope-reorder", "--durations=20", "-n"]).arg(processes.to_string());
    pytest
}

/// The same in one process.
pub(super) fn one_by_one(environment: &Environment, files: &[impl AsRef<OsStr>]) -> Command {
    let mut pytest = environment.python();
    pytest.args(["-m", "pytest"]).args(files);
    pytest
}

/// The files of a selection, the longest first.
pub(super) fn files(root: &Path, selection: Selection) -> Result<Vec<String>> {
    let mut files = vec!["tests/protocol".to_owned()];
    for entry in fs::read_dir(root.join(FOLDER)).with_context(|| format!("cannot read {FOLDER}"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let file = format!("{FOLDER}/{name}");
        if name.starts_with("test_") && name.ends_with(".py") && ![WHEEL, SERVERS].contains(&file.as_str()) {
            files.push(file);
        }
    }
    if selection != Selection::Whole {
        files.retain(|file| !FAST.contains(&file.as_str()));
    }
    let place = |file: &String| LONGEST.iter().position(|long| file == long).unwrap_or(LONGEST.len());
    files.sort_by(|left, right| place(left).cmp(&place(right)).then_with(|| left.cmp(right)));
    Ok(selection.of_rest(files))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_that_is_named_is_there() {
        let root = crate::root();
        for file in FAST.iter().chain(&LONGEST).chain(&COLAB).chain(&OLD_CLIENT).chain([&WHEEL]) {
            assert!(root.join(file).exists(), "{file}");
        }
    }

    #[test]
    fn the_shares_have_every_file_once_that_is_not_among_the_short_ones() {
        let root = crate::root();
        let of = |arguments: &[&str]| files(&root, Selection::of(arguments).unwrap()).unwrap();
        let mut shared: Vec<String> = ["1/3", "2/3", "3/3"]
            .iter()
            .flat_map(|part| of(&["--part", part]))
            .chain(FAST.map(str::to_owned))
            .collect();
        let mut whole = of(&[]);
        assert_eq!(whole[0], LONGEST[0]);
        shared.sort_unstable();
        whole.sort_unstable();
        assert_eq!(shared, whole);
    }
}
