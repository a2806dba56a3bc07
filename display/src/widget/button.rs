//! A button that a cell asks whether it was pressed.

use super::{Widget, fallback};
use crate::{Bundle, Show};
use serde_json::json;
use std::io;

/// A button in the front end. Copies of it are the same button.
#[derive(Clone, Debug)]
pub struct Button {
    label: String,
    widget: Widget,
}

/// A button.
///
/// # Errors
/// A kernel that cannot be reached.
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
    /// How often it was pressed since the last call. It does not wait.
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
