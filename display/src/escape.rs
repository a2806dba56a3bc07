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

/// A number of bytes for people: `512 B`, `1.5 MiB`, `23.4 GiB`.
///
/// ```
/// assert_eq!(ferrotune_display::escape::bytes(1_572_864), "1.5 MiB");
/// ```
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let mut size = count as f64 / 1024.0;
    let mut unit = 0;
    while size >= 1023.95 && unit + 1 < UNITS.len() {
        size /= 1024.0;
        unit += 1;
    }
    format!("{size:.1} {}", UNITS[unit])
}
