//! Calls of Slurm's programs, with the environment that each needs.

use super::ENGINE;
use crate::LauncherError;
use crate::call::Programs;
use crate::job::kept_environment;
use std::ffi::{OsStr, OsString};
use std::process::Command;

const PROGRAMS: Programs =
    Programs { engine: ENGINE, package: "Slurm's commands (slurm-client)", check: "scontrol ping" };
/// The prefixes of variables with defaults of the programs' options, which would change the output that we read.
const DEFAULTS: [&str; 3] = ["SACCT_", "SCANCEL_", "SQUEUE_"];

/// Submits a script whose command receives these variables and few others; returns the output of `sbatch`.
pub(super) fn sbatch(
    arguments: &[OsString],
    variables: &[(String, String)],
    script: Vec<u8>,
) -> Result<String, LauncherError> {
    // `sbatch` itself needs these variables. The variables SLURM_* of a job that submits another job would describe the
    // wrong job.
    let needed = |name: &str| name.starts_with("SBATCH_") || ["SLURM_CONF", "SLURM_CLUSTERS"].contains(&name);
    let mut command = Command::new(PROGRAMS.path_of("sbatch")?);
    command.args(arguments).env_clear().envs(kept_environment());
    command.envs(std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(needed)));
    command.envs(variables.iter().map(|(name, value)| (name, value)));
    PROGRAMS.output("sbatch", command, script)
}

/// Runs one of Slurm's programs, and returns its output.
pub(super) fn run<T: AsRef<OsStr>>(
    program: &'static str,
    arguments: impl IntoIterator<Item = T>,
) -> Result<String, LauncherError> {
    let mut command = Command::new(PROGRAMS.path_of(program)?);
    command.args(arguments);
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| DEFAULTS.iter().any(|defaults| name.starts_with(defaults))) {
            command.env_remove(name);
        }
    }
    PROGRAMS.output(program, command, Vec::new())
}
