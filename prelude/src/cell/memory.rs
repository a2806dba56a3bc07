//! The magic `%memit`, which measures the peak memory of Rust code. The kernel writes the calls into a cell. Measures only the memory
//! of the process, not that of accelerators.

use ferrotune_machine::format::bytes;
use std::fs;
use std::io::{Error, Result};

/// Runs Rust code once, and shows the peak memory and its increment over the memory before.
///
/// # Errors
/// The first error of the code or its setup, and an error if the system does not count the process' memory.
pub fn measure<E: From<Error>>(
    mut run: impl FnMut(&mut Gauge) -> std::result::Result<(), E>,
) -> std::result::Result<(), E> {
    let mut gauge = Gauge::default();
    run(&mut gauge)?;
    let increment = gauge.peak_bytes.saturating_sub(gauge.before_bytes);
    crate::display::text(format!("peak memory: {}, increment: {}", bytes(gauge.peak_bytes), bytes(increment)));
    Ok(())
}

/// The process' memory before the measured code, and its peak while the code runs.
#[derive(Debug, Default)]
pub struct Gauge {
    before_bytes: u64,
    peak_bytes: u64,
}

impl Gauge {
    /// Runs the code, and measures the process' memory before it and at its peak.
    ///
    /// # Errors
    /// The code's error, and an error if the system does not count the process' memory.
    pub fn run<E: From<Error>>(
        &mut self,
        mut body: impl FnMut() -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        // Resets the peak to the present memory: https://docs.kernel.org/filesystems/proc.html
        fs::write("/proc/self/clear_refs", "5")?;
        self.before_bytes = held("VmRSS:")?;
        body()?;
        self.peak_bytes = held("VmHWM:")?.max(self.before_bytes);
        Ok(())
    }
}

fn held(name: &str) -> Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let value = status.lines().find_map(|line| line.strip_prefix(name)?.trim().strip_suffix(" kB")?.parse().ok());
    value.map(|kilobytes: u64| kilobytes << 10).ok_or_else(|| Error::other(format!("/proc/self/status has no {name}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_that_of_the_statement() {
        let mut gauge = Gauge::default();
        let taken = gauge.run(|| {
            drop(std::hint::black_box(vec![1_u8; 64 << 20]));
            Ok::<(), Error>(())
        });
        assert!(taken.is_ok());
        let increment = gauge.peak_bytes - gauge.before_bytes;
        assert!((60 << 20..100 << 20).contains(&increment), "{increment}");
        assert!(gauge.run(|| Err(Error::other("stop"))).is_err());
    }
}
