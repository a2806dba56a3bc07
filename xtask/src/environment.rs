//! Finds the tools of a task, and makes an environment for the kernel and its tests under `target/`.
//!
//! The error for a missing tool is one line that names its package. Never reads or writes the user's Jupyter.

use crate::step::{output, run};
use anyhow::{Context, Result, bail};
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The oldest Python on which the notebook tools run.
const OLDEST_PYTHON: (u32, u32) = (3, 10);
/// The names of Python programs. A newer Python may be installed in addition to an old `python3`.
const PYTHONS: [&str; 6] = ["python3", "python3.14", "python3.13", "python3.12", "python3.11", "python3.10"];

/// The prefixes of cargo's environment variables that are settings of the user.
const USERS: [&str; 6] =
    ["CARGO_HOME", "CARGO_HTTP_", "CARGO_NET_", "CARGO_REGISTRIES_", "CARGO_REGISTRY_", "CARGO_SOURCE_"];

/// An environment in which the kernel is installed and tested.
pub(crate) struct Environment {
    root: PathBuf,
    venv: PathBuf,
}

impl Environment {
    /// Finds the tools, and makes `target/venv` with the packages that run notebooks.
    pub(crate) fn prepare(root: &Path) -> Result<Self> {
        find_tools(root)?;
        Self::make(root, "target/venv", "tests/requirements-notebooks.txt")
    }

    /// Makes a separate virtual environment with the oldest jupyter_client that is tested.
    pub(crate) fn prepare_old_client(root: &Path) -> Result<Self> {
        Self::make(root, "target/venv-client7", "tests/requirements-client7.txt")
    }

    /// Makes a separate virtual environment with the versions of Colab's Jupyter and IPython.
    pub(crate) fn prepare_colab(root: &Path) -> Result<Self> {
        Self::make(root, "target/venv-colab", "tests/requirements-colab.txt")
    }

    /// Makes a separate virtual environment with the tools that build the wheel.
    pub(crate) fn prepare_wheel(root: &Path) -> Result<Self> {
        Self::make(root, "target/venv-wheel", "tests/requirements-wheel.txt")
    }

    /// The path of a program of this environment.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.venv.join("bin").join(name)
    }

    /// Makes a virtual environment in `folder` with the packages of one file of requirements.
    fn make(root: &Path, folder: &str, requirements: &str) -> Result<Self> {
        let python = find_python()?;
        let venv = root.join(folder);
        stamped(&venv.join("made.stamp"), &format!("{python} of {}\n", root.display()), || {
            make_virtual_environment(&python, &venv)
        })?;
        let environment = Self { root: root.to_owned(), venv };
        environment.add(requirements)?;
        Ok(environment)
    }

    /// Does the work of [`Environment::prepare`], and installs the packages of the tests.
    pub(crate) fn prepare_for_tests(root: &Path) -> Result<Self> {
        let environment = Self::prepare(root)?;
        environment.add("tests/requirements.txt")?;
        Ok(environment)
    }

    /// Installs the built kernel, and builds the prelude unless it exists.
    pub(crate) fn install_kernel(&self) -> Result<()> {
        let mut install = Command::new(self.root.join("target/release/ferrotune"));
        install.args(["install", "--prefix"]).arg(self.root.join("target/jupyter"));
        // A compiled prelude serves the next build of a prelude.
        install.env("FERROTUNE_PRELUDE_TARGET", self.root.join("target/prelude"));
        run(&mut self.private(install))
    }

    /// A Python command that finds the installed kernel, and does not find the user's Jupyter.
    pub(crate) fn python(&self) -> Command {
        let mut python = self.private(Command::new(self.venv.join("bin/python")));
        python.current_dir(&self.root).env("PYTHONDONTWRITEBYTECODE", "1").env("PYTHONUNBUFFERED", "1");
        python
    }

    /// A call of a program in `benchmarks/`, which uses modules of the tests.
    pub(crate) fn bench(&self, program: &str) -> Command {
        let mut python = self.python();
        python.arg(self.root.join("benchmarks").join(program)).env("PYTHONPATH", self.root.join("tests"));
        python
    }

    /// Installs a file of requirements into the virtual environment, unless the file is installed already.
    pub(crate) fn add(&self, requirements: &str) -> Result<()> {
        let file = self.root.join(requirements);
        let name = file.file_name().with_context(|| format!("{requirements} names no file"))?;
        let stamp = self.venv.join(name).with_extension("stamp");
        stamped(&stamp, &fs::read_to_string(&file)?, || install(&self.venv.join("bin/python"), &file))
    }

    /// Sets every folder of the user to a folder under `target/`.
    pub(crate) fn private(&self, mut command: Command) -> Command {
        let target = self.root.join("target");
        let jupyter = target.join("jupyter/share/jupyter");
        command
            .env("XDG_CACHE_HOME", target.join("cache"))
            .env("XDG_CONFIG_HOME", target.join("home/config"))
            .env("XDG_DATA_HOME", target.join("home/data"))
            .env("XDG_STATE_HOME", target.join("home/state"))
            .env("JUPYTER_PATH", &jupyter)
            .env("JUPYTER_DATA_DIR", &jupyter)
            .env("JUPYTER_CONFIG_DIR", target.join("home/jupyter"))
            .env("JUPYTER_RUNTIME_DIR", target.join("home/runtime"))
            .env("JUPYTER_PLATFORM_DIRS", "1");
        outside_cargo(&mut command);
        command
    }
}

/// Does the work unless `stamp` already contains the text, then writes the text to it.
fn stamped(stamp: &Path, text: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
    if fs::read_to_string(stamp).is_ok_and(|done| done == text) {
        return Ok(());
    }
    work()?;
    fs::write(stamp, text).with_context(|| format!("cannot write {}", stamp.display()))
}

/// Installs a file of requirements with the user's settings of pip.
fn install(python: &Path, requirements: &Path) -> Result<()> {
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement"]);
    run(pip.arg(requirements)).with_context(|| format!("{} cannot be installed from PyPI", requirements.display()))
}

/// Removes the environment variables that rustup and cargo set for this program. A user's kernel starts without them, so a
/// library that is found only through them would be missing there.
pub(crate) fn outside_cargo(command: &mut Command) -> &mut Command {
    let source = env::var("RUSTUP_TOOLCHAIN_SOURCE").ok();
    for (variable, _) in env::vars_os() {
        if variable.to_str().is_some_and(|name| is_of_cargo(name, source.as_deref())) {
            command.env_remove(variable);
        }
    }
    let Some(paths) = env::var_os("LD_LIBRARY_PATH") else { return command };
    let program = env::current_exe().ok();
    let toolchain = env::var_os("CARGO").and_then(|cargo| Some(Path::new(&cargo).parent()?.parent()?.join("lib")));
    match users_own(&paths, program.as_deref(), toolchain.as_deref()) {
        Some(paths) => command.env("LD_LIBRARY_PATH", paths),
        None => command.env_remove("LD_LIBRARY_PATH"),
    }
}

/// Whether cargo or rustup sets a variable for `cargo xtask`, so that it is not a setting of the user.
/// `toolchain_source` is rustup's variable with the origin of the toolchain's choice.
fn is_of_cargo(variable: &str, toolchain_source: Option<&str>) -> bool {
    match variable {
        "RUSTUP_TOOLCHAIN" => toolchain_source == Some("default"),
        "RUSTUP_TOOLCHAIN_SOURCE" | "RUST_RECURSION_COUNT" | "RUST_BACKTRACE" | "RUSTFLAGS" | "CARGO" => true,
        _ => variable.starts_with("CARGO_") && !USERS.iter().any(|kept| variable.starts_with(kept)),
    }
}

/// The folders of a library path that cargo did not add, or `None` if there are none.
fn users_own(paths: &OsStr, program: Option<&Path>, toolchain: Option<&Path>) -> Option<OsString> {
    let is_of_cargo = |path: &Path| {
        program.is_some_and(|program| {
            // The folders of build results contain the program, or are next to it or to the folder of a test program.
            program.starts_with(path) || program.ancestors().skip(1).take(2).any(|built| path.starts_with(built))
        }) || toolchain.is_some_and(|lib| path == lib || path.starts_with(lib.join("rustlib")))
    };
    // The loader treats an empty entry as the working folder, which nobody intends.
    let kept: Vec<PathBuf> =
        env::split_paths(paths).filter(|path| !path.as_os_str().is_empty() && !is_of_cargo(path)).collect();
    // Joining fails only for a path with a colon, and these paths come from splitting at colons.
    if kept.is_empty() { None } else { env::join_paths(kept).ok() }
}

/// Finds the tools that build and run everything. A missing tool fails a task here and not after minutes of compiling.
pub(crate) fn find_tools(root: &Path) -> Result<()> {
    find_linker()?;
    find_standard_library_sources(root)?;
    find_python().map(drop)
}

/// Finds `cc`, with which rustc links. Without it, a build fails late and with a long message.
fn find_linker() -> Result<()> {
    if !runs(Command::new("cc").arg("--version")) {
        bail!("cc, the linker, not found; install gcc (Debian and Ubuntu: apt-get install build-essential)");
    }
    Ok(())
}

/// Finds the sources of the standard library, from which the kernel infers the types of variables.
fn find_standard_library_sources(root: &Path) -> Result<()> {
    let sysroot = output(outside_cargo(Command::new("rustc").args(["--print", "sysroot"]).current_dir(root)))?;
    let is_there = || Path::new(sysroot.trim()).join("lib/rustlib/src/rust/library/std/src/lib.rs").is_file();
    if is_there() || runs(Command::new("rustup").args(["component", "add", "rust-src"]).current_dir(root)) && is_there()
    {
        return Ok(());
    }
    bail!("the standard library's sources are not installed; install them (rustup component add rust-src)")
}

/// Finds rustfmt and clippy, which a minimal toolchain does not have.
pub(crate) fn find_style_tools(root: &Path) -> Result<()> {
    if ["fmt", "clippy"].iter().all(|tool| runs(cargo(root).args([tool, "--version"]))) {
        return Ok(());
    }
    bail!("cargo fmt or cargo clippy not found; install them (rustup component add rustfmt clippy)")
}

fn find_python() -> Result<String> {
    let versions: Vec<(&str, (u32, u32))> =
        PYTHONS.iter().filter_map(|name| Some((*name, version_of(name)?))).collect();
    choose_python(&versions)
}

/// The first Python that is new enough, or an error.
fn choose_python(versions: &[(&str, (u32, u32))]) -> Result<String> {
    let wanted = format!("Python {}.{} or newer", OLDEST_PYTHON.0, OLDEST_PYTHON.1);
    match (versions.iter().find(|(_, version)| *version >= OLDEST_PYTHON), versions.first()) {
        (Some((name, _)), _) => Ok((*name).to_owned()),
        (None, Some((name, (major, minor)))) => bail!("{name} is {major}.{minor}; install {wanted}"),
        (None, None) => {
            bail!("python3 not found; install it (Debian and Ubuntu: apt-get install python3 python3-venv)")
        }
    }
}

fn version_of(python: &str) -> Option<(u32, u32)> {
    let code = "import sys; print(*sys.version_info[:2])";
    let text = output(Command::new(python).args(["-c", code])).ok()?;
    let (major, minor) = text.trim().split_once(' ')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn make_virtual_environment(python: &str, folder: &Path) -> Result<()> {
    if !runs(Command::new(python).args(["-c", "import venv, ensurepip"])) {
        bail!("{python} has no venv module; install it (Debian and Ubuntu: apt-get install python3-venv)");
    }
    run(Command::new(python).args(["-m", "venv", "--clear"]).arg(folder))
        .with_context(|| format!("cannot make {}", folder.display()))
}

fn runs(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// Builds the program.
pub(crate) fn build_program(root: &Path) -> Result<()> {
    run(cargo(root).args(BUILD_OF_PROGRAM))
}

/// The arguments with which cargo builds the program. `--workspace` makes it choose the same features as in `cargo test`, so that
/// neither command builds the dependencies of the other again; `--bins` leaves out the other crates' libraries.
pub(crate) const BUILD_OF_PROGRAM: [&str; 5] = ["build", "--release", "--locked", "--workspace", "--bins"];

/// A command for the cargo that runs this program.
pub(crate) fn cargo(root: &Path) -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // The variables of the cargo that runs this program do not apply to another cargo. All tasks expect the program in this
    // target folder.
    outside_cargo(&mut cargo).current_dir(root).env("CARGO_TARGET_DIR", root.join("target"));
    // The toolchain is kept: cargo starts rustc in the folder of the package that it builds, and otherwise rustup's rustc would use
    // the rust-toolchain.toml of that folder, which salsa has.
    if let Some(toolchain) = env::var_os("RUSTUP_TOOLCHAIN") {
        cargo.env("RUSTUP_TOOLCHAIN", toolchain);
    }
    cargo
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn python_is_the_first_that_is_new_enough() {
        assert_eq!(choose_python(&[("python3", (3, 9)), ("python3.12", (3, 12))]).unwrap(), "python3.12");
        assert_eq!(choose_python(&[("python3", (3, 10)), ("python3.12", (3, 12))]).unwrap(), "python3");
    }

    #[test]
    fn missing_python_is_one_line_with_its_package() {
        let error = choose_python(&[]).unwrap_err().to_string();
        assert_eq!(error, "python3 not found; install it (Debian and Ubuntu: apt-get install python3 python3-venv)");
        let error = choose_python(&[("python3", (3, 9))]).unwrap_err().to_string();
        assert_eq!(error, "python3 is 3.9; install Python 3.10 or newer");
    }

    #[test]
    fn variables_of_cargo_are_removed_and_settings_of_the_user_stay() {
        for variable in ["CARGO", "CARGO_PKG_NAME", "CARGO_MANIFEST_DIR", "CARGO_TARGET_DIR", "RUST_BACKTRACE"] {
            assert!(is_of_cargo(variable, None), "{variable}");
        }
        for variable in
            ["CARGO_HOME", "CARGO_NET_OFFLINE", "CARGO_REGISTRIES_CRATES_IO_PROTOCOL", "RUSTUP_HOME", "PATH"]
        {
            assert!(!is_of_cargo(variable, None), "{variable}");
        }
    }

    #[test]
    fn toolchain_stays_if_the_user_chose_it() {
        assert!(is_of_cargo("RUSTUP_TOOLCHAIN", Some("default")));
        for source in [None, Some("env"), Some("cli"), Some("path override")] {
            assert!(!is_of_cargo("RUSTUP_TOOLCHAIN", source), "{source:?}");
        }
    }

    #[test]
    fn library_path_keeps_folders_of_the_user() {
        let own = |paths: &str| {
            users_own(
                OsStr::new(paths),
                Some(Path::new("/clone/target/debug/xtask")),
                Some(Path::new("/toolchain/lib")),
            )
        };
        let of_cargo = "/clone/target/debug/deps:/clone/target/debug:/toolchain/lib/rustlib/host/lib:/toolchain/lib";
        assert_eq!(own(of_cargo), None);
        assert_eq!(own("/clone/target/debug/build/zstd-sys-37ebe01d/out"), None);
        assert_eq!(own(&format!("{of_cargo}::/cuda/lib64")), Some("/cuda/lib64".into()));
    }

    #[test]
    fn cargo_keeps_the_toolchain_that_runs_this_program() {
        let set = cargo(Path::new("/clone"));
        let toolchain = set.get_envs().find(|(name, _)| *name == "RUSTUP_TOOLCHAIN").and_then(|(_, value)| value);
        assert_eq!(toolchain.map(OsStr::to_owned), env::var_os("RUSTUP_TOOLCHAIN"));
    }

    #[test]
    fn programs_see_nothing_of_cargo() {
        // `cargo test` sets all these variables for this process.
        let mut printenv = Command::new("sh");
        printenv.args(["-c", r#"echo "$LD_LIBRARY_PATH $CARGO_PKG_NAME $RUST_BACKTRACE""#]);
        let seen = output(outside_cargo(&mut printenv)).unwrap();
        assert!(!["rustlib", "target", "deps", "xtask"].iter().any(|word| seen.contains(word)), "{seen}");
    }
}
