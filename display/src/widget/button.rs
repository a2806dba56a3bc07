//! A button whose presses a cell can count.

use super::{Widget, fallback};
use crate::{Bundle, Show};
use serde_json::json;
use std::io;

/// A button in the front end. Its copies are the same button.
#[derive(Clone, Debug)]
pub struct Button {
    label: String,
    widget: Widget,
}

/// Makes a button with this label.
///
/// # Errors
/// If the kernel cannot be reached.
///
/// ```
/// let stop = ferrotune_display::widget::button("Stop")?;
/// stop.show();
/// for _ in 0..3 {
///     if stop.presses()? > 0 {
///         break;
///     }
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn button(label: &str) -> io::Result<Button> {
    let widget = Widget::open("Button", "ButtonStyle", json!({"description": label}))?;
    Ok(Button { label: label.to_owned(), widget })
}

impl Button {
    /// The number of presses since the last call. Does not wait.
    ///
    /// # Errors
    /// If the button is closed, or the kernel cannot be reached.
    pub fn presses(&self) -> io::Result<usize> {
        let messages = self.widget.receive()?;
        Ok(messages.iter().filter(|message| message.data["event"] == "click").count())
    }

    control!();
}

impl Show for Button {
    fn bundle(&self) -> Bundle {
        self.widget.bundle_or(fallback(&self.label, "a button"))
    }
}
