//! The magic `%timeit`, which runs Rust code many times and shows the time of one run. The kernel writes the calls into a cell. Knows
//! nothing of the code; a measurement ends early if the user interrupts the cell.

use crate::display::grouped;
use crate::interrupt::interrupted;
use std::time::{Duration, Instant};

/// The shortest time of a measurement, if the user does not set the number of runs.
const MEASUREMENT: Duration = Duration::from_millis(200);

/// The time between two checks for an interrupt.
const BLOCK: Duration = Duration::from_millis(10);

/// Runs measurements and shows a summary; shows nothing if the cell is interrupted.
///
/// # Errors
/// The first error of the timed code or its setup.
pub fn measure<E>(loops: Option<u64>, runs: u64, mut run: impl FnMut(&mut Timer) -> Result<(), E>) -> Result<(), E> {
    let mut timer = Timer { loops: 1, block: 1, taken: Duration::ZERO };
    let mut per_loop = Vec::new();
    // The first run fills caches and makes lazy values.
    run(&mut timer)?;
    timer.settle();
    match loops {
        Some(loops) => timer.loops = loops,
        None => {
            while timer.taken < MEASUREMENT && !interrupted() {
                timer.loops = next_count(timer.loops);
                run(&mut timer)?;
                timer.settle();
            }
        }
    }
    for _ in 0..runs {
        run(&mut timer)?;
        if interrupted() {
            return Ok(());
        }
        per_loop.push(timer.taken.as_secs_f64() / timer.loops as f64);
    }
    crate::display::text(summary(&per_loop, timer.loops));
    Ok(())
}

/// Runs the timed code as often as a measurement needs.
#[derive(Debug)]
pub struct Timer {
    loops: u64,
    /// The number of runs that take about as long as [`BLOCK`].
    block: u64,
    taken: Duration,
}

impl Timer {
    /// Runs the code, and measures its time.
    ///
    /// # Errors
    /// The first error of the code.
    pub fn time<E>(&mut self, mut body: impl FnMut() -> Result<(), E>) -> Result<(), E> {
        let mut error = None;
        self.repeat(&mut || match body() {
            Ok(()) => true,
            Err(cause) => {
                error = Some(cause);
                false
            }
        });
        error.map_or(Ok(()), Err)
    }

    /// Runs `body` as often as needed. The compiler cannot optimise across this call, because the function is in another library than the
    /// cell: no run is left out, and no work is moved out of the loop.
    #[inline(never)]
    fn repeat(&mut self, body: &mut dyn FnMut() -> bool) {
        let mut left = self.loops;
        let started = Instant::now();
        while left > 0 && !interrupted() {
            let block = left.min(self.block);
            for _ in 0..block {
                if !body() {
                    return;
                }
            }
            left -= block;
        }
        self.taken = started.elapsed();
    }

    fn settle(&mut self) {
        let each = self.taken.as_secs_f64() / self.loops as f64;
        self.block = ((BLOCK.as_secs_f64() / each.max(1e-9)) as u64).max(1);
    }
}

/// The next number of runs in the sequence 1, 2, 5, 10, 20, 50, …
fn next_count(count: u64) -> u64 {
    let mut power = 1;
    while power * 10 <= count {
        power *= 10;
    }
    match count / power {
        1 => 2 * power,
        2 => 5 * power,
        _ => 10 * power,
    }
}

/// The summary of measurements in one line, from the seconds of a loop in each.
fn summary(per_loop: &[f64], loops: u64) -> String {
    let count = per_loop.len() as f64;
    let mean = per_loop.iter().sum::<f64>() / count;
    let deviation = (per_loop.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count).sqrt();
    let best = per_loop.iter().copied().fold(f64::INFINITY, f64::min);
    let plural = |count: u64, noun: &str| format!("{} {noun}{}", grouped(count), if count == 1 { "" } else { "s" });
    format!(
        "{} ± {} per loop (mean ± std. dev. of {}, {} each; best {})",
        seconds(mean),
        seconds(deviation),
        plural(per_loop.len() as u64, "run"),
        plural(loops, "loop"),
        seconds(best),
    )
}

/// A time with three digits in a fitting unit: `1.25 s`, `34.1 ms`, `170 µs`, `12 ns`.
fn seconds(seconds: f64) -> String {
    let scale = [(1.0, "s"), (1e-3, "ms"), (1e-6, "µs")].into_iter().find(|(scale, _)| seconds >= 0.9995 * scale);
    let (scale, unit) = scale.unwrap_or((1e-9, "ns"));
    let value = seconds / scale;
    let decimals = match value {
        99.95.. => 0,
        9.995.. => 1,
        _ => 2,
    };
    let number = format!("{value:.decimals$}");
    let number = if decimals == 0 { &number } else { number.trim_end_matches('0').trim_end_matches('.') };
    format!("{number} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_has_three_digits_and_the_unit_that_fits() {
        let expected = "2 µs ± 1 µs per loop (mean ± std. dev. of 2 runs, 100,000 loops each; best 1 µs)";
        assert_eq!(summary(&[1e-6, 3e-6], 100_000), expected);
        let expected = "1.5 s ± 0 ns per loop (mean ± std. dev. of 1 run, 1 loop each; best 1.5 s)";
        assert_eq!(summary(&[1.5], 1), expected);
        let shown = [123e-9, 1.234e-5, 99.96e-3, 0.9996, 75.0].map(seconds);
        assert_eq!(shown, ["123 ns", "12.3 µs", "100 ms", "1 s", "75 s"]);
    }

    #[test]
    fn the_count_grows_until_a_measurement_is_long_enough() {
        let counts: Vec<u64> = std::iter::successors(Some(1), |count| Some(next_count(*count))).take(8).collect();
        assert_eq!(counts, [1, 2, 5, 10, 20, 50, 100, 200]);
        let mut calls = 0;
        measure(Some(3), 2, |timer| {
            timer.time(|| {
                calls += 1;
                Ok::<(), ()>(())
            })
        })
        .unwrap();
        assert_eq!(calls, 1 + 2 * 3);
    }

    #[test]
    fn the_first_error_ends_it() {
        let mut calls = 0;
        let result = measure(None, 7, |timer| {
            timer.time(|| {
                calls += 1;
                if calls == 4 { Err("stop") } else { Ok(()) }
            })
        });
        assert_eq!((result, calls), (Err("stop"), 4));
    }
}
