//! The parser of sizes and durations as users type them: `4GiB`, `1.5g`, `90s`, `2h`.

/// The number of bytes in a size such as `512MiB`, `4GB`, `1.5g` or a plain number. A unit of one letter is a power of 1024,
/// as in `docker` and `java`.
///
/// # Errors
/// A message about the mistake and the right form, if the text is not a size of at least 1 byte and less than 2^60 bytes.
///
/// ```
/// assert_eq!(ferrotune_magics::bytes("1.5KiB"), Ok(1536));
/// ```
pub fn bytes(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text);
    let factor: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kb" => 1000,
        "mb" => 1000_u64.pow(2),
        "gb" => 1000_u64.pow(3),
        "tb" => 1000_u64.pow(4),
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        _ => return Err("not a size; write it as 512MiB, 4GiB, 4GB or a number of bytes".into()),
    };
    let bytes =
        decimal(number).ok_or("not a size; write it as 512MiB, 4GiB, 4GB or a number of bytes")? * factor as f64;
    // Beyond 2^53 a float skips integers, and no machine has 2^60 bytes.
    if bytes >= (1_u64 << 60) as f64 {
        return Err("more than any machine has".into());
    }
    if bytes < 1.0 {
        return Err("give more than 0".into());
    }
    Ok(bytes as u64)
}

/// The number of seconds in a duration such as `90`, `90s`, `10m`, `2h` or `1d`.
///
/// # Errors
/// A message about the mistake and the right form, if the text is not a duration of more than 0 and at most a hundred years.
///
/// ```
/// assert_eq!(ferrotune_magics::seconds("1.5h"), Ok(5400.0));
/// ```
pub fn seconds(text: &str) -> Result<f64, String> {
    let (number, unit) = split(text);
    let factor = match unit {
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return Err("not a duration; write it as 90s, 10m, 2h or 1d".into()),
    };
    let seconds = decimal(number).ok_or("not a duration; write it as 90s, 10m, 2h or 1d")? * factor;
    // The limit keeps the value in the range of `Duration`, which panics beyond its own limit.
    if seconds > 36_500.0 * 86_400.0 {
        return Err("more than a hundred years; leave it out for no limit".into());
    }
    if seconds <= 0.0 {
        return Err("give more than 0".into());
    }
    Ok(seconds)
}

fn split(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    (&text[..end], text[end..].trim())
}

/// The value of a plain decimal number, without a sign, an exponent or `inf`.
fn decimal(text: &str) -> Option<f64> {
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() => Some(value),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_binary_and_decimal_units() {
        for (text, expected) in [
            ("512MiB", 512 << 20),
            ("4GiB", 4 << 30),
            ("4 GiB", 4 << 30),
            ("4GB", 4_000_000_000),
            ("4gb", 4_000_000_000),
            ("1.5g", 3 << 29),
            ("2T", 2 << 40),
            ("10k", 10_240),
            ("10kB", 10_000),
            ("123456789", 123_456_789),
            ("7b", 7),
        ] {
            assert_eq!(bytes(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in
            ["", "GiB", "4XB", "-4GiB", "1e9", "inf", "nan", "1.2.3g", "0", "0.5", "99999999999GiB", "4GiBß", "٤GiB"]
        {
            assert!(bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_have_units() {
        for (text, expected) in
            [("90", 90.0), ("90s", 90.0), ("10m", 600.0), ("2h", 7200.0), ("1d", 86_400.0), ("0.5h", 1800.0)]
        {
            assert_eq!(seconds(text), Ok(expected), "{text}");
        }
        for text in ["", "s", "0", "0s", "-1", "1y", "inf", "1e3", "99999999d", "1h30m"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
