//! The text of values, cut at a length: a value of a hundred megabytes must not fill a notebook by accident.

use std::fmt::{self, Debug, Display, Write};

/// The largest number of characters of a value that are shown.
pub(crate) const SHOWN_CHARS: usize = 10_000;

/// The beginning of a value's text, with `…` at its end if there is more. The rest is not even formatted.
///
/// ```
/// assert_eq!(ferrotune_display::beginning(&"short", 60), "\"short\"");
/// assert_eq!(ferrotune_display::beginning(&vec![0; 1000], 9), "[0, 0, 0,…");
/// ```
pub fn beginning(value: &dyn Debug, chars: usize) -> String {
    match whole(value, chars) {
        Ok(text) => text,
        Err(cut) => cut + "…",
    }
}

/// A value's text, or, as an error, its first `chars` characters if it is longer.
pub(crate) fn whole(value: &dyn Debug, chars: usize) -> Result<String, String> {
    written(format_args!("{value:?}"), chars)
}

/// A value's text over several lines, in the format `{:#?}`, or, as an error, its first `chars` characters if it is longer.
pub(crate) fn pretty(value: &dyn Debug, chars: usize) -> Result<String, String> {
    written(format_args!("{value:#?}"), chars)
}

fn written(arguments: fmt::Arguments<'_>, chars: usize) -> Result<String, String> {
    let mut beginning = Beginning { text: String::new(), left: chars };
    match beginning.write_fmt(arguments) {
        Ok(()) => Ok(beginning.text),
        Err(fmt::Error) => Err(beginning.text),
    }
}

/// A writer that accepts a number of characters, and then fails.
struct Beginning {
    text: String,
    left: usize,
}

impl Write for Beginning {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for character in text.chars() {
            self.left = self.left.checked_sub(1).ok_or(fmt::Error)?;
            self.text.push(character);
        }
        Ok(())
    }
}

/// A count with commas between thousands.
pub fn grouped(count: impl Display) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_value_is_cut_at_a_character() {
        assert_eq!(whole(&"é", 3), Ok("\"é\"".to_owned()));
        assert_eq!(whole(&"éé", 3), Err("\"éé".to_owned()));
        assert_eq!(pretty(&[1], 20), Ok("[\n    1,\n]".to_owned()));
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }
}
