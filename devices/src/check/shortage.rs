//! Reads the memory that a program would need from a compiler's message, whose wording differs between versions.

/// Bytes needed and bytes available, from a message such as `Used 18.40G of 15.75G hbm`.
pub(super) fn read(message: &str) -> Option<(u64, u64)> {
    // The first wording is that of libtpu up to 2025, the second that of later versions.
    between(message, "Used ", " of ", " hbm").or_else(|| between(message, "(", ") exceeds available HBM (", ")"))
}

fn between(message: &str, before: &str, middle: &str, after: &str) -> Option<(u64, u64)> {
    message.match_indices(middle).find_map(|(start, _)| {
        let needed = message[..start].rsplit(before).next()?;
        let available = message[start + middle.len()..].split(after).next()?;
        Some((size(needed)?, size(available)?))
    })
}

/// The number of bytes in a text such as `18.40G`.
fn size(text: &str) -> Option<u64> {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match &text[number.len()..] {
        "" | "B" => 1.0,
        "K" => 1024.0,
        "M" => 1024.0 * 1024.0,
        "G" => 1024.0 * 1024.0 * 1024.0,
        "T" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        _ => return None,
    };
    let value: f64 = number.parse().ok()?;
    (value.is_finite() && value >= 0.0).then_some((value * factor) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_wordings_of_libtpu_are_read() {
        const GIB: u64 = 1 << 30;
        for (message, expected) in [
            (
                "XLA:TPU compile permanent error. Ran out of memory in memory space hbm. Used 32.00G of 15.75G hbm. \
                 Exceeded hbm capacity by 16.25G.",
                Some((32 * GIB, 63 * GIB / 4)),
            ),
            (
                "E1000: CompileTimeHbmOom: Ran out of memory on HBM, the total memory required for HLO temporaries \
                 (48.00G) exceeds available HBM (15.75G). HLO module: big.",
                Some((48 * GIB, 63 * GIB / 4)),
            ),
            ("Used 512.0M of 1.5T hbm", Some((GIB / 2, 1536 * GIB))),
            ("Ran out of memory in memory space vmem.", None),
            ("Used much of little hbm", None),
        ] {
            assert_eq!(read(message), expected, "{message}");
        }
    }
}
