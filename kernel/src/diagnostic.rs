//! Parts of rustc's [diagnostics](https://doc.rust-lang.org/rustc/json.html), as JSON.

use serde_json::Value;

/// The span that a diagnostic is about.
pub(crate) fn primary_span(diagnostic: &Value) -> Option<&Value> {
    diagnostic["spans"].as_array()?.iter().find(|span| span["is_primary"] == true)
}

/// A line or column, which rustc counts from 1.
pub(crate) fn number(span: &Value, name: &str) -> Option<usize> {
    usize::try_from(span[name].as_u64()?).ok()
}

/// A line or column, counted from 0.
pub(crate) fn index(span: &Value, name: &str) -> Option<usize> {
    number(span, name)?.checked_sub(1)
}

/// The part of a span's line that the span is about.
pub(crate) fn highlighted(line: &Value) -> Option<String> {
    let (start, end) = (index(line, "highlight_start")?, index(line, "highlight_end")?);
    Some(line["text"].as_str()?.chars().take(end).skip(start).collect())
}

/// The texts that a suggestion would insert, in backticks.
pub(crate) fn replacements(child: &Value) -> Vec<String> {
    let spans = child["spans"].as_array().into_iter().flatten();
    let texts = spans.filter_map(|span| span["suggested_replacement"].as_str()).map(str::trim);
    texts.filter(|text| !text.is_empty()).map(|text| format!("`{text}`")).collect()
}

/// The message of a suggestion, followed by the suggested texts.
pub(crate) fn with_suggested(message: &str, suggested: &[String]) -> String {
    if suggested.is_empty() { message.to_owned() } else { format!("{message}: {}", suggested.join(", ")) }
}
