//! Rows about the machine: system, memory, cgroups, and accelerators as far as they are known without starting one.

use super::Row;
use ferrotune_devices::runtime::{self, Running};
use ferrotune_devices::{Cards, Machine, detect};
use ferrotune_machine::cgroup::{self, Version};
use ferrotune_machine::format;
use ferrotune_machine::{child, file, memory};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// How long a program may take to print its version.
pub(super) const DEADLINE: Duration = Duration::from_secs(20);

pub(super) fn rows() -> Vec<Row> {
    let mut rows = vec![
        Row::new("system", format!("{}, {}", system(), std::env::consts::ARCH)),
        Row::new("C library", glibc()),
        Row::new("cgroups", cgroups()),
        Row::new("memory", memory_text()),
    ];
    rows.extend(accelerators());
    rows.extend(device_processes());
    rows
}

fn system() -> String {
    let release = file(Path::new("/etc/os-release")).unwrap_or_default();
    let name = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    let kernel = rustix::system::uname();
    format!("{}, Linux {}", name.unwrap_or("unknown").trim_matches('"'), kernel.release().to_string_lossy())
}

fn glibc() -> String {
    let asked = child::output(Command::new("getconf").arg("GNU_LIBC_VERSION"), DEADLINE);
    asked.map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
}

fn cgroups() -> String {
    let own = cgroup::own_memory_cgroups();
    let versions = own.iter().map(|(version, _)| match version {
        Version::One => "version 1",
        Version::Two => "version 2",
    });
    let versions: Vec<&str> = versions.collect();
    let quota = cgroup::core_quota(&file).map(|cores| format!(", a quota of {cores} cores"));
    format!(
        "{}{}",
        if versions.is_empty() { "none".to_owned() } else { versions.join(", ") },
        quota.unwrap_or_default()
    )
}

fn memory_text() -> String {
    let limit = memory::memory_limit().map(|limit| format!("{} of {}", format::bytes(limit.bytes), limit.holder));
    let available = memory::available_bytes().map(format::bytes);
    format!("{}, {} available", limit.unwrap_or_else(unknown), available.unwrap_or_else(unknown))
}

fn unknown(error: std::io::Error) -> String {
    format!("unknown ({error})")
}

/// The cards of one maker, with their plugin, or with the cure if it is missing.
fn cards_row(cards: &Cards) -> Row {
    let plugin = cards.plugin.as_ref().map(|plugin| format!(", driven by {}", plugin.display()));
    let row = Row::new(&cards.device, format!("{cards}{}", plugin.unwrap_or_default()));
    match &cards.obstacle {
        Some(obstacle) => row.with_cure(obstacle.clone()),
        None => row,
    }
}

/// A row for each device process that runs.
fn device_processes() -> Vec<Row> {
    let row = |text: String| Row::new("device process", text);
    let of = |running: &Running| match &running.report {
        Ok(_) => row(running.to_string()),
        Err(_) => row(running.to_string())
            .with_cure("shut down the notebooks that use it, and it ends after a minute; else kill it"),
    };
    runtime::running().map_or_else(|error| vec![row(unknown(error))], |running| running.iter().map(of).collect())
}

fn accelerators() -> Vec<Row> {
    let report = detect(&Machine::this(), None);
    let mut rows = vec![Row::new("cpu", format!("{}, {} cores", report.cpu.model, report.cpu.cores))];
    if report.cuda.is_empty() {
        rows.push(Row::new("cuda", format!("none: {}", report.no_cuda)));
    }
    rows.extend(report.cards.iter().map(cards_row));
    let tpu = report.tpu.as_ref().map_or_else(|| format!("none: {}", report.no_tpu), ToString::to_string);
    let row = Row::new("tpu", tpu);
    let suspects = report.tpu_suspects.join("; ");
    rows.push(if report.tpu.is_some() && !suspects.is_empty() { row.with_cure(suspects) } else { row });
    rows
}
