//! The CPU: how many cores this process may use, what vector units they have, and how much memory there is.

use crate::bytes::shown;
use crate::machine::Tree;
use crate::report::Finding;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Component, Path};

/// Vector extensions that matter for training, as `/proc/cpuinfo` and as people call them, narrowest first.
const SIMD: &[(&str, &str)] = &[
    ("sse4_2", "SSE4.2"),
    ("asimd", "NEON"),
    ("sve", "SVE"),
    ("avx", "AVX"),
    ("avx2", "AVX2"),
    ("avx512f", "AVX-512"),
    ("amx_tile", "AMX"),
];

/// The CPU that is always there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cpu {
    /// As the CPU calls itself.
    pub model: String,
    /// The logical cores that this process may use, at least 1.
    pub cores: usize,
    /// Its vector extensions, narrowest first.
    pub simd: Vec<String>,
    /// The machine's memory; none if unknown.
    pub memory_bytes: Option<u64>,
    /// The control group's limit, where it is below the machine's memory.
    pub memory_limit_bytes: Option<u64>,
}

impl fmt::Display for Cpu {
    /// `2 cores, AVX2, 23.4 GiB`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} core{}", self.cores, if self.cores == 1 { "" } else { "s" })?;
        if let Some(widest) = self.simd.last() {
            write!(f, ", {widest}")?;
        }
        match (self.memory_bytes, self.memory_limit_bytes) {
            (_, Some(limit)) => write!(f, ", limited to {}", shown(limit)),
            (Some(memory), None) => write!(f, ", {}", shown(memory)),
            (None, None) => Ok(()),
        }
    }
}

impl Cpu {
    /// `23.4 GiB`, `limited to 12 GiB of 23.4 GiB`
    pub(crate) fn memory_text(&self) -> String {
        match (self.memory_limit_bytes, self.memory_bytes) {
            (Some(limit), Some(memory)) => format!("limited to {} of {}", shown(limit), shown(memory)),
            (Some(limit), None) => format!("limited to {}", shown(limit)),
            (None, Some(memory)) => shown(memory),
            (None, None) => "unknown".to_owned(),
        }
    }
}

pub(crate) fn detect(tree: &Tree<'_>, findings: &mut Vec<Finding>) -> Cpu {
    let cpuinfo = tree.text("/proc/cpuinfo").unwrap_or_default();
    let memory_bytes = memory(tree);
    let cpu = Cpu {
        model: field(&cpuinfo, "model name").unwrap_or("unknown model").to_owned(),
        cores: cores(tree, &cpuinfo),
        simd: simd(&cpuinfo),
        memory_bytes,
        memory_limit_bytes: memory_limit(tree).filter(|limit| memory_bytes.is_none_or(|memory| *limit < memory)),
    };
    findings.push(Finding::new("CPU", format!("{} ({cpu})", cpu.model), "always there"));
    cpu
}

/// What this process may run on, and no more than its control group's share.
fn cores(tree: &Tree<'_>, cpuinfo: &str) -> usize {
    let status = tree.text("/proc/self/status").unwrap_or_default();
    let allowed = field(&status, "Cpus_allowed_list").and_then(count_list);
    let processors = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
    let present = allowed.unwrap_or(processors).max(1);
    core_quota(tree).map_or(present, |quota| present.min(quota.max(1)))
}

/// `max 100000` or `150000 100000` in version 2, two files in version 1; rounded up.
fn core_quota(tree: &Tree<'_>) -> Option<usize> {
    let version_2 = control_group_values(tree, "", "/sys/fs/cgroup", "cpu.max").into_iter().filter_map(|text| {
        let (quota, period) = text.split_once(' ')?;
        Some(number(quota)?.div_ceil(number(period)?.max(1)))
    });
    let quotas = control_group_values(tree, "cpu", "/sys/fs/cgroup/cpu", "cpu.cfs_quota_us");
    let periods = control_group_values(tree, "cpu", "/sys/fs/cgroup/cpu", "cpu.cfs_period_us");
    let version_1 =
        quotas.iter().zip(&periods).filter_map(|(quota, period)| Some(number(quota)?.div_ceil(number(period)?.max(1))));
    version_2.chain(version_1).min().and_then(|cores| usize::try_from(cores).ok())
}

/// The lowest limit from the process' own control group up to the root.
fn memory_limit(tree: &Tree<'_>) -> Option<u64> {
    let version_2 = control_group_values(tree, "", "/sys/fs/cgroup", "memory.max");
    let version_1 = control_group_values(tree, "memory", "/sys/fs/cgroup/memory", "memory.limit_in_bytes");
    // Version 1 writes "no limit" as the largest number of whole pages.
    let is_limit = |bytes: &u64| *bytes < 1 << 60;
    version_2.iter().chain(&version_1).filter_map(|text| number(text)).filter(is_limit).min()
}

/// The values of a control file in the process' group of a controller (`""` is version 2) and in all groups above.
fn control_group_values(tree: &Tree<'_>, controller: &str, mount: &str, file: &str) -> Vec<String> {
    let groups = tree.text("/proc/self/cgroup").unwrap_or_default();
    let own = groups.lines().find_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        controllers.split(',').any(|name| name == controller).then_some(path)
    });
    // Inside a container the path may be the host's, or climb out with `..`; the mount itself is then the group.
    let mut folder = Path::new(mount).to_path_buf();
    let mut folders = vec![folder.clone()];
    for component in Path::new(own.unwrap_or("/")).components() {
        if let Component::Normal(name) = component {
            folder.push(name);
            folders.push(folder.clone());
        }
    }
    folders.iter().filter_map(|folder| tree.text(&folder.join(file).to_string_lossy())).collect()
}

fn memory(tree: &Tree<'_>) -> Option<u64> {
    let meminfo = tree.text("/proc/meminfo")?;
    let kibibytes = number(field(&meminfo, "MemTotal")?.strip_suffix("kB")?.trim())?;
    kibibytes.checked_mul(1024)
}

fn simd(cpuinfo: &str) -> Vec<String> {
    let flags = field(cpuinfo, "flags").or_else(|| field(cpuinfo, "Features")).unwrap_or_default();
    let has = |flag: &str| flags.split_whitespace().any(|present| present == flag);
    SIMD.iter().filter(|(flag, _)| has(flag)).map(|(_, name)| (*name).to_owned()).collect()
}

/// The value of the first `name : value` line.
pub(crate) fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim())
    })
}

/// How many numbers `0-3,8` names.
fn count_list(list: &str) -> Option<usize> {
    list.split(',').try_fold(0_usize, |count, part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let size = number(last)?.checked_sub(number(first)?)?.checked_add(1)?;
        count.checked_add(usize::try_from(size).ok()?)
    })
}

/// A number; `max`, `-1` and the like stand for no limit.
fn number(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn core_lists_are_counted() {
        for (list, expected) in [("0", Some(1)), ("0-3", Some(4)), ("0-1,4,6-7", Some(5)), ("", None), ("3-1", None)] {
            assert_eq!(count_list(list), expected, "{list}");
        }
    }
}
