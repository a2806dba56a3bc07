//! The tests in Python: their files, the order in which they begin, and pytest's run of them on all processors.

use super::selection::Part;
use crate::environment::Environment;
use anyhow::{Context, Result, ensure};
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread::available_parallelism;

/// The folder of the tests in Python.
const FOLDER: &str = "tests";
/// The folder of the tests of the protocol.
const PROTOCOL: &str = "tests/protocol";

/// The largest number of processes, each with its kernels. On a large machine, more would need too much memory.
const MOST_PROCESSES: usize = 16;

/// The tests of `--fast`: those that most changes of cells and searches break. They take about three minutes on two cores.
pub(super) const FAST: [&str; 15] = [
    "tests/test_tune.py",
    "tests/test_undo.py",
    PROTOCOL,
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

/// The files that take longest. They begin first, so that no process still runs a long file when the others have ended.
const LONGEST: [&str; 15] = [
    "tests/test_programs.py",
    "tests/test_borrows.py",
    "tests/test_placement.py",
    "tests/test_notebooks.py",
    "tests/test_device_process.py",
    "tests/test_devices_xla.py",
    "tests/test_cluster_faults.py",
    "tests/test_coming_from.py",
    "tests/test_browser.py",
    "tests/test_numbers.py",
    "tests/test_launchers.py",
    "tests/test_device_clients.py",
    "tests/test_undo.py",
    "tests/test_guide.py",
    "tests/test_sources.py",
];

/// The tests for which libtpu compiles for minutes, if a program has changed.
pub(super) const PEAKS: [&str; 2] = ["tests/test_tpu_memory.py", "tests/test_spread_memory.py"];

/// The tests of the wheel, which must be built before them.
pub(super) const WHEEL: &str = "tests/test_wheel.py";

/// The tests that run only with the versions of Colab's Jupyter and IPython.
const SERVERS: &str = "tests/test_colab.py";
/// All tests that run with Colab's versions.
pub(super) const COLAB: [&str; 3] = [SERVERS, "tests/test_python_arrays.py", "tests/test_python_extension.py"];

/// The tests that run with the oldest supported jupyter_client.
pub(super) const OLD_CLIENT: [&str; 1] = ["tests/protocol/test_kernel_test_suite.py"];

/// A command that runs pytest for some files. Each file runs in one process, and its tests share kernels. The first files begin first.
pub(super) fn pytest(environment: &Environment, files: &[impl AsRef<OsStr>]) -> Command {
    let mut pytest = one_by_one(environment, files);
    // Most tests spend a part of their time waiting, so there is one process more than processors.
    let processes = (available_parallelism().map_or(1, usize::from) + 1).min(MOST_PROCESSES);
    pytest.args(["--dist=loadfile", "--no-loadscope-reorder", "--durations=20", "-n"]).arg(processes.to_string());
    pytest
}

/// A command that runs pytest for some files in one process.
pub(super) fn one_by_one(environment: &Environment, files: &[impl AsRef<OsStr>]) -> Command {
    let mut pytest = environment.python();
    pytest.args(["-m", "pytest"]).args(files);
    pytest
}

/// All files, or a share of those that [`FAST`] leaves out. The longest files are first.
pub(super) fn files(root: &Path, part: Option<Part>) -> Result<Vec<String>> {
    let mut files = vec![PROTOCOL.to_owned()];
    for entry in fs::read_dir(root.join(FOLDER)).with_context(|| format!("cannot read {FOLDER}"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let file = format!("{FOLDER}/{name}");
        if name.starts_with("test_") && name.ends_with(".py") && ![WHEEL, SERVERS].contains(&file.as_str()) {
            files.push(file);
        }
    }
    let place = |file: &String| LONGEST.iter().position(|long| file == long).unwrap_or(LONGEST.len());
    files.sort_by(|left, right| place(left).cmp(&place(right)).then_with(|| left.cmp(right)));
    let Some(part) = part else { return Ok(files) };
    files.retain(|file| !FAST.contains(&file.as_str()));
    let files = part.share(files);
    ensure!(!files.is_empty(), "there are fewer files of tests than such shares");
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_that_is_named_is_there() {
        let root = crate::root();
        for file in FAST.iter().chain(&LONGEST).chain(&PEAKS).chain(&COLAB).chain(&OLD_CLIENT).chain([&WHEEL]) {
            assert!(root.join(file).exists(), "{file}");
        }
    }

    #[test]
    fn the_shares_and_fast_have_every_file_once() {
        let root = crate::root();
        let share = |part| files(&root, Some(Part::of(part).unwrap())).unwrap();
        let mut shared = ["1/3", "2/3", "3/3"].map(share).concat();
        shared.extend(FAST.map(str::to_owned));
        let mut whole = files(&root, None).unwrap();
        assert_eq!(whole[0], LONGEST[0]);
        shared.sort_unstable();
        whole.sort_unstable();
        assert_eq!(shared, whole);
        assert!(files(&root, Some(Part::of("1000/1000").unwrap())).is_err());
    }

    #[test]
    fn no_folder_has_tests_that_do_not_run() {
        let folders = fs::read_dir(crate::root().join(FOLDER)).unwrap().map(|entry| entry.unwrap().path());
        let is_test = |path: &Path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("test_"));
        let has_tests = |folder: &Path| fs::read_dir(folder).unwrap().any(|entry| is_test(&entry.unwrap().path()));
        let found: Vec<_> = folders.filter(|path| path.is_dir() && has_tests(path)).collect();
        assert_eq!(found, [crate::root().join(PROTOCOL)]);
    }
}
