//! Detects the CPU: the cores that this process may use, their vector units, and the memory.

use crate::finding::Finding;
use crate::machine::Tree;
use ferrotune_machine::format::precise_bytes;
use ferrotune_machine::processor::Processor;
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
    let read = |path: &Path| tree.file(path);
    let Processor { model, features, cores } = Processor::of(&read);
    let quota = cgroup::core_quota(&read).and_then(|cores| usize::try_from(cores).ok());
    let memory_bytes = memory::total_bytes(&read);
    let memory_limit_bytes = cgroup::memory_limit_bytes(&read);
    let cpu = Cpu {
        model: model.unwrap_or_else(|| "unknown model".to_owned()),
        cores: quota.map_or(cores, |quota| cores.min(quota.max(1))),
        simd: simd(&features),
        memory_bytes,
        memory_limit_bytes: memory_limit_bytes.filter(|limit| memory_bytes.is_none_or(|memory| *limit < memory)),
    };
    findings.push(Finding::new("CPU", format!("{} ({cpu})", cpu.model), "always there"));
    cpu
}

fn simd(features: &str) -> Vec<String> {
    let has = |flag: &str| features.split_whitespace().any(|present| present == flag);
    SIMD.iter().filter(|(flag, _)| has(flag)).map(|(_, name)| (*name).to_owned()).collect()
}
