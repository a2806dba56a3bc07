//! Texts of numbers for people.

/// A metric or a parameter with at most six significant digits.
///
/// ```
/// assert_eq!(ferrotune_results::number(0.972_222_222), "0.972222");
/// assert_eq!(ferrotune_results::number(1e-9), "1e-9");
/// ```
pub fn number(value: f64) -> String {
    significant(value, 6)
}

/// Like [`number`], with `digits` significant digits, at least 1.
pub(crate) fn significant(value: f64, digits: usize) -> String {
    // The text comes from `format!`, so parsing it cannot fail.
    let rounded: f64 = format!("{value:.*e}", digits.saturating_sub(1)).parse().unwrap_or(value);
    // Rounding up turns the largest number into infinity.
    let rounded = if rounded.is_finite() { rounded } else { value };
    if rounded != 0.0 && !(1e-4..1e7).contains(&rounded.abs()) { format!("{rounded:e}") } else { rounded.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_keep_their_size() {
        for (value, text) in
            [(0.972_222_222, "0.972222"), (1e-9, "1e-9"), (0.0, "0"), (-12345.678, "-12345.7"), (3.0, "3")]
        {
            assert_eq!(number(value), text);
        }
        assert_eq!(significant(0.123_45, 2), "0.12");
        assert_eq!(significant(f64::MAX, 4), "1.7976931348623157e308");
    }
}
