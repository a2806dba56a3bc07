//! A progress bar as a widget, at most five updates a second.

use super::{Widget, fallback};
use crate::{Bundle, Show};
use serde_json::json;
use std::io;
use std::time::{Duration, Instant};

const INTERVAL: Duration = Duration::from_millis(200);

/// A progress bar in the front end.
#[derive(Clone, Debug)]
pub struct Bar {
    label: String,
    widget: Widget,
    done: u64,
    total: u64,
    sent_at: Option<Instant>,
}

/// A progress bar that is full at `total`. To follow an iterator, see [`progress`](crate::progress()).
///
/// # Errors
/// A kernel that cannot be reached.
///
/// ```
/// let mut epochs = ferrotune_display::widget::bar("epochs", 3)?;
/// epochs.show();
/// for epoch in 0..3 {
///     epochs.set(epoch + 1)?;
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn bar(label: &str, total: u64) -> io::Result<Bar> {
    // The one control whose view has another name than its model.
    let state = json!({"_view_name": "ProgressView", "description": label, "min": 0, "max": total, "value": 0});
    let widget = Widget::open("IntProgress", "ProgressStyle", state)?;
    Ok(Bar { label: label.to_owned(), widget, done: 0, total, sent_at: None })
}

impl Bar {
    /// Shows that so much is done.
    ///
    /// # Errors
    /// If the bar is closed, or the kernel cannot be reached.
    pub fn set(&mut self, done: u64) -> io::Result<()> {
        self.done = done;
        if done < self.total && self.sent_at.is_some_and(|sent_at| sent_at.elapsed() < INTERVAL) {
            return Ok(());
        }
        self.sent_at = Some(Instant::now());
        self.widget.set("value", done)
    }

    control!();
}

impl Show for Bar {
    fn bundle(&self) -> Bundle {
        self.widget.bundle_or(fallback(&self.label, &format!("{}/{}", self.done, self.total)))
    }
}
