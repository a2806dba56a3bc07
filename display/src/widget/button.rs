//! A button that a cell asks whether it was pressed.

use super::{Widget, fallback};
use crate::Bundle;
use crate::show::{self, Handle};
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

    /// Shows the button.
    pub fn show(&self) -> Handle {
        show::show(self.bundle())
    }

    /// Shows the button as the value of a cell; evcxr calls it on a cell's last expression.
    pub fn evcxr_display(&self) {
        show::result(self.bundle());
    }

    /// Removes the button from the front end.
    ///
    /// # Errors
    /// If it is closed already.
    pub fn close(&self) -> io::Result<()> {
        self.widget.close()
    }

    fn bundle(&self) -> Bundle {
        self.widget.bundle(fallback(&self.label, "a button"))
    }
}
