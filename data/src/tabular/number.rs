//! Which texts of a file are numbers. A text that could be read in two ways is none.

/// The largest whole number up to which an f64 represents every whole number.
const EXACT: u64 = 1 << 53;

/// What a text is, for the decision whether its column has numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Number {
    /// A number that an f64 represents.
    Plain(f64),
    /// Digits that are no quantity: with zeros in front, as in a postcode, with a plus before more than six of them, as in a telephone
    /// number, or with more digits than an f64 keeps.
    Code(f64),
    /// Infinite, or larger than an f64 can be.
    Infinite,
    /// Digits with commas, which mean thousands in some countries and fractions in others.
    Comma,
    /// Other text.
    No,
}

/// Reads a text without spaces at its ends.
pub(super) fn number(text: &str) -> Number {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    if !unsigned.starts_with(|first: char| first.is_ascii_digit() || first == '.') {
        let is_infinite = ["inf", "infinity"].iter().any(|word| unsigned.eq_ignore_ascii_case(word));
        return if is_infinite { Number::Infinite } else { Number::No };
    }
    match text.parse::<f64>() {
        Ok(number) if number.is_infinite() => Number::Infinite,
        Ok(number) if is_code(text, unsigned) => Number::Code(number),
        Ok(number) => Number::Plain(number),
        Err(_) if has_commas(unsigned) => Number::Comma,
        Err(_) => Number::No,
    }
}

/// The numbers among texts that mean gaps. A code such as `0999` means no number.
pub(super) fn numbers_of(gaps: &[String]) -> Vec<f64> {
    let value = |gap: &String| match number(gap.trim()) {
        Number::Plain(number) => Some(number),
        Number::Infinite => gap.trim().parse().ok(),
        Number::Code(_) | Number::Comma | Number::No => None,
    };
    gaps.iter().filter_map(value).collect()
}

fn is_code(text: &str, unsigned: &str) -> bool {
    let digits = unsigned.bytes().take_while(u8::is_ascii_digit).count();
    let has_zeros = digits > 1 && unsigned.starts_with('0');
    let is_whole = digits == unsigned.len();
    let has_plus = is_whole && digits > 6 && text.starts_with('+');
    has_zeros || has_plus || is_whole && unsigned.parse::<u64>().map_or(true, |number| number > EXACT)
}

fn has_commas(unsigned: &str) -> bool {
    let is_digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    unsigned.contains(',') && unsigned.split([',', '.']).all(is_digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_are_numbers() {
        use Number::{Code, Comma, Infinite, No, Plain};
        let table = [
            ("3", Plain(3.)),
            ("-3.5", Plain(-3.5)),
            ("+2", Plain(2.)),
            ("+4712345678", Code(4_712_345_678.)),
            (".5", Plain(0.5)),
            ("5.", Plain(5.)),
            ("1e3", Plain(1000.)),
            ("0", Plain(0.)),
            ("-0", Plain(-0.)),
            ("0.5", Plain(0.5)),
            ("0123", Code(123.)),
            ("00", Code(0.)),
            ("-007", Code(-7.)),
            ("01.5", Code(1.5)),
            ("9007199254740992", Plain(9_007_199_254_740_992.)),
            ("9007199254740993", Code(9_007_199_254_740_992.)),
            ("9007199254740995", Code(9_007_199_254_740_996.)),
            ("1e400", Infinite),
            ("inf", Infinite),
            ("-Infinity", Infinite),
            ("1,234", Comma),
            ("3,5", Comma),
            ("1.234,56", Comma),
            ("1,a", No),
            ("0x10", No),
            ("1_000", No),
            ("12 %", No),
            ("$5", No),
            ("nan", No),
            ("-", No),
            (".", No),
            ("", No),
            ("1 2", No),
            ("١٢", No),
        ];
        for (text, expected) in table {
            assert_eq!(number(text), expected, "{text}");
        }
    }
}
