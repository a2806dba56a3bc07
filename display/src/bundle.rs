//! A MIME bundle: one output in several representations. The front end shows the richest one that it knows.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

/// One output in several representations, keyed by MIME type.
///
/// See [Jupyter's `display_data`](https://jupyter-client.readthedocs.io/en/stable/messaging.html#display-data).
///
/// ```
/// use ferrotune_display::Bundle;
/// let bundle = Bundle::text("0.97").with("text/html", "<b>0.97</b>");
/// assert_eq!(bundle.data["text/plain"], "0.97");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bundle {
    /// The representations: text for textual types, base64 for binary ones, JSON for JSON ones.
    pub data: Map<String, Value>,
    /// Metadata, keyed by MIME type if it belongs to one representation.
    pub metadata: Map<String, Value>,
}

impl Bundle {
    /// A bundle with a plain text, which every front end can show.
    pub fn text(text: impl Into<String>) -> Self {
        Self::default().with("text/plain", text.into())
    }

    /// The same bundle with one more representation.
    #[must_use]
    pub fn with(mut self, mime_type: &str, content: impl Into<Value>) -> Self {
        self.data.insert(mime_type.to_owned(), content.into());
        self
    }

    /// The same bundle with content that is given as text. For types that are JSON values in front ends, such as Vega-Lite's plots,
    /// the text becomes such a value if it is JSON.
    ///
    /// ```
    /// use ferrotune_display::Bundle;
    /// let bundle = Bundle::default().with_text("application/vnd.vegalite.v5+json", r#"{"mark": "bar"}"#);
    /// assert_eq!(bundle.data["application/vnd.vegalite.v5+json"]["mark"], "bar");
    /// ```
    #[must_use]
    pub fn with_text(self, mime_type: &str, content: &str) -> Self {
        let value = if is_json(mime_type) { serde_json::from_str(content).ok() } else { None };
        self.with(mime_type, value.unwrap_or_else(|| Value::from(content)))
    }

    /// The same bundle with an image in one of the browsers' formats, such as `image/png`, given as the file's bytes.
    #[must_use]
    pub fn with_image(self, mime_type: &str, file: &[u8]) -> Self {
        self.with(mime_type, STANDARD.encode(file))
    }

    /// The text of one representation; empty if the representation does not exist or is not text.
    pub fn text_of(&self, mime_type: &str) -> &str {
        self.data.get(mime_type).and_then(Value::as_str).unwrap_or_default()
    }
}

/// Whether front ends expect a JSON value and not text: for `application/json`, and all types with the suffix `+json`.
fn is_json(mime_type: &str) -> bool {
    let essence = mime_type.split(';').next().unwrap_or(mime_type).trim();
    essence == "application/json" || essence.ends_with("+json")
}
