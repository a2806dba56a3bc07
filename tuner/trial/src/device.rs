//! Opens candle devices by name. Chooses none.

use crate::error::{Result, TrialError};
use candle_core::Device;
use ferrotune_devices::fork;

/// Opens a device by its name: `cpu`, `cuda:0`, …
///
/// # Errors Fails if this build has no such device, if candle cannot open it, or if the process is forked from one that
/// had opened an accelerator.
pub fn open_device(device: &str) -> Result<Device> {
    let owned = || device.to_owned();
    match device.split_once(':').unwrap_or((device, "0")) {
        ("cpu", _) => Ok(Device::Cpu),
        ("tpu", _) => Err(TrialError::Tpu { device: owned() }.into()),
        ("cuda", ordinal) => match ordinal.parse() {
            Ok(_) if !candle_core::utils::cuda_is_available() => Err(TrialError::NoCuda { device: owned() }.into()),
            Ok(ordinal) => {
                fork::check()?;
                // Recorded also on failure, because the driver was loaded.
                fork::opened();
                Ok(Device::new_cuda(ordinal)?)
            }
            Err(_) => Err(TrialError::Device { device: owned() }.into()),
        },
        _ => Err(TrialError::Device { device: owned() }.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::open_device;

    #[test]
    fn what_cannot_be_opened_is_said_with_the_cure() {
        assert!(open_device("cpu").is_ok_and(|device| device.is_cpu()));
        let refused = |device| open_device(device).err().map(|error| error.to_string()).unwrap_or_default();
        assert_eq!(
            refused("tpu:0"),
            "candle cannot compute on tpu:0; use ferrotune::devices::pjrt to run programs on TPUs"
        );
        assert!(refused("gpu").starts_with("there is no device `gpu`"), "{}", refused("gpu"));
        assert!(refused("cuda:first").starts_with("there is no device `cuda:first`"));
        if !candle_core::utils::cuda_is_available() {
            assert!(refused("cuda:0").contains("ferrotune install --cuda"), "{}", refused("cuda:0"));
        }
    }
}
