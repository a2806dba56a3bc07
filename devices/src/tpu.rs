//! Detects TPUs: those that the user or the environment names, and those that are attached to this machine.
//!
//! Order and variables follow TensorFlow's `TPUClusterResolver`; the PCI ids are those that Google's own tools use.
//! Only hardware (PCI, device nodes) proves that a TPU is attached. The environment alone is a hint: its variables are also set on
//! machines without a TPU, and its variables for the bounds of a host's chips are wrong on Colab's single chips.

mod attached;
mod metadata;
mod named;
mod suspects;

use crate::finding::Finding;
use crate::machine::{Machine, Metadata, Tree};
use crate::packaged::LIBTPU;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;
use suspects::SKIP_METADATA;
pub(crate) use suspects::cure_of;

/// The generation of a TPU chip.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Generation {
    /// TPU v2.
    V2,
    /// TPU v3.
    V3,
    /// TPU v2 or v3: both generations have the same PCI id, and the subsystem's id is unknown.
    V2OrV3,
    /// TPU v4.
    V4,
    /// TPU v5p.
    V5p,
    /// TPU v5e, which Google also calls v5litepod.
    V5e,
    /// TPU v6e.
    V6e,
    /// TPU v7x.
    V7x,
}

/// A TPU that was found, whether or not it can be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tpu {
    /// The chip's generation; none if unknown.
    pub generation: Option<Generation>,
    /// The number of chips attached to this machine; none if no chip is visible here.
    pub chips: Option<usize>,
    /// The name or address of the TPU in the user's request or the environment.
    pub name: Option<String>,
    /// The place where the TPU was found, such as `PCI` or `TPU_NAME`.
    pub source: String,
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Generation::V2 => "v2",
            Generation::V3 => "v3",
            Generation::V2OrV3 => "v2 or v3",
            Generation::V4 => "v4",
            Generation::V5p => "v5p",
            Generation::V5e => "v5e",
            Generation::V6e => "v6e",
            Generation::V7x => "v7x",
        })
    }
}

impl fmt::Display for Tpu {
    /// Writes a text such as `TPU v5e (8 chips, by PCI)` or `TPU my-tpu (by TPU_NAME)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TPU")?;
        if let Some(name) = &self.name {
            write!(f, " {name}")?;
        }
        if let Some(generation) = self.generation {
            write!(f, " {generation}")?;
        }
        match self.chips {
            Some(count) => write!(f, " ({}, by {})", chips(count), self.source),
            None => write!(f, " (by {})", self.source),
        }
    }
}

impl Generation {
    /// The generation in an accelerator type such as `v5litepod-8`.
    fn of_accelerator_type(text: &str) -> Option<Generation> {
        match text.split('-').next()?.to_ascii_lowercase().as_str() {
            "v2" => Some(Generation::V2),
            "v3" => Some(Generation::V3),
            "v4" => Some(Generation::V4),
            "v5p" => Some(Generation::V5p),
            "v5e" | "v5lite" | "v5litepod" => Some(Generation::V5e),
            "v6e" => Some(Generation::V6e),
            "v7x" | "tpu7x" => Some(Generation::V7x),
            _ => None,
        }
    }
}

/// The result of the detection of a machine's TPU.
pub(crate) struct Detected {
    pub(crate) tpu: Option<Tpu>,
    /// The reason why there is no TPU.
    pub(crate) absence: String,
    pub(crate) libtpu: Option<PathBuf>,
    /// Reasons why the TPU may fail to open, with their cures.
    pub(crate) suspects: Vec<String>,
}

pub(crate) fn detect(
    machine: &Machine,
    tree: &Tree<'_>,
    wanted: Option<&str>,
    findings: &mut Vec<Finding>,
) -> Detected {
    let named = named::find(machine, wanted, findings);
    let attached = attached::find(machine, tree, findings);
    let is_known = attached.chips.is_some() && attached.generation.is_some();
    let is_settled = is_known || named.name.is_some() || named.is_refused;
    let metadata = if is_settled { None } else { ask_metadata(machine, tree, findings) };
    let libtpu = LIBTPU.find(machine, tree, findings);
    let suspects = attached.chips.map_or_else(Vec::new, |count| suspects::find(machine, tree, count, findings));
    if named.is_refused {
        return Detected { tpu: None, absence: named.absence, libtpu, suspects };
    }

    let from_metadata = metadata.as_ref().and_then(|answer| answer.as_deref().ok());
    let generation = attached.generation.or_else(|| from_metadata.and_then(Generation::of_accelerator_type));
    let (name, name_source) = named.name.unzip();
    let source =
        attached.source.map(str::to_owned).or(name_source).or_else(|| from_metadata.map(|_| "metadata server".into()));
    if let Some(source) = source {
        let tpu = Tpu { generation, chips: attached.chips, name, source };
        return Detected { tpu: Some(tpu), absence: String::new(), libtpu, suspects };
    }
    let mut reasons = vec![attached.absence, named.absence];
    reasons.extend(metadata.and_then(Result::err));
    Detected { tpu: None, absence: reasons.join(", "), libtpu, suspects }
}

/// The accelerator type that the metadata server reports, if it may be asked and a detail of the machine suggests Google Cloud.
fn ask_metadata(machine: &Machine, tree: &Tree<'_>, findings: &mut Vec<Finding>) -> Option<Result<String, String>> {
    let Metadata::Host(host) = &machine.metadata else {
        return None;
    };
    let product = tree.text("/sys/class/dmi/id/product_name").filter(|name| name.contains("Google"));
    let is_sign = |name: &str| name.starts_with("GCE_") || name.starts_with("KUBE_GOOGLE_CLOUD_");
    let variable = machine.environment.keys().find(|name| is_sign(name) && machine.variable(name).is_some()).cloned();
    let sign = product.or(variable)?;
    if let Some(value) = machine.variable(SKIP_METADATA).filter(|value| !matches!(*value, "0" | "false")) {
        findings.push(Finding::new(SKIP_METADATA, value, "the metadata server is not asked"));
        return None;
    }
    let answer = metadata::accelerator_type(host);
    let finding = match &answer {
        Ok(accelerator) => {
            Finding::new("metadata server", accelerator, format!("this machine ({sign}) was made with a TPU"))
        }
        Err(reason) => Finding::new("metadata server", reason, format!("no word of a TPU, though this is {sign}")),
    };
    findings.push(finding);
    Some(answer)
}

fn chips(count: usize) -> String {
    format!("{count} chip{}", if count == 1 { "" } else { "s" })
}
