//! The error for a program that needs more memory than its device has.

use crate::pjrt::MemoryUse;
use ferrotune_machine::format::precise_bytes;

/// The error for a program that was not run, since its device has less memory than the program needs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this program needs {} of {} on {device} and was not run; make the batch or the model smaller",
    precise_bytes(*needed_bytes),
    precise_bytes(*available_bytes)
)]
pub struct Shortage {
    /// The device's name in messages.
    pub device: String,
    /// The peak of the program's memory during a run, in bytes.
    pub needed_bytes: u64,
    /// The memory of the device, or the budget of the trial, in bytes.
    pub available_bytes: u64,
}

impl Shortage {
    /// The shortage of a program with this memory use, if the available memory is too small.
    pub fn of(memory: &MemoryUse, device: &str, available_bytes: u64) -> Option<Shortage> {
        let needed_bytes = memory.needed_bytes();
        let shortage = || Shortage { device: device.to_owned(), needed_bytes, available_bytes };
        (needed_bytes > available_bytes).then(shortage)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_cannot_fit_is_named_with_both_figures() {
        let gib = |count: u64| count << 30;
        let memory = MemoryUse {
            argument_bytes: gib(12),
            output_bytes: gib(10),
            alias_bytes: gib(4),
            temporary_bytes: gib(2),
            code_bytes: 1,
            peak_bytes: None,
        };
        assert_eq!(Shortage::of(&memory, "tpu", gib(20)), None);
        let shortage = Shortage::of(&memory, "tpu", gib(16)).expect("it is too large");
        let expected =
            "this program needs 20 GiB of 16 GiB on tpu and was not run; make the batch or the model smaller";
        assert_eq!(shortage.to_string(), expected);
        assert_eq!(Shortage::of(&MemoryUse { peak_bytes: Some(gib(15)), ..memory }, "tpu", gib(16)), None);
    }
}
