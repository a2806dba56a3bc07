//! Formats sizes and durations for people.

use std::time::Duration;

/// A size with one decimal: `512 B`, `1.5 MiB`, `23.4 GiB`.
///
/// ```
/// assert_eq!(ferrotune_format::bytes(1_572_864), "1.5 MiB");
/// ```
pub fn bytes(count: u64) -> String {
    if count < 1024 {
        return format!("{count} B");
    }
    let (value, unit) = in_unit(count, 1);
    format!("{value:.1} {unit}")
}

/// A size with at most two decimals, for sizes that people know exactly: `15.75 GiB`, `12 GiB`, `512 B`.
///
/// ```
/// assert_eq!(ferrotune_format::precise_bytes(16_909_334_528), "15.75 GiB");
/// ```
pub fn precise_bytes(count: u64) -> String {
    let (value, unit) = in_unit(count, 2);
    let number = format!("{value:.2}");
    format!("{} {unit}", number.trim_end_matches('0').trim_end_matches('.'))
}

/// A size in the first unit in which it reads below 1024 with this number of decimals.
fn in_unit(count: u64, decimals: i32) -> (f64, &'static str) {
    let mut value = count as f64;
    // A number that would round up to 1024 belongs to the next unit.
    let limit = 1024.0 - 0.5 * 10_f64.powi(-decimals);
    for unit in ["B", "KiB", "MiB", "GiB", "TiB"] {
        if value < limit {
            return (value, unit);
        }
        value /= 1024.0;
    }
    (value, "PiB")
}

/// A duration in a suitable unit: `1.25 s`, `3.4 ms`, `17 µs`.
pub fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    match seconds {
        1.0.. => format!("{seconds:.2} s"),
        0.001.. => format!("{:.1} ms", seconds * 1e3),
        _ => format!("{:.0} µs", seconds * 1e6),
    }
}

/// A duration that may be hours long: `8.4 s`, `3 min 20 s`, `2 h 5 min`.
pub fn long_duration(seconds: f64) -> String {
    let whole = seconds.round().max(0.0) as u64;
    match whole {
        0..60 => format!("{seconds:.1} s"),
        60..3600 => format!("{} min {} s", whole / 60, whole % 60),
        _ => format!("{} h {} min", whole / 3600, whole % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_one_decimal_or_two_at_most() {
        for (count, one, two) in [
            (0, "0 B", "0 B"),
            (512, "512 B", "512 B"),
            (1023, "1023 B", "1023 B"),
            (1024, "1.0 KiB", "1 KiB"),
            (100 << 20, "100.0 MiB", "100 MiB"),
            ((1 << 30) - 1, "1.0 GiB", "1 GiB"),
            (16_909_334_528, "15.7 GiB", "15.75 GiB"),
            (19_756_849_562, "18.4 GiB", "18.4 GiB"),
            (3 << 40, "3.0 TiB", "3 TiB"),
            (3 << 60, "3072.0 PiB", "3072 PiB"),
        ] {
            assert_eq!((bytes(count).as_str(), precise_bytes(count).as_str()), (one, two));
        }
    }

    #[test]
    fn durations_have_the_unit_that_fits() {
        assert_eq!(duration(Duration::from_millis(1250)), "1.25 s");
        assert_eq!(duration(Duration::from_micros(3400)), "3.4 ms");
        assert_eq!(duration(Duration::from_nanos(17_300)), "17 µs");
        assert_eq!([8.44, 59.7, 200.0, 7500.0].map(long_duration), ["8.4 s", "1 min 0 s", "3 min 20 s", "2 h 5 min"]);
    }
}
