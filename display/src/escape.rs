//! The escape of text for HTML: no text of a user or a trial may become markup.

/// The text with HTML's five special characters escaped, and with U+FFFD for control characters.
///
/// ```
/// assert_eq!(ferrotune_display::escape::html("<a & 'b'>"), "&lt;a &amp; &#39;b&#39;&gt;");
/// ```
pub fn html(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            // XML does not allow these characters, not even escaped.
            other if other.is_control() && !matches!(other, '\n' | '\r' | '\t') => escaped.push('\u{fffd}'),
            other => escaped.push(other),
        }
    }
    escaped
}
