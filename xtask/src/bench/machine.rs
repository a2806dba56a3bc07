//! What the figures of a table depend on besides the programs: the machine, without its name, the compiler, and the day.

use crate::step::output;
use anyhow::{Context, Result};
use std::fs;
use std::process::Command;

/// The processors, the memory and the compiler, as in `2 cores of AMD EPYC, 24 GiB of memory, rustc 1.95.0`.
pub(super) fn description() -> Result<String> {
    let cores = std::thread::available_parallelism().context("cannot count the cores")?;
    let processors = fs::read_to_string("/proc/cpuinfo").context("cannot read /proc/cpuinfo")?;
    let memory = fs::read_to_string("/proc/meminfo").context("cannot read /proc/meminfo")?;
    let rustc = output(Command::new("rustc").arg("--version"))?;
    let model = value(&processors, "model name").unwrap_or(std::env::consts::ARCH);
    let kib: f64 = value(&memory, "MemTotal")
        .and_then(|size| size.split_whitespace().next()?.parse().ok())
        .context("/proc/meminfo has no MemTotal")?;
    let rustc = rustc.split_whitespace().nth(1).context("rustc does not say its version")?;
    Ok(format!("{cores} cores of {model}, {:.0} GiB of memory, rustc {rustc}", kib / f64::from(1 << 20)))
}

/// Today, as in `2026-11-20`.
pub(super) fn day() -> Result<String> {
    Ok(output(Command::new("date").arg("+%F"))?.trim().to_owned())
}

/// The value of the first line `KEY : VALUE` of a file in /proc.
fn value<'a>(file: &'a str, key: &str) -> Option<&'a str> {
    let pairs = file.lines().filter_map(|line| line.split_once(':'));
    pairs.filter(|(name, _)| name.trim() == key).map(|(_, value)| value.trim()).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_has_no_spaces_around_it() {
        assert_eq!(
            value("processor\t: 0\nmodel name\t: AMD EPYC\nmodel name\t: other\n", "model name"),
            Some("AMD EPYC")
        );
        assert_eq!(value("MemTotal:       25165824 kB\n", "MemTotal"), Some("25165824 kB"));
        assert_eq!(value("processor\t: 0\n", "model name"), None);
    }
}
