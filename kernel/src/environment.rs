//! The environment variables that a kernel reads, and those that it sets for its stand-ins for cargo, which evcxr starts. The
//! variables are set once, before the kernel begins, since to change the environment of a process with threads is not safe.

use anyhow::{Context, Result, anyhow};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Variable with the folder of the running kernel.
pub(crate) const RUNTIME_VARIABLE: &str = "FERROTUNE_RUNTIME";
/// Variable with the process id of the kernel whose folder [`RUNTIME_VARIABLE`] names: a kernel that a cell starts inherits both.
pub(crate) const OWNER_VARIABLE: &str = "FERROTUNE_KERNEL";
/// Variable with the folder of the prelude that cells are compiled against.
pub(crate) const PRELUDE_VARIABLE: &str = "FERROTUNE_PRELUDE";
/// Variable with the path of the real cargo.
pub(crate) const CARGO_VARIABLE: &str = "FERROTUNE_CARGO";
/// Variable with the path of the real rustc.
pub(crate) const RUSTC_VARIABLE: &str = "FERROTUNE_RUSTC";
/// Variable with the folder of the shared standard library.
pub(crate) const STANDARD_LIBRARY_VARIABLE: &str = "FERROTUNE_STANDARD_LIBRARY";
/// Variable with the search path without the folder of the stand-ins.
pub(crate) const PATH_VARIABLE: &str = "FERROTUNE_PATH";

/// evcxr's variable with the file into which the stand-in writes the path of the compiled cell.
pub(crate) const RESULT_VARIABLE: &str = "EVCXR_EXECUTION_SO_PATH";
/// The variable that evcxr sets whenever it calls cargo.
pub(crate) const EVCXR_VARIABLE: &str = "EVCXR_CORE_EXTERN";

/// The user's variable for how much text of one cell is shown: a size, or `none`.
pub(crate) const OUTPUT_LIMIT_VARIABLE: &str = "FERROTUNE_OUTPUT_LIMIT";

/// The limit of a cell's text without [`OUTPUT_LIMIT_VARIABLE`].
const OUTPUT_LIMIT_BYTES: u64 = 100 << 20;

/// The user's variable for the cache of what readers fetch from stores and web servers: a size, or `none`.
const OBJECT_CACHE_VARIABLE: &str = "FERROTUNE_OBJECT_CACHE";

/// The size of the cache without [`OBJECT_CACHE_VARIABLE`].
const OBJECT_CACHE_BYTES: u64 = 10 << 30;

/// The user's variable for the time without cells and questions after which rust-analyzer forgets the crates: a duration, or `none`.
const COMPLETION_IDLE_VARIABLE: &str = "FERROTUNE_COMPLETION_IDLE";

/// That time without [`COMPLETION_IDLE_VARIABLE`].
const COMPLETION_IDLE: Duration = Duration::from_secs(10 * 60);

/// How many bytes of text of one cell are shown; none if there is no limit.
pub(crate) fn output_limit_bytes() -> Result<Option<u64>> {
    setting(OUTPUT_LIMIT_VARIABLE, OUTPUT_LIMIT_BYTES, size)
}

/// How many bytes of objects are kept on disk; none if no object is kept.
pub(crate) fn object_cache_bytes() -> Result<Option<u64>> {
    setting(OBJECT_CACHE_VARIABLE, OBJECT_CACHE_BYTES, size)
}

/// After which idle time rust-analyzer forgets the crates; none if it never does.
pub(crate) fn completion_idle() -> Result<Option<Duration>> {
    setting(COMPLETION_IDLE_VARIABLE, COMPLETION_IDLE, |value| match ferrotune_magics::seconds(value) {
        Ok(seconds) => Ok(Duration::from_secs_f64(seconds)),
        Err(_) => Err(" is no idle time; write it as 90s, 10m or 2h".to_owned()),
    })
}

/// The value in an environment variable, or `usual` if the variable is not set; none for the value `none`. What `read` says of a wrong
/// value follows the value in the error.
fn setting<T>(variable: &str, usual: T, read: impl Fn(&str) -> Result<T, String>) -> Result<Option<T>> {
    match std::env::var_os(variable).map(|value| value.to_string_lossy().into_owned()) {
        None => Ok(Some(usual)),
        Some(value) if value == "none" => Ok(None),
        Some(value) => read(&value).map(Some).map_err(|problem| anyhow!("{variable}={value}{problem}, or none")),
    }
}

fn size(value: &str) -> Result<u64, String> {
    ferrotune_magics::bytes(value).map_err(|problem| format!(": {problem}"))
}

/// The user's variables with which cargo and rustup's proxies would call another toolchain.
const OF_RUSTUP: [&str; 2] = ["RUSTUP_TOOLCHAIN", "RUSTUP_HOME"];

/// Makes a program of a toolchain ignore the toolchain that the user has chosen for other programs.
pub(crate) fn without_rustup(command: &mut Command) -> &mut Command {
    OF_RUSTUP.iter().fold(command, |command, name| command.env_remove(name))
}

/// A call of the real rustc.
pub(crate) fn rustc() -> Result<Command> {
    let mut rustc = Command::new(path(RUSTC_VARIABLE)?);
    without_rustup(&mut rustc);
    Ok(rustc)
}

/// A call of the real cargo, which calls the real rustc.
pub(crate) fn cargo() -> Result<Command> {
    let mut cargo = Command::new(path(CARGO_VARIABLE)?);
    without_rustup(cargo.env("RUSTC", path(RUSTC_VARIABLE)?));
    Ok(cargo)
}

/// The path in a variable that a running kernel has set. A kernel that installs its toolchain after its start has set a path
/// through a link in its own folder. For such a path the target of the link is returned, so that all kernels compile with the
/// same paths.
pub(crate) fn path(name: &str) -> Result<PathBuf> {
    let path = PathBuf::from(required(name)?);
    match std::env::var_os(RUNTIME_VARIABLE) {
        Some(runtime) if path.starts_with(&runtime) => {
            path.canonicalize().with_context(|| format!("{} leads nowhere; restart the kernel", path.display()))
        }
        _ => Ok(path),
    }
}

/// The folder of the running kernel.
pub(crate) fn runtime() -> Result<PathBuf> {
    required(RUNTIME_VARIABLE).map(PathBuf::from)
}

/// The value of a variable that a running kernel has set.
pub(crate) fn required(name: &str) -> Result<OsString> {
    std::env::var_os(name).with_context(|| format!("{name} is not set"))
}

/// The socket of the kernel that started this process; none if no kernel did.
pub(crate) fn kernel_socket() -> Option<PathBuf> {
    std::env::var_os(RUNTIME_VARIABLE).map(|folder| socket_in(Path::new(&folder)))
}

/// The socket in the folder of a running kernel.
pub(crate) fn socket_in(folder: &Path) -> PathBuf {
    folder.join("link")
}

/// Gives a program the search path without the stand-ins.
pub(crate) fn restore_path(command: &mut Command) {
    if let Some(path) = std::env::var_os(PATH_VARIABLE) {
        command.env("PATH", path);
    }
}

/// A program on the search path, without the stand-ins.
pub(crate) fn search(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os(PATH_VARIABLE).or_else(|| std::env::var_os("PATH"))?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|path| path.is_file())
}
