//! The memory of NVIDIA's devices, from `nvidia-smi`. That program opens the driver instead of this process, so this
//! process neither hangs nor dies with the driver.

use crate::child::output;
use std::io;
use std::process::Command;
use std::time::Duration;

/// The time limit of `nvidia-smi`: a faulty driver hangs every caller.
const DEADLINE: Duration = Duration::from_secs(5);

/// The memory of a CUDA device that all processes together use, in bytes; none if `device` (`cpu`, `cuda`, …) is not a
/// visible CUDA device, or if `nvidia-smi` reports no number.
///
/// # Errors
/// If `nvidia-smi` is missing, fails, or does not answer in time.
pub fn used_bytes(device: &str) -> io::Result<Option<u64>> {
    let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
    let Some(id) = id_of(device, visible.as_deref()) else { return Ok(None) };
    let answer = ask("memory.used", Some(&id))?;
    Ok(bytes(&answer))
}

/// The PCI address, in lower case, and the memory in bytes of each of the machine's CUDA devices.
///
/// # Errors
/// If `nvidia-smi` is missing, fails, or does not answer in time.
pub fn total_bytes() -> io::Result<Vec<(String, u64)>> {
    Ok(addresses_and_bytes(&ask("pci.bus_id,memory.total", None)?))
}

fn ask(fields: &str, id: Option<&str>) -> io::Result<String> {
    let mut command = Command::new("nvidia-smi");
    command.arg(format!("--query-gpu={fields}")).arg("--format=csv,noheader,nounits");
    if let Some(id) = id {
        command.args(["--id", id]);
    }
    output(&mut command, DEADLINE)
}

/// The driver's id of a device, because `CUDA_VISIBLE_DEVICES` renumbers devices.
fn id_of(device: &str, visible: Option<&str>) -> Option<String> {
    let ordinal = match device.strip_prefix("cuda")?.trim_start_matches(':') {
        "" => "0",
        ordinal => ordinal,
    };
    match visible.filter(|list| !list.trim().is_empty()) {
        Some(list) => list.split(',').nth(ordinal.parse().ok()?).map(|entry| entry.trim().to_owned()),
        None => Some(ordinal.to_owned()),
    }
}

/// Parses lines such as `00000000:01:00.0, 23034`. A device may have `[N/A]` instead of a number.
fn addresses_and_bytes(answer: &str) -> Vec<(String, u64)> {
    let line = |line: &str| {
        let (address, mebibytes) = line.split_once(',')?;
        Some((address.trim().to_ascii_lowercase(), bytes(mebibytes)?))
    };
    answer.lines().filter_map(line).collect()
}

/// Converts a number of MiB to bytes.
fn bytes(mebibytes: &str) -> Option<u64> {
    mebibytes.trim().parse::<u64>().ok()?.checked_mul(1 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visible_devices_are_renumbered() {
        assert_eq!(id_of("cuda", None).as_deref(), Some("0"));
        assert_eq!(id_of("cuda:1", None).as_deref(), Some("1"));
        assert_eq!(id_of("cuda:1", Some("")).as_deref(), Some("1"));
        assert_eq!(id_of("cuda:1", Some("3, GPU-5")).as_deref(), Some("GPU-5"));
        assert_eq!(id_of("cuda:2", Some("3,5")), None);
        assert_eq!(id_of("cpu", None), None);
    }

    #[test]
    fn answers_are_in_mebibytes() {
        let answer = "00000000:01:00.0, 23034\n00000000:C1:00.0, 143771\n00000000:02:00.0, [N/A]\ngarbage\n";
        let expected = [("00000000:01:00.0".to_owned(), 23_034 << 20), ("00000000:c1:00.0".to_owned(), 143_771 << 20)];
        assert_eq!(addresses_and_bytes(answer), expected);
    }
}
