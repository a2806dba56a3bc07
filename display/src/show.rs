//! The functions with which a cell shows output while it runs.

use crate::Bundle;
use ferrotune_link::{KernelFrame, connection};
use serde_json::Value;
use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of characters that are printed of an output that could not be shown.
const SHOWN_AFTER_FAILURE_CHARS: usize = 1000;

thread_local! {
    /// Whether values are shown at once, and not as the cell's result.
    static SHOWS_NOW: Cell<bool> = const { Cell::new(false) };
}

/// A handle to a shown output, which can replace the output, also in a later cell.
#[derive(Clone, Debug)]
pub struct Handle {
    display_id: String,
}

impl Handle {
    /// Replaces the output.
    ///
    /// ```
    /// # use ferrotune_display as display;
    /// let status = display::text("loading");
    /// status.update(display::Bundle::text("loaded"));
    /// ```
    pub fn update(&self, bundle: Bundle) {
        display(bundle, &self.display_id, true);
    }

    /// Shows nothing, if a handle is the last expression of a cell: the output is already there.
    #[doc(hidden)]
    pub fn evcxr_display(&self) {}

    /// The display id of the output in the front end.
    pub fn display_id(&self) -> &str {
        &self.display_id
    }
}

/// Shows a bundle now, below the cell's earlier output.
///
/// If there is no kernel, as in a trial or a plain program, the bundle's text goes to standard output.
pub fn show(bundle: Bundle) -> Handle {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let display_id = format!("ferrotune-{}-{number}", std::process::id());
    display(bundle, &display_id, false);
    Handle { display_id }
}

/// Shows a bundle under a name that the notebook chooses. [`update`] replaces the bundle by that name.
///
/// ```
/// # use ferrotune_display as display;
/// display::show_as("loss", display::Bundle::text("0.93"));
/// display::update("loss", display::Bundle::text("0.41"));
/// ```
pub fn show_as(display_id: impl Into<String>, bundle: Bundle) -> Handle {
    let display_id = display_id.into();
    display(bundle, &display_id, false);
    Handle { display_id }
}

/// Replaces all outputs with a name. A front end ignores a name without outputs.
pub fn update(display_id: &str, bundle: Bundle) {
    display(bundle, display_id, true);
}

/// Shows plain text.
///
/// ```
/// ferrotune_display::text("epoch 3");
/// ```
pub fn text(text: impl Into<String>) -> Handle {
    show(Bundle::text(text))
}

/// Shows HTML; front ends without HTML show the source.
pub fn html(html: impl Into<String>) -> Handle {
    mime("text/html", html.into())
}

/// Shows Markdown.
pub fn markdown(markdown: impl Into<String>) -> Handle {
    mime("text/markdown", markdown.into())
}

/// Shows LaTeX: mathematics between `$` or `$$`, which front ends typeset.
///
/// ```
/// ferrotune_display::latex(r"$\frac{1}{n} \sum_i (y_i - \hat y_i)^2$");
/// ```
pub fn latex(latex: impl Into<String>) -> Handle {
    mime("text/latex", latex.into())
}

/// Shows an SVG picture.
pub fn svg(svg: impl Into<String>) -> Handle {
    show(Bundle::text("<svg picture>").with("image/svg+xml", svg.into()))
}

/// Shows a PNG picture, given as the file's bytes.
pub fn png(bytes: &[u8]) -> Handle {
    show(Bundle::text(format!("<png picture, {} bytes>", bytes.len())).with_image("image/png", bytes))
}

/// Shows a JSON value as a tree.
pub fn json(value: impl Into<Value>) -> Handle {
    let value = value.into();
    show(Bundle::text(format!("{value:#}")).with("application/json", value))
}

/// Shows content of any MIME type: text for textual types and for JSON, base64 for binary ones.
pub fn mime(mime_type: &str, content: impl Into<String>) -> Handle {
    let content = content.into();
    show(Bundle::text(content.as_str()).with_text(mime_type, &content))
}

/// Clears the cell's output; with `wait`, only when the next output arrives, which avoids flicker.
pub fn clear_output(wait: bool) {
    send(&KernelFrame::Clear { wait });
}

/// Shows a bundle as the cell's result, or at once within [`now`].
pub(crate) fn result(bundle: Bundle) {
    if SHOWS_NOW.get() {
        show(bundle);
        return;
    }
    send(&KernelFrame::Result { data: bundle.data, metadata: bundle.metadata });
}

/// Calls a function that shows a cell's result, and shows the value at once instead.
#[doc(hidden)]
pub fn now(shows: impl FnOnce()) {
    let before = SHOWS_NOW.replace(true);
    shows();
    SHOWS_NOW.set(before);
}

fn display(bundle: Bundle, display_id: &str, update: bool) {
    let Bundle { data, metadata } = bundle;
    send(&KernelFrame::Display { data, metadata, display_id: Some(display_id.to_owned()), update });
}

fn send(frame: &KernelFrame) {
    let Err(error) = connection::send(frame) else { return };
    let (KernelFrame::Display { data, .. } | KernelFrame::Result { data, .. }) = frame else { return };
    let text = data.get("text/plain").and_then(Value::as_str).unwrap_or("<no text>");
    if error.kind() == io::ErrorKind::NotConnected {
        #[expect(clippy::print_stdout, reason = "without a kernel, standard output is where a user looks")]
        {
            println!("{text}");
        }
    } else {
        let start: String = text.chars().take(SHOWN_AFTER_FAILURE_CHARS).collect();
        eprintln!("cannot show an output of {} bytes ({error}); it begins: {start}", text.len());
    }
}
