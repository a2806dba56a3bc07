//! What the cell process calls around every cell, and how a cell's last expression is shown.

pub mod store;

use crate::interrupt;
use candle_core::Tensor;
use ferrotune_display::Bundle;
use ferrotune_display::frame::Frame;
use ferrotune_display::link;
use std::any::Any;
use std::fmt::Debug;
use std::io::Write;
use std::panic::PanicHookInfo;
use std::sync::OnceLock;
use std::thread::ThreadId;

/// The thread on which cells run.
static CELL_THREAD: OnceLock<ThreadId> = OnceLock::new();

/// Shows the value of a cell's last expression.
///
/// evcxr calls `evcxr_display` on it. A type with an inherent method of that name shows itself; every other type
/// that is `Debug` and owns what it holds is shown by this trait, so that no cell is compiled twice.
pub trait Show {
    /// Shows the value; nothing for `()`, and the elements of a tensor.
    fn evcxr_display(&self);
}

impl<T: Debug + 'static> Show for T {
    fn evcxr_display(&self) {
        show_value(self, self);
    }
}

fn show_value(value: &dyn Any, text: &dyn Debug) {
    if value.is::<()>() {
        return;
    }
    let text = match value.downcast_ref::<Tensor>() {
        Some(tensor) => tensor.to_string(),
        None => format!("{text:?}"),
    };
    Bundle::text(text).evcxr_display();
}

/// Called once, before the first cell.
#[expect(unsafe_code, reason = "the cell process finds these functions by name")]
#[unsafe(no_mangle)]
pub extern "C" fn ferrotune_start() {
    CELL_THREAD.get_or_init(|| std::thread::current().id());
    std::panic::set_hook(Box::new(report_panic));
    if let Err(error) = interrupt::listen() {
        eprintln!("cells cannot be asked to stop, only ended: {error}");
    }
}

/// Called before every cell.
#[expect(unsafe_code, reason = "the cell process finds these functions by name")]
#[unsafe(no_mangle)]
pub extern "C" fn ferrotune_before_cell() {
    interrupt::reset();
}

/// Called after every cell: what it printed without a line end goes out, too.
#[expect(unsafe_code, reason = "the cell process finds these functions by name")]
#[unsafe(no_mangle)]
pub extern "C" fn ferrotune_after_cell() {
    if let Err(error) = std::io::stdout().flush() {
        eprintln!("what the cell printed last is lost: {error}");
    }
}

/// Sends a panic to the kernel, which makes it the cell's error; where there is none, prints it.
fn report_panic(info: &PanicHookInfo<'_>) {
    let message = info.payload_as_str().unwrap_or("a panic whose payload is no text").to_owned();
    let location = info.location().map(ToString::to_string);
    let thread = std::thread::current();
    let of_cell = CELL_THREAD.get() == Some(&thread.id());
    if of_cell && link::send(&Frame::Panic { message: message.clone(), location: location.clone() }).is_ok() {
        return;
    }
    let name = thread.name().unwrap_or("unnamed");
    eprintln!("thread '{name}' panicked at {}: {message}", location.as_deref().unwrap_or("an unknown place"));
}
