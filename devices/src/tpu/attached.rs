//! Detects a TPU that is attached to this machine, by the PCI bus or its device nodes. The environment can add to these facts, but
//! not replace them.

use super::{Generation, chips};
use crate::finding::Finding;
use crate::machine::{Machine, Tree, numbered};

const GOOGLE: &str = "0x1ae0";
const PCI: &str = "/sys/bus/pci/devices";

/// Environment variables that suggest a TPU if they are not empty.
const HINTS: [&str; 3] = ["TPU_ACCELERATOR_TYPE", HOSTNAMES, "COLAB_TPU_1VM"];

/// The environment variable with the hosts of a slice, separated by commas.
const HOSTNAMES: &str = "TPU_WORKER_HOSTNAMES";

/// Environment variables with the number of chips, which is wrong on some machines.
const BOUNDS: [&str; 2] = ["TPU_CHIPS_PER_HOST_BOUNDS", "TPU_CHIPS_PER_PROCESS_BOUNDS"];

pub(super) struct Attached {
    pub(super) generation: Option<Generation>,
    /// The number of chips; none if no chip is attached.
    pub(super) chips: Option<usize>,
    /// The place where the chips were found.
    pub(super) source: Option<&'static str>,
    /// The reason why there is no TPU.
    pub(super) absence: String,
}

pub(super) fn find(machine: &Machine, tree: &Tree<'_>, findings: &mut Vec<Finding>) -> Attached {
    let bus = scan_bus(tree, findings);
    let accel = tree.names("/dev").iter().filter(|name| numbered(name, "accel").is_some()).count();
    let vfio = tree.names("/dev/vfio").iter().filter(|name| numbered(name, "").is_some()).count();
    let hints: Vec<&str> = HINTS.into_iter().filter(|name| machine.variable(name).is_some()).collect();
    // A vfio group may belong to any device. Without a chip on the bus, a hint must confirm that it is a TPU.
    let is_tpu_vfio = vfio > 0 && (!bus.chips.is_empty() || !hints.is_empty());
    report_nodes(&bus, accel, vfio, is_tpu_vfio, findings);

    let (source, count) = if !bus.chips.is_empty() {
        (Some("PCI"), bus.chips.len())
    } else if accel > 0 {
        (Some("/dev/accel*"), accel)
    } else if is_tpu_vfio {
        (Some("/dev/vfio/*"), vfio)
    } else {
        (None, 0)
    };
    let hinted = report_hints(machine, source.is_some(), findings);
    let generation = bus.chips.first().copied().or(hinted.filter(|_| source.is_some()));
    let absence = match hints.first() {
        Some(hint) if source.is_none() => format!("{} ({hint} alone proves nothing)", bus.absence),
        _ => bus.absence,
    };
    Attached { generation, chips: source.map(|_| count), source, absence }
}

struct Bus {
    /// The generation of each chip, which is the same for all chips of a machine.
    chips: Vec<Generation>,
    absence: String,
}

fn scan_bus(tree: &Tree<'_>, findings: &mut Vec<Finding>) -> Bus {
    let mut tpus = Vec::new();
    let mut others = Vec::new();
    for address in tree.names(PCI) {
        let id = |file: &str| tree.text(&format!("{PCI}/{address}/{file}")).unwrap_or_default().to_ascii_lowercase();
        if id("vendor") != GOOGLE {
            continue;
        }
        let device = id("device");
        match generation(&device, &id("subsystem_device")) {
            Some(generation) => tpus.push(generation),
            None => others.push(device),
        }
    }
    tpus.sort();
    if let Some(first) = tpus.first() {
        let meaning = format!("{} of a TPU {first}", chips(tpus.len()));
        findings.push(Finding::new(PCI, format!("{} of vendor {GOOGLE}", devices(tpus.len())), meaning));
    }
    if !others.is_empty() {
        // Network cards and disks of Google Cloud's machines have the same vendor.
        let found = format!("{} of vendor {GOOGLE}: {}", devices(others.len()), others.join(", "));
        findings.push(Finding::new(PCI, found, "not TPUs that this version knows"));
    }
    if tpus.is_empty() && others.is_empty() {
        findings.push(Finding::new(PCI, format!("no device of vendor {GOOGLE}"), "no TPU on the bus"));
    }
    let absence = if others.is_empty() { "no PCI device" } else { "no TPU among the PCI devices" };
    Bus { chips: tpus, absence: format!("{absence} of vendor {GOOGLE}") }
}

fn generation(device: &str, subsystem: &str) -> Option<Generation> {
    match (device, subsystem) {
        ("0x0027", "0x004e") => Some(Generation::V2),
        ("0x0027", "0x004f") => Some(Generation::V3),
        ("0x0027", _) => Some(Generation::V2OrV3),
        ("0x005e", _) => Some(Generation::V4),
        ("0x0062", _) => Some(Generation::V5p),
        ("0x0063", _) => Some(Generation::V5e),
        ("0x006f", _) => Some(Generation::V6e),
        ("0x0076", _) => Some(Generation::V7x),
        _ => None,
    }
}

fn report_nodes(bus: &Bus, accel: usize, vfio: usize, is_tpu_vfio: bool, findings: &mut Vec<Finding>) {
    if accel > 0 {
        findings.push(Finding::new("/dev/accel*", devices(accel), "the device nodes of a TPU"));
    }
    if vfio > 0 {
        let meaning = if is_tpu_vfio {
            "device nodes, here of a TPU"
        } else {
            "devices passed through; nothing says that one is a TPU"
        };
        findings.push(Finding::new("/dev/vfio/*", devices(vfio), meaning));
    }
    if accel == 0 && vfio == 0 {
        let meaning = if bus.chips.is_empty() {
            "no TPU by its device nodes"
        } else {
            "the chips cannot be opened here: a container needs --privileged or the nodes themselves"
        };
        findings.push(Finding::new("/dev/accel*, /dev/vfio/*", "absent", meaning));
    }
}

/// Adds the hints to the findings, and returns the generation that they give.
fn report_hints(machine: &Machine, is_attached: bool, findings: &mut Vec<Finding>) -> Option<Generation> {
    for name in HINTS {
        if let Some(value) = machine.variable(name) {
            let machines =
                if name == HOSTNAMES { value.split(',').filter(|host| !host.trim().is_empty()).count() } else { 1 };
            let meaning = match (is_attached, machines) {
                (true, 2..) => {
                    format!("agrees: one of the {machines} machines of a slice, which compute only together")
                }
                (true, _) => "agrees: a TPU machine".to_owned(),
                (false, _) => "a hint only: no chip is here".to_owned(),
            };
            findings.push(Finding::new(name, value, meaning));
        } else if machine.is_empty_variable(name) {
            findings.push(Finding::new(name, "empty", "counts as absent"));
        }
    }
    for name in BOUNDS {
        if let Some(value) = machine.variable(name) {
            findings.push(Finding::new(name, value, "not used to count chips: wrong on machines with one chip"));
        }
    }
    machine.variable("TPU_ACCELERATOR_TYPE").and_then(Generation::of_accelerator_type)
}

fn devices(count: usize) -> String {
    format!("{count} device{}", if count == 1 { "" } else { "s" })
}
