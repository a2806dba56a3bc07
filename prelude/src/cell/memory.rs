//! The magic `%memit`, which measures the peak memory of Rust code. The kernel writes the calls into a cell. Measures only the memory
//! of the process, not that of accelerators.

use ferrotune_machine::format::bytes;
use ferrotune_machine::own;
use std::io::Error;

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
        own::reset_peak()?;
        self.before_bytes = own::resident_bytes()?;
        body()?;
        self.peak_bytes = own::peak_bytes()?.max(self.before_bytes);
        Ok(())
    }
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
