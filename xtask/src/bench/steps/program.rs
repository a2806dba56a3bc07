//! The programs that train, under `benchmarks/bench_steps`: builds and starts them, and sends them requests.

use super::Mode;
use super::figures::{Figures, Used};
use crate::environment::{Environment, cargo};
use crate::step;
use anyhow::{Context, Result, bail};
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// The folder of the generated crates. One workspace cannot contain two versions of candle.
const FOLDER: &str = "target/bench";

/// The number of first weights, which is more than the largest model needs.
const WEIGHTS: u32 = 1 << 21;

/// The settings of glibc's malloc that would change the comparison.
const MALLOC: [&str; 5] =
    ["MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_", "MALLOC_MMAP_MAX_", "GLIBC_TUNABLES"];

/// A program, which may train in several modes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Program {
    /// The candle of crates.io.
    Candle,
    /// This repository's candle, optimisers and settings of malloc.
    Ours,
    Torch,
    Jax,
    Burn,
}

impl Program {
    pub(super) fn name(self) -> &'static str {
        match self {
            Program::Candle => "candle",
            Program::Ours => "ours",
            Program::Torch => "torch",
            Program::Jax => "jax",
            Program::Burn => "burn",
        }
    }

    /// Generates the crate around the program's sources, and builds the crate.
    pub(super) fn build(self, root: &Path) -> Result<()> {
        let folder = root.join(FOLDER).join(self.name());
        fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let write = |name: &str, content: &[u8]| {
            fs::write(folder.join(name), content)
                .with_context(|| format!("cannot write {name} in {}", folder.display()))
        };
        write("Cargo.toml", self.manifest(root).as_bytes())?;
        if self != Program::Burn {
            // The lock file gives all dependencies of candle the same versions.
            write("Cargo.lock", &fs::read(root.join("Cargo.lock")).context("cannot read Cargo.lock")?)?;
        }
        let mut build = cargo(&folder);
        build.args(["build", "--quiet", "--release"]);
        step::run(build.env("CARGO_TARGET_DIR", root.join(FOLDER).join("build")))
    }

    fn manifest(self, root: &Path) -> String {
        const CANDLE: &str = "candle-core = { version = \"=0.11.1\", default-features = false }\n\
                              candle-nn = { version = \"=0.11.1\", default-features = false }\n";
        let (name, root) = (self.name(), root.display());
        let (sources, rest) = match self {
            Program::Candle => ("candle", format!("[features]\nours = []\n\n[dependencies]\n{CANDLE}")),
            Program::Ours => (
                "candle",
                format!(
                    "[features]\ndefault = [\"ours\"]\nours = []\n\n[dependencies]\n{CANDLE}\
                     ferrotune-trial = {{ path = \"{root}/tuner/trial\", features = [\"plugins\"] }}\n\
                     ferrotune-tuner = {{ path = \"{root}/tuner\" }}\n\
                     ferrotune-xla = {{ path = \"{root}/xla\" }}\n\n\
                     [patch.crates-io]\ncandle-core = {{ path = \"{root}/patched/candle/candle-core\" }}\n\
                     candle-nn = {{ path = \"{root}/patched/candle/candle-nn\" }}\n"
                ),
            ),
            _ => (name, "[dependencies]\nburn = { version = \"=0.22.0\", features = [\"flex\"] }\n".to_owned()),
        };
        format!(
            "[package]\nname = \"bench-{name}\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n\
             [[bin]]\nname = \"bench-{name}\"\npath = \"{root}/benchmarks/bench_steps/{sources}/main.rs\"\n\n{rest}\n[workspace]\n"
        )
    }

    /// The command that starts the program.
    pub(super) fn command(self, root: &Path, environment: &Environment) -> Command {
        let mut program = match self {
            Program::Torch | Program::Jax => environment.bench(&format!("bench_steps/{}_steps.py", self.name())),
            _ => Command::new(root.join(FOLDER).join("build/release").join(format!("bench-{}", self.name()))),
        };
        for name in MALLOC {
            program.env_remove(name);
        }
        if self == Program::Ours {
            // Cells and workers are started with these values.
            program.env("CANDLE_NUM_THREADS", "1").env("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1");
            // The program finds the tests' XLA:CPU there.
            program.env("VIRTUAL_ENV", root.join("target/venv")).env_remove("FERROTUNE_XLA_CPU");
            program.env("XDG_CACHE_HOME", root.join("target/cache"));
        }
        program
    }
}

/// Writes the numbers from which all programs make their first weights, uniform in [-1, 1).
pub(super) fn write_weights(root: &Path) -> Result<PathBuf> {
    let path = root.join(FOLDER).join("weights.bin");
    fs::create_dir_all(root.join(FOLDER)).context("cannot create target/bench")?;
    let mut state = 1_u64;
    let numbers = (0..WEIGHTS).flat_map(|_| {
        // Knuth's linear congruential generator, whose upper bits are good.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 40) as f32 / (1 << 23) as f32 - 1.0).to_le_bytes()
    });
    fs::write(&path, numbers.collect::<Vec<u8>>()).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// A program that waits for its next turn. The program is killed when this value is dropped.
pub(super) struct Running {
    name: &'static str,
    child: Child,
    turns: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Running {
    pub(super) fn start(mut command: Command, mode: &Mode, weights: &Path) -> Result<Running> {
        command.arg(mode.argument).arg(weights).stdin(Stdio::piped()).stdout(Stdio::piped());
        let threads = std::thread::available_parallelism().context("cannot count the cores")?.to_string();
        command.env("RAYON_NUM_THREADS", &threads).env("OMP_NUM_THREADS", threads);
        let mut child = command.spawn().with_context(|| format!("cannot start {}", mode.name))?;
        let (Some(turns), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            bail!("{} has no standard streams", mode.name)
        };
        Ok(Running { name: mode.name, child, turns, answers: BufReader::new(answers) })
    }

    /// Requests steps from the program, and measures them.
    pub(super) fn turn(&mut self, model: &str, steps: usize) -> Result<Figures> {
        let before = Used::by(self.child.id())?;
        writeln!(self.turns, "{model} {steps}").with_context(|| format!("{} has ended", self.name))?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer).with_context(|| format!("{} cannot be read", self.name))?;
        Figures::of(&answer, &before, &Used::by(self.child.id())?)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Err(error) = self.child.kill().and_then(|()| self.child.wait()) {
            eprintln!("xtask: {} may still run: {error}", self.name);
        }
    }
}
