//! What programs have cost, so that a report can name those for which the CPU is faster.

use crate::program::Program;
use ferrotune_devices::runtime::LoadedExecutable;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A careful guess of what candle computes on the CPU: the seconds of a floating-point operation in a product, of an element that another
/// operation makes, and of an operation itself.
const SECONDS_OF_FLOP: f64 = 1e-10;
const SECONDS_OF_ELEMENT: f64 = 1e-9;
const SECONDS_OF_OPERATION: f64 = 2e-6;

/// The compilation must have cost so many times as much as the runs would on the CPU, and at least this long, to be worth a line.
const CLEARLY: f64 = 3.0;
const LEAST: Duration = Duration::from_millis(200);

/// An executable, and what it has cost.
#[derive(Debug)]
pub(crate) struct Executable {
    loaded: LoadedExecutable,
    work: Work,
}

/// What a program computes in a run, and what its compilation has cost.
#[derive(Debug)]
struct Work {
    operations: usize,
    /// The seconds of a run on the CPU, as a careful guess.
    cpu_seconds: f64,
    compilation: Duration,
    runs: AtomicU64,
}

impl Executable {
    /// An executable whose compilation took this time; none if it was loaded.
    pub(crate) fn new(loaded: LoadedExecutable, program: &Program, compilation: Option<Duration>) -> Executable {
        let computed = program.instructions.iter().filter(|instruction| instruction.argument.is_none());
        let (operations, elements) = computed.fold((0, 0.0), |(operations, elements), instruction| {
            (operations + 1, elements + instruction.node.count() as f64)
        });
        let cpu_seconds = program.products_flops() * SECONDS_OF_FLOP
            + elements * SECONDS_OF_ELEMENT
            + operations as f64 * SECONDS_OF_OPERATION;
        let compilation = compilation.unwrap_or_default();
        Executable { loaded, work: Work { operations, cpu_seconds, compilation, runs: AtomicU64::new(0) } }
    }

    /// Counts a run.
    pub(crate) fn count_run(&self) {
        self.work.runs.fetch_add(1, Ordering::Relaxed);
    }

    /// The time of the compilation and a line about it, if the CPU would have computed all runs in much less time.
    pub(crate) fn hint(&self) -> Option<(Duration, String)> {
        self.work.hint()
    }
}

impl Deref for Executable {
    type Target = LoadedExecutable;

    fn deref(&self) -> &LoadedExecutable {
        &self.loaded
    }
}

impl Work {
    fn hint(&self) -> Option<(Duration, String)> {
        let runs = self.runs.load(Ordering::Relaxed);
        let (compilation, on_cpu) = (self.compilation.as_secs_f64(), self.cpu_seconds * runs as f64);
        if runs == 0 || self.operations == 0 || self.compilation < LEAST || compilation < CLEARLY * on_cpu {
            return None;
        }
        let times = if runs == 1 { "once".to_owned() } else { format!("{runs} times") };
        let hint = format!(
            "a program of {} operations was compiled for {compilation:.1} s and ran {times}, for which the CPU takes about {on_cpu:.2} s without \
             a compilation: Device::Cpu is probably faster, up to about {:.0} runs",
            self.operations,
            compilation / self.cpu_seconds,
        );
        Some((self.compilation, hint))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hint(cpu_seconds: f64, compilation: Duration, runs: u64) -> Option<String> {
        Work { operations: 60, cpu_seconds, compilation, runs: AtomicU64::new(runs) }.hint().map(|(_, hint)| hint)
    }

    #[test]
    fn a_step_that_ran_too_seldom_for_its_compilation_is_named() {
        let said = hint(1e-3, Duration::from_secs(4), 50).unwrap_or_default();
        assert_eq!(
            said,
            "a program of 60 operations was compiled for 4.0 s and ran 50 times, for which the CPU takes about 0.05 s without a \
             compilation: Device::Cpu is probably faster, up to about 4000 runs"
        );
        assert_eq!(hint(1e-3, Duration::from_secs(4), 2000), None);
        assert_eq!(hint(1.0, Duration::from_secs(4), 50), None);
        assert_eq!(hint(1e-9, Duration::from_millis(20), 1), None, "nobody waits for it");
        assert_eq!(hint(1e-3, Duration::ZERO, 50), None, "it was loaded");
    }
}
