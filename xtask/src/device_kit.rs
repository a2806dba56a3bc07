//! `cargo xtask device-kit [FOLDER]` packs what a machine with a card and without a network needs to run Ferrotune's checks:
//! `kit.tar` has the script `run.sh` and the programs that it runs, and `part-1.tar` to `part-N.tar` have the kernel, the library of
//! the cells and a toolchain.
//!
//! No plugin is packed. CUDA's package brings gigabytes of libraries, and a machine with a card has it, beside JAX.

mod parts;
#[cfg(test)]
mod script;

use crate::environment::{Environment, build_program, cargo, outside_cargo};
use crate::step::{output, run as run_command, step};
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::env;
use std::fs;
use std::path::{self, Path, PathBuf};
use std::process::Command;

/// The file with the script and the programs.
const KIT: &str = "kit.tar";
/// The scripts of the kit.
const SCRIPTS: &str = "xtask/device_kit";
/// The other files of the repository that the scripts use. They have the same paths in the kit.
const FILES: [&str; 5] = [
    "notebooks/01_quickstart.ipynb",
    "notebooks/05_tpu.ipynb",
    "target/release/ferrotune-numbers",
    "tests/jax_twins",
    "tests/numbers/differences",
];

/// A program that cargo does not build with the others.
struct Check {
    /// The folder of the program's crate.
    package: &'static str,
    /// Cargo's name of the example or test.
    target: &'static str,
    /// The name of the program in the kit.
    name: &'static str,
}

const CHECKS: [Check; 4] = [
    Check { package: "tests/pjrt_plugin", target: "contract", name: "contract" },
    Check { package: "tests/pjrt_plugin", target: "throughput", name: "throughput" },
    Check { package: "xla", target: "steps", name: "steps" },
    Check { package: "xla", target: "it", name: "parity" },
];

/// The arguments with which cargo builds [`CHECKS`] and prints their paths.
const BUILD: &str = "build --release --locked --message-format=json-render-diagnostics --package ferrotune-pjrt-plugin \
                     --package ferrotune-xla --example contract --example throughput --example steps --test it";

/// The versions of Python for which Jupyter's client is packed. The wheels for the last one are for newer versions, too.
const PYTHONS: [&str; 3] = ["3.10", "3.11", "3.12"];
/// The kinds of machine for which PyPI has the wheels of Jupyter's client.
const PLATFORMS: [&str; 4] =
    ["manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64", "manylinux1_x86_64"];
/// Jupyter's client, as in `tests/requirements-notebooks.txt`.
const CLIENT: &str = "jupyter_client>=8.6,<9";

pub(crate) fn run(root: &Path) -> Result<()> {
    let folder = folder(root, &env::args().skip(2).collect::<Vec<_>>())?;
    let stage = root.join("target/device-kit-files");
    remove(&stage)?;
    let [kit, tree] = ["kit", "tree"].map(|name| stage.join(name));
    let environment = step("tools", || Environment::prepare(root))?;
    step("build the program", || build_program(root))?;
    step("build the checks", || copy_checks(root, &kit.join("bin")))?;
    step("Jupyter's client", || download_client(&environment, &kit.join("wheels")))?;
    step("scripts and notebooks", || copy_files(root, &kit))?;
    let toolchain = toolchain(root)?;
    step("the library of the cells", || package_program(root, &environment, &toolchain, &tree))?;
    step("pack", || pack(&kit, &tree, &toolchain, &folder))?;
    remove(&stage)?;
    eprintln!("on the machine with the card: unpack {KIT}, and run `sh run.sh FOLDER`, where FOLDER has the parts");
    Ok(())
}

/// The folder of the kit, by the arguments of the task.
fn folder(root: &Path, arguments: &[String]) -> Result<PathBuf> {
    match arguments {
        [] => Ok(root.join("target/device-kit")),
        [folder] if !folder.starts_with('-') => Ok(path::absolute(folder)?),
        _ => bail!("usage: cargo xtask device-kit [FOLDER]"),
    }
}

/// Builds the checks, and copies them into `folder`.
fn copy_checks(root: &Path, folder: &Path) -> Result<()> {
    let messages = output(cargo(root).args(BUILD.split_whitespace()))?;
    fs::create_dir_all(folder)?;
    for check in &CHECKS {
        let program = check.executable(root, &messages)?;
        fs::copy(&program, folder.join(check.name)).with_context(|| format!("cannot copy {}", program.display()))?;
    }
    Ok(())
}

impl Check {
    /// The path of the program, by cargo's messages, each of which is a line of JSON.
    fn executable(&self, root: &Path, messages: &str) -> Result<PathBuf> {
        let manifest = root.join(self.package).join("Cargo.toml");
        let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let is_it = |message: &Value| {
            message["manifest_path"] == *manifest.to_string_lossy() && message["target"]["name"] == self.target
        };
        let mut found =
            messages.filter(is_it).filter_map(|message| Some(PathBuf::from(message["executable"].as_str()?)));
        found.next().with_context(|| format!("cargo built no {} of {}", self.target, self.package))
    }
}

/// Downloads the wheels of Jupyter's client, because Python on the other machine may lack it.
fn download_client(environment: &Environment, folder: &Path) -> Result<()> {
    for version in PYTHONS {
        let mut pip = environment.python();
        pip.args(["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--only-binary=:all:"]);
        pip.args(["--implementation", "cp", "--python-version", version]);
        pip.args(PLATFORMS.iter().flat_map(|platform| ["--platform", platform]));
        run_command(pip.arg("--dest").arg(folder).arg(CLIENT))?;
    }
    Ok(())
}

/// Copies the scripts, and the files of the repository that they use.
fn copy_files(root: &Path, kit: &Path) -> Result<()> {
    run_command(Command::new("cp").args(["--recursive", "--no-target-directory"]).arg(root.join(SCRIPTS)).arg(kit))?;
    let mut copy = Command::new("cp");
    run_command(copy.current_dir(root).args(["--recursive", "--parents"]).args(FILES).arg(kit))?;
    fs::write(kit.join("VERSION"), version(root)).context("cannot write the version")
}

/// The version of Ferrotune with its commit. A source archive has no git.
fn version(root: &Path) -> String {
    let mut git = Command::new("git");
    let commit = output(git.current_dir(root).args(["describe", "--always", "--dirty"]));
    format!("{}, commit {}", env!("CARGO_PKG_VERSION"), commit.as_deref().unwrap_or("unknown").trim())
}

/// The folder of the toolchain that compiles here, and cells there.
fn toolchain(root: &Path) -> Result<PathBuf> {
    let sysroot = output(outside_cargo(Command::new("rustc").args(["--print", "sysroot"]).current_dir(root)))?;
    Ok(PathBuf::from(sysroot.trim()))
}

/// Writes the program, the library of the cells for this toolchain and the kernelspec below `tree`, as in the wheel.
fn package_program(root: &Path, environment: &Environment, toolchain: &Path, tree: &Path) -> Result<()> {
    let program = root.join("target/release/ferrotune");
    let folder = tree.join("ferrotune");
    let mut package = environment.private(Command::new(&program));
    // A compiled prelude serves the next build of a prelude.
    package.env("FERROTUNE_PRELUDE_TARGET", root.join("target/prelude")).env("FERROTUNE_TOOLCHAIN", toolchain);
    run_command(package.arg("package").arg(&folder))?;
    fs::create_dir_all(folder.join("bin"))?;
    fs::copy(&program, folder.join("bin/ferrotune")).context("cannot copy the program")?;
    Ok(())
}

/// Writes the parts, and then the kit with their checksums.
fn pack(kit: &Path, tree: &Path, toolchain: &Path, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    parts::remove(folder)?;
    let mut tar = archive();
    // Sanitizers, and a linker for another machine.
    tar.args(["--file=-", "--exclude=*stable_rt*", "--exclude=wasm-component-ld"]);
    tar.arg("--directory").arg(tree).arg("ferrotune").arg("--directory").arg(toolchain).args(of_toolchain(toolchain)?);
    let sums = parts::write(&mut tar, folder, parts::MOST_BYTES)?;
    fs::write(kit.join(parts::SUMS), &sums)?;
    let mut tar = archive();
    run_command(tar.arg("--directory").arg(kit).arg(".").arg("--file").arg(folder.join(KIT)))?;
    let bytes = fs::metadata(folder.join(KIT))?.len();
    eprintln!(
        "{}: {KIT} of {:.0} MiB and {} parts",
        folder.display(),
        bytes as f64 / f64::from(1 << 20),
        sums.lines().count()
    );
    ensure!(bytes <= parts::MOST_BYTES, "{KIT} has more bytes than a part may have, {}", parts::MOST_BYTES);
    Ok(())
}

/// What compiles cells in the folder of a toolchain: no sources, no documentation, no tools of developers.
fn of_toolchain(toolchain: &Path) -> Result<Vec<String>> {
    let host = format!("lib/rustlib/{}-unknown-linux-gnu", env::consts::ARCH);
    let mut paths = vec!["bin/cargo".to_owned(), "bin/rustc".to_owned(), "libexec".to_owned(), host];
    paths.retain(|path| toolchain.join(path).exists());
    let library = toolchain.join("lib");
    for entry in fs::read_dir(&library).with_context(|| format!("cannot read {}", library.display()))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if ["libLLVM", "librustc_driver"].iter().any(|start| name.starts_with(start)) {
            paths.push(format!("lib/{name}"));
        }
    }
    Ok(paths)
}

/// A call of tar that writes a compressed archive.
fn archive() -> Command {
    let mut tar = Command::new("tar");
    tar.args(["--create", "--gzip", "--owner=0", "--group=0", "--exclude=__pycache__"]);
    tar
}

/// Removes the files of an earlier call.
fn remove(stage: &Path) -> Result<()> {
    match fs::remove_dir_all(stage) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", stage.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_is_the_executable_of_its_package() {
        let message = |package: &str, target: &str, executable: Value| {
            let manifest = format!("/clone/{package}/Cargo.toml");
            serde_json::json!({ "manifest_path": manifest, "target": { "name": target }, "executable": executable })
                .to_string()
        };
        let messages = [
            "warning: not JSON".to_owned(),
            message("tests/pjrt_plugin", "it", "/other/it".into()),
            message("xla", "it", Value::Null),
            message("xla", "it", "/deps/it-1".into()),
        ]
        .join("\n");
        let [contract, .., parity] = CHECKS;
        assert_eq!(parity.executable(Path::new("/clone"), &messages).unwrap(), Path::new("/deps/it-1"));
        let error = contract.executable(Path::new("/clone"), &messages).unwrap_err();
        assert_eq!(error.to_string(), "cargo built no contract of tests/pjrt_plugin");
    }

    #[test]
    fn every_file_of_the_kit_exists() {
        let root = crate::root();
        let missing: Vec<_> =
            FILES.iter().filter(|path| !path.starts_with("target/") && !root.join(path).exists()).collect();
        assert!(missing.is_empty(), "{missing:?}");
        let run = fs::read_to_string(root.join(SCRIPTS).join("run.sh")).unwrap();
        for check in CHECKS {
            assert!(run.contains(&format!("$kit/bin/{}\"", check.name)), "run.sh does not run {}", check.name);
        }
    }

    #[test]
    fn the_folder_is_named_or_below_target() {
        let named = |arguments: &[&str]| {
            folder(Path::new("/clone"), &arguments.iter().map(|&a| a.to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(named(&[]).unwrap(), Path::new("/clone/target/device-kit"));
        assert_eq!(named(&["/kit"]).unwrap(), Path::new("/kit"));
        assert!(named(&["--help"]).is_err() && named(&["a", "b"]).is_err());
    }
}
