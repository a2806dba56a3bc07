//! Sizes as people read them.

/// `15.75 GiB`, `18.4 GiB`, `512 B`: two decimals at most, without trailing zeros.
pub(crate) fn shown(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    // What would round up to 1024 belongs to the next unit.
    while value >= 1023.995 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let number = format!("{value:.2}");
    format!("{} {}", number.trim_end_matches('0').trim_end_matches('.'), UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::shown;

    #[test]
    fn sizes_have_two_decimals_at_most() {
        for (bytes, expected) in [
            (0, "0 B"),
            (512, "512 B"),
            (1024, "1 KiB"),
            (16_909_334_528, "15.75 GiB"),
            (19_756_849_562, "18.4 GiB"),
            ((1 << 30) - 1, "1 GiB"),
            (100 << 20, "100 MiB"),
            (3 << 40, "3 TiB"),
        ] {
            assert_eq!(shown(bytes), expected);
        }
    }
}
