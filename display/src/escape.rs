//! Text for HTML: nothing that a user or a trial wrote may become markup.

/// The text with the five characters that mean something in HTML replaced, and control characters by U+FFFD.
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
            // XML has no such characters, not even escaped.
            other if other.is_control() && !matches!(other, '\n' | '\r' | '\t') => escaped.push('\u{fffd}'),
            other => escaped.push(other),
        }
    }
    escaped
}
