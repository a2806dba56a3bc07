//! Combines MIME bundles: text below text, HTML below HTML.

use ferrotune_display::{Bundle, escape};

/// The bundle with a paragraph of one or more lines below its content.
pub fn with_note(bundle: &Bundle, note: &str) -> Bundle {
    below(bundle, note, &format!("<p>{}</p>", escape::html(note).replace('\n', "<br>")))
}

/// The bundle with source code below its content.
pub(crate) fn with_code(bundle: &Bundle, code: &str) -> Bundle {
    below(bundle, code, &format!("<pre><code>{}</code></pre>", escape::html(code)))
}

fn below(bundle: &Bundle, text: &str, html: &str) -> Bundle {
    let part = |mime: &str| bundle.data.get(mime).and_then(|value| value.as_str()).unwrap_or_default();
    let text = format!("{}\n\n{text}", part("text/plain"));
    Bundle::text(text).with("text/html", format!("{}{html}", part("text/html")))
}
