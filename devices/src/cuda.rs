//! Detects CUDA devices from what NVIDIA's driver shows in `/proc` and `/dev`. Detection opens neither the driver library nor a
//! device, so the memory stays unknown until [`fill_in_memory`] asks the driver's own program.

use crate::finding::Finding;
use crate::machine::{Machine, Tree, numbered};
use crate::packaged::{CUDA_12, CUDA_13, Packaged};
use ferrotune_machine::{nvidia, value};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::Path;

const DRIVER: &str = "/proc/driver/nvidia";
const UNKNOWN_MODEL: &str = "NVIDIA GPU";

/// A CUDA device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CudaDevice {
    /// The device's index in CUDA, if CUDA orders devices by bus.
    pub index: usize,
    /// The device's model.
    pub name: String,
    /// The device's address on the PCI bus; none if unknown.
    pub address: Option<String>,
    /// The device's memory, in bytes; none if unknown.
    pub memory_bytes: Option<u64>,
    /// The driver's version; none if unknown.
    pub driver: Option<String>,
}

impl fmt::Display for CudaDevice {
    /// Writes the name of the device: `cuda`, `cuda:1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.index == 0 { f.write_str("cuda") } else { write!(f, "cuda:{}", self.index) }
    }
}

/// The devices that CUDA would show to this process, and the reason if there are none.
pub(crate) fn detect(machine: &Machine, tree: &Tree<'_>, findings: &mut Vec<Finding>) -> (Vec<CudaDevice>, String) {
    let version = tree.text(&format!("{DRIVER}/version"));
    let driver = version.as_deref().and_then(driver_version);
    let nodes: Vec<usize> = tree.names("/dev").iter().filter_map(|name| numbered(name, "nvidia")).collect();
    let listed = listed(tree);
    if version.is_none() && nodes.is_empty() {
        findings.push(Finding::new(DRIVER, "absent", "no NVIDIA driver, so no CUDA device"));
        return (Vec::new(), "no NVIDIA driver".into());
    }
    let found = driver.as_deref().unwrap_or("unknown version");
    findings.push(Finding::new(DRIVER, format!("driver {found}"), format!("{} listed", devices(listed.len()))));
    let mut usable: Vec<Listed> = Vec::new();
    for device in &listed {
        // A device without a minor number is assumed to have a node if there are any.
        if device.minor.map_or(!nodes.is_empty(), |minor| nodes.contains(&minor)) {
            usable.push(device.clone());
        } else {
            let meaning = "the driver knows it, but it has no node in /dev: a container without access to it";
            findings.push(Finding::new("/dev/nvidia*", &device.model, meaning));
        }
    }
    if listed.is_empty() {
        usable.extend(nodes.iter().map(|_| Listed { model: UNKNOWN_MODEL.to_owned(), minor: None, address: None }));
    }
    if usable.is_empty() {
        return (Vec::new(), "the NVIDIA driver is there, but no device that this process may use".into());
    }
    let models: Vec<&str> = usable.iter().map(|device| &*device.model).collect();
    findings.push(Finding::new("/dev/nvidia*", models.join(", "), devices(models.len())));
    let visible = visible(machine, usable, findings);
    if visible.is_empty() {
        return (Vec::new(), "CUDA_VISIBLE_DEVICES hides every device".into());
    }
    let device = |(index, Listed { model, address, .. }): (usize, Listed)| CudaDevice {
        index,
        name: model,
        address,
        memory_bytes: None,
        driver: driver.clone(),
    };
    (visible.into_iter().enumerate().map(device).collect(), String::new())
}

/// A device in the list of NVIDIA's driver.
#[derive(Clone)]
struct Listed {
    model: String,
    /// The minor number of the device's node.
    minor: Option<usize>,
    address: Option<String>,
}

/// The devices in the driver's list, by bus address.
fn listed(tree: &Tree<'_>) -> Vec<Listed> {
    let folder = format!("{DRIVER}/gpus");
    let information = |address: &String| {
        let text = tree.text(&format!("{folder}/{address}/information"))?;
        let model = value(&text, "Model").unwrap_or(UNKNOWN_MODEL).to_owned();
        let minor = value(&text, "Device Minor").and_then(|minor| numbered(minor, ""));
        Some(Listed { model, minor, address: Some(address.to_owned()) })
    };
    tree.names(&folder).iter().filter_map(information).collect()
}

/// Applies `CUDA_VISIBLE_DEVICES`, which selects and orders devices by index, up to the first index that does not exist. An empty
/// value hides all devices.
fn visible(machine: &Machine, usable: Vec<Listed>, findings: &mut Vec<Finding>) -> Vec<Listed> {
    const VARIABLE: &str = "CUDA_VISIBLE_DEVICES";
    let Some(value) = machine.environment.get(VARIABLE) else {
        return usable;
    };
    let entries: Vec<&str> = value.split(',').map(str::trim).collect();
    if entries.iter().any(|entry| entry.starts_with("GPU-") || entry.starts_with("MIG-")) {
        findings.push(Finding::new(VARIABLE, value, "chooses by id, which is not looked up here: all are shown"));
        return usable;
    }
    let chosen: Vec<Listed> = entries.iter().map_while(|entry| usable.get(numbered(entry, "")?)).cloned().collect();
    let found = if value.is_empty() { "empty" } else { value };
    findings.push(Finding::new(VARIABLE, found, format!("{} visible", devices(chosen.len()))));
    chosen
}

/// The first drivers with CUDA 12 and with CUDA 13, by their major versions.
const DRIVER_OF_CUDA_12: u32 = 525;
const DRIVER_OF_CUDA_13: u32 = 580;

/// Models that CUDA 13 has dropped, by a word of their names. Kaggle has the P100.
const WITHOUT_CUDA_13: [&str; 7] = ["K80", "M40", "M60", "P4", "P40", "P100", "V100"];

/// The plugin for this machine's driver and cards. Where both CUDA 12's and CUDA 13's are installed, it prefers the newer one that the
/// driver has.
pub(crate) fn packaged(tree: &Tree<'_>) -> Packaged {
    let version = tree.text(&format!("{DRIVER}/version"));
    let major = version.as_deref().and_then(driver_version).as_deref().and_then(major);
    let is_old = |device: &Listed| device.model.split([' ', '-']).any(|word| WITHOUT_CUDA_13.contains(&word));
    match major {
        Some(DRIVER_OF_CUDA_13..) if !listed(tree).iter().any(is_old) => CUDA_13,
        _ => CUDA_12,
    }
}

/// The advice where the plugin is not installed.
pub(crate) fn cure_of_missing(device: &CudaDevice, packaged: &Packaged) -> String {
    too_old(device, DRIVER_OF_CUDA_12).unwrap_or_else(|| packaged.advice())
}

/// The advice where the plugin is installed and does not open; none if its message says all that is known.
pub(crate) fn cure_of_failure(device: &CudaDevice, plugin: &Path, failure: &str) -> Option<String> {
    let plugin = plugin.to_string_lossy();
    if let Some(too_old) = too_old(device, DRIVER_OF_CUDA_12) {
        return Some(too_old);
    }
    let is_13 = plugin.contains("xla_cuda13");
    if is_13 && too_old(device, DRIVER_OF_CUDA_13).is_some() {
        return Some(format!("its driver has CUDA 12: pip install {}", CUDA_12.package));
    }
    // The plugin looks for NVIDIA's libraries in the Python packages beside its own.
    let lacks_library = failure.replace(&*plugin, "").contains(".so");
    let package = if is_13 { CUDA_13.package } else { CUDA_12.package };
    lacks_library.then(|| format!("pip install {package} brings NVIDIA's libraries"))
}

/// The complaint about a driver that is older than this major version.
fn too_old(device: &CudaDevice, least: u32) -> Option<String> {
    let driver = device.driver.as_deref()?;
    (major(driver)? < least).then(|| format!("its driver {driver} is too old; install {least} or newer"))
}

fn major(version: &str) -> Option<u32> {
    version.split('.').next()?.parse().ok()
}

/// The first word of the `NVRM version:` line that is a version, as in `535.104.05`.
fn driver_version(text: &str) -> Option<String> {
    let is_version = |word: &&str| {
        word.contains('.')
            && word.split('.').all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))
    };
    text.lines().next()?.split_whitespace().find(is_version).map(str::to_owned)
}

fn devices(count: usize) -> String {
    format!("{count} CUDA device{}", if count == 1 { "" } else { "s" })
}

/// Fills in the memory of devices. Where `nvidia-smi` is missing or gives no answer, the memory stays unknown.
pub(crate) fn fill_in_memory(devices: &mut [CudaDevice]) {
    if devices.is_empty() {
        return;
    }
    // Without an answer the table shows the memory as `unknown`.
    if let Ok(totals) = nvidia::total_bytes() {
        assign_memory(&totals, devices);
    }
}

fn assign_memory(totals: &[(String, u64)], devices: &mut [CudaDevice]) {
    for device in devices {
        let own = device.address.as_ref().map(|address| address.to_ascii_lowercase());
        // The domain of an address has eight digits in `nvidia-smi`, and four in /proc.
        let total = totals.iter().find(|(address, _)| own.as_ref().is_some_and(|own| address.ends_with(own)));
        device.memory_bytes = total.map(|(_, bytes)| *bytes).or(device.memory_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_goes_to_the_device_at_the_address() {
        let device = |index, address: &str| CudaDevice {
            index,
            name: "NVIDIA L4".into(),
            address: Some(address.into()),
            memory_bytes: None,
            driver: None,
        };
        let mut devices = [device(0, "0000:C1:00.0"), device(1, "0000:01:00.0"), device(2, "0000:02:00.0")];
        let totals = [("00000000:01:00.0".to_owned(), 23 << 30), ("00000000:c1:00.0".to_owned(), 141 << 30)];
        assign_memory(&totals, &mut devices);
        assert_eq!(devices.map(|device| device.memory_bytes), [Some(141 << 30), Some(23 << 30), None]);
    }
}
