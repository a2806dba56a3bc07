//! How much memory CUDA devices have, from `nvidia-smi`: it opens the driver so that this process need not.

use super::CudaDevice;
use std::io::Read as _;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// A driver in trouble hangs whoever asks it.
const DEADLINE: Duration = Duration::from_secs(5);

/// Fills in the memory of devices. Where the program is missing or does not answer, it stays unknown, as it was.
pub(crate) fn ask(devices: &mut [CudaDevice]) {
    if devices.is_empty() {
        return;
    }
    let mut command = Command::new("nvidia-smi");
    command.args(["--query-gpu=pci.bus_id,memory.total", "--format=csv,noheader,nounits"]);
    if let Some(answer) = output(&mut command, DEADLINE) {
        read(&answer, devices);
    }
}

/// What a program prints, if it can be run and ends in time.
fn output(command: &mut Command, deadline: Duration) -> Option<String> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
    let mut stdout = child.stdout.take()?;
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut text = String::new();
        // Whoever waited is gone if it took too long.
        if stdout.read_to_string(&mut text).is_ok() && sender.send(text).is_err() {
            eprintln!("ferrotune: nvidia-smi answered too late");
        }
    });
    let answer = receiver.recv_timeout(deadline);
    if let Err(error) = child.kill().and_then(|()| child.wait()) {
        eprintln!("ferrotune: nvidia-smi cannot be ended: {error}");
    }
    answer.ok()
}

/// Lines such as `00000000:01:00.0, 23034`, in MiB.
fn read(answer: &str, devices: &mut [CudaDevice]) {
    for line in answer.lines() {
        let Some((address, mebibytes)) = line.split_once(',') else { continue };
        let Some(bytes) = mebibytes.trim().parse::<u64>().ok().and_then(|mebibytes| mebibytes.checked_mul(1 << 20))
        else {
            continue;
        };
        // The domain has eight digits here, and four in /proc.
        let address = address.trim().to_ascii_lowercase();
        let is_it = |device: &&mut CudaDevice| {
            device.address.as_ref().is_some_and(|own| address.ends_with(&own.to_ascii_lowercase()))
        };
        devices.iter_mut().filter(|device| is_it(device)).for_each(|device| device.memory_bytes = Some(bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn memory_goes_to_the_device_at_the_address() {
        let device = |index, address: &str| CudaDevice {
            index,
            name: "NVIDIA L4".into(),
            address: Some(address.into()),
            memory_bytes: None,
            driver: None,
        };
        let mut devices = [device(0, "0000:c1:00.0"), device(1, "0000:01:00.0"), device(2, "0000:02:00.0")];
        read("00000000:01:00.0, 23034\n00000000:C1:00.0, 143771\n00000000:02:00.0, [N/A]\ngarbage\n", &mut devices);
        let memory = devices.map(|device| device.memory_bytes);
        assert_eq!(memory, [Some(143_771 << 20), Some(23_034 << 20), None]);
    }

    #[test]
    fn a_driver_that_hangs_costs_the_deadline() {
        let started = Instant::now();
        assert_eq!(output(Command::new("sleep").arg("60"), Duration::from_millis(100)), None);
        assert!(started.elapsed() < Duration::from_secs(5));
        assert_eq!(output(Command::new("echo").arg("a"), DEADLINE), Some("a\n".into()));
        assert_eq!(output(&mut Command::new("/nowhere"), DEADLINE), None);
    }
}
