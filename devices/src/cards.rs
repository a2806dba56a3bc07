//! The cards (GPUs) of a machine, each maker's with the plugin that drives them. NVIDIA's cards are described in [`crate::CudaDevice`].

use crate::cuda::{self, CudaDevice};
use crate::finding::Finding;
use crate::machine::{Machine, Tree};
use crate::names::Maker;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Path, PathBuf};

const PCI: &str = "/sys/bus/pci/devices";
const AMD: &str = "0x1002";
const INTEL: &str = "0x8086";

/// The cards of one maker that this process may use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cards {
    /// The name of the first card as a device: `cuda`, `rocm` or `oneapi`.
    pub device: String,
    /// The model of the first card.
    pub model: String,
    /// The number of cards.
    pub count: usize,
    /// Path of the plugin's library; none if it is not installed.
    pub plugin: Option<PathBuf>,
    /// The reason why the cards cannot be used, with the cure; none if nothing is known to be in the way.
    pub obstacle: Option<String>,
}

impl fmt::Display for Cards {
    /// Writes a text such as `NVIDIA L4` or `NVIDIA L4 (the first of 4 cards)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.model)?;
        if self.count > 1 { write!(f, " (the first of {} cards)", self.count) } else { Ok(()) }
    }
}

/// The cards of each maker, NVIDIA's first.
pub(crate) fn detect(
    machine: &Machine,
    tree: &Tree<'_>,
    cuda: &[CudaDevice],
    findings: &mut Vec<Finding>,
) -> Vec<Cards> {
    let nvidia = cuda.first().map(|first| {
        let packaged = cuda::packaged(tree);
        let plugin = packaged.find(machine, tree, findings);
        let obstacle = plugin.is_none().then(|| cuda::cure_of_missing(first, &packaged));
        cards_of(Maker::Cuda, (&first.name, cuda.len()), plugin, obstacle)
    });
    nvidia.into_iter().chain(amd(machine, tree, findings)).chain(intel(machine, tree, findings)).collect()
}

fn amd(machine: &Machine, tree: &Tree<'_>, findings: &mut Vec<Finding>) -> Option<Cards> {
    let has_driver = tree.names("/dev").iter().any(|name| name == "kfd");
    let count = if has_driver { on_bus(tree, AMD) } else { 0 };
    if count == 0 {
        return None;
    }
    findings.push(Finding::new("/dev/kfd", "present", format!("AMD's driver, and {count} of its cards on the bus")));
    let packaged = Maker::Rocm.packaged(tree);
    let plugin = packaged.find(machine, tree, findings);
    let obstacle = plugin.is_none().then(|| packaged.advice());
    Some(cards_of(Maker::Rocm, ("AMD card", count), plugin, obstacle))
}

/// Intel's cards, if their plugin is installed: most processors have graphics of Intel's that nobody wants to compute on.
fn intel(machine: &Machine, tree: &Tree<'_>, findings: &mut Vec<Finding>) -> Option<Cards> {
    let is_open = tree.names("/dev/dri").iter().any(|name| name.starts_with("renderD"));
    let count = if is_open { on_bus(tree, INTEL) } else { 0 };
    if count == 0 {
        return None;
    }
    let plugin = Maker::Oneapi.packaged(tree).required(machine, tree).ok()?;
    findings.push(Finding::new("the oneAPI plugin", plugin.to_string_lossy(), format!("for {count} of Intel's cards")));
    Some(cards_of(Maker::Oneapi, ("Intel card", count), Some(plugin), None))
}

fn cards_of(maker: Maker, (model, count): (&str, usize), plugin: Option<PathBuf>, obstacle: Option<String>) -> Cards {
    Cards { device: maker.name().to_owned(), model: model.to_owned(), count, plugin, obstacle }
}

/// The number of a vendor's display controllers and accelerators on the PCI bus.
fn on_bus(tree: &Tree<'_>, vendor: &str) -> usize {
    let is_card = |address: &String| {
        let id = |file: &str| tree.text(&format!("{PCI}/{address}/{file}")).unwrap_or_default().to_ascii_lowercase();
        let class = id("class");
        id("vendor") == vendor && ["0x03", "0x12"].iter().any(|kind| class.starts_with(kind))
    };
    tree.names(PCI).iter().filter(|address| is_card(address)).count()
}

impl Cards {
    /// Records that the cards' plugin failed to open, with the cure if it is known.
    pub(crate) fn note_failure(&mut self, failure: &str, cuda: &[CudaDevice]) {
        let plugin = self.plugin.as_deref().unwrap_or(Path::new(""));
        let cure = cuda.first().filter(|_| self.device == Maker::Cuda.name());
        let cure = cure.and_then(|first| cuda::cure_of_failure(first, plugin, failure));
        self.obstacle = Some(match cure {
            Some(cure) => format!("it does not open: {failure}; {cure}"),
            None => format!("it does not open: {failure}"),
        });
    }
}
