//! Detects the CPU: the cores that this process may use, their vector units, and the memory.

use crate::finding::Finding;
use crate::machine::{Tree, field};
use ferrotune_machine::format::precise_bytes;
use ferrotune_machine::{cgroup, memory};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::Path;

/// Vector extensions that matter for training, by their names in `/proc/cpuinfo` and in this project's texts, narrowest
/// first.
const SIMD: &[(&str, &str)] = &[
    ("sse4_2", "SSE4.2"),
    ("asimd", "NEON"),
    ("sve", "SVE"),
    ("avx", "AVX"),
    ("avx2", "AVX2"),
    ("avx512f", "AVX-512"),
    ("amx_tile", "AMX"),
];

/// The CPU, which every machine has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cpu {
    /// The model name that the CPU reports.
    pub model: String,
    /// The logical cores that this process may use, at least 1.
    pub cores: usize,
    /// The CPU's vector extensions, narrowest first.
    pub simd: Vec<String>,
    /// The machine's memory, in bytes; none if unknown.
    pub memory_bytes: Option<u64>,
    /// The lowest memory limit of this process' cgroups, in bytes; none if there is no limit, or if the machine's memory is known
    /// and not greater.
    pub memory_limit_bytes: Option<u64>,
}

impl fmt::Display for Cpu {
    /// Writes a text such as `2 cores, AVX2, 23.4 GiB`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} core{}", self.cores, if self.cores == 1 { "" } else { "s" })?;
        if let Some(widest) = self.simd.last() {
            write!(f, ", {widest}")?;
        }
        match (self.memory_bytes, self.memory_limit_bytes) {
            (_, Some(limit)) => write!(f, ", limited to {}", precise_bytes(limit)),
            (Some(memory), None) => write!(f, ", {}", precise_bytes(memory)),
            (None, None) => Ok(()),
        }
    }
}

impl Cpu {
    /// The memory as text, such as `23.4 GiB` or `limited to 12 GiB of 23.4 GiB`.
    pub(crate) fn memory_text(&self) -> String {
        match (self.memory_limit_bytes, self.memory_bytes) {
            (Some(limit), Some(memory)) => format!("limited to {} of {}", precise_bytes(limit), precise_bytes(memory)),
            (Some(limit), None) => format!("limited to {}", precise_bytes(limit)),
            (None, Some(memory)) => precise_bytes(memory),
            (None, None) => "unknown".to_owned(),
        }
    }
}

pub(crate) fn detect(tree: &Tree<'_>, findings: &mut Vec<Finding>) -> Cpu {
    let cpuinfo = tree.text("/proc/cpuinfo").unwrap_or_default();
    let read = |path: &Path| tree.file(path);
    let memory_bytes = memory::total_bytes(&read);
    let memory_limit_bytes = cgroup::memory_limit_bytes(&read);
    let cpu = Cpu {
        model: field(&cpuinfo, "model name").unwrap_or("unknown model").to_owned(),
        cores: cores(tree, &cpuinfo),
        simd: simd(&cpuinfo),
        memory_bytes,
        memory_limit_bytes: memory_limit_bytes.filter(|limit| memory_bytes.is_none_or(|memory| *limit < memory)),
    };
    findings.push(Finding::new("CPU", format!("{} ({cpu})", cpu.model), "always there"));
    cpu
}

/// The number of cores that this process may run on, limited by its cgroups.
fn cores(tree: &Tree<'_>, cpuinfo: &str) -> usize {
    let status = tree.text("/proc/self/status").unwrap_or_default();
    let allowed = field(&status, "Cpus_allowed_list").and_then(count_list);
    let processors = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
    let present = allowed.unwrap_or(processors).max(1);
    let quota = cgroup::core_quota(&|path| tree.file(path)).and_then(|cores| usize::try_from(cores).ok());
    quota.map_or(present, |quota| present.min(quota.max(1)))
}

fn simd(cpuinfo: &str) -> Vec<String> {
    let flags = field(cpuinfo, "flags").or_else(|| field(cpuinfo, "Features")).unwrap_or_default();
    let has = |flag: &str| flags.split_whitespace().any(|present| present == flag);
    SIMD.iter().filter(|(flag, _)| has(flag)).map(|(_, name)| (*name).to_owned()).collect()
}

/// The number of entries in a list of ranges such as `0-3,8`.
fn count_list(list: &str) -> Option<usize> {
    list.split(',').try_fold(0_usize, |count, part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.trim().parse::<usize>().ok();
        count.checked_add(number(last)?.checked_sub(number(first)?)?.checked_add(1)?)
    })
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
