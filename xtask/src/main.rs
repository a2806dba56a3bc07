//! `cargo xtask TASK` runs a task of this repository. Needs Rust and Python, and installs all other tools itself. Writes only
//! under `target/` and the sources in `patched/` that git ignores; only `install` writes to the user's folders. The exceptions are the
//! pages in `benchmarks/`, which `bench` writes, and Chromium and PostgreSQL, which `test` installs with apt-get if it runs as root and
//! does not find them (`tests/browser.py`, `tests/postgresql.py`, `tuner/journal/tests/it/postgres.rs`).

mod bench;
mod book;
mod demo;
mod device_kit;
mod environment;
mod install;
mod package;
mod packages;
mod step;
mod test;
mod tidy;
mod torture;
mod wheel;

use anyhow::Result;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

/// A command of `cargo xtask`.
struct Task {
    name: &'static str,
    help: &'static str,
    run: fn(&Path) -> Result<()>,
}

const TASKS: &[Task] = &[
    Task { name: "demo", help: "build everything, run the quickstart notebook, show its best trial", run: demo::run },
    Task {
        name: "test",
        help: "all that CI runs; `test --fast`: what most changes break, `test --part 1/3`: a share of all else; `test --peaks`: what libtpu says of large programs; `test --target aarch64`: the Rust tests on an emulated machine",
        run: test::run,
    },
    Task { name: "torture", help: "hundreds of kills at random times, and every fault of a trial", run: torture::run },
    Task { name: "tidy", help: "check the style rules that no compiler checks", run: tidy::run },
    Task {
        name: "bench",
        help: "list the tables of figures; `bench NAME`: measure one anew beside its rivals; `bench --mark`: mark those older than a release",
        run: bench::run,
    },
    Task { name: "book", help: "make a book of the guide in docs", run: book::run },
    Task { name: "install", help: "install the kernel for the current user", run: install::run },
    Task { name: "wheel", help: "build the package for PyPI", run: wheel::run },
    Task {
        name: "device-kit",
        help: "pack what a machine with a card and no network needs to run the checks; `device-kit FOLDER`: into that folder",
        run: device_kit::run,
    },
    Task { name: "package", help: "pack the crates for crates.io, and build the program from them", run: package::run },
    Task {
        name: packages::NAMES[0],
        help: "make candle's packages, as every task does first; `--list`: our patches; `--diff TOPIC`: write edits into one",
        run: packages::run_candle,
    },
    Task {
        name: packages::NAMES[1],
        help: "make evcxr's package, as every task does first; `--list` and `--diff TOPIC` as for candle",
        run: packages::run_evcxr,
    },
];

fn main() -> ExitCode {
    let name = std::env::args().nth(1).unwrap_or_default();
    let Some(task) = TASKS.iter().find(|task| task.name == name) else {
        eprintln!("usage: cargo xtask TASK\n");
        for Task { name, help, .. } in TASKS {
            eprintln!("  {name:8} {help}");
        }
        return ExitCode::from(2);
    };
    let started = Instant::now();
    match run(task, &root()) {
        Ok(()) => {
            let seconds = started.elapsed().as_secs();
            eprintln!("xtask {name}: done in {} min {} s", seconds / 60, seconds % 60);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("xtask {name}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a task. Before that, makes our packages of candle and evcxr, which every build needs, unless the task itself makes them.
fn run(task: &Task, root: &Path) -> Result<()> {
    if !packages::NAMES.contains(&task.name) {
        packages::make_all(root)?;
    }
    (task.run)(root)
}

/// The root of the repository, which contains this crate.
fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest).to_owned()
}
